import type { DataSource, EntityMetadata, QueryRunner, Table } from 'typeorm'
import { entityTable } from '../registry/declarations'
import { missingInternal, requireInternals } from '../registry/internals'
import { type ColumnMetadata, type Declaration, tableDeclarations } from '../registry/registry'
import { type Change, inverse, leavesColumns, makesUniqueAgain, renameIndex, renameTable } from '../sql/alter'
import {
  addLookup,
  dropOrphans,
  installedLookups,
  type InstalledTriggers,
  type LookupIndex,
  type TableState,
  tableState,
} from '../sql/catalog'
import { quote } from '../sql/identifier'
import { tableName } from '../sql/text-table'
import { guardKernel } from '../triggers/guard'
import { FORWARDED, isRefusalOfLarge, NORMALIZE_BY_HAND, requireTransaction } from '../triggers/rows'
import { distribute, hasCitus, spreadTable } from '../sql/spread'
import { makeRoom, planAllFunctions, planSets, type SetPlan, type TriggerSite } from '../triggers/plan'
import { changeDeclarations, dropDifferent } from './changes'
import {
  asOneStatement,
  type ChangingTable,
  emit,
  type EntityTriggers,
  findTriggers,
  isOf,
  isRecording,
  queryOf,
  recorderOf,
  schemasOf,
  type SchemaStatement,
  triggerWorks,
  withLocks,
} from './table'
import { exactState } from './readiness'
import { fillColumns, planNewRows, planRows, refuseLargeTable, type RowsPlan } from './rows'
import { type Planned, refuseInShards } from './shards'

/** The protected parts of TypeORM's RdbmsSchemaBuilder that the hook uses. */
interface SchemaBuilder {
  queryRunner: QueryRunner
  readonly entityToSyncMetadatas: readonly EntityMetadata[]
  executeSchemaSyncOperationsInProperOrder(): Promise<void>
  /** TypeORM calls this when columns are as they should be, before it makes indexes and checks. */
  createNewIndices(): Promise<void>
  getTablePath(target: EntityMetadata | Table): string
}

interface Driver {
  createSchemaBuilder(): SchemaBuilder
  readonly searchSchema: string
}

const HOOKED = Symbol.for('typeorm-unique-text.hooked')

/**
 * Makes every TypeORM command that synchronizes or generates emit our triggers. It changes this driver instance once,
 * even if several copies of this package call it.
 *
 * @throws UnsupportedDatabaseError if this version of TypeORM lacks a part that the hook uses
 */
export function hookSchemaBuilder(dataSource: DataSource): void {
  const driver = dataSource.driver as unknown as Driver & { [HOOKED]?: true }
  if (driver[HOOKED]) return
  if (typeof driver.createSchemaBuilder !== 'function') throw missingInternal('PostgresDriver', 'createSchemaBuilder')
  const create = driver.createSchemaBuilder.bind(driver)
  driver.createSchemaBuilder = () => {
    requireInternals(dataSource, create)
    const builder = create()
    const original = builder.executeSchemaSyncOperationsInProperOrder.bind(builder)
    builder.executeSchemaSyncOperationsInProperOrder = async () => {
      const { queryRunner, entityToSyncMetadatas: metadatas } = builder
      await withSpreadKeys(queryRunner, metadatas, async () => await synchronizeWithTriggers(builder, driver, original))
    }
    return builder
  }
  // `dropDatabase`, and so `dropSchema` and `schema:drop`, drop tables and types. This drops our functions too.
  const drop = dataSource.dropDatabase.bind(dataSource)
  dataSource.dropDatabase = async () => {
    await drop()
    await dropOrphans(queryOf(dataSource), schemasOf(dataSource.entityMetadatas, driver.searchSchema))
  }
  driver[HOOKED] = true
}

/**
 * Keeps triggers if nothing obstructs them. If a change needs them dropped for a moment, one statement makes all
 * changes and restores the triggers, because a row that another session wrote in between would remain wrong.
 */
