import type { DataSource, EntityMetadata, QueryRunner, Table } from 'typeorm'
import { type Change, inverse, leavesColumns, makesUniqueAgain, renameIndex } from '../sql/alter'
import { isRefusalOfLarge } from '../sql/adopt-table'
import { dropOrphans } from '../sql/catalog'
import { guardKernel } from '../triggers/guard-kernel'
import { addLookup, installedLookups, type LookupIndex } from '../sql/lookup'
import { NORMALIZE_BY_HAND, requireTransaction } from '../triggers/rebuild'
import { distribute, spreadTable } from '../sql/spread'
import { makeRoom, planAllFunctions, planSets, type SetPlan, type TriggerSite } from '../triggers/trigger-plan'
import { changeDeclarations } from './change-declarations'
import { asOneStatement, type ChangingTable, emit } from './changing-table'
import { type ColumnMetadata, type Declaration, tableDeclarations } from '../registry/registry'
import { foreignSchema } from '../registry/resolve-declaration'
import { missingInternal, requireInternals } from '../registry/supported'
import { fillColumns, planNewRows, planRows, refuseLargeTable, type RowsPlan } from './trigger-rows'
import { type EntityTriggers, findTriggers, triggerWorks } from './trigger-sets'

/** The protected parts of TypeORM's RdbmsSchemaBuilder that the hook stands on. */
interface SchemaBuilder {
  queryRunner: QueryRunner
  readonly entityToSyncMetadatas: readonly EntityMetadata[]
  executeSchemaSyncOperationsInProperOrder(): Promise<void>
  /** Called when columns are as they shall be, before indexes and checks are. */
  createNewIndices(): Promise<void>
  getTablePath(target: EntityMetadata | Table): string
}

interface Driver {
  createSchemaBuilder(): SchemaBuilder
  readonly searchSchema: string
}

const HOOKED = Symbol.for('typeorm-unique-text.hooked')

/**
 * Makes every TypeORM command that synchronizes or generates emit our triggers, by one change of this driver instance,
 * whichever copy of this package makes it.
 *
 * @throws UnsupportedDatabaseError if this version of TypeORM lacks what the hook stands on
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
  dropFunctionsWithTables(dataSource)
  driver[HOOKED] = true
}

/** `dropDatabase`, and so `dropSchema` and `schema:drop`, drop tables and types; our functions go with them. */
function dropFunctionsWithTables(dataSource: DataSource): void {
  const drop = dataSource.dropDatabase.bind(dataSource)
  dataSource.dropDatabase = async () => {
    await drop()
    const { searchSchema } = dataSource.driver as unknown as Driver
    const schemas = [...new Set(dataSource.entityMetadatas.map(({ schema }) => schema ?? searchSchema))]
    const query = async (sql: string, values?: unknown[]): Promise<unknown[]> => await dataSource.query(sql, values)
    await dropOrphans(query, schemas)
  }
}

/**
 * Triggers stay where nothing stands in the way. Where a change needs them away for a moment, all that is done meanwhile
 * is one statement with what puts them back: what another session wrote in between would be wrong for ever.
 */
