import type { DataSource, EntityMetadata, QueryRunner, Table } from 'typeorm'
import { type InstalledGuard, installedGuards } from '../sql/catalog'
import {
  commentOnFunction,
  createFunction,
  dropFunction,
  dropTrigger,
  type Guard,
  guardOf,
  parseGuardComment,
} from '../sql/guard'
import { qualified, quote } from '../sql/identifier'
import { emit, unsupportedTypeOrm } from './record-ddl'
import { declarationsOf } from './registry'
import { keepTexts } from './keep-texts'

/** The protected parts of TypeORM's RdbmsSchemaBuilder that the hook stands on; looked for before they are used. */
interface SchemaBuilder {
  queryRunner: QueryRunner
  readonly entityToSyncMetadatas: readonly EntityMetadata[]
  executeSchemaSyncOperationsInProperOrder(): Promise<void>
  getTablePath(target: EntityMetadata | Table): string
}

interface Driver {
  createSchemaBuilder(): SchemaBuilder
  readonly searchSchema?: string
}

/** An installed guard, its table named as TypeORM's SQL names it: without the schema that is found anyway. */
interface PlacedGuard extends InstalledGuard {
  readonly place: { readonly schema: string | undefined; readonly table: string }
  /** The entity of its table. */
  readonly owner: EntityMetadata
}

const HOOKED = Symbol.for('typeorm-unique-text.hooked')

/**
 * Makes every TypeORM command that synchronizes or generates emit the guards, by one change of this driver instance.
 *
 * @throws UnsupportedDatabaseError if this version of TypeORM has no such place
 */
export function hookSchemaBuilder(dataSource: DataSource): void {
  const driver = dataSource.driver as unknown as Driver & { [HOOKED]?: true }
  if (driver[HOOKED]) return
  if (typeof driver.createSchemaBuilder !== 'function') throw unsupportedTypeOrm()
  const create = driver.createSchemaBuilder.bind(driver)
  driver.createSchemaBuilder = () => {
    const builder = create()
    const original: unknown = Reflect.get(builder, 'executeSchemaSyncOperationsInProperOrder')
    if (typeof original !== 'function' || typeof builder.getTablePath !== 'function') throw unsupportedTypeOrm()
    builder.executeSchemaSyncOperationsInProperOrder = () =>
      synchronizeWithGuards(builder, driver, async (on) => {
        await original.call(on)
      })
    return builder
  }
  driver[HOOKED] = true
}

/**
 * Guards are taken away before TypeORM changes a table and made anew after it, since a trigger that names a column
 * blocks DROP COLUMN and ALTER TYPE of it; where nothing changes, nothing is said.
 */
async function synchronizeWithGuards(
  builder: SchemaBuilder,
  driver: Driver,
  original: (on: SchemaBuilder) => Promise<void>,
): Promise<void> {
  const { queryRunner, entityToSyncMetadatas: metadatas } = builder
  const wanted = metadatas.flatMap((metadata) => declarationsOf(metadata).map(({ table }) => guardOf(table)))
  const installed = await guardsOf(queryRunner, driver, metadatas)
  const synchronize = async (on: SchemaBuilder): Promise<void> => {
    await keepAllTexts(on, installed)
    await original(on)
  }
  const planned = installed.length === 0 ? [] : await dryRun(builder, synchronize)
  const kept = installed.filter(
    (guard) =>
      wanted.some((one) => isInstalled(one, guard)) && !planned.some(({ query }) => query.includes(quote(guard.table))),
  )
  for (const guard of installed) {
    if (!kept.includes(guard)) await emit(queryRunner, { up: dropInstalled(guard), down: createInstalled(guard) })
  }
  await synchronize(builder)
  for (const guard of wanted) {
    if (!kept.some((one) => isInstalled(guard, one))) await emit(queryRunner, { up: guard.create, down: guard.drop })
  }
}

async function keepAllTexts(builder: SchemaBuilder, installed: readonly PlacedGuard[]): Promise<void> {
  for (const metadata of builder.entityToSyncMetadatas) {
    const path = builder.getTablePath(metadata)
    const table = recorderOf(builder).loadedTables.find((one) => builder.getTablePath(one) === path)
    if (!table) continue
    const notes = installed
      .filter((guard) => guard.owner === metadata)
      .flatMap(({ comment }) => parseGuardComment(comment) ?? [])
    for (const declaration of declarationsOf(metadata)) await keepTexts(builder.queryRunner, declaration, table, notes)
  }
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

const recorderOf = ({ queryRunner }: SchemaBuilder): Recorder => queryRunner as unknown as Recorder

/** TypeORM 1.1 has the same lists on the builder too; 0.3 looks them up at the query runner. */
function show(builder: SchemaBuilder, tables: Table[], views: View[]): void {
  Object.assign(recorderOf(builder), { loadedTables: tables, loadedViews: views })
  if ('tables' in builder) Object.assign(builder, { tables, views })
}

/** What TypeORM would do, found by letting it do so on copies while the query runner only records. */
async function dryRun(
  builder: SchemaBuilder,
  synchronize: (on: SchemaBuilder) => Promise<void>,
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
    await synchronize(builder)
    return [...queryRunner.getMemorySql().upQueries]
  } finally {
    show(builder, loadedTables, loadedViews)
    queryRunner.clearSqlMemory()
    if (!recording) queryRunner.disableSqlMemory()
  }
}

async function guardsOf(
  queryRunner: QueryRunner,
  { searchSchema = 'public' }: Driver,
  metadatas: readonly EntityMetadata[],
): Promise<PlacedGuard[]> {
  const schemas = [...new Set(metadatas.map(({ schema }) => schema ?? searchSchema))]
  const guards = await installedGuards(async (sql, values) => await queryRunner.query(sql, values), schemas)
  return guards.flatMap((guard) => {
    const owner = metadatas.find(
      ({ schema, tableName }) => (schema ?? searchSchema) === guard.schema && tableName === guard.table,
    )
    if (!owner) return []
    const schema = guard.schema === searchSchema ? undefined : guard.schema
    return [{ ...guard, owner, place: { schema, table: guard.table } }]
  })
}

function isInstalled(wanted: Guard, { comment, enabled, place, triggers }: PlacedGuard): boolean {
  return (
    enabled &&
    comment === wanted.comment &&
    place.schema === wanted.table.schema &&
    place.table === wanted.table.name &&
    wanted.triggers.every(({ name }) => triggers.some((trigger) => trigger.name === name))
  )
}

function dropInstalled({ place, triggers, functions }: PlacedGuard): string[] {
  return [
    ...triggers.map(({ name }) => dropTrigger(qualified(place.schema, place.table), name)),
    ...functions.map(({ name }) => dropFunction(qualified(place.schema, name))),
  ]
}

/** As it was, also where another version of this package made it. */
function createInstalled({ place, triggers, functions, comment }: PlacedGuard): string[] {
  return [
    ...functions.flatMap(({ name, body }) => createFunction(place, name, body)),
    ...triggers.map(({ definition }) => definition),
    ...functions.map(({ name }) => commentOnFunction(qualified(place.schema, name), comment)),
  ]
}
