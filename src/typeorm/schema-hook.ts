import type { DataSource, EntityMetadata, QueryRunner, Table } from 'typeorm'
import { type Change, leavesColumns, makesUniqueAgain } from '../sql/alter'
import { addLookup } from '../sql/lookup'
import { NORMALIZE_BY_HAND } from '../sql/rebuild'
import { dropOrphans } from '../sql/catalog'
import { guardKernel } from '../sql/guard-kernel'
import { makeRoom, planAllFunctions, planSets, type SetPlan, type TriggerSite } from '../sql/trigger-plan'
import { changeDeclarations } from './change-declarations'
import { dryRun, recorderOf } from './dry-run'
import { type EntityTriggers, findTriggers } from './installed-triggers'
import { changeLookups, findLookups, wantedLookups } from './lookup-indexes'
import { asOneStatement, emit } from './record-ddl'
import { distributeNew, withSpreadKeys } from './spread-schema'
import { missingInternal, requireInternals } from './supported'
import { fillColumns, planNewRows, planRows, type RowsPlan } from './trigger-rows'

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
  const isWhole =
    (comeBack || makesUniqueAgain(planned.map(({ query }) => query))) &&
    !planned.some(({ query }) => query.includes(NORMALIZE_BY_HAND))
  await (isWhole ? asOneStatement : asTheyCome)(queryRunner, async () => {
    await emit(queryRunner, makeRoom(sites, orphans))
    await takeAway(queryRunner, plans)
    await synchronize()
    await emit(queryRunner, functions.before)
    for (const { after } of plans) await emit(queryRunner, after)
    for (const { install } of plans.flatMap(({ changes }) => changes)) if (install) await emit(queryRunner, install)
    await emit(queryRunner, functions.after)
    for (const { metadata } of fresh) await distributeNew(queryRunner, metadata)
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
  return !leavesColumns(query, table, columns)
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
