import { type Finding, SchemaDriftError, UniqueTextError, UnsupportedDatabaseError } from '../errors'
import { databaseEncoding, type Query, tableState, type TableState } from '../sql/catalog'
import { guardOf } from '../sql/guard'
import { type TextTable, tableName } from '../sql/text-table'
import { type ColumnTypes, type Declaration, registry } from './registry'

/**
 * Sees once per DataSource that index, check and guard of a declaration stand; an operation without them would store
 * duplicates or find nothing. A failure is not remembered, so that a migration mends it without a restart.
 *
 * @returns the SQL type of every column of the table, without its length
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function ensureReady(declaration: Declaration, query: Query): Promise<ColumnTypes> {
  const known = registry.ready.get(declaration)
  try {
    if (known) return await known
  } catch (error) {
    if (error instanceof UniqueTextError) throw error
    // Another caller's connection failed at it, which says nothing of ours.
  }
  const check = inspect(declaration, query)
  registry.ready.set(declaration, check)
  try {
    return await check
  } catch (error) {
    registry.ready.delete(declaration)
    throw error
  }
}

async function inspect({ table }: Declaration, query: Query): Promise<ColumnTypes> {
  const encoding = await databaseEncoding(query)
  if (encoding !== 'UTF8') {
    throw new UnsupportedDatabaseError(
      `The database's encoding is ${encoding}: its md5() would see other bytes. ` +
        `Move the data to a database made with ENCODING 'UTF8'.`,
    )
  }
  const state = await tableState(query, tableName(table))
  const findings = findDrift(table, state)
  if (findings.length > 0) throw new SchemaDriftError(table.table, findings)
  return new Map(state.columns.map(({ name, type }) => [name, type]))
}

/** What contradicts the declaration; empty where nothing does. */
export function findDrift(table: TextTable, state: TableState): Finding[] {
  if (!state.exists) return [{ kind: 'missing', object: 'table', name: table.table }]
  return [
    ...columnDrift(table, state),
    ...indexDrift(table, state),
    ...checkDrift(table, state),
    ...guardDrift(table, state),
  ]
}

function columnDrift(table: TextTable, { columns }: TableState): Finding[] {
  const types: Record<string, string> = {
    [table.hash]: table.digest.type,
    [table.number]: 'integer',
    [table.chained]: 'boolean',
  }
  return Object.entries(types).flatMap(([name, type]): Finding[] => {
    const found = columns.find((column) => column.name === name)
    if (!found) return [{ kind: 'missing', object: 'column', name }]
    return found.type === type ? [] : [{ kind: 'different', object: 'column', name }]
  })
}

function indexDrift(table: TextTable, { indexes }: TableState): Finding[] {
  const found = indexes.find(({ name }) => name === table.index)
  if (!found) return [{ kind: 'missing', object: 'index', name: table.index }]
  if (!found.valid) return [{ kind: 'invalid', object: 'index', name: table.index }]
  const columns = [...table.scope, table.hash, table.number]
  const same = found.unique && !found.partial && JSON.stringify(found.columns) === JSON.stringify(columns)
  return same ? [] : [{ kind: 'different', object: 'index', name: table.index }]
}

function checkDrift(table: TextTable, { checks }: TableState): Finding[] {
  const found = checks.find(({ name }) => name === table.check)
  if (!found) return [{ kind: 'missing', object: 'check', name: table.check }]
  return found.valid ? [] : [{ kind: 'invalid', object: 'check', name: table.check }]
}

function guardDrift(table: TextTable, { triggers }: TableState): Finding[] {
  const guard = guardOf(table)
  return guard.triggers.flatMap(({ name }): Finding[] => {
    const found = triggers.find((trigger) => trigger.name === name)
    if (!found) return [{ kind: 'missing', object: 'guard', name }]
    if (!found.enabled) return [{ kind: 'disabled', object: 'guard', name }]
    return found.comment === guard.comment ? [] : [{ kind: 'different', object: 'guard', name }]
  })
}
