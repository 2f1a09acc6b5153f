import { all, refuseOtherTable, relation, standsOn } from './guard-body'
import { list, quote } from './identifier'
import { byNumber, countColumn, isCounted, type NumberTable, rowsOfScope, scopeOf } from './number-table'

/** Names of the transition tables. */
export const GONE = 'gone'
export const CAME = 'came'

/** What a statement does to the count of a scope; a name that no column of a scope is likely to have. */
const BY = '"changed by"'

/**
 * AFTER a statement: brings the count of each of its scopes up to date, by one UPDATE. The row that holds the count takes
 * it along where it goes, and then the oldest row of the scope takes it over. Everything is added, nothing set: of several
 * triggers of one statement, each does its part, in whatever order they come.
 *
 * At REPEATABLE READ the UPDATE fails where the count has changed since the snapshot; two rows that hold one, the second
 * unique index refuses, which knows no snapshots.
 */
export function countBody(table: NumberTable, event: CountedEvent): string {
  const count = countColumn(table)
  const holder = `UPDATE ${relation(table)} AS t SET ${count} = t.${count} + r.${BY}
    WHERE ${all(6, ...rowsOfScope(table, 't', 'r'), `t.${count} IS NOT NULL`)};
    CONTINUE WHEN FOUND;`
  return `
#variable_conflict use_variable
DECLARE
  -- Rows of a partitioned table are in its partitions.
  plain boolean := ${standsOn(table)}
    AND pg_catalog.pg_partition_root(TG_RELID) IS NULL;
  oldest bigint;
  r record;
BEGIN${refuseOtherTable(table)}
  FOR r IN
    ${CHANGES[event](table)}
  LOOP
    ${holder}
    -- No row that could be seen holds it: the scope is new, or that row is gone.
    SELECT t.${quote(table.number)} INTO oldest FROM ${relation(table)} AS t
    WHERE ${all(6, ...rowsOfScope(table, 't', 'r'))}
    ORDER BY ${byNumber(table, 't')} LIMIT 1
    FOR NO KEY UPDATE;
    -- No row is left.
    CONTINUE WHEN NOT FOUND;
    -- Another transaction, which was waited for, may have chosen one.
    ${holder}
    UPDATE ${relation(table)} AS t SET ${count} = r.${BY}
    WHERE ${all(6, ...rowsOfScope(table, 't', 'r'), `t.${quote(table.number)} OPERATOR(pg_catalog.=) oldest`)};
  END LOOP;
  RETURN NULL;
END
`
}

/** In scope order: two statements that name the same scopes meet in the same order. */
const CHANGES = {
  insert: (table: NumberTable): string => {
    const scope = list(scopeOf(table, 'c'), 6)
    return `SELECT ${scope}, pg_catalog.count(*) FILTER (WHERE ${isCounted(table, 'c')}) AS ${BY}
    FROM ${CAME} AS c GROUP BY ${scope} ORDER BY ${scope}`
  },
  delete: (table: NumberTable): string => {
    const [scope, counted, count] = [list(scopeOf(table, 'g'), 6), isCounted(table, 'g'), countColumn(table)]
    return `SELECT ${scope}, coalesce(pg_catalog.max(g.${count}), 0)
        - pg_catalog.count(*) FILTER (WHERE ${counted}) AS ${BY}
    FROM ${GONE} AS g GROUP BY ${scope}
    HAVING pg_catalog.bool_or(${counted} OR g.${count} IS NOT NULL) ORDER BY ${scope}`
  },
  update: (table: NumberTable): string => {
    const [scope, count] = [list(scopeOf(table, 'c'), 6), countColumn(table)]
    const rows = (name: string, sign: string): string =>
      `SELECT ${[...scopeOf(table, ''), count].join(', ')}, ${sign}1 AS "rows by",
        CASE WHEN ${isCounted(table, '')} THEN ${sign}1 ELSE 0 END AS "live by",
        CASE WHEN ${count} IS NOT NULL THEN ${sign}1 ELSE 0 END AS "held by"
      FROM ${name}`
    return `SELECT ${scope}, pg_catalog.sum(c."live by")
        + CASE WHEN pg_catalog.sum(c."held by") < 0 THEN pg_catalog.max(c.${count}) ELSE 0 END AS ${BY}
    FROM (
      ${rows(GONE, '-')}
      UNION ALL
      ${rows(CAME, '')}
    ) AS c GROUP BY ${scope}
    -- An UPDATE of other columns comes to nothing, and so does ours.
    HAVING pg_catalog.sum(c."rows by") <> 0 OR pg_catalog.sum(c."live by") <> 0 OR pg_catalog.sum(c."held by") < 0
    ORDER BY ${scope}`
  },
} as const

export type CountedEvent = keyof typeof CHANGES
