import type { EntityMetadata } from 'typeorm'
import { type Finding, SchemaDriftError } from '../errors'
import { entityTable, writtenSchema } from '../registry/declarations'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  namesOfTable,
  numbersOfTable,
  type ReadyTable,
  registry,
  rootOf,
  textsOfTable,
  type TriggerWork,
} from '../registry/registry'
import { namesTable } from '../registry/name-declarations'
import { requireServer } from '../registry/internals'
import { type NamedIndex, sameCondition, uniqueIndexOf } from '../sql/alter'
import { type Query, type ServerState, tableOids, type TableState, tableState } from '../sql/catalog'
import type { NumberTable } from '../sql/numbers'
import { isElsewhere, type Spread, spreadOf } from '../sql/spread'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName, type TextTable } from '../sql/text-table'
import { wordedCheck, wordedIndex, wordsOf, writtenAs } from '../sql/written'
import { attachedDrift, type WantedDeclaration, wordedDeclared } from '../triggers/attached'
import { guardsOf } from '../triggers/guard'
import { declaredIn, triggerWorks } from './table'

/** The key of a declaration's only table, if the DataSource has no others of that name. */
const ONLY = 'only'

/** A waiting caller queries the database itself if another's answer takes longer than this, in milliseconds. */
const PATIENCE_MILLISECONDS = 1_000

/** A caller's connection for queries of the catalog. */
export interface Asking {
  readonly query: Query
  /** Whether the connection is the caller's, who holds it and perhaps locks meanwhile. */
  readonly shared: boolean
  /** Releases a connection that is not the caller's. */
  release(): Promise<void>
}

/** The look-ups that run outside transactions. These promises settle, and never reject. */
const underWay = new WeakMap<Declaration, Promise<unknown>>()

/**
 * Checks once per DataSource that index, check and guard of a declaration exist. Without them an operation would store
 * duplicates or find nothing. A failure is not remembered, so that a migration corrects it without a restart.
 *
 * If several callers need the answer at once, the first one queries the database. Only callers that hold neither a
 * connection nor a lock wait for it, because the first may need what another one holds.
 *
 * @returns the same object for the same table
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export function ensureReady(declaration: Declaration, asking: Asking): ReadyTable | Promise<ReadyTable> {
  // A tenant's table has another key.
  const known = registry.ready.get(declaration)?.get(ONLY)
  if (known) return known
  if (hasTenants(declaration.metadata)) return ofTenant(declaration, asking.query)
  return asking.shared ? askFor(declaration, ONLY, asking.query) : askOnce(declaration, asking)
}

/** Returns what `ensureReady` found, or undefined before its first answer and if tenants have tables of their own. */
export const knownReady = (declaration: Declaration): ReadyTable | undefined =>
  registry.ready.get(declaration)?.get(ONLY)

/**
 * Forgets what was seen of the table if the error may result from a new deferrable constraint, or from rows that Citus
 * has distributed since. The next look then sees the change.
 *
 * @returns whether the error indicates such a change: 55000 that names a constraint, or 0A000
 */
export function forgetIfChanged(declaration: Declaration, error: unknown): boolean {
  const { code, constraint } = serverError(error) ?? {}
  const seen = [...(registry.ready.get(declaration)?.values() ?? [])]
  const isMoved = code === SQLSTATE.featureNotSupported && seen.some(({ distributed }) => distributed === false)
  const isChanged = isMoved || (code === SQLSTATE.wrongState && constraint !== undefined)
  // The check may be another declaration's, whose guard exists now. The next call looks; this one would fail again.
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
  const key = await tenantOf(declaration.metadata, query)
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
    // The other caller may never answer.
    let timer: NodeJS.Timeout | undefined
    const patience = new Promise<void>((resolve) => (timer = setTimeout(resolve, PATIENCE_MILLISECONDS)))
    await Promise.race([before, patience])
    clearTimeout(timer)
    const known = readyTables(declaration).get(ONLY)
    if (known) return known
  }
  const answer = askFor(declaration, ONLY, asking.query)
  const end = Promise.allSettled([answer])
  underWay.set(declaration, end)
  try {
    return await answer
  } finally {
    if (underWay.get(declaration) === end) underWay.delete(declaration)
  }
}

/** Whether `search_path` selects the table. A cached answer could then be that for another tenant's table. */
export function hasTenants(metadata: EntityMetadata): boolean {
  const settings = registry.settings.get(dataSourceOf(metadata))
  return settings?.tenantsBySearchPath === true && writtenSchema(metadata) === undefined
}

/**
 * A `server_version_num`. Since 18.0, a wait for a row frees what run-time pruning uses for the rest of the statement,
 * and the server crashes. https://github.com/postgres/postgres/commit/1b5dd3a corrected this on 2026-10-10. There is no
 * upper bound here, because no release with the correction was available.
 */
