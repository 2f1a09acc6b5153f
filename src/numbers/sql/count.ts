import { literal } from '../../sql/identifier'
import { named, type Statement } from '../../sql/find'
import { tableName } from '../../sql/text-table'
import { allEqual, isCounted, valuesOfKey, scopeOf } from './fragments'
import { type NumberTable, scopeKey, scopesTable } from '../../sql/numbers'

/** The statements that read and count the rows of a scope. Their parameters are the values of the scope. */
export interface CountStatements {
  /** Reads how many rows count, by one look-up in an index. */
  readonly find: Statement<number>
  /** Returns whether policies hide rows of the table from the role. */
  readonly hidesRows: Statement<boolean>
  /** Returns the scopes that have or had rows, each as texts. */
  readonly scopes: Statement<readonly unknown[]>
  /** Locks a scope as the triggers do. Until the transaction ends, nobody adds a row to it or changes its count. */
  readonly lock: Statement<unknown>
  /** Counts the rows of a locked scope anew. */
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
  const values = table.scope.map((_, position) => `$${position + 1}`)
  const given = values.length === 0 ? ['true'] : values
  const inScope = allEqual(scopeKey(table, 'k'), given).join(' AND ')
  const texts = key.map((one) => `pg_catalog.format('%s', k.${one})`)
  const rows = valuesOfKey(table, 'r').map((one, position) => `${one} AS ${key[position] ?? ''}`)
  const counted = ['true', ...allEqual(scopeOf(table, 'r'), values), ...isCounted(table, 'r')].join(' AND ')
  return {
    find: named(`SELECT k.n FROM ${scopes} AS k WHERE ${inScope}`, ([count]) => Number(count)),
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
      `INSERT INTO ${scopes} AS k (${key.join(', ')}) VALUES (${given.join(', ')})
  ON CONFLICT (${key.join(', ')}) DO UPDATE SET n = k.n`,
      (row) => row,
    ),
    count: named(
      `UPDATE ${scopes} AS k SET n = (SELECT pg_catalog.count(*) FROM ONLY ${tableName(table)} AS r WHERE ${counted})
  WHERE ${inScope} RETURNING k.n`,
      ([count]) => Number(count),
    ),
  }
}
