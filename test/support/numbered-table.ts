import type { Client } from 'pg'
import { literal, plainName, quote } from '../../src/sql/identifier'
import { isScopeOf, scopeOf } from '../../src/numbers/sql/fragments'
import { type NumberTable, scopesTable } from '../../src/sql/numbers'
import { numberOf } from '../../src/numbers/sql/declared'
import { tableName } from '../../src/sql/text-table'

/** A table `comment` (id, tenant, number, deletedAt, title), numbered within a tenant. */
export function numberTable(given: Partial<NumberTable> = {}): NumberTable {
  return {
    name: 'number',
    schema: undefined,
    table: 'comment',
    scope: [{ name: 'tenant', type: 'integer' }],
    number: 'number',
    type: 'integer',
    index: 'comment_number',
    count: false,
    deleted: undefined,
    triggers: plainName('numbers', 'comment', 'number'),
    ...given,
  }
}

/** The same with a count, and rows that are deleted softly. */
export const countedTable = (given: Partial<NumberTable> = {}): NumberTable =>
  numberTable({ count: true, deleted: 'deletedAt', ...given })

/** SQL types of other columns of a scope than `tenant`. */
export interface NumberedTableOptions {
  /** @default { tenant: 'integer' } */
  readonly scope?: Readonly<Record<string, string>>
  /** The triggers' statements, in place of those as they are. */
  readonly triggers?: readonly string[]
}

let mutated = false

const LIBRARY = ['attach_number', 'detach_number', 'fill_number', 'number_code', 'number_scopes', 'number_drop_scopes']
  .map((name) => `unique_text_${name}_v1`)
  .join(', ')

/** Makes the table anew, with its indexes and triggers. */
export async function createNumberedTable(
  client: Pick<Client, 'query'>,
  table: NumberTable,
  { scope = { tenant: 'integer' }, triggers }: NumberedTableOptions = {},
): Promise<void> {
  const scopes = Object.entries(scope).map(([name, type]) => `${quote(name)} ${type} not null`)
  const name = tableName(table)
  const indexed = table.scope.map((one) => quote(one.name))
  await client.query(`drop table if exists ${name}, ${scopesTable(table)} cascade`)
  await client.query(
    `create table ${name} (${[
      'id bigint generated always as identity primary key',
      ...scopes,
      `${quote(table.number)} ${table.type} not null`,
      '"deletedAt" timestamptz',
      'title text',
    ].join(', ')})`,
  )
  await client.query(
    `create unique index ${quote(table.index)} on ${name} (${[...indexed, quote(table.number)].join(', ')})`,
  )
  // A mutation changes the library.
  if (triggers || mutated) await client.query(`drop function if exists ${LIBRARY}`)
  mutated = triggers !== undefined
  for (const statement of triggers ?? numberOf(table).create) await client.query(statement)
}

/** What the table of scopes says of the scope of each row `r`. */
const said = (table: NumberTable): string =>
  `(select coalesce(sum(k.n), 0)::integer from ${scopesTable(table)} as k
     where ${isScopeOf(table, 'k', 'r').join(' and ')})`

/** The numbers of each scope, in order: `1: 1 2 3; 2: 1`. With a count, it follows: `1: 1 2 3 #3; 2: 1 #1`. */
export async function numbersOf(client: Pick<Client, 'query'>, table: NumberTable): Promise<string> {
  const count = table.count ? `' #' || ${said(table)}` : `''`
  const scope = table.scope.map((one) => `${quote(one.name)}::text`).join(` || '/' || `) || literal('all')
  const { rows } = await client.query<{ shown: string }>(
    `select scope || ': ' || string_agg(number || deleted, ' ' order by number) || max(count) as shown
       from (select ${scope} as scope, ${quote(table.number)} as number, ${count} as count,
                    case when "deletedAt" is null then '' else '~' end as deleted from ${tableName(table)} as r) as r
      group by scope order by scope`,
  )
  return rows.map(({ shown }) => shown).join('; ')
}

/** What contradicts the promises about counts, of every scope; empty where all is well. */
export async function wrongCounts(client: Pick<Client, 'query'>, table: NumberTable): Promise<string[]> {
  const scope = scopeOf(table, 'r').join(', ')
  const { rows } = await client.query<{ wrong: string }>(
    `select row_to_json(w)::text as wrong from (
       select ${scope}, count(*) filter (where "deletedAt" is null) as live, ${said(table)} as said
         from ${tableName(table)} as r group by ${scope}) as w
      where said <> live
     union all
     select row_to_json(k)::text from ${scopesTable(table)} as k
      where k.n <> 0
        and not exists (select from ${tableName(table)} as r where ${isScopeOf(table, 'k', 'r').join(' and ')})`,
  )
  return rows.map(({ wrong }) => wrong)
}

/** Scopes whose numbers are not exactly 1 to n. */
export async function scopesWithGaps(client: Pick<Client, 'query'>, table: NumberTable): Promise<number> {
  const scope = table.scope.map((one) => quote(one.name)).join(', ')
  const number = quote(table.number)
  const { rows } = await client.query(
    `select ${scope} from ${tableName(table)} group by ${scope}
     having min(${number}) <> 1 or max(${number}) <> count(*) or count(distinct ${number}) <> count(*)`,
  )
  return rows.length
}

/** What the table of scopes tells of each scope, by the values of its columns; nothing where nobody counts. */
export async function countsOf(
  client: Pick<Client, 'query'>,
  table: string,
  scope: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const { rows: found } = await client.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class where relkind = 'r' and relname like $1`,
    [`numbers\\_${table}\\_%\\_scopes`],
  )
  const [first] = found
  if (!first) return new Map()
  const key = scope.map((_, position) => `s${position}::text`).join(` || '/' || `)
  const { rows } = await client.query<{ key: string; n: number }>(
    `select ${key || literal('')} as key, sum(n)::integer as n from ${first.name} group by 1 having sum(n) <> 0`,
  )
  return new Map(rows.map(({ key: values, n }) => [values, n]))
}
