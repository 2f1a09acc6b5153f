import { Client } from 'pg'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { recordSentSql } from '../../support/sent-sql'
import { openTour, TOUR, type Tour } from '../../support/tour'

const sql = recordSentSql()
const hostile = `T hostile schema ${process.pid}`
// After the database: to drop ten thousand objects one by one takes more locks than a server has.
afterAll(async () => {
  sql.stop()
  const server = new Client({ connectionString: inject('serverUrl') })
  await server.connect()
  await server.query(`drop role ${quote(hostile)}`)
  await server.end()
})
const db = useDatabase({ wrapped: true })
const client = db.useClient()
let tour: Tour

const TYPES =
  `boolean "char" name bigint smallint int2vector integer regproc text oid tid xid cid oidvector json jsonb xid8
  varchar uuid bytea timestamptz interval regclass aclitem "any[]" record`
    .split(/\s+/)
    .map((type) => (type === '"any[]"' ? 'text[]' : type))
/** Of comparisons; so what TypeORM sends by itself goes on. */
const ANSWERS: Readonly<Record<string, string>> = {
  '=': '$1::pg_catalog.text operator(pg_catalog.=) $2::pg_catalog.text',
  '<>': '$1::pg_catalog.text operator(pg_catalog.<>) $2::pg_catalog.text',
  '||': 'pg_catalog.concat($1, $2)',
}
const OPERATORS = '= <> < > <= >= || & | + - * / % ~ ~~ !~~ ~~* -> ->> @> <@ ?'.split(' ')

/** Of a name, with these arguments and this result. */
const FUNCTIONS: readonly (readonly [name: string, arguments: string, result: string])[] = [
  ...['name', 'text', 'oid', 'integer', 'bigint', 'boolean', 'jsonb', 'regclass', '"char"', 'timestamptz'].flatMap(
    (type): [string, string, string][] => [
      ['format', `text, ${type}`, 'text'],
      ['format', `text, ${type}, ${type}`, 'text'],
      ['jsonb_build_array', type, 'jsonb'],
      ['jsonb_build_array', `${type}, ${type}`, 'jsonb'],
      ['jsonb_build_object', `text, ${type}`, 'jsonb'],
      ['jsonb_build_object', `text, ${type}, text, ${type}`, 'jsonb'],
      ['jsonb_agg', type, 'jsonb'],
      ['to_json', type, 'json'],
      ['to_jsonb', type, 'jsonb'],
      ['concat', `${type}, ${type}`, 'text'],
      ['concat', `text, ${type}`, 'text'],
      ['count', type, 'bigint'],
      ['min', type, type],
      ['max', type, type],
      ['array_agg', type, `${type}[]`],
      ['cardinality', `${type}[]`, 'integer'],
      ['quote_ident', type, 'text'],
      ['left', `${type}, integer`, 'text'],
      ['octet_length', type, 'integer'],
      ['starts_with', `${type}, ${type}`, 'boolean'],
      ['starts_with', `${type}, text`, 'boolean'],
      ['pg_get_expr', `${type}, oid`, 'text'],
      ['format_type', `${type}, integer`, 'text'],
      ['pg_has_role', `oid, oid, ${type}`, 'boolean'],
      ['pg_relation_size', type, 'bigint'],
      ['pg_table_size', type, 'bigint'],
      ['obj_description', `${type}, name`, 'text'],
      ['to_regclass', type, 'regclass'],
      ['current_setting', type, 'text'],
      ['ltrim', `${type}, ${type}`, 'text'],
      ['replace', `${type}, text, text`, 'text'],
      ['md5', type, 'text'],
      ['sum', type, 'bigint'],
      ['acldefault', `"char", ${type}`, 'aclitem[]'],
      ['generate_series', `${type}, ${type}`, `setof ${type}`],
    ],
  ),
  ['unnest', 'text[]', 'setof text'],
  ['unnest', 'int2vector', 'setof smallint'],
  ['generate_series', 'integer, smallint', 'setof integer'],
  ['pg_get_triggerdef', 'oid, boolean', 'text'],
  ['pg_partition_tree', 'oid', 'setof oid'],
  ['aclexplode', 'aclitem[]', 'setof oid'],
  ['sha256', 'bytea', 'bytea'],
]

