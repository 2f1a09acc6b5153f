import { countsUpdates, numberTriggers } from '../../numbers/sql/triggers'
import { qualified, quote } from '../../sql/identifier'
import { allEqual, beforeStart, byNumberDown, type NumberTable, scopeOf } from '../../sql/numbers'
import { field, tableName } from '../../sql/text-table'
import { makeFunctions } from '../../sql/trigger-set'
import { dropScopes, makeScopes } from '../../triggers/numbers'
import { alterTable, compareKey, dropFilled, lockInOrder, nameOf, type OrderedTable, own } from './table'

/** A table whose rows get their numbers while others write. */
export interface NumberedTable extends OrderedTable {
  readonly number: NumberTable & { readonly schema: string }
}

/** The indexes that only the adoption needs: one finds rows without a number, the other the highest of a scope. */
const withoutNumber = (on: NumberedTable): string => nameOf(on, 'unnumbered')
const ofNumbers = (on: NumberedTable): string => nameOf(on, 'numbered')

/** The column, the table of scopes and the triggers, for rows that get their numbers from the command. */
export function beginNumbers(on: NumberedTable, hasColumn: boolean): string[] {
  const { number } = on
  return [
    ...alterTable(on, [
      hasColumn ? `ALTER ${quote(number.number)} DROP NOT NULL` : `ADD ${quote(number.number)} ${number.type}`,
    ]),
    makeScopes(number, false),
    ...numberTriggers(number, true).create,
    // It counts what the command writes too, which may leave out the triggers of others.
    ...alterTable(on, number.count ? [`ENABLE ALWAYS TRIGGER ${quote(countsUpdates(number))}`] : []),
  ]
}

/** Both can only fail where somebody has given one number twice. */
export function helpingIndexes(on: NumberedTable): { readonly name: string; readonly create: string }[] {
  const { number, primary } = on
  const [table, column] = [tableName(on.table), quote(number.number)]
  const scoped = [...number.scope.map(({ name }) => quote(name)), column].join(', ')
  return [
    {
      name: withoutNumber(on),
      create:
        `CREATE INDEX CONCURRENTLY ${quote(withoutNumber(on))} ON ${table} (${primary.map(quote).join(', ')}) ` +
        `WHERE ${column} IS NULL`,
    },
    {
      name: ofNumbers(on),
      create: `CREATE UNIQUE INDEX CONCURRENTLY ${quote(ofNumbers(on))} ON ${table} (${scoped}) WHERE ${column} IS NOT NULL`,
    },
  ]
}

/** The unique index over scope and number, as TypeORM makes it, while others write. */
export function createNumberIndex({ number }: NumberedTable): string {
  const columns = [...number.scope.map(({ name }) => name), number.number].map(quote).join(', ')
  return `CREATE UNIQUE INDEX CONCURRENTLY ${quote(number.index)} ON ${tableName(number)} (${columns})`
}

/**
 * Locks rows that have no number, in key order, but for those that somebody else has locked.
 *
 * @param after the key of the row that they come after is in $1, …; otherwise it begins with the first
 */
export const lockUnnumbered = (on: NumberedTable, limit: number, after: boolean): string =>
  lockInOrder(on, [], [`${field('t', on.number.number)} IS NULL`, ...(after ? [compareKey(on, '>', 1)] : [])], limit)

/**
 * Numbers the rows at the spots $1, which are locked, after the highest number of their scope. The statement sees all
 * that was committed before; nobody else gives numbers meanwhile.
 */
export function numberLocked(on: NumberedTable): string {
  const { number, primary } = on
  const [column, scope] = [quote(number.number), scopeOf(number, 'h')]
  const same = allEqual(scopeOf(number, 't'), scope)
  const by = [...scope, ...primary.map((name) => field('h', name))]
  const partition = scope.length === 0 ? '' : `PARTITION BY ${scope.join(', ')} `
  return `WITH placed AS MATERIALIZED (
  SELECT h.ctid AS spot,
    greatest((
      SELECT t.${column} FROM ${own(on)}
       WHERE ${[...same, `t.${column} IS NOT NULL`].join(' AND ')} ORDER BY ${byNumberDown(number, 't')} LIMIT 1
    ), ${beforeStart(number)}) OPERATOR(pg_catalog.+) pg_catalog.row_number() OVER (
      ${partition}ORDER BY ${by.slice(scope.length).join(', ')}) AS number
    FROM ONLY ${tableName(on.table)} AS h
   WHERE h.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[]) AND h.${column} IS NULL)
UPDATE ${own(on)} SET ${column} = p.number
  FROM placed AS p
 WHERE t.ctid OPERATOR(pg_catalog.=) p.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`
}

/** How many rows have no number, of which at most so many are counted. */
export const countUnnumbered = (on: NumberedTable, limit: number): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS rows FROM (
  SELECT FROM ${own(on)} WHERE ${field('t', on.number.number)} IS NULL LIMIT ${limit}) AS r`

/** A row that has one. */
export const findNumbered = (on: NumberedTable): string =>
  `SELECT FROM ${own(on)} WHERE ${field('t', on.number.number)} IS NOT NULL LIMIT 1`

/** The triggers do from now on what they are for; no trigger is made, and no lock but the functions' is taken. */
export function finishNumbers(on: NumberedTable): string[] {
  const { number } = on
  const relation = tableName(on.table)
  const replaced = numberTriggers(number).functions.map((one) => ({ ...one, schema: on.table.schema, relation }))
  return [
    ...makeFunctions({ replaced }),
    ...alterTable(on, number.count ? [`ENABLE TRIGGER ${quote(countsUpdates(number))}`] : []),
  ]
}

/** What only the adoption needed. */
export const endNumbers = (on: NumberedTable): string[] =>
  [withoutNumber(on), ofNumbers(on)].map((name) => `DROP INDEX IF EXISTS ${qualified(on.table.schema, name)}`)

/**
 * Drops triggers, table of scopes and indexes. The column stays, because numbers are data, unless an adoption that is not done
 * has made it.
 */
export function leaveNumbers(on: NumberedTable, made: boolean): string[] {
  const { number, table } = on
  const column = quote(number.number)
  const checks = dropFilled(on, 1 + number.scope.length)
  return [
    ...numberTriggers(number).drop,
    dropScopes(number),
    ...endNumbers(on),
    `DROP INDEX IF EXISTS ${qualified(table.schema, number.index)}`,
    ...alterTable(on, [...checks, made ? `DROP COLUMN IF EXISTS ${column}` : `ALTER ${column} DROP NOT NULL`]),
  ]
}