async function synchronizeWithTriggers(
  builder: SchemaBuilder,
  { searchSchema }: Driver,
  original: () => Promise<void>,
): Promise<void> {
  const { queryRunner, entityToSyncMetadatas: metadatas } = builder
  const { entities: found, orphans, kernel } = await findTriggers(queryRunner, searchSchema, metadatas)
  const citus = await hasCitus(queryOf(queryRunner))
  const entities: ExactTriggers[] = []
  for (const entity of found) {
    const within = queryRunner.isTransactionActive
    const state = await exactState(entity.metadata, { query: queryOf(queryRunner), within })
    entities.push({ ...entity, installed: state ?? entity.installed, state, citus })
  }
  const known = entities.map(({ metadata }) => metadata)
  const lookups = await installedLookups(
    queryOf(queryRunner),
    schemasOf(known, searchSchema),
    known.flatMap(wantedLookups).map(({ name }) => name),
  )
  const synchronize = async (): Promise<void> => {
    await changeAll(builder, entities, new Set(lookups), original)
  }
  const planned = await dryRun(builder, synchronize)
  const fresh = entities.filter(({ metadata }) => !tableOf(builder, metadata))
  const plans = entities.map((entity) => planTable(entity, { fresh, sql: planned.up }))
  const sites = plans.map(({ site }) => site)
  const functions = planAllFunctions(sites, kernel, guardKernel)
  const comeBack = plans.some(({ before, site }) => before.up.length > 0 && site.wanted.length > 0)
  // JavaScript has work to do between the statements of a text's new normalizer.
  const isByHand = planned.up.some((query) => query.includes(NORMALIZE_BY_HAND))
  // Work on rows may be refused.
  const isWork = comeBack || makesUniqueAgain(planned.up) || planned.up.some((one) => one.startsWith('DO '))
  const isWhole = isWork && !isByHand && !citus
  // If triggers existed before the rows have what they keep, they would suggest that nothing is missing.
  const installs = plans.flatMap(({ changes }) => changes.flatMap(({ install }) => install ?? []))
  const guarded = isByHand && comeBack ? requireTransaction() : citus && isWork ? requireTransaction(FORWARDED) : []
  const refusals = await refuseInShards(queryRunner, plans, planned)
  const comments = await warnOfRenamed(queryRunner, fresh, orphans)
  const spread = fresh.flatMap(({ metadata }) => spreadDeclaration(metadata)?.table ?? [])
  const distributed = spread.filter((table) => table.spread === 'citus')
  const running = { isWhole, citus: citus || distributed.length > 0 }
  await withLocks(queryRunner, running, async () => {
    await emit(queryRunner, comments)
    await emit(queryRunner, { up: [...refusals.up, ...guarded], down: [] })
    await emit(queryRunner, makeRoom(sites, orphans))
    await emit(queryRunner, { up: [], down: functions.last })
    // Work on rows that lose their triggers may write to other tables. So the triggers of those tables still exist
    // then, and in a revert they exist again.
    const leaving = plans.filter(({ removed }) => removed.length > 0)
    for (const { before } of leaving) await emit(queryRunner, before)
    for (const { change } of leaving.flatMap(({ removed }) => removed)) if (change) await emit(queryRunner, change)
    for (const plan of plans) if (!leaving.includes(plan)) await emit(queryRunner, plan.before)
    await synchronize()
    await emit(queryRunner, functions.before)
    const install = async (): Promise<void> => {
      for (const one of [...plans.map(({ after }) => after), ...installs]) await emit(queryRunner, one)
    }
    await (installs.length === 0 || isWhole ? install() : asOneStatement(queryRunner, install))
    await emit(queryRunner, functions.after)
    // A new table is distributed over the nodes of its cluster when its index, check and triggers exist.
    for (const table of distributed) await emit(queryRunner, { up: [distribute(table)], down: [] })
    await emit(queryRunner, { up: [], down: [...refusals.down, ...guarded] })
  })
}

/** @param sql what TypeORM and the changes of declarations will run */
function planTable(
  entity: ExactTriggers,
  { fresh, sql }: { readonly fresh: readonly ExactTriggers[]; readonly sql: readonly string[] },
): TablePlan {
  const { table, installed, wanted } = entity
  const columns = new Set([
    ...installed.triggers.flatMap(({ blocks, columns: named }) => [...blocks, ...named]),
    ...wanted.flatMap((set) => Object.values(set.columns)),
  ])
  // A statement may need the triggers dropped, or change what they depend on.
  const isInTheWay = (query: string): boolean => !isRefusalOfLarge(query) && !leavesColumns(query, table, columns)
  const isNew = fresh.includes(entity)
  const site = { ...entity, touched: sql.some(isInTheWay), isNew }
  return { site, entity, ...planSets(site), ...(isNew ? planNewRows(entity, fresh) : planRows(entity)) }
}