const FIRST_TO_CRASH = 180_000

async function inspect(declaration: Declaration, query: Query): Promise<ReadyTable> {
  const { table, metadata } = declaration
  const { server, state, spread } = await lookAt(metadata, [table], query)
  const ofTexts = new Set(textsOfTable(metadata).map((one) => one.table.index))
  const partitioned = state.spread.partitionedBy.length > 0
  return {
    types: new Map(state.columns.map((column) => [column.name, column])),
    deferrable: state.indexes.some(({ deferrable }) => deferrable),
    rowSecurity: state.rowSecurity,
    distributed: state.spread.citus ? spread.distribution !== undefined : undefined,
    updatesTogether:
      spread.distribution === undefined || (spread.distribution.kind === 'column' && spread.isCoordinator),
    unusual: state.indexes.flatMap(({ name, unusual }) => (unusual && !ofTexts.has(name) ? [unusual] : [])),
    partitioned,
    crashesByPruning: partitioned && spread.distribution === undefined && server.version >= FIRST_TO_CRASH,
  }
}

/**
 * Reads an entity's table, which must have everything that these texts and the registered triggers need.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
async function lookAt(
  metadata: EntityMetadata,
  texts: readonly TextTable[],
  query: Query,
): Promise<{ readonly server: ServerState; readonly state: TableState; readonly spread: Spread }> {
  const relation = tableName(entityTable(metadata))
  const works = triggerWorks(metadata)
  const { server, table: state } = await tableState(query, relation, declaredIn(works))
  const hasTriggers = works.length > 0 || texts.some(({ guardless }) => guardless !== true)
  requireServer(server, hasTriggers)
  if (!state) throw new SchemaDriftError(metadata.tableName, only('missing', 'table', metadata.tableName))
  if (server.replica && hasTriggers)
    throw new SchemaDriftError(metadata.tableName, only('disabled', 'guard', 'session_replication_role'), FIRE_TRIGGERS)
  const spread = await spreadOf(query, relation, state.spread, tablesBeside(metadata))
  refuseSpread(metadata, spread, texts)
  const findings = [...texts.flatMap((one) => findDrift(one, state)), ...workDrift(works, state)]
  if (findings.length > 0) throw new SchemaDriftError(metadata.tableName, findings)
  return { server, state, spread }
}

/** Identifies the table that search_path finds, and those that its triggers write to. These differ between sessions. */
async function tenantOf(metadata: EntityMetadata, query: Query): Promise<string | undefined> {
  const root = rootOf(metadata)
  const written = declaredIn(triggerWorks(root)).flatMap(({ writes }) => (writes ? tableName(writes) : []))
  return await tableOids(query, tableName(entityTable(root)), written)
}

/** Tables that were found ready, by entity, and by OIDs if search_path selects the tenant. */
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
  const tenant = hasTenants(root) ? await tenantOf(root, query) : ONLY
  const known = ready.get(root) ?? new Set<string>()
  if (tenant !== undefined && known.has(tenant)) return
  await lookAt(root, [], query)
  if (tenant !== undefined) ready.set(root, known.add(tenant))
}

/** Returns the declarations that cannot be enforced where the rows of their table are. */
export const spreadDrift = (
  metadata: EntityMetadata,
  spread: Spread,
  texts: readonly TextTable[] = textsOfTable(metadata).map(({ table }) => table),
): Finding[] =>
  [...texts.flatMap((table) => notByKey(table, spread)), ...unsupported(metadata, spread)].map((detail) => ({
    kind: 'different',
    object: 'table',
    name: metadata.tableName,
    detail,
  }))

/** The remedy. A setting of the database, the role or the connection reaches every session. */
const FIRE_TRIGGERS =
  'No trigger fires while session_replication_role is replica. Reset it for the database and the role (the doctor names them), and connect again.'

/** The remedy. No migration of TypeORM moves rows. */
const MOVE_ROWS = 'Move its rows, for instance by undistribute_table(), or change the declaration (docs/scale.md).'

/** @throws SchemaDriftError, UnsupportedDatabaseError */
export function refuseSpread(metadata: EntityMetadata, spread: Spread, texts?: readonly TextTable[]): void {
  const findings = spreadDrift(metadata, spread, texts)
  if (findings.length > 0) throw new SchemaDriftError(metadata.tableName, findings, MOVE_ROWS)
}

