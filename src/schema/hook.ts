import type { DataSource, EntityMetadata, QueryRunner, Table } from 'typeorm'
import { entityTable, writtenSchema } from '../registry/declarations'
import { requireBuildable } from '../registry/internals'
import { type ColumnMetadata, type Declaration, textsOfTable } from '../registry/registry'
import { type Change, inverse, leavesColumns, makesUniqueAgain, renameIndex, renameTable } from '../sql/alter'
import {
  addLookup,
  dropOrphans,
  installedLibraries,
  installedLookups,
  installedTriggers,
  type InstalledTriggers,
  tableState,
} from '../sql/catalog'
import { quote } from '../sql/identifier'
import { tableName } from '../sql/text-table'
import { guardsOf } from '../triggers/guard'
import { columnsOf } from '../triggers/kinds'
import {
  createPart,
  dropPart,
  firstFunction,
  isCalledFor,
  libraryCheck,
  type LibraryPart,
  neededFor,
  partUsedBy,
} from '../sql/library'
import { isRefusalOfLarge, NORMALIZE_BY_HAND, REQUIRE_TRANSACTION } from '../sql/rows'
import { distribute, hasCitus } from '../sql/spread'
import { triggersLack } from '../sql/written'
import { planDeclared } from '../triggers/plan'
import { changeDeclarations, dropDifferent } from './changes'
import {
  type ChangingTable,
  emit,
  isRecording,
  queryOf,
  recorderOf,
  type SchemaEntity,
  type TablePlan,
  declaredIn,
  triggerWorks,
  wantedLookups,
  withLocks,
} from './table'
import { exactState } from './readiness'
import { fillColumns, planNewRows, planRows, refuseLargeTable } from './rows'
import { type Planned, refuseInShards } from './shards'

/** The protected parts of TypeORM's RdbmsSchemaBuilder that the hook uses. */
export interface SchemaBuilder {
  queryRunner: QueryRunner
  readonly entityToSyncMetadatas: readonly EntityMetadata[]
  executeSchemaSyncOperationsInProperOrder(): Promise<void>
  /** TypeORM calls this when columns are as they should be, before it makes indexes and checks. */
  createNewIndices(): Promise<void>
  getTablePath(target: EntityMetadata | Table): string
}

/**
 * Runs TypeORM's comparison with our triggers.
 *
 * @param searchSchema the schema of a table that names none
 * @param original TypeORM's own method
 */
export async function synchronizeSchema(
  builder: SchemaBuilder,
  searchSchema: string,
  original: () => Promise<void>,
): Promise<void> {
  await withSpreadKeys(
    builder.entityToSyncMetadatas,
    async () => await synchronizeWithTriggers(builder, searchSchema, original),
  )
}

/** Drops the functions that no table uses any more. */
export async function dropUnusedFunctions(dataSource: DataSource, searchSchema: string): Promise<void> {
  await dropOrphans(queryOf(dataSource), schemasOf(dataSource.entityMetadatas, searchSchema))
}

/**
 * Keeps triggers if nothing obstructs them. If a change needs them dropped for a moment, one statement makes all
 * changes and restores the triggers, because a row that another session wrote in between would remain wrong.
 */
