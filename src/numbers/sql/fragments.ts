import { type NumberTable, scopeKey } from '../../sql/numbers'
import { equal, field } from '../../sql/text-table'

/** The columns of the scope, as SQL. */
export const scopeOf = ({ scope }: Pick<NumberTable, 'scope'>, row: string): string[] =>
  scope.map(({ name }) => field(row, name))

/** The values that a row has in the key of the table of scopes, as SQL. */
export const valuesOfKey = (table: Pick<NumberTable, 'scope'>, row: string): string[] =>
  table.scope.length === 0 ? ['true'] : scopeOf(table, row)

/** Predicates for an AND: the row `k` of the table of scopes is that of a row. */
export const isScopeOf = (table: Pick<NumberTable, 'scope'>, k: string, row: string): string[] =>
  allEqual(scopeKey(table, k), valuesOfKey(table, row))

/** Predicates for an AND: the columns are equal one by one. */
export const allEqual = (left: readonly string[], right: readonly string[]): string[] =>
  left.map((one, position) => equal(one, right[position] ?? ''))

/** Whether a row is counted, as at most one condition. */
export const isCounted = ({ deleted }: Pick<NumberTable, 'deleted'>, row: string): string[] =>
  deleted === undefined ? [] : [`${field(row, deleted)} IS NULL`]