/** Each notes its call, the statement of the client and whose rights it had, and then answers as the one of pg_catalog. */
async function flood(): Promise<number> {
  await client.query(`create role ${quote(hostile)}; grant create, usage on schema public to ${quote(hostile)};
    create schema watch; grant usage on schema watch to public;
    create table watch.callers (query text, what text, who text); grant all on watch.callers to public;
    set role ${quote(hostile)}`)
  const noted = (what: string, answer: string): string => `begin
    insert into watch.callers values (pg_catalog.current_query(), '${what.replaceAll("'", "''")}', current_user);
    return ${answer}; exception when read_only_sql_transaction then return ${answer}; end`
  const made = OPERATORS.flatMap((symbol, nth) =>
    TYPES.flatMap((left, row) =>
      TYPES.map((right, column) => {
        const returns = symbol === '||' && left !== 'record' ? left : 'boolean'
        const answer = ANSWERS[symbol] ?? 'null'
        return `create function op_${nth}_${row}_${column}(${left}, ${right}) returns ${returns} language plpgsql as
          $hit$ ${noted(`${left} ${symbol} ${right}`, answer)} $hit$;
          create operator ${symbol} (leftarg = ${left}, rightarg = ${right}, function = op_${nth}_${row}_${column})`
      }),
    ),
  )
  for (const [name, given, result] of FUNCTIONS) {
    const answer = result.startsWith('setof')
      ? ''
      : name === 'quote_ident'
        ? 'pg_catalog.quote_ident($1::pg_catalog.text)'
        : 'null'
    made.push(`create function public.${name}(${given}) returns ${result} language plpgsql as
      $hit$ ${noted(`${name}(${given})`, answer)} $hit$`)
  }
  await client.query(`create function pg_temp.make(given pg_catalog.text[]) returns integer language plpgsql as $make$
    declare one pg_catalog.text; made integer := 0; begin
      foreach one in array given loop
        begin execute one; made := made operator(pg_catalog.+) 1;
        -- Of an operator there is one already, by another name of its types.
        exception when duplicate_function or invalid_function_definition then null; end;
      end loop;
      return made; end $make$`)
  const { rows } = await client.query<{ made: number }>('select pg_temp.make($1) as made', [made])
  await client.query('reset role')
  return rows[0]?.made ?? 0
}
let planted = 0

beforeAll(async () => {
  tour = await openTour(db)
  await TOUR['synchronize']?.(tour)
  planted = await flood()
}, 120_000)

/** Calls from statements of ours: whose rights they had, and what was called. */
async function hits(): Promise<string[]> {
  const { rows } = await client.query<Record<'query' | 'who' | 'what', string>>(
    'select query, who, what from watch.callers',
  )
  await client.query('truncate watch.callers')
  const ours = new Set(sql.ours())
  return rows
    .filter(({ query }) => ours.has(query))
    .map(({ who, what, query }) => `${who}: ${what} in ${query.slice(0, 200)}`)
}

test('what is planted is called by who looks it up by search_path', async () => {
  expect(planted).toBeGreaterThan(10_000)
  await client.query(`select 1 from pg_attribute as a where a.attrelid = 'public.page'::regclass`)
  expect((await hits())[0]).toMatch(/^postgres: oid = regclass/)
})

test.each(Object.keys(TOUR).filter((one) => one !== 'synchronize'))(
  '%s calls nothing that another role made',
  async (name) => {
    await TOUR[name]?.(tour)
    const found = await hits()
    expect(found.slice(0, 5)).toEqual([])
  },
)
