import { createHash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { fillHashes, guardOf } from '../../../src/triggers/guard'
import { quote } from '../../../src/sql/identifier'
import { addCheck, addIndex } from '../../../src/sql/alter'
import { ensureLibrary } from '../../../src/sql/library'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { CHAIN, textTable, violations } from '../../support/guarded-table'
import { gatePart } from '../../support/gate-part'

const db = useDatabase()
// Roles belong to the whole server, so their names hold the database's.
const suffix = createHash('sha256').update(db.url).digest('hex').slice(0, 8)
const [owner, attacker, writer] = ['owner', 'attacker', 'writer'].map((one) => `T ${one} ${suffix}`) as [
  string,
  string,
  string,
]

const client = db.useClient()

beforeAll(async () => {
  for (const role of [owner, attacker, writer]) await client.query(`create role ${quote(role)}`)
})
afterAll(async () => {
  await client.query('reset role; drop schema if exists s cascade; drop schema if exists spied cascade')
  for (const role of [owner, attacker, writer]) {
    await client.query(`drop owned by ${quote(role)} cascade; drop role ${quote(role)}`)
  }
})

const as = async (role: string, ...statements: readonly string[]): Promise<void> => {
  await client.query(`set role ${quote(role)}`)
  for (const statement of statements) await client.query(statement)
  await client.query('reset role')
}

/** Whose rights the attacker's code has had. */
const victims = async (): Promise<string[]> => {
  const { rows } = await client.query<{ name: string }>('select distinct name from spied.victims order by 1')
  return rows.map(({ name }) => name)
}

beforeEach(async () => {
  await client.query(
    `reset role; drop schema if exists s cascade; drop schema if exists spied cascade; create schema s; create schema spied;
     create table spied.victims (name text); grant usage on schema spied to public; grant insert on spied.victims to public;
     grant usage, create on schema s to ${quote(owner)}, ${quote(attacker)}; grant usage on schema s to ${quote(writer)};
     create function spied.tried(statements text[]) returns integer language plpgsql as $$
       declare one text; made integer := 0;
       begin
         foreach one in array statements loop
           begin execute one; made := made + 1; exception when others then null; end;
         end loop;
         return made;
       end $$;
     set search_path to s`,
  )
  await as(
    owner,
    `create type mood as enum ('sad', 'glad')`,
    'create domain label as text',
    'create domain amount as integer',
  )
})

interface Case {
  readonly type: string
  readonly values: readonly [string, string]
  readonly text?: string
}

const CASES: readonly Case[] = [
  { type: 'integer', values: ['1', '2'] },
  { type: 'text', values: ['x', 'y'] },
  { type: 'varchar(20)', values: ['x', 'y'], text: 'varchar' },
  { type: 'uuid', values: [`${'0'.repeat(31)}1`, `${'0'.repeat(31)}2`] },
  { type: 'numeric(10,2)', values: ['1.5', '2'], text: 'varchar(80)' },
  { type: 'mood', values: ['sad', 'glad'] },
  { type: 'label', values: ['x', 'y'] },
  { type: 'amount', values: ['1', '2'] },
  { type: 'integer[]', values: ['{1}', '{2}'] },
  { type: 'text[]', values: ['{x}', '{y}'] },
  { type: 'int4range', values: ['[1,2)', '[2,3)'] },
  { type: 'cidr', values: ['10.0.0.0/8', '11.0.0.0/8'] },
  { type: 'date', values: ['2000-01-01', '2000-01-02'] },
  { type: 'timestamptz', values: ['2000-01-01', '2000-01-02'] },
]

const TYPES = `
  integer bigint smallint text varchar name uuid bytea numeric boolean oid mood label amount integer[]
  text[] name[] varchar[] oid[] bigint[] int4range cidr inet date timestamptz "char" regclass regprocedure
  jsonb tid record anyarray anyenum anyrange anyelement anycompatible anycompatiblearray`
  .trim()
  .split(/\s+/)
const OPERATORS = ['=', '<>', '||', '>', '<', '>=', '<=', '+', '-', '~', '~~']
/** Of mixed types too: what needs no coercion beats what does. */
const PAIRS: readonly (readonly [left: string, right: string])[] = [
  ...TYPES.map((type) => [type, type] as const),
  ['integer', 'bigint'],
  ['bigint', 'integer'],
  ['text', 'varchar'],
  ['varchar', 'text'],
  ['text', 'name'],
  ['name', 'text'],
  ['label', 'text'],
  ['cidr', 'inet'],
  ['text', 'anyelement'],
  ['anyarray', 'anyelement'],
  ['anycompatiblearray', 'anycompatible'],
]
const FUNCTIONS = `
  md5(text); md5(varchar); md5(label); substr(text, integer, integer); sha256(bytea); lower(text);
  coalesce(text, text); min(integer); max(integer); count(integer); count(); format(text, text);
  format(text, name, text, text, text, text); unnest(name[]); jsonb_build_object(name, integer);
  concat(text); jsonb_populate_record(record, jsonb); string_agg(text, text); array_agg(name);
  convert_to(text, text); pg_table_is_visible(oid); set_config(text, text, boolean); current_setting(text);
  row_number(); uuid(text); text(integer); text(varchar); text(mood); text(label); name(text);
  varchar(text); aclexplode(aclitem[]);`
  .split(/;\s*/)
  .filter(Boolean)
  .map((one) => one.trim())

const spy = (name: string, parameters: string, returns: string): string =>
  `create function ${name}(${parameters}) returns ${returns} language plpgsql as
     'begin insert into spied.victims values (current_user); return null; end'`

/** Everything that a role can make which may CREATE in the schema; what the server refuses is no way in. */
const ATTACKS: readonly string[] = [
  ...PAIRS.flatMap(([left, right], nth) => [
    spy(`s.spy_${nth}`, `${left}, ${right}`, 'boolean'),
    ...OPERATORS.map(
      (one) => `create operator s.${one} (function = s.spy_${nth}, leftarg = ${left}, rightarg = ${right})`,
    ),
    `${spy(`s.join_${nth}`, `${left}, ${right}`, left.startsWith('any') ? 'text' : left)};
     drop operator if exists s.|| (${left}, ${right});
     create operator s.|| (function = s.join_${nth}, leftarg = ${left}, rightarg = ${right})`,
  ]),
  ...FUNCTIONS.map((one) => {
    const [, name = '', parameters = ''] = /^(\w+)\((.*)\)$/.exec(one) ?? []
    return spy(`s.${quote(name)}`, parameters, 'text')
  }),
  ...['mood', 'label', 'amount', 'integer', 'text'].flatMap((from) =>
    ['text', 'integer', 'uuid'].map(
      (to) => `${spy(`s.cast_${from}_${to}`, from, to)};
        create cast (${from} as ${to}) with function s.cast_${from}_${to}(${from}) as implicit`,
    ),
  ),
  `create collation s."C" (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`,
  `create function s."current_user"() returns name language sql as 'select null::name'`,
]

/** How many of them the server has let the role make. */
async function attack(): Promise<number> {
  await client.query(`set role ${quote(attacker)}; set search_path to s`)
  const { rows } = await client.query<{ made: number }>('select spied.tried($1) as made', [ATTACKS])
  await client.query('reset role')
  return rows[0]?.made ?? 0
}

/** As a migration does it, on a path that holds the schema; `rows` stand there already. */
async function install(table: TextTable, { type, text = 'text' }: Case, rows: readonly string[]): Promise<void> {
  await as(
    owner,
    `create table page (id integer generated by default as identity primary key, tenant ${type} not null, url ${text} not null,
       title text, "urlHash" uuid, "urlHashNumber" integer not null default 0, "urlHashChained" boolean not null default false)`,
    ...rows.map((values) => `insert into page (tenant, url) values ${values}`),
    ensureLibrary(table.schema, 'rows'),
    fillHashes(table),
    'alter table page alter "urlHash" set not null',
    ...addIndex(table).up,
    ...addCheck(table).up,
    ...guardOf(table).create,
    `grant insert, update, delete, select on page to ${quote(writer)}`,
  )
}

/** Only what the statements themselves look up runs as the writer: they have literals of the columns' own types. */
async function write({ values: [one, other] }: Case): Promise<void> {
  const inserted = (scope: string, ...texts: readonly string[]): string =>
    `insert into s.page (tenant, url) values ${texts.map((text) => `('${scope}', '${text}')`).join(', ')}`
  const where = (text: string): string => `url operator(pg_catalog.=) '${text}'::pg_catalog.text`
  const refused = async (statement: string): Promise<void> => {
    await expect(client.query(statement)).rejects.toMatchObject({ code: '23505', constraint: 'page url' })
  }
  await client.query(`set role ${quote(writer)}; set search_path to pg_catalog`)
  await client.query(inserted(one, 'a1'))
  await client.query(inserted(one, 'a2', 'a3', 'b1'))
  await client.query(inserted(other, 'a1', 'a2'))
  await refused(inserted(one, 'a1'))
  await refused(inserted(one, 'a3'))
  await client.query(`update s.page set url = 'c1' where ${where('b1')}`)
  await client.query(`update s.page set url = 'a4' where ${where('c1')}`)
  await client.query(`update s.page set title = 'x'`)
  await client.query(`delete from s.page where ${where('a1')}`)
  await refused(`update s.page set tenant = '${one}' where ${where('d1')} and tenant operator(pg_catalog.=) '${other}'`)
  await client.query(`update s.page set tenant = '${other}' where ${where('a3')}`)
  await client.query(`update s.page set "urlHash" = null, "urlHashNumber" = 7 where ${where('a4')}`)
}

/** What triggers, checks and indexes of the table are bound to. */
async function boundTo(): Promise<unknown[]> {
  const { rows } = await client.query<{ object: string }>(
    `select distinct pg_describe_object(d.refclassid, d.refobjid, 0) as object from pg_depend as d
      where (d.classid = 'pg_trigger'::regclass and d.objid in (select oid from pg_trigger where tgrelid = 's.page'::regclass)
         or d.classid = 'pg_constraint'::regclass and d.objid in (select oid from pg_constraint where conrelid = 's.page'::regclass)
         or d.classid = 'pg_class'::regclass and d.objid in (select indexrelid from pg_index where indrelid = 's.page'::regclass))
        and (d.refclassid = 'pg_operator'::regclass and d.refobjid in (select oid from pg_operator where oprowner = $1::regrole)
         or d.refclassid = 'pg_proc'::regclass and d.refobjid in (select oid from pg_proc where proowner = $1::regrole)
         or d.refclassid = 'pg_collation'::regclass and d.refobjid in (select oid from pg_collation where collowner = $1::regrole))`,
    [quote(attacker)],
  )
  return rows.map(({ object }) => object)
}

describe.each(gatePart(3, CASES))(
  'code of a role that may CREATE in the schema, with a scope of type $type',
  (each) => {
    const table = textTable({ scope: ['tenant'] })

    test.each(['before', 'after'])('is neither bound nor run where it came %s the migration', async (when) => {
      const [one, other] = each.values
      let made = when === 'before' ? await attack() : 0
      await install(table, each, [`('${one}', 'd1'), ('${one}', 'd2'), ('${other}', 'd1')`])
      if (when === 'after') made = await attack()
      expect(made).toBeGreaterThan(200)
      await write(each)
      await client.query('reset role; set search_path to pg_catalog, s')
      expect(await victims()).toEqual([])
      expect(await boundTo()).toEqual([])
      // What this test asks by must not be the attacker's.
      await client.query(`drop owned by ${quote(attacker)}`)
      expect(await violations(client, table)).toEqual([])
      const { rows } = await client.query('select count(*)::integer as held from page')
      expect(rows).toEqual([{ held: 7 }])
    })
  },
)

test('the attack is one: an operator that is looked up by search_path is the hostile one', async () => {
  await attack()
  for (const sql of [
    `'a'::varchar = 'b'::varchar`,
    `'sad'::s.mood <> 'glad'::s.mood`,
    `'{1}'::bigint[] || '{2}'::bigint[]`,
    `'10.0.0.0/8'::cidr is distinct from '11.0.0.0/8'::cidr`,
    `row('sad'::s.mood) is not distinct from row('glad'::s.mood)`,
  ]) {
    await client.query('truncate spied.victims')
    await client.query(`set search_path to pg_catalog, s; do $$ begin perform ${sql}; end $$`)
    expect({ sql, victims: await victims() }).toEqual({ sql, victims: ['postgres'] })
  }
})

describe("what the schema's owner does, who does not own the table", () => {
  const table = textTable({ scope: ['tenant'] })
  const each: Case = { type: 'integer', values: ['1', '2'] }
  const OWN = table.guard
  const SPY = `'begin insert into spied.victims values (current_user); return coalesce(new, old); end'`

  beforeEach(async () => {
    await install(table, each, [])
    await client.query(`alter schema s owner to ${quote(attacker)}`)
    await as(writer, `insert into s.page (tenant, url) values (1, 'a1'), (1, 'a2'), (1, 'a3')`)
  })

  test.each([OWN, CHAIN])('cannot change the function %s, nor have another run', async (name) => {
    await client.query(`set role ${quote(attacker)}`)
    for (const statement of [
      `create or replace function s.${name}() returns trigger language plpgsql as ${SPY}`,
      `alter function s.${name}() set search_path to s`,
      `alter function s.${name}() owner to ${quote(attacker)}`,
      `drop function s.${name}()`,
    ]) {
      await expect(client.query(statement)).rejects.toMatchObject({
        code: expect.stringMatching(/^(?:42501|2BP01)$/),
      })
    }
    // A schema's owner may drop what others have in it.
    await client.query(`drop function s.${name}() cascade`)
    await client.query(`create function s.${name}() returns trigger language plpgsql as ${SPY}`)
    await client.query(`set role ${quote(writer)}`)
    for (const statement of [
      `insert into s.page (tenant, url) values (1, 'a4'), (1, 'b1')`,
      `update s.page set url = 'b2' where url = 'a2'`,
      `update s.page set title = 'x'`,
      `delete from s.page where url = 'a1'`,
    ]) {
      // Without a trigger a write may be refused by NOT NULL and the check.
      await client.query(statement).catch(() => undefined)
    }
    await client.query('reset role')
    expect(await victims()).toEqual([])
  })
})