async function synchronizeWithTriggers(
  builder: SchemaBuilder,
  { searchSchema }: Driver,
  original: () => Promise<void>,
): Promise<void> {
  const { queryRunner, entityToSyncMetadatas: metadatas } = builder
  const { entities, orphans, kernel } = await findTriggers(queryRunner, searchSchema, metadatas)
  const lookups = await findLookups(
    queryRunner,
    searchSchema,
    entities.map(({ metadata }) => metadata),
  )
  const synchronize = async (): Promise<void> => {
    const left = await changeAll(builder, entities, lookups)
    await beforeIndexes(builder, left, original)
  }
  const standing = entities.some(({ installed }) => installed.triggers.length > 0)
  const planned = standing ? await dryRun(builder, synchronize) : []
  const fresh = entities.filter(({ metadata }) => !tableOf(builder, metadata))
  const plans = entities.map((entity): TablePlan => {
    const site = { ...entity, touched: planned.some(({ query }) => isInTheWay(entity, query)) }
    return { site, ...planSets(site), ...(tableOf(builder, entity.metadata) ? planRows(entity) : planNewRows(entity)) }
  })
  const sites = plans.map(({ site }) => site)
  const functions = planAllFunctions(sites, kernel, guardKernel)
  const comeBack = plans.some(({ before, site }) => before.up.length > 0 && site.wanted.length > 0)
  // Between the statements of a text's new normalizer there is work for JavaScript.
  const isByHand = planned.some(({ query }) => query.includes(NORMALIZE_BY_HAND))
  const isWhole = !isByHand && (comeBack || makesUniqueAgain(planned.map(({ query }) => query)))
  // Triggers that stand before the rows have what they keep would say that nothing is missing.
  const installs = plans.flatMap(({ changes }) => changes.flatMap(({ install }) => install ?? []))
  const guarded = isByHand && comeBack ? requireTransaction() : []
  await (isWhole ? asOneStatement : asTheyCome)(queryRunner, async () => {
    await emit(queryRunner, { up: guarded, down: [] })
    await emit(queryRunner, makeRoom(sites, orphans))
    await takeAway(queryRunner, plans)
    await synchronize()
    await emit(queryRunner, functions.before)
    await (installs.length === 0 || isWhole ? asTheyCome : asOneStatement)(queryRunner, async () => {
      for (const one of [...plans.map(({ after }) => after), ...installs]) await emit(queryRunner, one)
    })
    await emit(queryRunner, functions.after)
    for (const { metadata } of fresh) await distributeNew(queryRunner, metadata)
    await emit(queryRunner, { up: [], down: guarded })
  })
}

const asTheyCome = async (_: QueryRunner, work: () => Promise<void>): Promise<void> => {
  await work()
}

/** Whether a statement needs the triggers of a table away, or may change what they stand on. */
function isInTheWay({ table, installed, wanted }: EntityTriggers, query: string): boolean {
  const columns = new Set([
    ...installed.triggers.flatMap(({ blocks, columns: named }) => [...blocks, ...named]),
    ...wanted.flatMap((set) => Object.values(set.columns)),
  ])
  return !isRefusalOfLarge(query) && !leavesColumns(query, table, columns)
}

interface TablePlan extends SetPlan, RowsPlan {
  readonly site: TriggerSite
}

/**
 * What is done with rows that lose their triggers may write to other tables. So the triggers of those are there still,
 * and on the way back there again.
 */
async function takeAway(queryRunner: QueryRunner, plans: readonly TablePlan[]): Promise<void> {
  const leaving = plans.filter(({ removed }) => removed.length > 0)
  for (const { before } of leaving) await emit(queryRunner, before)
  for (const { change } of leaving.flatMap(({ removed }) => removed)) if (change) await emit(queryRunner, change)
  for (const plan of plans) if (!leaving.includes(plan)) await emit(queryRunner, plan.before)
}

/** TypeORM's picture of an entity's table; undefined where there is none yet. */
function tableOf(builder: SchemaBuilder, metadata: EntityMetadata): Table | undefined {
  const path = builder.getTablePath(metadata)
  return recorderOf(builder).loadedTables.find((one) => builder.getTablePath(one) === path)
}

/** @returns what is left to do before TypeORM makes the indexes */
async function changeAll(
  builder: SchemaBuilder,
  entities: readonly EntityTriggers[],
  lookups: ReadonlySet<string>,
): Promise<Change[]> {
  const left: Change[] = []
  for (const entity of entities) {
    const { metadata, installed } = entity
    const table = tableOf(builder, metadata)
    const on = table && { queryRunner: builder.queryRunner, metadata, table }
    if (on) {
      const plan = planRows(entity)
      await refuseLargeTable(on, plan)
      for (const { leave } of plan.changes) if (leave) await emit(builder.queryRunner, leave)
      left.push(...(await changeDeclarations(on, installed)), ...(await fillColumns(on, plan)))
    }
    left.push(...(on ? await changeLookups(lookups, on) : wantedLookups(metadata).map(addLookup)))
  }
  return left
}

/** Runs TypeORM's own changes, and these in between: when the columns are done, and the indexes are not. */
async function beforeIndexes(
  builder: SchemaBuilder,
  changes: readonly Change[],
  original: () => Promise<void>,
): Promise<void> {
  const createNewIndices = builder.createNewIndices.bind(builder)
  builder.createNewIndices = async () => {
    for (const change of changes) await emit(builder.queryRunner, change)
    await createNewIndices()
  }
  try {
    await original()
  } finally {
    builder.createNewIndices = createNewIndices
  }
}

