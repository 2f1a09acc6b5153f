import { describe, expect, test } from 'vitest'
import { lookupsByPath } from '../../support/sql-lint'

const found = async (sql: string): Promise<string[]> =>
  (await lookupsByPath(sql)).map((one) => `${one.kind} ${one.found}`)

const body = (text: string, declared = ''): string =>
  `CREATE FUNCTION a() RETURNS trigger LANGUAGE plpgsql AS $a$ DECLARE taken pg_catalog.text; ${declared} BEGIN ${text} END $a$`

const pinned = (path: string): string =>
  body('taken := taken || one;').replace(' AS ', ` SET search_path = ${path} AS `)

test('nothing is looked up in a function with SET search_path = pg_catalog, pg_temp', async () => {
  expect(await found(pinned('pg_catalog, pg_temp'))).toEqual([])
})

describe('is looked up by search_path', () => {
  test.each<[sql: string, ...found: string[]]>([
    ['SELECT a = b', 'operator ='],
    ['SELECT a || b', 'operator ||'],
    [body('taken := taken || one;'), 'operator ||'],
    [pinned('public, pg_temp'), 'operator ||'],
    [pinned('pg_temp, pg_catalog'), 'operator ||'],
    [pinned('pg_catalog'), 'operator ||'],
    ['SELECT a OPERATOR(public.=) b', 'operator public.='],
    ['SELECT -a', 'operator -'],
    ['UPDATE t SET a = b = c', 'operator ='],
    ['UPDATE t SET a = 1 WHERE b = 2', 'operator ='],
    ['UPDATE t SET a = 1, b = (SELECT c = d)', 'operator ='],
    [body("RAISE EXCEPTION USING MESSAGE = 'a' || b, TABLE = c;"), 'operator ||'],
    ['SELECT a = ANY (b)', 'operator ='],
    ['SELECT a = ANY (SELECT b)', 'operator ='],
    ['SELECT a IN (SELECT b)', 'construct IN (query)'],
    ['SELECT max(a)', 'function max'],
    ['SELECT public.max(a), pg_catalog.min(b)', 'function public.max'],
    ['SELECT "max"(a)', 'function max'],
    ['SELECT FROM unnest(a) AS u (id)', 'function unnest'],
    ['SELECT a::text', 'type text'],
    ['SELECT a::uuid[]', 'type uuid'],
    ['SELECT CAST(f(a) AS text), CAST(b AS integer)', 'function f', 'type text'],
    ["SELECT date '2000-01-01'", 'type date'],
    [body('', 'a text; b pg_catalog.uuid; c CONSTANT jsonb := 1;'), 'type text', 'type jsonb'],
    [body('', 'a pg_catalog.text := b || c;'), 'operator ||'],
    ['SELECT a IS NOT DISTINCT FROM b', 'construct IS DISTINCT FROM'],
    ['SELECT a NOT IN (b, c)', 'construct IN (list)'],
    ['SELECT a BETWEEN b AND c', 'construct BETWEEN'],
    ['SELECT a LIKE b, c ILIKE d, e SIMILAR TO f', 'construct LIKE', 'construct ILIKE', 'construct SIMILAR TO'],
    ['SELECT NULLIF(a, b)', 'construct NULLIF'],
    ['SELECT CASE a WHEN b THEN c END', 'construct CASE value WHEN'],
    [body('CASE taken WHEN 1 THEN NULL; END CASE;'), 'construct CASE value WHEN'],
    ['SELECT FROM a JOIN b USING (c)', 'construct USING (columns)'],
    ['SELECT FROM a NATURAL JOIN b', 'construct NATURAL JOIN'],
    ['SELECT FROM a ORDER BY b USING <', 'construct ORDER BY USING'],
    ['SELECT a COLLATE "C"', 'collation C'],
    ['SELECT FROM pg_class', 'relation pg_class'],
    [String.raw`SELECT 'a\x', E'a\\x', $a$b\$a$`, 'construct backslash without E'],
    [body(String.raw`taken := 'a\x';`), 'construct backslash without E'],
    ['DO $guard$ BEGIN EXECUTE $q$SELECT a = b$q$; END $guard$', 'operator ='],
    ['DO $a$ BEGIN IF a < b THEN PERFORM c; ELSIF f(d) THEN PERFORM e; END IF; END $a$', 'operator <', 'function f'],
    [
      'DO $a$ DECLARE r record; BEGIN FOR r IN SELECT a = b LOOP PERFORM 1; END LOOP; END $a$',
      'operator =',
      'type record',
    ],
    [
      "DO $a$ DECLARE r record; BEGIN FOR r IN EXECUTE 'SELECT a = b' LOOP END LOOP; END $a$",
      'operator =',
      'type record',
    ],
    [body(`EXECUTE pg_catalog.format('SELECT f(%I), ''x''', a);`), 'function f'],
    [body(`EXECUTE (SELECT pg_catalog.format('SELECT a = %I', b));`), 'operator ='],
    [body(`EXECUTE 'SELECT a = b WHERE ' OPERATOR(pg_catalog.||) taken;`), 'operator ='],
    [body(`taken := pg_catalog.format('%s.%I = %s.%I', a, b, c, d);`), 'operator ='],
    ['CREATE TRIGGER t AFTER UPDATE ON a WHEN (OLD.b <> NEW.b) EXECUTE FUNCTION f()', 'operator <>'],
    ['ALTER TABLE a ADD CONSTRAINT b CHECK (c > 0), ADD d text DEFAULT now()', 'operator >'],
    ['CREATE INDEX a ON b (lower(c) COLLATE "C") WHERE d = 1', 'function lower', 'collation C', 'operator ='],
  ])('%s', async (sql, ...expected) => {
    expect((await found(sql)).toSorted()).toEqual(expected.toSorted())
  })
})

