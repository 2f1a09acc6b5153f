import { quote } from './identifier'
import { countColumn, holdsCount, type NumberTable } from './number-table'
import { named, type Statement } from './statements'
import { tableName } from './text-table'

/** Finds how many rows of a scope count: one look-up in the index of the rows that hold a count. */
export function findCount(table: NumberTable): Statement<number> {
  const scope = table.scope.map(({ name }, position) => `${quote(name)} = $${position + 1}`)
  const sql = `SELECT ${countColumn(table)} FROM ${tableName(table)} WHERE ${[...scope, holdsCount(table)].join(' AND ')}`
  return named(sql, ([count]) => Number(count))
}
