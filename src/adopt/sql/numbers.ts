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

/** The indexes that only the adoption needs. One finds rows without a number, the other the highest of a scope. */
const withoutNumber = (on: NumberedTable): string => nameOf(on, 'unnumbered')
const ofNumbers = (on: NumberedTable): string => nameOf(on, 'numbered')

/** Creates the column, the table of scopes and the triggers. The command numbers the rows. */
export function beginNumbers(on: NumberedTable, hasColumn: boolean): string[] {
  const { number } = on
  return [
    ...alterTable(on, [
      hasColumn ? `ALTER ${quote(number.number)} DROP NOT NULL` : `ADD ${quote(number.number)} ${number.type}`,
    ]),
    makeScopes(number, false),
    ...numberTriggers(number, true).create,
    // The command may skip the user's triggers, but this trigger must count its writes too.
    ...alterTable(on, number.count ? [`ENABLE ALWAYS TRIGGER ${quote(countsUpdates(number))}`] : []),
  ]
}

/** The indexes of the adoption. Their creation fails only if a number exists twice in a scope. */
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

/** Creates the unique index over scope and number as TypeORM does, while others write. */
export function createNumberIndex({ number }: NumberedTable): string {
  const columns = [...number.scope.map(({ name }) => name), number.number].map(quote).join(', ')
  return `CREATE UNIQUE INDEX CONCURRENTLY ${quote(number.index)} ON ${tableName(number)} (${columns})`
}

/**
 * Locks rows that have no number, in key order, and skips rows that another session has locked.
 *
 * @param after whether $1, … are the key of the preceding row; otherwise the range begins with the first row
 */
export const lockUnnumbered = (on: NumberedTable, limit: number, after: boolean): string =>
  lockInOrder(on, [], [`${field('t', on.number.number)} IS NULL`, ...(after ? [compareKey(on, '>', 1)] : [])], limit)

/**
 * Numbers the rows at the spots $1, which are locked, after the highest number of their scope. The statement sees all
 * that was committed before. No other session assigns numbers meanwhile.
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

/** Counts the rows without a number, up to the limit. */
export const countUnnumbered = (on: NumberedTable, limit: number): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS rows FROM (
  SELECT FROM ${own(on)} WHERE ${field('t', on.number.number)} IS NULL LIMIT ${limit}) AS r`

/** Finds a row that has a number. */
export const findNumbered = (on: NumberedTable): string =>
  `SELECT FROM ${own(on)} WHERE ${field('t', on.number.number)} IS NOT NULL LIMIT 1`

/** Replaces the functions of the triggers with the final ones. Makes no trigger. Only `count` takes a table lock. */
export function finishNumbers(on: NumberedTable): string[] {
  const { number } = on
  const relation = tableName(on.table)
  const replaced = numberTriggers(number).functions.map((one) => ({ ...one, schema: on.table.schema, relation }))
  return [
    ...makeFunctions({ replaced }),
    ...alterTable(on, number.count ? [`ENABLE TRIGGER ${quote(countsUpdates(number))}`] : []),
  ]
}

/** Drops the indexes that only the adoption needed. */
export const endNumbers = (on: NumberedTable): string[] =>
  [withoutNumber(on), ofNumbers(on)].map((name) => `DROP INDEX IF EXISTS ${qualified(on.table.schema, name)}`)

/**
 * Drops triggers, table of scopes and indexes. The column stays, because numbers are data, unless an unfinished
 * adoption made it.
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