/** Rows of one text, and of one hash, must be in one place. Otherwise no index keeps them unique. */
function notByKey(table: Declaration['table'], { distribution, partitionedBy }: Spread): string[] {
  if (distribution?.kind === 'reference') return ['it is a reference table of Citus, whose copies can differ']
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

/** The table that triggers of an entity's table write and Citus must not manage: that of the names, as SQL. */
export const tablesBeside = (metadata: EntityMetadata): string[] =>
  namesOfTable(metadata).length === 0 ? [] : [tableName(namesTable(dataSourceOf(metadata)))]

/** Returns why declarations that work in one place only cannot be kept on this table. */
function unsupported(metadata: EntityMetadata, spread: Spread): string[] {
  const { distribution, isCoordinator, partitionedBy } = spread
  const numbers = numbersOfTable(metadata).flatMap(({ table }) => withoutNumbers(table, spread))
  const names = namesOfTable(metadata).flatMap((one) => withoutNames(one, spread))
  if (!distribution && partitionedBy.length === 0) return [...names, ...numbers]
  const small = metadata.columns.filter(
    ({ isGenerated, generationStrategy, type }) =>
      isGenerated && generationStrategy !== 'uuid' && !['bigint', 'int8'].includes(String(type)),
  )
  const ids = isCoordinator
    ? []
    : small.map(({ databaseName }) => `"${databaseName}" counts up, and workers share only counters of type bigint`)
  return [...names, ...numbers, ...ids]
}

/** Returns why the triggers could not keep a name for each of its rows, on the node of the rows. */
function withoutNames({ name, metadata }: NameDeclaration, spread: Spread): string[] {
  const { distribution, isCoordinator, partitionedBy, beside } = spread
  const names = tableName(namesTable(dataSourceOf(metadata)))
  if (isElsewhere(distribution) || partitionedBy.length > 0)
    return [`"${name}" is kept by triggers that know one table, without shards or partitions`]
  if (distribution && !namesOfTable(metadata).some(({ citus }) => citus === 'local'))
    return [`"${name}" needs the option { citus: 'local' } and a migration, because Citus keeps the table local`]
  if (beside.has(names)) return [`"${name}" is kept in ${names}, which Citus manages`]
  return isCoordinator ? [] : [`"${name}" is kept in ${names}, which only the coordinator has`]
}

/** Returns why the triggers could not number all rows of a scope in one place. */
function withoutNumbers(table: NumberTable, { distribution, partitionedBy }: Spread): string[] {
  if (!distribution) return []
  const { kind, column, copied } = distribution
  const name = `"${table.name}"`
  const isElsewhere = column !== undefined && table.scope.every((one) => one.name !== column)
  const reasons: readonly (readonly [applies: boolean, reason: string])[] = [
    [kind === 'reference', `${name} would differ between the copies of a reference table`],
    [copied, `${name} would differ between the copies of a shard`],
    [partitionedBy.length > 0, `${name} cannot number the rows of a distributed table that has partitions`],
    [!table.citus, `${name} needs the option { citus: true } and a migration, because Citus keeps the rows in shards`],
    [isElsewhere, `it is spread by "${column}", which is not in the scope of ${name}`],
  ]
  return reasons.flatMap(([applies, reason]) => (applies ? [reason] : [])).slice(0, 1)
}

const only = (kind: Finding['kind'], object: Finding['object'], name: string): Finding[] => [{ kind, object, name }]

/**
 * Returns what contradicts the declaration. If the state contains the server's words for what is wanted, it compares
 * every definition, as `migration:generate` and the doctor do. Otherwise it compares only what an operation needs.
 */
export function findDrift(table: TextTable, state: TableState | null): Finding[] {
  if (!state) return only('missing', 'table', table.table)
  return [
    ...columnDrift(table, state),
    ...nullDrift(
      [...table.scope, ...(table.text.length > 1 || table.nullable ? [] : table.text.map(({ name }) => name))],
      state,
    ),
    ...indexDrift(uniqueIndexOf(table), state),
    ...checkDrift(table, state),
    ...guardsOf(table).flatMap((guard) => attachedDrift(guard, state, state.written !== undefined)),
  ]
}

/** Returns hidden columns that are missing or differ. */
export function columnDrift(table: TextTable, { columns, written }: TableState): Finding[] {
  const types: Record<string, string> = {
    [table.hash]: table.digest.type,
    [table.number]: 'integer',
    [table.chained]: 'boolean',
  }
  return Object.entries(types).flatMap(([name, type]): Finding[] => {
    const found = columns.find((column) => column.name === name)
    if (!found) return only('missing', 'column', name)
    // With quote_all_identifiers the server quotes the names of types too.
    if (found.type.replaceAll('"', '') !== type) return only('different', 'column', name)
    const nullable = name === table.hash && table.nullable
    const value = { [table.number]: '0', [table.chained]: 'false' }[name] ?? null
    const at = { object: 'column', name } as const
    if (!written) return []
    if (found.nullable && !nullable) return different(at, 'it may be NULL')
    return different(at, found.default === value ? undefined : 'it has another default')
  })
}

/** Returns nullable columns that must be NOT NULL, because a NULL there is equal to nothing. */
const nullDrift = (names: readonly string[], { columns, written }: TableState): Finding[] =>
  written
    ? columns
        .filter(({ name, nullable }) => nullable && names.includes(name))
        .map(({ name }) => ({ kind: 'different', object: 'column', name, detail: 'it may be NULL' }))
    : []

function indexDrift({ name, columns, where }: NamedIndex, { indexes, written }: TableState): Finding[] {
  const found = indexes.find((one) => one.name === name)
  if (!found) return only('missing', 'index', name)
  if (!found.valid) return only('invalid', 'index', name)
  const at = { object: 'index', name } as const
  // TypeORM takes these columns for columns of the key. The index is right all the same, so first use accepts it.
  if (written && found.definition.includes(') INCLUDE (')) return different(at, 'it includes columns')
  if (!found.unique || !isSameList(found.columns.toSorted(), columns.toSorted())) return [{ kind: 'different', ...at }]
  if (!isSameList(found.columns, columns)) return different(at, OTHER_ORDER)
  if (!sameCondition(where, found.condition)) return different(at, OTHER_ROWS)
  const words = written?.get(`index ${name}`) ?? wordsOf(found.definition)
  return different(at, words === wordsOf(found.definition) ? undefined : 'its definition differs')
}

/** TypeORM does not see this difference. */
export const OTHER_ORDER = 'its columns have another order'

const isSameList = (one: readonly string[], other: readonly string[]): boolean =>
  JSON.stringify(one) === JSON.stringify(other)

/** If the index is a text's, the declaration has changed, and the rows change too. */
export const OTHER_ROWS = 'it holds other rows'

/** Returns what contradicts the triggers that were registered for a table, and the indexes that they depend on. */
export const workDrift = (works: readonly TriggerWork[], state: TableState): Finding[] =>
  works.flatMap(({ declared, indexes = [] }) => [
    ...nullDrift(
      indexes.flatMap(({ columns }) => columns),
      state,
    ),
    ...indexes.flatMap((index) => indexDrift(index, state)),
    ...attachedDrift(declared, state, state.written !== undefined),
    ...writtenDrift(declared, state),
  ])

function checkDrift(table: TextTable, { checks, written }: TableState): Finding[] {
  const found = checks.find(({ name }) => name === table.check)
  if (!found) return only('missing', 'check', table.check)
  if (!found.valid) return only('invalid', 'check', table.check)
  const words = written?.get(`check ${table.check}`) ?? found.condition
  return different(
    { object: 'check', name: table.check },
    words === found.condition ? undefined : 'its condition differs',
  )
}

/** Returns what contradicts the table that triggers write to. */
function writtenDrift({ writes, table }: WantedDeclaration, { foreign, homes, schema }: TableState): Finding[] {
  if (!writes) return []
  const relation = tableName(writes)
  // The functions look in the schema of their own table, and `search_path` has another schema first.
  const isElsewhere = writes.schema === table.schema && (homes[relation] ?? schema) !== schema
  const detail = foreign.includes(relation) ? FOREIGN : isElsewhere ? ELSEWHERE : undefined
  return different({ object: 'table', name: writes.table }, detail)
}

const ELSEWHERE = 'search_path finds it in another schema than the table whose names it keeps: make one there'

const FOREIGN =
  'its owner may not act as the owner of the table whose triggers write to it: see who made it, then drop it or change its owner'

const different = (at: Pick<Finding, 'object' | 'name'>, detail: string | undefined): Finding[] =>
  detail === undefined ? [] : [{ kind: 'different', ...at, detail }]

/** The query and the name for reading a table. */
interface Look {
  readonly query: Query
  /** Whether a transaction is open that continues afterwards. */
  readonly within: boolean
  /** The table's name as SQL. @default that of the entity */
  readonly relation?: string | undefined
}

/**
 * Reads all that a declaration would install, as it is, and what is wanted, in the server's words. The doctor and
 * `migration:generate` compare both.
 *
 * @param works the work that is registered for the entity's triggers
 * @returns null if there is no such table
 */
export async function exactState(
  metadata: EntityMetadata,
  works: readonly TriggerWork[],
  look: Look,
): Promise<TableState | null> {
  const { query, relation = tableName(entityTable(metadata)) } = look
  const { table } = await tableState(query, relation, declaredIn(works))
  if (!table) return null
  const texts = textsOfTable(metadata).map((one) => one.table)
  const indexes = [...texts.map(uniqueIndexOf), ...works.flatMap((work) => [...(work.indexes ?? [])])]
  const words = [...texts.map(wordedCheck), ...indexes.map(wordedIndex)]
  const declared = wordedDeclared([...texts.flatMap(guardsOf), ...declaredIn(works)], table.schema)
  const written = await writtenAs(query, { relation, within: look.within }, [...words, ...declared])
  return { ...table, ...(written ? { written } : {}) }
}