/**
 * Warns if a new table has the columns of a table that its entity has perhaps lost. A renamed table would be an empty
 * one, because TypeORM renames none.
 *
 * @returns comments for the reader of a migration, because commands show what the logger gets only if `logging` is set
 */
async function warnOfRenamed(
  queryRunner: QueryRunner,
  fresh: readonly EntityTriggers[],
  orphans: readonly InstalledTriggers[],
): Promise<Change> {
  const { entityMetadatas, logger } = queryRunner.connection
  const up: string[] = []
  const listed = (names: readonly string[]): string => JSON.stringify(names.toSorted())
  for (const orphan of orphans) {
    const name = { schema: orphan.schema, table: orphan.table }
    // An entity that is not synchronized has its table, too.
    const lost = fresh.filter(
      ({ installed, searchSchema }) =>
        installed.schema === orphan.schema && !entityMetadatas.some((one) => isOf(orphan, one, searchSchema)),
    )
    // Most changes create no table, and then no query is needed.
    if (lost.length === 0) continue
    const { table: state } = await tableState(queryOf(queryRunner), tableName(name), [])
    const columns = listed(state?.columns.map((one) => one.name) ?? [])
    for (const { metadata } of lost) {
      if (listed(metadata.columns.map((one) => one.databaseName)) !== columns) continue
      const warning =
        `Table ${quote(metadata.tableName)} is new and empty. Table ${tableName(name)} has the same columns and triggers ` +
        `of typeorm-unique-text, and no entity. If it was renamed, replace all statements of this migration by ` +
        `${renameTable(name, metadata.tableName)}, run it, and generate another, which keeps the rows.`
      logger.log('warn', warning, queryRunner)
      if (isRecording(queryRunner)) up.push(`-- ${warning.replaceAll(/\s+/g, ' ')}`)
    }
  }
  return { up, down: [] }
}

/** The triggers of a table, and all else that a declaration makes; `state` is null if the table does not exist. */
type ExactTriggers = EntityTriggers & { readonly state: TableState | null; readonly citus: boolean }

interface TablePlan extends SetPlan, RowsPlan {
  readonly site: TriggerSite
  readonly entity: ExactTriggers
}

/** Returns TypeORM's picture of an entity's table, or undefined if there is none yet. */
function tableOf(builder: SchemaBuilder, metadata: EntityMetadata): Table | undefined {
  const path = builder.getTablePath(metadata)
  return recorderOf(builder.queryRunner).loadedTables.find((one) => builder.getTablePath(one) === path)
}

/** Makes the changes that TypeORM would lose or does not see, and runs TypeORM's own changes. */
async function changeAll(
  builder: SchemaBuilder,
  entities: readonly ExactTriggers[],
  lookups: ReadonlySet<string>,
  original: () => Promise<void>,
): Promise<void> {
  const { queryRunner } = builder
  const left: Change[] = []
  for (const entity of entities) {
    const { metadata, installed, state, citus } = entity
    const table = tableOf(builder, metadata)
    const on = table && { queryRunner, metadata, table, citus }
    if (on) {
      const plan = planRows(entity)
      await refuseLargeTable(on, plan)
      if (state) await dropDifferent(on, state)
      for (const { leave } of plan.changes) if (leave) await emit(queryRunner, leave)
      left.push(...(await changeDeclarations(on, installed)), ...(await fillColumns(on, plan)))
    }
    left.push(...(on ? await changeLookups(lookups, on) : wantedLookups(metadata).map(addLookup)))
  }
  // The remaining changes are made after those of the columns and before those of the indexes.
  const createNewIndices = builder.createNewIndices.bind(builder)
  builder.createNewIndices = async () => {
    for (const change of left) await emit(queryRunner, change)
    await createNewIndices()
  }
  try {
    await original()
  } finally {
    builder.createNewIndices = createNewIndices
  }
}

/** Replaces tables and views. TypeORM 1.1 has the lists on the builder too; 0.3 reads them from the query runner. */
function show(builder: SchemaBuilder, tables: readonly unknown[], views: readonly unknown[]): void {
  Object.assign(builder.queryRunner, { loadedTables: tables, loadedViews: views })
  if ('tables' in builder) Object.assign(builder, { tables, views })
}