async function synchronizeWithTriggers(
  builder: SchemaBuilder,
  searchSchema: string,
  original: () => Promise<void>,
): Promise<void> {
  const { queryRunner } = builder
  const { entities, orphans, citus } = await readEntities(builder, searchSchema)
  const lookups = await installedLookups(
    queryOf(queryRunner),
    schemasOf(
      entities.map(({ metadata }) => metadata),
      searchSchema,
    ),
    entities.flatMap(wantedLookups).map(({ name }) => name),
  )
  const synchronize = async (): Promise<void> => {
    await changeAll(builder, entities, new Set(lookups), original)
  }
  const planned = await dryRun(builder, synchronize)
  const plans = entities.map((entity) => planTable(entity, planned.up))
  const comeBack = plans.some(({ before, declared }) => before.up.length > 0 && declared.length > 0)
  // JavaScript has work to do between the statements of a text's new normalizer.
  const isByHand = planned.up.some((query) => query.includes(NORMALIZE_BY_HAND))
  const refusals = await refuseInShards(queryRunner, plans, planned)
  const all = { up: [...planned.up, ...refusals.up], down: [...planned.down, ...refusals.down] }
  // Work on rows may be refused.
  const isCall = (sql: string): boolean => partUsedBy(sql) !== undefined
  const isWork = comeBack || makesUniqueAgain(planned.up) || [...all.up, ...refusals.down].some(isCall)
  const isWhole = isWork && !isByHand && !citus
  // Citus forwards single commands only: it refuses the one string in which they would need no transaction.
  const guarded = isByHand || (citus && isWork) ? REQUIRE_TRANSACTION : []
  const fresh = entities.filter(({ isNew }) => isNew)
  const comments = await warnOfRenamed(queryRunner, fresh, orphans)
  const spread = fresh.flatMap(({ metadata }) => spreadDeclaration(metadata)?.table ?? [])
  const distributed = spread.filter((table) => table.spread === 'citus')
  const missing = await missingParts(queryRunner, plans, all)
  const created = (inUp: boolean): string[] =>
    missing.filter((one) => one.inUp === inUp).map(({ schema, part }) => createPart(schema, part))
  const up = [...guarded, ...created(true), ...refusals.up]
  const down = [...guarded, ...created(false), ...refusals.down]
  const first = [...up, ...down]
  await withLocks(queryRunner, { isWhole, citus: citus || distributed.length > 0, first }, async () => {
    await emit(queryRunner, comments)
    await emit(queryRunner, { up: [], down: missing.toReversed().map(({ schema, part }) => dropPart(schema, part)) })
    await emit(queryRunner, { up, down: [] })
    // What is released is in another table, whose triggers still exist then, and in a revert exist again.
    const releasing = plans.filter(({ released }) => released.some(({ release }) => release))
    const others = plans.filter((one) => !releasing.includes(one))
    for (const { before } of [...releasing, ...others]) await emit(queryRunner, before)
    await synchronize()
    for (const { after } of [...others, ...releasing]) await emit(queryRunner, after)
    // A new table is distributed over the nodes of its cluster when its index, check and triggers exist.
    for (const table of distributed) await emit(queryRunner, { up: [distribute(table)], down: [] })
    await emit(queryRunner, { up: [], down })
  })
}

/** What a run of the schema builder begins with. */
interface Found {
  /** Every entity that has a text or should have triggers, or whose table has some. */
  readonly entities: readonly SchemaEntity[]
  /** The triggers of tables that no entity has. */
  readonly orphans: readonly InstalledTriggers[]
  readonly citus: boolean
}

/**
 * Reads the tables of all entities, with their triggers, from the catalog.
 *
 * @param searchSchema the schema of a table that names none
 * @throws UnsupportedDatabaseError if triggers are wanted, on a server that cannot keep them
 */