/** The part of TypeORM's schema builder that shows what the database holds. */
interface Builder {
  readonly queryRunner: QueryRunner
}

interface View {
  clone(): View
}

/** Protected parts of the query runner: its mode, and its picture of the database, on which the builder works. */
interface Recorder {
  readonly sqlMemoryMode: boolean
  loadedTables: Table[]
  loadedViews: View[]
}

const recorderOf = ({ queryRunner }: Builder): Recorder => queryRunner as unknown as Recorder

/** TypeORM 1.1 has the same lists on the builder too; 0.3 looks them up at the query runner. */
function show(builder: Builder, tables: Table[], views: View[]): void {
  Object.assign(recorderOf(builder), { loadedTables: tables, loadedViews: views })
  if ('tables' in builder) Object.assign(builder, { tables, views })
}

/** What TypeORM would do, found by letting it do so on copies while the query runner only records. */
async function dryRun(
  builder: Builder,
  synchronize: () => Promise<void>,
): Promise<readonly { readonly query: string }[]> {
  const { queryRunner } = builder
  const { sqlMemoryMode: recording, loadedTables, loadedViews } = recorderOf(builder)
  show(
    builder,
    loadedTables.map((table) => table.clone()),
    loadedViews.map((view) => view.clone()),
  )
  queryRunner.enableSqlMemory()
  try {
    await synchronize()
    return [...queryRunner.getMemorySql().upQueries]
  } finally {
    show(builder, loadedTables, loadedViews)
    queryRunner.clearSqlMemory()
    if (!recording) queryRunner.disableSqlMemory()
  }
}

/** Names of the look-up indexes that stand on the tables of these entities. */
async function findLookups(
  queryRunner: QueryRunner,
  searchSchema: string,
  metadatas: readonly EntityMetadata[],
): Promise<ReadonlySet<string>> {
  const schemas = [...new Set(metadatas.map(({ schema }) => schema ?? searchSchema))]
  const names = metadatas.flatMap(wantedLookups).map(({ name }) => name)
  const query = async (sql: string, values?: unknown[]): Promise<unknown[]> =>
    (await queryRunner.query(sql, values)) as unknown[]
  return new Set(await installedLookups(query, schemas, names))
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
 * Makes what stands what is wanted. TypeORM does not see these indexes: 0.3 would make a btree of them, which refuses
 * long texts.
 *
 * @param installed names, of all tables
 * @param table of the picture, whose columns have their new names already
 * @returns those to make once the columns are done
 */
async function changeLookups(
  installed: ReadonlySet<string>,
  { queryRunner, metadata, table }: ChangingTable,
): Promise<Change[]> {
  const isLookup = ({ name = '' }: { readonly name?: string | undefined }): boolean => installed.has(name)
  const standing = table.indices.filter(isLookup)
  table.indices = table.indices.filter((index) => !isLookup(index))
  const wanted = wantedLookups(metadata)
  const rows = { schema: foreignSchema(metadata), table: metadata.tableName }
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

interface StatementRecorder {
  executeQueries(up: unknown, down: unknown): Promise<void>
}

/**
 * Runs TypeORM's comparison with the hash in the primary key of every table that is spread by it: in the database a key
 * must hold it, and for an entity its own columns are enough. A new table is made with its partitions.
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
  const recorder = queryRunner as unknown as StatementRecorder
  const executeQueries = recorder.executeQueries.bind(recorder)
  recorder.executeQueries = async (up, down) => {
    for (const one of [up].flat() as { query: string }[]) {
      for (const { table } of spread) one.query = spreadTable(table, one.query)
    }
    await executeQueries(up, down)
  }
  for (const hash of hashes) hash.isPrimary = true
  try {
    await work()
  } finally {
    for (const hash of hashes) hash.isPrimary = false
    recorder.executeQueries = executeQueries
  }
}

/** Once its index, check and triggers are there, a new table goes to the nodes of its cluster. */
async function distributeNew(queryRunner: QueryRunner, metadata: EntityMetadata): Promise<void> {
  const declaration = spreadDeclaration(metadata)
  if (declaration?.table.spread !== 'citus') return
  await emit(queryRunner, { up: [distribute(declaration.table)], down: [] })
}
