import { quote } from './identifier'
import { indented, refuseFamily, refuseOtherTables } from './number-scopes'
import { isCounted, type NumberTable, scopeKey, scopeOf, scopesName, standsOn } from './number-table'

/** Names of the transition tables. */
export const GONE = 'gone'
export const CAME = 'came'

/**
 * Rows that come are counted in one of so many rows of their scope, in turn, by so many numbers each. While a snapshot is
 * open no version of a row can be removed, and whoever looks it up walks over all of them.
 */
const [PARTS, NUMBERS_OF_A_PART] = [64, 256]

/**
 * AFTER a statement: brings the counts of its scopes up to date, by one statement, in the order of the scopes. Counts
 * are only added to, never set: of several triggers, each does its part, in whatever order they come, and whatever
 * other triggers write meanwhile.
 *
 * Part 0 of a scope is its mutex, which an INSERT holds since its rows were placed; all else is counted there.
 */
export function countBody(table: NumberTable): string {
  const key = scopeKey(table)
  const highest = `greatest(pg_catalog.max(c.${quote(table.number)}), 0)`
  const live = (row: string): string => ['true', ...isCounted(table, row)].slice(-1).join('')
  const rows = (name: string, sign: string): string =>
    `SELECT ${[...scopeOf(table, name).map((one, at) => `${one} AS ${key[at] ?? ''}`), `${sign}1 AS n`].join(', ')}
      FROM ${name} WHERE ${live(name)}`
  const add = (part: string, changes: string, by: readonly string[], total: string): string => `
    INSERT INTO ${scopesName(table)} AS k (${[...key, 'part', 'n'].join(', ')})
    SELECT ${[...by, part].join(', ')},
      ${total}
    FROM ${changes}${group(by)}
    HAVING ${total} OPERATOR(pg_catalog.<>) 0${order(by)}
    ON CONFLICT (${[...key, 'part'].join(', ')}) DO UPDATE SET n = k.n OPERATOR(pg_catalog.+) excluded.n;`
  const inTurn = `
      (${highest} OPERATOR(pg_catalog./) ${NUMBERS_OF_A_PART} OPERATOR(pg_catalog.%) ${PARTS})::pg_catalog.int2`
  return `
#variable_conflict use_column
DECLARE
  plain boolean := ${standsOn(table)};
BEGIN${refuseOtherTables(table)}
  IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN${add(inTurn, `${CAME} AS c WHERE ${live('c')}`, scopeOf(table, 'c'), 'pg_catalog.count(*)')}
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN${add(
    '0',
    `(
      ${rows(GONE, '-')} UNION ALL
      ${rows(CAME, '')}
    ) AS c`,
    scopeKey(table, 'c'),
    'pg_catalog.sum(c.n)',
  )}
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN${add('0', `${GONE} AS c WHERE ${live('c')}`, scopeOf(table, 'c'), 'OPERATOR(pg_catalog.-) pg_catalog.count(*)')}
  ELSE
    DELETE FROM ${scopesName(table)};
  END IF;
  IF FOUND THEN${indented(refuseFamily(table))}
  END IF;
  RETURN NULL;
END
`
}

const group = (by: readonly string[]): string => (by.length === 0 ? '' : ` GROUP BY ${by.join(', ')}`)
const order = (by: readonly string[]): string => (by.length === 0 ? '' : ` ORDER BY ${by.join(', ')}`)