async function readEntities(builder: SchemaBuilder, searchSchema: string): Promise<Found> {
  const { queryRunner, entityToSyncMetadatas: metadatas } = builder
  const query = queryOf(queryRunner)
  for (const metadata of metadatas) {
    for (const check of metadata.checks) {
      check.expression = libraryCheck(writtenSchema(metadata), check.expression)?.expression ?? check.expression
    }
  }
  const declared = metadatas.map((metadata) => {
    const works = triggerWorks(metadata)
    const guards = textsOfTable(metadata).flatMap(({ table }) => guardsOf(table))
    return { metadata, works, declared: [...guards, ...declaredIn(works)] }
  })
  const isWanted = declared.some((one) => one.declared.length > 0)
  const lacks = isWanted ? await triggersLack(query, queryRunner.isTransactionActive) : undefined
  const { server, tables } = await installedTriggers(
    query,
    schemasOf(metadatas, searchSchema),
    declared.flatMap(({ works }) => declaredIn(works)),
  ).catch((error: unknown) => {
    requireBuildable(undefined, lacks)
    throw error
  })
  if (isWanted) requireBuildable(server, lacks)
  const found = declared.flatMap(({ metadata, works, declared }) => {
    const ours = tables.find((one) => isOf(one, metadata, searchSchema))
    if (declared.length + textsOfTable(metadata).length === 0 && !ours) return []
    const { schema = searchSchema, tableName: table } = metadata
    const installed = ours ?? { schema, table, functions: [], triggers: [], tables: [], homes: {}, foreign: [] }
    const isNew = !tableOf(builder, metadata)
    return [{ metadata, works, declared, installed, ...entityTable(metadata), searchSchema, isNew }]
  })
  const citus = await hasCitus(query)
  const fresh = found.filter(({ isNew }) => isNew)
  const entities: SchemaEntity[] = []
  for (const one of found) {
    const state = await exactState(one.metadata, one.works, { query, within: queryRunner.isTransactionActive })
    const entity = { ...one, installed: state ?? one.installed, state, citus }
    entities.push({ ...entity, ...(entity.isNew ? planNewRows(entity, fresh) : planRows(entity)) })
  }
  return {
    entities,
    orphans: tables.filter((one) => !metadatas.some((metadata) => isOf(one, metadata, searchSchema))),
    citus,
  }
}

/** The schemas of the tables of these entities. */
const schemasOf = (metadatas: readonly EntityMetadata[], searchSchema: string): string[] => [
  ...new Set(metadatas.map(({ schema }) => schema ?? searchSchema)),
]

/** Whether a table that was found is that of an entity. */
const isOf = (found: InstalledTriggers, { schema, tableName }: EntityMetadata, searchSchema: string): boolean =>
  found.schema === (schema ?? searchSchema) && found.table === tableName

const RENAMES = /^ALTER TABLE \S+ RENAME (?:COLUMN )?"/

/** @param sql what TypeORM and the changes of declarations will run */
function planTable(entity: SchemaEntity, sql: readonly string[]): TablePlan {
  const { table, installed, declared } = entity
  const columns = new Set([
    ...installed.triggers.flatMap(({ blocks, columns: named }) => [...blocks, ...named]),
    ...declared.flatMap((one) => Object.values(columnsOf(one.declaration))),
  ])
  // A statement may need the triggers dropped, or change what they depend on.
  const isInTheWay = (query: string): boolean => !isRefusalOfLarge(query) && !leavesColumns(query, table, columns)
  const inTheWay = sql.filter(isInTheWay)
  const touched = inTheWay.length > 0 && (inTheWay.every((query) => RENAMES.test(query)) ? 'renamed' : true)
  return { ...entity, ...planDeclared({ ...entity, touched }) }
}

/** A part of the library that is missing in a schema. */
interface MissingPart {
  /** As the tables name it. */
  readonly schema: string | undefined
  readonly part: LibraryPart
  /** If it is false, only the revert calls it. */
  readonly inUp: boolean
}

/** Returns the missing parts of the library that statements call, in the order of their creation. */
async function missingParts(
  queryRunner: QueryRunner,
  plans: readonly TablePlan[],
  planned: Planned,
): Promise<MissingPart[]> {
  const homes = new Map<string, { readonly schema: string | undefined; up: LibraryPart[]; down: LibraryPart[] }>()
  for (const plan of plans) {
    const { schema, searchSchema, before, after, metadata } = plan
    const parts = (triggers: readonly string[], rows: readonly string[]): LibraryPart[] =>
      [...triggers, ...rows.filter((one) => isCalledFor(plan, one))].flatMap((one) => partUsedBy(one) ?? [])
    const ofChecks = metadata.checks
      .filter(({ expression }) => planned.up.some((one) => one.includes(expression)))
      .flatMap(({ expression }) => libraryCheck(schema, expression)?.part ?? [])
    const home = homes.get(schema ?? searchSchema) ?? { schema, up: [], down: [] }
    homes.set(schema ?? searchSchema, home)
    home.up.push(...parts([...before.up, ...after.up], planned.up), ...ofChecks)
    home.down.push(...parts(before.down, planned.down))
  }
  const installed = await installedLibraries(queryOf(queryRunner), [...homes.keys()])
  return [...homes].flatMap(([name, { schema, up, down }]) =>
    neededFor([...up, ...down])
      .filter((part) => installed.get(name)?.includes(firstFunction(part)) !== true)
      .map((part) => ({ schema, part, inUp: neededFor(up).includes(part) })),
  )
}