/** Finds what TypeORM would do. TypeORM works on copies, while the query runner only records. */
async function dryRun(builder: SchemaBuilder, synchronize: () => Promise<void>): Promise<Planned> {
  const { queryRunner } = builder
  const { sqlMemoryMode: recording, loadedTables, loadedViews } = recorderOf(queryRunner)
  show(
    builder,
    loadedTables.map((table) => table.clone()),
    loadedViews.map((view) => view.clone()),
  )
  queryRunner.enableSqlMemory()
  try {
    await synchronize()
    const { upQueries, downQueries } = queryRunner.getMemorySql()
    return { up: upQueries.map(({ query }) => query), down: downQueries.map(({ query }) => query) }
  } finally {
    show(builder, loadedTables, loadedViews)
    queryRunner.clearSqlMemory()
    if (!recording) queryRunner.disableSqlMemory()
  }
}

/** The look-up indexes that an entity's declarations ask for. */
function wantedLookups(metadata: EntityMetadata): LookupIndex[] {
  const ofTexts = tableDeclarations(metadata).flatMap(({ lookup: name, table: rows }) => {
    const [column] = rows.text
    return name === undefined || !column ? [] : { rows, name, column: column.name }
  })
  return [...ofTexts, ...triggerWorks(metadata).flatMap(({ lookups = [] }) => lookups)]
}

/**
 * Changes the existing look-up indexes to the wanted ones. TypeORM does not see these indexes: 0.3 would make a btree
 * of them, which refuses long texts.
 *
 * @param installed the names of look-up indexes, of all tables
 * @param table TypeORM's picture of the table, whose columns have their new names already
 * @returns the indexes to make once the columns are changed
 */
async function changeLookups(
  installed: ReadonlySet<string>,
  { queryRunner, metadata, table }: ChangingTable,
): Promise<Change[]> {
  const isLookup = ({ name = '' }: { readonly name?: string | undefined }): boolean => installed.has(name)
  const standing = table.indices.filter(isLookup)
  table.indices = table.indices.filter((index) => !isLookup(index))
  const wanted = wantedLookups(metadata)
  const rows = entityTable(metadata)
  const made: Change[] = []
  for (const one of wanted) {
    const found = standing.find(({ columnNames }) => columnNames.length === 1 && columnNames[0] === one.column)
    if (!found) made.push(addLookup(one))
    else if (found.name && found.name !== one.name) await emit(queryRunner, renameIndex(one.rows, found.name, one.name))
  }
  for (const {
    name = '',
    columnNames: [column = ''],
  } of standing) {
    if (wanted.some((one) => one.column === column)) continue
    await emit(queryRunner, inverse(addLookup({ rows, name, column })))
  }
  return made
}

/** The declaration by whose hash a table is spread. */
const spreadDeclaration = (metadata: EntityMetadata): Declaration | undefined =>
  tableDeclarations(metadata).find(({ table }) => table.spread !== undefined)

/**
 * Runs TypeORM's comparison with the hash in the primary key of every table that is spread by it. In the database such
 * a key must contain the hash, but an entity needs only its own columns. A new table is made with its partitions.
 */
async function withSpreadKeys(
  queryRunner: QueryRunner,
  metadatas: readonly EntityMetadata[],
  work: () => Promise<void>,
): Promise<void> {
  const spread = metadatas.flatMap((metadata) => spreadDeclaration(metadata) ?? [])
  if (spread.length === 0) {
    await work()
    return
  }
  const hashes = spread.flatMap(({ hidden: [hash] }) => hash ?? []) as (ColumnMetadata & { isPrimary: boolean })[]
  const recorder = recorderOf(queryRunner)
  const executeQueries = recorder.executeQueries.bind(recorder)
  const withPartitions = (one: SchemaStatement): SchemaStatement => ({
    ...one,
    query: spread.reduce((sql, { table }) => spreadTable(table, sql), one.query),
  })
  recorder.executeQueries = async (up, down) => {
    await executeQueries('query' in up ? withPartitions(up) : up.map(withPartitions), down)
  }
  for (const hash of hashes) hash.isPrimary = true
  try {
    await work()
  } finally {
    for (const hash of hashes) hash.isPrimary = false
    recorder.executeQueries = executeQueries
  }
}
