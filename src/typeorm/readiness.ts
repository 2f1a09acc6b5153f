import { SchemaDriftError } from '../errors'
import { type Query, tableState } from '../sql/catalog'
import { tableName } from '../sql/text-table'
import { findDrift } from './drift'
import { type ColumnTypes, type Declaration, registry } from './registry'
import { requireServer } from './supported'

/**
 * Sees once per DataSource that index, check and guard of a declaration stand; an operation without them would store
 * duplicates or find nothing. A failure is not remembered, so that a migration mends it without a restart.
 *
 * Only what has ended is shared: a caller that holds a connection must not wait for another that still waits for one.
 *
 * @param query runs on the connection of the operation
 * @returns the SQL type of every column of the table, without its length
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function ensureReady(declaration: Declaration, query: Query): Promise<ColumnTypes> {
  const known = registry.ready.get(declaration)
  if (known) return known
  const { server, table } = await tableState(query, tableName(declaration.table))
  requireServer(server)
  const findings = findDrift(declaration.table, table)
  if (findings.length > 0) throw new SchemaDriftError(declaration.table.table, findings)
  const types: ColumnTypes = new Map(table?.columns.map(({ name, type }) => [name, type]))
  registry.ready.set(declaration, types)
  return types
}
