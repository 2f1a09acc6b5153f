import { quote } from './identifier'
import { type NumberTable, scopeOf, all } from './number-table'
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
  SELECT ${primaryKey('r', primary)},
    coalesce(pg_catalog.max(r.${number}) OVER (${partition(table, 'r')}), 0)
      OPERATOR(pg_catalog.+) pg_catalog.count(*) FILTER (WHERE r.${number} IS NULL) OVER (
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
  SELECT ${primaryKey('r', primary)}, pg_catalog.row_number() OVER (
    ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')}
  ) AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `(t.${number} OPERATOR(pg_catalog.=) n."number") IS NOT TRUE`)}`
}

const partition = (table: NumberTable, row: string): string =>
  table.scope.length === 0 ? '' : `PARTITION BY ${scopeOf(table, row).join(', ')}`

const primaryKey = (row: string, primary: readonly string[]): string =>
  primary.map((name, position) => `${field(row, name)} AS "key ${position}"`).join(', ')

const sameKey = (primary: readonly string[]): string[] =>
  primary.map((name, position) => `${field('t', name)} OPERATOR(pg_catalog.=) n."key ${position}"`)
