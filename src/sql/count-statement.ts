import { allEqual, type NumberTable, scopeKey, scopesTable } from './number-table'
import { named, type Statement } from './statements'

/** Finds how many rows of a scope count: one look-up in an index, of a few rows. */
export function findCount(table: NumberTable): Statement<number> {
  const values = table.scope.map((_, position) => `$${position + 1}`)
  const conditions = allEqual(scopeKey(table, 'k'), values)
  const where = conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`
  return named(`SELECT pg_catalog.sum(k.n) FROM ${scopesTable(table)} AS k${where}`, ([count]) => Number(count ?? 0))
}
