import type { EntityMetadata } from 'typeorm'
import { SchemaDriftError } from '../errors'
import { type Query, tableOid, tableState } from '../sql/catalog'
import { guardOf } from '../sql/guard'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { findDrift, workDrift } from './drift'
import { dataSourceOf, type Declaration, type ReadyTable, registry, tableDeclarations } from './registry'
import { spreadState } from './spread'
import { requireServer } from './supported'
import { triggerWorks } from './trigger-sets'

/** Stands for the only table of a declaration, if the DataSource has no others of that name. */
const ONLY = 'only'

/** A waiting caller asks by itself if another's answer takes longer than this, in milliseconds: it may never come. */
const PATIENCE_MILLISECONDS = 1_000

/** Who asks, and on which connection. */
export interface Asking {
  readonly query: Query
  /** The connection is the caller's, who holds it and perhaps locks meanwhile. */
  readonly shared: boolean
  /** Gives up a connection that is not the caller's. */
  release(): Promise<void>
}

/** By declaration: what is being looked up outside transactions. It settles, and never rejects. */
const underWay = new WeakMap<Declaration, Promise<unknown>>()

/**
 * Sees once per DataSource that index, check and guard of a declaration stand; an operation without them would store
 * duplicates or find nothing. A failure is not remembered, so that a migration mends it without a restart.
 *
 * If several call at once, the first asks. Only callers that hold neither a connection nor a lock wait for it: the
 * first may need what another one holds.
 *
 * @returns the same object for the same table
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export function ensureReady(declaration: Declaration, asking: Asking): ReadyTable | Promise<ReadyTable> {
  if (isOneOfMany(declaration)) return ofTenant(declaration, asking.query)
  return (
    readyTables(declaration).get(ONLY) ??
    (asking.shared ? askFor(declaration, ONLY, asking.query) : askOnce(declaration, asking))
  )
}

/** What `ensureReady` gives by now; undefined before its first answer, and where tenants have tables of their own. */
export const knownReady = (declaration: Declaration): ReadyTable | undefined =>
  registry.ready.get(declaration)?.get(ONLY)

/**
 * A deferrable constraint that came since may be why: what was seen of the table is forgotten, so that the next look
 * sees the constraint.
 *
 * @returns whether the error says so: 55000 of a constraint, which no trigger of ours names
 */
export function forgetIfChanged(declaration: Declaration, error: unknown): boolean {
  const { code, constraint } = serverError(error) ?? {}
  const isChanged = code === SQLSTATE.wrongState && constraint !== undefined
  if (isChanged) registry.ready.delete(declaration)
  return isChanged
}

function readyTables(declaration: Declaration): Map<string, ReadyTable> {
  const known = registry.ready.get(declaration)
  if (known) return known
  const ready = new Map<string, ReadyTable>()
  registry.ready.set(declaration, ready)
  return ready
}

async function ofTenant(declaration: Declaration, query: Query): Promise<ReadyTable> {
  const key = await tableOid(query, tableName(declaration.table))
  // A table that does not exist is refused.
  if (key === undefined) return await inspect(declaration, query)
  return readyTables(declaration).get(key) ?? (await askFor(declaration, key, query))
}

async function askFor(declaration: Declaration, key: string, query: Query): Promise<ReadyTable> {
  const inspected = await inspect(declaration, query)
  readyTables(declaration).set(key, inspected)
  return inspected
}

async function askOnce(declaration: Declaration, asking: Asking): Promise<ReadyTable> {
  const before = underWay.get(declaration)
  if (before) {
    await asking.release()
    await settled(before)
    const known = readyTables(declaration).get(ONLY)
    if (known) return known
  }
  const answer = askFor(declaration, ONLY, asking.query)
  const end = answer.then(nothing, nothing)
  underWay.set(declaration, end)
  try {
    return await answer
  } finally {
    if (underWay.get(declaration) === end) underWay.delete(declaration)
  }
}

const nothing = (): void => {}

/** Waits, but not for ever. */
async function settled(work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const patience = new Promise<void>((resolve) => (timer = setTimeout(resolve, PATIENCE_MILLISECONDS)))
  await Promise.race([work, patience])
  clearTimeout(timer)
}

/** The entity has a table in the schema of each tenant. */
export const isOneOfMany = ({ table: { schema }, metadata }: Declaration): boolean => hasTenants(metadata, schema)

/** A cached answer could be that for another tenant's table. */
export function hasTenants(metadata: EntityMetadata, schema: string | undefined): boolean {
  return schema === undefined && registry.settings.get(dataSourceOf(metadata))?.tenantsBySearchPath === true
}

async function inspect(declaration: Declaration, query: Query): Promise<ReadyTable> {
  const { table, metadata } = declaration
  const works = triggerWorks(metadata)
  const sets = [guardOf(table), ...works.map(({ set }) => set)]
  const { server, table: state } = await tableState(query, tableName(table), sets)
  requireServer(server)
  if (!state) throw new SchemaDriftError(table.table, findDrift(table, state))
  const spread = await spreadState(declaration, state, query)
  const findings = [...findDrift(table, state), ...workDrift(works, state), ...spread.findings]
  if (findings.length > 0) throw new SchemaDriftError(table.table, findings)
  const ofTexts = new Set(tableDeclarations(metadata).map((one) => one.table.index))
  return {
    types: new Map(state.columns.map((column) => [column.name, column])),
    deferrable: state.indexes.some(({ deferrable }) => deferrable),
    rowSecurity: state.rowSecurity,
    distributed: spread.distributed,
    unusual: state.indexes.flatMap(({ name, unusual }) => (unusual && !ofTexts.has(name) ? [unusual] : [])),
    partitioned: state.spread.partitionedBy.length > 0,
  }
}
