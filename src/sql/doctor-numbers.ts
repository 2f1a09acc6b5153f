import type { Bound, ReadTable } from './doctor-rows'
import { list } from './identifier'
import { allEqual, isCounted, type NumberTable, sameScopes, scopeKey, scopeOf, scopesTable } from './number-table'
import { field } from './text-table'

/**
 * Scopes of a number in their order, and whether the count of each is right: one snapshot for all of a page. Without a
 * scope, the page is the whole table.
 */
export function countsPage(table: NumberTable, { rows, key }: ReadTable, bounds: CountsBounds): Bound {
  const scope = list(scopeOf(table, 't'), 4)
  const after = bounds.after?.map((_, index) => `$${index + 1}::${bounds.types[index] ?? 'text'}`).join(', ')
  const begin =
    after === undefined || after === '' ? '' : `\n  WHERE ROW(${scope}) OPERATOR(pg_catalog.>) ROW(${after})`
  const ofScope = ['true', ...sameScopes(table, 't', 's')].join(' AND ')
  const firstKey = `SELECT pg_catalog.jsonb_build_array(${key
    .map(({ name }) => `${field('t', name)}::pg_catalog.text`)
    .join(', ')})::pg_catalog.text FROM ${rows} AS t WHERE ${ofScope} ORDER BY ${field('t', table.number)} LIMIT 1`
  const results = scopeOf(table, 's').map((one, index) => `${one}::pg_catalog.text AS "s${index}"`)
  const scopes =
    table.scope.length === 0
      ? 'SELECT'
      : `SELECT DISTINCT ${scope} FROM ${rows} AS t${begin}\n  ORDER BY ${scope} LIMIT ${bounds.limit}`
  const sql = `SELECT ${list([...results, 'x.*'], 2)}
FROM (
  ${scopes}
) AS s
CROSS JOIN LATERAL (
  SELECT (${firstKey}) AS "key", ${isCountRight(table)} AS "right"
  FROM ${rows} AS t WHERE ${ofScope}
) AS x${table.scope.length === 0 ? '' : `\nORDER BY ${list(scopeOf(table, 's'), 2)}`}`
  return { sql, values: [...(bounds.after ?? [])] }
}

export interface CountsBounds {
  /** The scope that the page begins after, as the last result says it in `s0`, `s1`, and so on. */
  readonly after: readonly string[] | undefined
  readonly limit: number
  /** Of the scope's columns, as SQL. */
  readonly types: readonly string[]
}

/** Whether what is kept as the count of the rows `t` of the scope `s` is how many of them count. */
function isCountRight(table: NumberTable): string {
  const counted = ['true', ...isCounted(table, 't')].join(' AND ')
  const ofScope = ['true', ...allEqual(scopeKey(table, 'k'), scopeOf(table, 's'))].join(' AND ')
  return `(pg_catalog.count(*) FILTER (WHERE ${counted}) OPERATOR(pg_catalog.=) (
    SELECT coalesce(pg_catalog.sum(k.n), 0) FROM ${scopesTable(table)} AS k WHERE ${ofScope}))::pg_catalog.text`
}