describe('is found without search_path', () => {
  test.each([
    'SELECT a OPERATOR(pg_catalog.=) b, (c OPERATOR(pg_catalog.||) d) IS TRUE',
    'SELECT a OPERATOR(pg_catalog.=) ANY (b), c OPERATOR(pg_catalog.=) ANY (SELECT d)',
    'SELECT pg_catalog.count(*), t.*, * FROM a AS t (b, c)',
    'SELECT FROM unnest(a, b) AS u (c, d)',
    'INSERT INTO "a"."b" AS n ("c") VALUES (1) ON CONFLICT ("c") DO UPDATE SET "c" = EXCLUDED."c", d = 2',
    'WITH a (b) AS MATERIALIZED (SELECT), c (d) AS (VALUES (-1)) SELECT',
    body('GET DIAGNOSTICS taken = ROW_COUNT;'),
    body(`RAISE EXCEPTION USING ERRCODE = 'x', MESSAGE = pg_catalog.concat('a = b', c), TABLE = d;`),
    'SELECT a::pg_catalog.uuid, b::integer, c::character varying(80), d::"my schema"."enum", e::pg_catalog.text[]',
    body('FOR one IN 1..16 LOOP PERFORM one; END LOOP;'),
    body('FOR taken IN SELECT pg_catalog.unnest(a) LOOP PERFORM 1; END LOOP;'),
    'SELECT coalesce(a, b), EXISTS (SELECT), ARRAY(SELECT), CASE WHEN a THEN b END, extract(epoch FROM c)',
    `-- a = b, f(x)\n/* a /* = */ b */ SELECT 'a = b', "a = b", E'a \\' = b'`,
    body('RETURN NULL;', 'one pg_catalog.record; i integer; b "b"%ROWTYPE;'),
    'DROP FUNCTION IF EXISTS "a"(), "b"()',
    'CREATE TRIGGER t AFTER DELETE ON a FOR EACH ROW EXECUTE FUNCTION "f"()',
    body("EXECUTE pg_catalog.format('ALTER TABLE %s DISABLE TRIGGER %1$I', a);"),
    body(`EXECUTE (SELECT a.b FROM a WHERE c OPERATOR(pg_catalog.=) ANY (ARRAY['"f"()']::pg_catalog.regprocedure[]));`),
    body(`EXECUTE pg_catalog.format('DROP TABLE %s', 'f(a)'::pg_catalog.text);`),
  ])('%s', async (sql) => {
    expect(await found(sql)).toEqual([])
  })
})
