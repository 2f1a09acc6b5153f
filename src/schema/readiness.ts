import type { EntityMetadata } from 'typeorm'
import { type Finding, SchemaDriftError, UnsupportedDatabaseError } from '../errors'
import { type Query, tableOid, tableState, type TableState } from '../sql/catalog'
import { guardsOf } from '../triggers/guard'
import { qualified } from '../sql/identifier'
import { type Spread, spreadOf } from '../sql/spread'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { findDrift, workDrift } from './drift'
import {
  dataSourceOf,
  type Declaration,
  type ReadyTable,
  registry,
  rootOf,
  tableDeclarations,
  tableNames,
  tableNumbers,
} from '../registry/registry'
import { foreignSchema } from '../registry/resolve-declaration'
import { requireServer } from '../registry/supported'
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
  // A table of a tenant is kept by another key.
  const known = registry.ready.get(declaration)?.get(ONLY)
  if (known) return known
  if (isOneOfMany(declaration)) return ofTenant(declaration, asking.query)
  return asking.shared ? askFor(declaration, ONLY, asking.query) : askOnce(declaration, asking)
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
  // The check of another declaration, perhaps, whose guard stands now: the next call asks, and the same would fail again.
  const mayBeOthers = code === SQLSTATE.checkViolation && constraint !== declaration.table.check
  if (isChanged || mayBeOthers) registry.ready.delete(declaration)
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
function hasTenants(metadata: EntityMetadata, schema: string | undefined): boolean {
  return schema === undefined && registry.settings.get(dataSourceOf(metadata))?.tenantsBySearchPath === true
}

async function inspect(declaration: Declaration, query: Query): Promise<ReadyTable> {
  const { table, metadata } = declaration
  const works = triggerWorks(metadata)
  const sets = [...guardsOf(table), ...works.map(({ set }) => set)]
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

/** Tables that were found ready, by entity; by OID where search_path selects the tenant. */
const ready = new WeakMap<EntityMetadata, Set<string>>()

/**
 * Checks once per DataSource that the triggers registered for an entity's table exist, with their indexes, for
 * operations that use no unique text of it. A failure is not remembered, so that a migration corrects it without a
 * restart.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function ensureTriggers(metadata: EntityMetadata, query: Query): Promise<void> {
  const root = rootOf(metadata)
  const relation = qualified(foreignSchema(root), root.tableName)
  const tenant = hasTenants(root, foreignSchema(root)) ? await tableOid(query, relation) : relation
  const known = ready.get(root) ?? new Set<string>()
  if (tenant !== undefined && known.has(tenant)) return
  const works = triggerWorks(root)
  const sets = works.map(({ set }) => set)
  const { server, table } = await tableState(query, relation, sets)
  requireServer(server)
  const findings = table
    ? [...workDrift(works, table), ...(await spreadDrift(root, { relation, state: table }, query))]
    : [{ kind: 'missing', object: 'table', name: root.tableName } as const]
  if (findings.length > 0) throw new SchemaDriftError(root.tableName, findings)
  ready.set(root, known.add(tenant ?? relation))
}

/** How the rows of a table are spread, and what contradicts the declaration there. */
interface SpreadState {
  readonly distributed: boolean
  readonly findings: readonly Finding[]
}

/**
 * @throws UnsupportedDatabaseError for a table of which nobody can promise that no text is there twice
 */
async function spreadState({ table, metadata }: Declaration, state: TableState, query: Query): Promise<SpreadState> {
  const spread = await spreadOf(query, tableName(table), state.spread)
  const { distribution } = spread
  if (distribution?.kind === 'reference') {
    throw new UnsupportedDatabaseError(
      `Table "${table.table}" is a reference table of Citus. Its copies drift apart when rows are inserted and deleted at ` +
        `once, so no text is unique there. Distribute it, or keep it on the coordinator.`,
    )
  }
  const ofTable = [...notByKey(table, spread), ...unsupported(metadata, spread)].map(differently(table.table))
  const ofPartitions = spread.unguarded.map((name): Finding => ({
    kind: 'disabled',
    object: 'guard',
    name: table.guard,
    detail: `on the partition "${name}"`,
  }))
  return { distributed: distribution !== undefined, findings: [...ofTable, ...ofPartitions] }
}

const differently =
  (name: string) =>
  (detail: string): Finding => ({ kind: 'different', object: 'table', name, detail })

/**
 * What contradicts the names and numbers of a table, for operations that use no text of it.
 *
 * @param relation the table's name as SQL
 */
async function spreadDrift(
  metadata: EntityMetadata,
  { relation, state }: { readonly relation: string; readonly state: TableState },
  query: Query,
): Promise<readonly Finding[]> {
  return unsupported(metadata, await spreadOf(query, relation, state.spread)).map(differently(metadata.tableName))
}

/** Rows of one text, and of one hash, must be in one place, or no index keeps them apart. */
function notByKey(table: Declaration['table'], { distribution, partitionedBy }: Spread): string[] {
  const by = distribution?.column === undefined ? partitionedBy : [distribution.column]
  return by.flatMap((column) => {
    if (table.scope.includes(column) || (column === table.hash && table.spread !== undefined)) return []
    return column === table.hash
      ? [
          `it is spread by "${column}": declare spread: 'hash', otherwise its guard would move rows away from where their hash belongs`,
        ]
      : [`it is spread by "${column}", which is not in the scope of "${table.name}"`]
  })
}

/** What works on a table in one place only. */
function unsupported(metadata: EntityMetadata, { distribution, isCoordinator, partitionedBy }: Spread): string[] {
  if (!distribution && partitionedBy.length === 0) return []
  const names = tableNames(metadata).map(
    ({ name }) => `its names ("${name}") are kept in one table for all of its rows`,
  )
  const numbers = distribution
    ? tableNumbers(metadata).map(({ name }) => `its numbers ("${name}") are made by triggers that know one table`)
    : []
  const small = metadata.columns.filter(
    ({ isGenerated, generationStrategy, type }) =>
      isGenerated && generationStrategy !== 'uuid' && !['bigint', 'int8'].includes(String(type)),
  )
  const ids = isCoordinator
    ? []
    : small.map(({ databaseName }) => `"${databaseName}" counts up, and workers share only counters of type bigint`)
  return [...names, ...numbers, ...ids]
}
