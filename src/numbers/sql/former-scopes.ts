import { qualified } from '../../sql/identifier'
import { type NumberTable, scopeKey, scopeOf, scopesTable } from '../../sql/numbers'
import { tableName } from '../../sql/text-table'
import type { FormerScopes } from '../../triggers/numbers'

/**
 * Copies the numbers that are not reused from the former table of scopes to the new one. There are none if a restore
 * has omitted the former table.
 *
 * @param places the place of each column of the new scope in the former one
 */
export function formerScopes(from: NumberTable, to: NumberTable, places: readonly number[]): FormerScopes {
  const [key, scopes] = [[...scopeKey(to), 'part'], scopesTable(from)]
  const before = 'numbers_scopes_before'
  const was = to.schema === undefined ? before : qualified(to.schema, before)
  const shape = [...scopeOf(to, 'r').map((one, at) => `${one} AS s${places[at]}`), 'NULL::pg_catalog.int8 AS last']
  return {
    save: `
  CREATE TABLE IF NOT EXISTS ${scopes} AS SELECT ${shape.join(', ')} FROM ${tableName(to)} AS r LIMIT 0;
  ALTER TABLE ${scopes} RENAME TO ${before};`,
    join: (rows) => `SELECT ${key.join(', ')}, pg_catalog.sum(k.n)::pg_catalog.int8 AS n, pg_catalog.max(k.last) AS last
    FROM (
      (${rows})
      UNION ALL
      SELECT ${[...places.map((place) => `w.s${place}`), 'w.part', '0', 'w.last'].join(', ')} FROM ${was} AS w
      WHERE w.last IS NOT NULL
    ) AS k GROUP BY ${key.join(', ')};
  DROP TABLE ${was}`,
  }
}
