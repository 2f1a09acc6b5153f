import { SchemaDriftError } from '../errors'
import { type Query, tableOid, tableState } from '../sql/catalog'
import { guardOf } from '../sql/guard'
import { type TextTable, tableName } from '../sql/text-table'
import { findDrift } from './drift'
import { dataSourceOf, type Declaration, type ReadyTable, registry } from './registry'
import { requireServer } from './supported'

/** Stands for the one table of a declaration where a DataSource has no others of the name. */
const ONLY = 'only'

/**
 * Sees once per DataSource that index, check and guard of a declaration stand; an operation without them would store
 * duplicates or find nothing. A failure is not remembered, so that a migration mends it without a restart.
 *
 * Only what has ended is shared: a caller that holds a connection must not wait for another that still waits for one.
 *
 * @param query runs on the connection of the operation
 * @returns the same object for the same table
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function ensureReady(declaration: Declaration, query: Query): Promise<ReadyTable> {
  const ready = registry.ready.get(declaration) ?? new Map<string, ReadyTable>()
  registry.ready.set(declaration, ready)
  const relation = tableName(declaration.table)
  const key = isOneOfMany(declaration) ? await tableOid(query, relation) : ONLY
  const known = key === undefined ? undefined : ready.get(key)
  if (known) return known
  const inspected = await inspect(declaration.table, query)
  if (key !== undefined) ready.set(key, inspected)
  return inspected
}

/** A cached answer could be that for another tenant's table. */
function isOneOfMany({ table, metadata }: Declaration): boolean {
  return table.schema === undefined && registry.settings.get(dataSourceOf(metadata))?.tenantsBySearchPath === true
}

async function inspect(table: TextTable, query: Query): Promise<ReadyTable> {
  const { server, table: state } = await tableState(query, tableName(table), guardOf(table))
  requireServer(server)
  const findings = findDrift(table, state)
  if (findings.length > 0) throw new SchemaDriftError(table.table, findings)
  return {
    types: new Map(state?.columns.map((column) => [column.name, column])),
    deferrable: state?.indexes.some(({ deferrable }) => deferrable) ?? false,
  }
}
