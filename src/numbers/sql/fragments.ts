import { literal, quote } from '../../sql/identifier'
import { type NumberTable, scopesName } from '../../sql/numbers'
import { equal, field } from '../../sql/text-table'

/** The columns of the scope, as SQL. */
export const scopeOf = ({ scope }: Pick<NumberTable, 'scope'>, row: string): string[] =>
  scope.map(({ name }) => field(row, name))

/** Predicates for an AND: every column of the scope is equal by the unique index's own operator. */
export const sameScopes = (table: Pick<NumberTable, 'scope'>, left: string, right: string): string[] =>
  allEqual(scopeOf(table, left), scopeOf(table, right))

/** Predicates for an AND: the columns are equal one by one. */
export const allEqual = (left: readonly string[], right: readonly string[]): string[] =>
  left.map((one, position) => equal(one, right[position] ?? ''))

/** The reverse order of the unique index. */
export const byNumberDown = (table: NumberTable, row: string): string =>
  [...scopeOf(table, row), field(row, table.number)].map((one) => `${one} DESC`).join(', ')

/** The highest number before `start`. */
export const beforeStart = ({ start = 1 }: Pick<NumberTable, 'start'>): number => start - 1

/** Whether a row is counted, as at most one condition. */
export const isCounted = ({ deleted }: Pick<NumberTable, 'deleted'>, row: string): string[] =>
  deleted === undefined ? [] : [`${field(row, deleted)} IS NULL`]

/** The table inside the functions. Their `search_path` is fixed to its schema, so a dump fits another schema. */
export const relation = (table: Pick<NumberTable, 'table'>): string => quote(table.table)

/** Whether the trigger runs for the table that the function names, which is false in a partition. */
export const standsOn = (table: Pick<NumberTable, 'table'>): string =>
  `TG_TABLE_NAME OPERATOR(pg_catalog.=) ${literal(table.table)}\n    AND pg_catalog.pg_table_is_visible(TG_RELID)`

/**
 * What a statement of a function names: the table, the table of scopes and its row; in a shard of Citus, those of the
 * shard. There `executed` sends it by its text.
 */
export interface Placed {
  readonly rows: string
  readonly scopes: string
  readonly row: string
}

/** Characters that no statement holds, in place of the names of shards. */
const [SHARD_ROWS, SHARD_SCOPES] = ['\u0001', '\u0002']

/** @param row NEW or OLD */
export const placed = (table: NumberTable, row: 'NEW' | 'OLD', inShard: boolean): Placed =>
  inShard
    ? { rows: `ONLY ${SHARD_ROWS}`, scopes: SHARD_SCOPES, row: '$1' }
    : { rows: relation(table), scopes: scopesName(table), row }

/**
 * Sends a statement in a shard, whose name no plan can be kept for. `shard` is the name of its table of scopes, as SQL.
 *
 * @param into the variable that takes what it gives
 */
export function executed(sql: string, row: 'NEW' | 'OLD', into?: string): string {
  const text = sql.replaceAll('%', '%%').replaceAll(SHARD_ROWS, '%1$s').replaceAll(SHARD_SCOPES, '%2$s')
  return `EXECUTE pg_catalog.format(${literal(text)},
      TG_RELID::pg_catalog.regclass, shard)${into === undefined ? '' : ` INTO ${into}`} USING ${row};`
}
