import { literal } from '../../sql/identifier'
import { named, type Statement } from '../../sql/find'
import { tableName } from '../../sql/text-table'
import { allEqual, isCounted, scopeOf } from './fragments'
import { type NumberTable, scopeKey, scopesTable } from '../../sql/numbers'

/** The statements that read and count the rows of a scope. Their parameters are the values of the scope. */
export interface CountStatements {
  /** Reads how many rows count, by one look-up of a few rows in an index. */
  readonly find: Statement<number>
  /** Returns whether policies hide rows of the table from the role. */
  readonly hidesRows: Statement<boolean>
  /** Returns the scopes that have or had rows, each as texts. */
  readonly scopes: Statement<readonly unknown[]>
  /** Locks a scope as the triggers do. Until the transaction ends, nobody adds a row to it or changes its count. */
  readonly lock: Statement<unknown>
  /**
   * Counts the rows of a locked scope anew. If the snapshot hides some of them, this fails with 40001, or the snapshot
   * also hides the part that counts them.
   */
  readonly count: Statement<number>
}

const made = new WeakMap<NumberTable, CountStatements>()

export function countStatements(table: NumberTable): CountStatements {
  const statements = made.get(table) ?? makeCountStatements(table)
  made.set(table, statements)
  return statements
}

function makeCountStatements(table: NumberTable): CountStatements {
  const [key, scopes] = [scopeKey(table), scopesTable(table)]
  const values = key.map((_, position) => `$${position + 1}`)
  const where = (...conditions: readonly string[]): string =>
    conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`
  const inScope = where(...allEqual(scopeKey(table, 'k'), values))
  const texts = key.map((one) => `pg_catalog.format('%s', k.${one})`)
  const rows = scopeOf(table, 'r').map((one, position) => `${one} AS ${key[position] ?? ''}`)
  const counted = where(...allEqual(scopeOf(table, 'r'), values), ...isCounted(table, 'r'))
  return {
    find: named(`SELECT pg_catalog.sum(k.n) FROM ${scopes} AS k${inScope}`, ([count]) => Number(count ?? 0)),
    hidesRows: named(
      `SELECT pg_catalog.row_security_active(${literal(tableName(table))}) AS hides`,
      ([hides]) => hides === true,
    ),
    scopes: named(
      `SELECT ${texts.join(', ')} FROM (SELECT ${rows.join(', ')} FROM ONLY ${tableName(table)} AS r
  UNION SELECT ${key.join(', ')} FROM ${scopes}) AS k ORDER BY ${scopeKey(table, 'k').join(', ')}`,
      (row) => row,
    ),
    lock: named(
      `INSERT INTO ${scopes} AS k (${[...key, 'part', 'n'].join(', ')}) VALUES (${[...values, '0', '0'].join(', ')})
  ON CONFLICT (${[...key, 'part'].join(', ')}) DO UPDATE SET n = k.n`,
      (row) => row,
    ),
    count: named(
      `UPDATE ${scopes} AS k SET n = CASE WHEN k.part OPERATOR(pg_catalog.=) 0
    THEN (SELECT pg_catalog.count(*) FROM ONLY ${tableName(table)} AS r${counted}) ELSE 0 END${inScope} RETURNING k.n`,
      ([count]) => Number(count),
    ),
  }
}
