import { quote } from './identifier'
import { countColumn, isCounted, type NumberTable, sameScopes, scopeOf } from './number-table'
import { all } from './guard-body'
import { field, tableName } from './text-table'

/** Rows that are numbered while their table is locked and no trigger of ours stands. */
export interface NumberedRows {
  readonly table: NumberTable
  /** Columns of the primary key, whose order is that of the numbers. */
  readonly primary: readonly string[]
}

/** Numbers every row that has no number, in key order, after the highest of its scope. */
export function numberRows({ table, primary }: NumberedRows): string {
  const number = quote(table.number)
  return `UPDATE ${tableName(table)} AS t SET ${number} = n."number"
FROM (
  SELECT ${keyOf('r', primary)}, r.${number} AS "given",
    coalesce(pg_catalog.max(r.${number}) OVER (${partition(table, 'r')}), 0)
      + pg_catalog.count(*) FILTER (WHERE r.${number} IS NULL) OVER (
        ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')} ROWS UNBOUNDED PRECEDING
      ) AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `t.${number} IS NULL`)}`
}

/** Numbers all rows anew, in key order from 1. The unique index must be away. */
export function renumberRows({ table, primary }: NumberedRows): string {
  const number = quote(table.number)
  return `UPDATE ${tableName(table)} AS t SET ${number} = n."number"
FROM (
  SELECT ${keyOf('r', primary)}, pg_catalog.row_number() OVER (
    ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')}
  ) AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `t.${number} IS DISTINCT FROM n."number"`)}`
}

/** Counts the rows of every scope anew, into the oldest row of each. */
export function countRows(table: NumberTable): string[] {
  const [count, number] = [countColumn(table), quote(table.number)]
  const scope = scopeOf(table, 'r').join(', ')
  return [
    clearCounts(table),
    `UPDATE ${tableName(table)} AS t SET ${count} = n."rows"
FROM (
  SELECT ${scope}, pg_catalog.min(r.${number}) AS "oldest",
    pg_catalog.count(*) FILTER (WHERE ${isCounted(table, 'r')}) AS "rows"
  FROM ${tableName(table)} AS r GROUP BY ${scope}
) AS n
WHERE ${all(2, ...sameScopes(table, 't', 'n'), `t.${number} = n."oldest"`)}`,
  ]
}

export const clearCounts = (table: NumberTable): string =>
  `UPDATE ${tableName(table)} SET ${countColumn(table)} = NULL WHERE ${countColumn(table)} IS NOT NULL`

const partition = (table: NumberTable, row: string): string =>
  table.scope.length === 0 ? '' : `PARTITION BY ${scopeOf(table, row).join(', ')}`

const keyOf = (row: string, primary: readonly string[]): string =>
  primary.map((name, position) => `${field(row, name)} AS "key ${position}"`).join(', ')

const sameKey = (primary: readonly string[]): string[] =>
  primary.map((name, position) => `${field('t', name)} = n."key ${position}"`)
