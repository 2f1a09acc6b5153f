import { describe, expect, test } from 'vitest'
import { lookupsByPath } from '../../support/sql-lint'

const found = (sql: string): string[] => lookupsByPath(sql).map((one) => `${one.kind} ${one.found}`)

describe('is looked up by search_path', () => {
  test.each<[sql: string, ...found: string[]]>([
    ['SELECT a = b', 'operator ='],
    ['SELECT a || b', 'operator ||'],
    ['taken := taken || one', 'operator ||'],
    ['SELECT a OPERATOR(public.=) b', 'operator ='],
    ['SELECT -a', 'operator -'],
    ['UPDATE t SET a = b = c', 'operator ='],
    ['UPDATE t SET a = 1 WHERE b = 2', 'operator ='],
    ['UPDATE t SET a = 1, b = (SELECT c = d)', 'operator ='],
    ["RAISE EXCEPTION USING MESSAGE = 'a' || b, TABLE = c", 'operator ||'],
    ['SELECT a = ANY (b)', 'operator ='],
    ['SELECT max(a)', 'function max'],
    ['SELECT public.max(a), pg_catalog.min(b)', 'function public.max'],
    ['SELECT "max"(a)', 'function "max"'],
    ['SELECT FROM unnest(a) AS u (id)', 'function unnest'],
    ['SELECT a::text', 'type text'],
    ['SELECT CAST(f(a) AS text), CAST(b AS integer)', 'function f', 'type text'],
    ["SELECT date '2000-01-01'", 'type date'],
    ['DECLARE a text; b pg_catalog.uuid; c CONSTANT jsonb := 1; BEGIN END', 'type text', 'type jsonb'],
    ['SELECT a IS NOT DISTINCT FROM b', 'construct IS DISTINCT FROM'],
    ['SELECT a NOT IN (b, c)', 'construct IN (list)'],
    ['SELECT a BETWEEN b AND c', 'construct BETWEEN'],
    ['SELECT a LIKE b, c ILIKE d, e SIMILAR TO f', 'construct LIKE', 'construct ILIKE', 'construct SIMILAR TO'],
    ['SELECT NULLIF(a, b)', 'construct NULLIF'],
    ['SELECT CASE a WHEN b THEN c END', 'construct CASE value WHEN'],
    ['SELECT FROM a JOIN b USING (c)', 'construct USING (columns)'],
    ['SELECT FROM a NATURAL JOIN b', 'construct NATURAL JOIN'],
    [String.raw`SELECT 'a\x', E'a\\x', $a$'b\'$a$`, 'construct backslash without E', 'construct backslash without E'],
    ['DO $guard$ BEGIN EXECUTE $q$SELECT a = b$q$; END $guard$', 'operator ='],
    [`EXECUTE pg_catalog.format('SELECT f(%I), ''x''', a)`, 'function f'],
    [`EXECUTE (SELECT pg_catalog.format('SELECT a = %I', b))`, 'operator ='],
    ['CREATE TRIGGER t AFTER UPDATE ON a WHEN (OLD.b <> NEW.b) EXECUTE FUNCTION f()', 'operator <>'],
  ])('%s', (sql, ...expected) => {
    expect(found(sql)).toEqual(expected)
  })
})

describe('is found without search_path', () => {
  test.each([
    'SELECT a OPERATOR(pg_catalog.=) b, (c OPERATOR(pg_catalog.||) d) IS TRUE',
    'SELECT a OPERATOR(pg_catalog.=) ANY (b)',
    'SELECT pg_catalog.count(*), t.*, * FROM a AS t (b, c)',
    'INSERT INTO "a"."b" AS n ("c") VALUES (1) ON CONFLICT ("c") DO UPDATE SET "c" = EXCLUDED."c", d = 2',
    'WITH a (b) AS MATERIALIZED (SELECT), c (d) AS (VALUES (-1)) SELECT',
    'GET DIAGNOSTICS done = ROW_COUNT',
    `RAISE EXCEPTION USING ERRCODE = 'x', MESSAGE = pg_catalog.concat('a = b', c), TABLE = d;`,
    'SELECT a::pg_catalog.uuid, b::integer, c::character varying(80), d::"my schema"."enum", e::pg_catalog.text[]',
    'FOR one IN 1..16 LOOP END LOOP',
    'FOR one IN SELECT pg_catalog.unnest(a) LOOP END LOOP',
    'SELECT coalesce(a, b), EXISTS (SELECT), ARRAY(SELECT), CASE WHEN a THEN b END',
    `-- a = b, f(x)\n/* a /* = */ b */ SELECT 'a = b', "a = b", E'a \\' = b'`,
    'CREATE FUNCTION a() RETURNS trigger LANGUAGE plpgsql AS $a$ DECLARE one record; BEGIN RETURN NULL; END $a$',
    'DROP FUNCTION IF EXISTS "a"(), "b"()',
    'CREATE TRIGGER t AFTER DELETE ON a FOR EACH ROW EXECUTE FUNCTION "f"()',
    "EXECUTE pg_catalog.format('ALTER TABLE %s DISABLE TRIGGER %1$I', a)",
    `EXECUTE (SELECT a.b FROM a WHERE c OPERATOR(pg_catalog.=) ANY (ARRAY['"f"()']::pg_catalog.regprocedure[]))`,
    `EXECUTE pg_catalog.format('DROP TABLE %s', 'f(a)'::pg_catalog.text)`,
    'DECLARE a "b"%ROWTYPE; BEGIN END',
  ])('%s', (sql) => {
    expect(found(sql)).toEqual([])
  })
})

test('a finding tells its line, in dollar quotes too', () => {
  const sql = 'DO $a$\nBEGIN\n  -- it is\n  PERFORM a = b;\nEND\n$a$'
  expect(lookupsByPath(sql)).toEqual([{ kind: 'operator', found: '=', line: 4, near: 'PERFORM a = b;' }])
})
