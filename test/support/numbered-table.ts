import type { Client } from 'pg'
import { literal, quote } from '../../src/sql/identifier'
import { holdsCount, type NumberTable } from '../../src/sql/number-table'
import { numberTriggers } from '../../src/sql/number-triggers'
import { tableName } from '../../src/sql/text-table'

/** A table `comment` (id, tenant, number, count, deletedAt, title), numbered within a tenant. */
export function numberTable(given: Partial<NumberTable> = {}): NumberTable {
  return {
    name: 'number',
    schema: undefined,
    table: 'comment',
    scope: [{ name: 'tenant', textual: false }],
    number: 'number',
    index: 'comment_number',
    count: undefined,
    deleted: undefined,
    triggers: 'numbers_comment.number',
    ...given,
  }
}

/** The same with a count, and rows that are deleted softly. */
export const countedTable = (given: Partial<NumberTable> = {}): NumberTable =>
  numberTable({ count: 'number count', deleted: 'deletedAt', ...given })

/** SQL types of other columns of a scope than `tenant`. */
export interface NumberedTableOptions {
  /** @default { tenant: 'integer' } */
  readonly scope?: Readonly<Record<string, string>>
  /** The triggers' statements, in place of those as they are. */
  readonly triggers?: readonly string[]
}

/** Makes the table anew, with its indexes and triggers. */
export async function createNumberedTable(
  client: Pick<Client, 'query'>,
  table: NumberTable,
  { scope = { tenant: 'integer' }, triggers = numberTriggers(table).create }: NumberedTableOptions = {},
): Promise<void> {
  const scopes = Object.entries(scope).map(([name, type]) => `${quote(name)} ${type} not null`)
  const name = tableName(table)
  const indexed = table.scope.map((one) => quote(one.name))
  await client.query(`drop table if exists ${name} cascade`)
  await client.query(
    `create table ${name} (${[
      'id bigint generated always as identity primary key',
      ...scopes,
      `${quote(table.number)} integer not null`,
      ...(table.count === undefined ? [] : [`${quote(table.count)} integer`]),
      '"deletedAt" timestamptz',
      'title text',
    ].join(', ')})`,
  )
  await client.query(
    `create unique index ${quote(table.index)} on ${name} (${[...indexed, quote(table.number)].join(', ')})`,
  )
  if (table.count !== undefined) {
    await client.query(`create unique index on ${name} (${indexed.join(', ')}) where ${holdsCount(table)}`)
  }
  for (const statement of triggers) await client.query(statement)
}

/** The numbers of each scope, in order: `1: 1 2 3; 2: 1`. A row that holds the count shows it: `1=3`. */
export async function numbersOf(client: Pick<Client, 'query'>, table: NumberTable): Promise<string> {
  const count = table.count === undefined ? `''` : `coalesce('=' || ${quote(table.count)}, '')`
  const scope = table.scope.map((one) => `${quote(one.name)}::text`).join(` || '/' || `) || literal('all')
  const { rows } = await client.query<{ shown: string }>(
    `select scope || ': ' || string_agg(number || count || deleted, ' ' order by number) as shown
       from (select ${scope} as scope, ${quote(table.number)} as number, ${count} as count,
                    case when "deletedAt" is null then '' else '~' end as deleted from ${tableName(table)}) as r
      group by scope order by scope`,
  )
  return rows.map(({ shown }) => shown).join('; ')
}

/** What contradicts the promises about counts, of every scope; empty where all is well. */
export async function wrongCounts(client: Pick<Client, 'query'>, table: NumberTable): Promise<string[]> {
  const scope = table.scope.map((one) => quote(one.name)).join(', ')
  const count = quote(table.count ?? '')
  const { rows } = await client.query<{ wrong: string }>(
    `select row_to_json(r)::text as wrong from (
       select ${scope}, count(*) filter (where "deletedAt" is null) as live, count(${count}) as holders, max(${count}) as said
         from ${tableName(table)} group by ${scope}) as r
      where holders <> 1 or said <> live`,
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
