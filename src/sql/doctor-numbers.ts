import type { Bound, ReadTable } from './doctor-rows'
import { list } from './identifier'
import { countColumn, isCounted, type NumberTable, sameScopes, scopeOf } from './number-table'
import { field } from './text-table'

/**
 * Scopes of a number in their order, and whether the count of each is right: one snapshot for all of a page. Only a
 * number with a scope has a count.
 */
export function countsPage(table: NumberTable, { rows, key }: ReadTable, bounds: CountsBounds): Bound {
  const scope = list(scopeOf(table, 't'), 4)
  const after = bounds.after?.map((_, index) => `$${index + 1}::${bounds.types[index] ?? 'text'}`).join(', ')
  const begin = after === undefined ? '' : `\n  WHERE ROW(${scope}) OPERATOR(pg_catalog.>) ROW(${after})`
  const ofScope = sameScopes(table, 't', 's').join(' AND ')
  const firstKey = `SELECT pg_catalog.jsonb_build_array(${key
    .map(({ name }) => `${field('t', name)}::pg_catalog.text`)
    .join(', ')})::pg_catalog.text FROM ${rows} AS t WHERE ${ofScope} ORDER BY ${field('t', table.number)} LIMIT 1`
  const results = scopeOf(table, 's').map((one, index) => `${one}::pg_catalog.text AS "s${index}"`)
  const sql = `SELECT ${list([...results, 'x.*'], 2)}
FROM (
  SELECT DISTINCT ${scope} FROM ${rows} AS t${begin}
  ORDER BY ${scope} LIMIT ${bounds.limit}
) AS s
CROSS JOIN LATERAL (
  SELECT (${firstKey}) AS "key", ${isCountRight(table)} AS "right"
  FROM ${rows} AS t WHERE ${ofScope}
) AS x
ORDER BY ${list(scopeOf(table, 's'), 2)}`
  return { sql, values: [...(bounds.after ?? [])] }
}

export interface CountsBounds {
  /** The scope that the page begins after, as the last result says it in `s0`, `s1`, and so on. */
  readonly after: readonly string[] | undefined
  readonly limit: number
  /** Of the scope's columns, as SQL. */
  readonly types: readonly string[]
}

/** Whether what is kept as the count of the rows `t` of one scope is how many of them count. */
function isCountRight(table: NumberTable): string {
  const count = `t.${countColumn(table)}`
  return `(pg_catalog.count(${count}) OPERATOR(pg_catalog.=) 1
    AND pg_catalog.max(${count})::pg_catalog.int8
      OPERATOR(pg_catalog.=) pg_catalog.count(*) FILTER (WHERE ${isCounted(table, 't')}))::pg_catalog.text`
}