/**
 * Warns if a new table has the columns of a table that its entity has perhaps lost. A renamed table would be an empty
 * one, because TypeORM renames none.
 *
 * @returns comments for the reader of a migration, because commands show what the logger gets only if `logging` is set
 */
async function warnOfRenamed(
  queryRunner: QueryRunner,
  fresh: readonly SchemaEntity[],
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

/** Returns TypeORM's picture of an entity's table, or undefined if there is none yet. */
function tableOf(builder: SchemaBuilder, metadata: EntityMetadata): Table | undefined {
  const path = builder.getTablePath(metadata)
  return recorderOf(builder.queryRunner).loadedTables.find((one) => builder.getTablePath(one) === path)
}

/** Makes the changes that TypeORM would lose or does not see, and runs TypeORM's own changes. */
async function changeAll(
  builder: SchemaBuilder,
  entities: readonly SchemaEntity[],
  lookups: ReadonlySet<string>,
  original: () => Promise<void>,
): Promise<void> {
  const { queryRunner } = builder
  const left: Change[] = []
  for (const entity of entities) {
    const picture = tableOf(builder, entity.metadata)
    if (!picture) {
      left.push(...wantedLookups(entity).map((one) => addLookup(one)))
      continue
    }
    // TypeORM reads the columns of an index in the order of their names, and `down` would make it so.
    for (const index of picture.indices) {
      const found = entity.state?.indexes.find(({ name }) => name === index.name)
      if (found?.columns.length === index.columnNames.length) index.columnNames = [...found.columns]
    }
    const on = { ...entity, queryRunner, picture }
    await refuseLargeTable(on)
    await dropDifferent(on)
    left.push(...(await changeDeclarations(on)), ...(await fillColumns(on)), ...(await changeLookups(lookups, on)))
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

/**
 * Changes the existing look-up indexes to the wanted ones. TypeORM does not see these indexes: 0.3 would make a btree
 * of them, which refuses long texts.
 *
 * @param installed the names of look-up indexes, of all tables
 * @param on a table whose columns have their new names already
 * @returns the indexes to make once the columns are changed
 */
async function changeLookups(installed: ReadonlySet<string>, on: ChangingTable): Promise<Change[]> {
  const { queryRunner, picture } = on
  const isLookup = ({ name = '' }: { readonly name?: string | undefined }): boolean => installed.has(name)
  const standing = picture.indices.filter(isLookup)
  picture.indices = picture.indices.filter((index) => !isLookup(index))
  const wanted = wantedLookups(on)
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
    await emit(queryRunner, inverse(addLookup({ rows: on, name, column })))
  }
  return made
}

/** The declaration by whose hash a table is spread. */
const spreadDeclaration = (metadata: EntityMetadata): Declaration | undefined =>
  textsOfTable(metadata).find(({ table }) => table.spread !== undefined)

/**
 * Runs TypeORM's comparison with the hash in the primary key of every table that is spread by it. In the database such
 * a key must contain the hash, but an entity needs only its own columns.
 */
async function withSpreadKeys(metadatas: readonly EntityMetadata[], work: () => Promise<void>): Promise<void> {
  const hashes = metadatas.flatMap(
    (metadata) => spreadDeclaration(metadata)?.hidden.slice(0, 1) ?? [],
  ) as (ColumnMetadata & { isPrimary: boolean })[]
  for (const hash of hashes) hash.isPrimary = true
  try {
    await work()
  } finally {
    for (const hash of hashes) hash.isPrimary = false
  }
}
