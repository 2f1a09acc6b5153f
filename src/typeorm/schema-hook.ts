import type { DataSource, EntityMetadata, QueryRunner } from 'typeorm'
import { UnsupportedDatabaseError } from '../errors'
import { type InstalledGuard, installedGuards } from '../sql/catalog'
import { commentOnFunction, createFunction, dropFunction, dropTrigger, type Guard, guardOf } from '../sql/guard'
import { qualified, quote } from '../sql/identifier'
import { declarationsOf } from './registry'

/** The protected parts of TypeORM's RdbmsSchemaBuilder that the hook stands on; looked for before they are used. */
interface SchemaBuilder {
  queryRunner: QueryRunner
  tables: { clone(): unknown }[]
  views: { clone(): unknown }[]
  readonly entityToSyncMetadatas: readonly EntityMetadata[]
  executeSchemaSyncOperationsInProperOrder(): Promise<void>
}

interface Driver {
  createSchemaBuilder(): SchemaBuilder
  readonly searchSchema?: string
}

/** A statement as the query runner takes it. */
interface Statement {
  readonly query: string
  readonly parameters: undefined
}

/** An installed guard, its table named as TypeORM's SQL names it: without the schema that is found anyway. */
interface PlacedGuard extends InstalledGuard {
  readonly place: { readonly schema: string | undefined; readonly table: string }
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
  if (typeof driver.createSchemaBuilder !== 'function') throw unsupported()
  const original = driver.createSchemaBuilder.bind(driver)
  driver.createSchemaBuilder = () => {
    const builder = original()
    const synchronize = builder.executeSchemaSyncOperationsInProperOrder as unknown
    if (typeof synchronize !== 'function') throw unsupported()
    builder.executeSchemaSyncOperationsInProperOrder = async () => {
      await synchronizeWithGuards(builder, driver, async (on) => {
        await synchronize.call(on)
      })
    }
    return builder
  }
  driver[HOOKED] = true
}

const unsupported = (): UnsupportedDatabaseError =>
  new UnsupportedDatabaseError(
    'This version of TypeORM builds its schema in another way. Use one that typeorm-unique-text supports.',
  )

/**
 * Guards are taken away before TypeORM changes a table and made anew after it, since a trigger that names a column
 * blocks DROP COLUMN and ALTER TYPE of it; where nothing changes, nothing is said.
 */
async function synchronizeWithGuards(
  builder: SchemaBuilder,
  driver: Driver,
  synchronize: (on: SchemaBuilder) => Promise<void>,
): Promise<void> {
  const { queryRunner, entityToSyncMetadatas: metadatas } = builder
  const wanted = metadatas.flatMap((metadata) => declarationsOf(metadata).map(({ table }) => guardOf(table)))
  const installed = await guardsOf(queryRunner, driver, metadatas)
  const planned = installed.length === 0 ? [] : await dryRun(builder, synchronize)
  const kept = installed.filter(
    (guard) =>
      wanted.some((one) => isInstalled(one, guard)) && !planned.some(({ query }) => query.includes(quote(guard.table))),
  )
  for (const guard of installed) {
    if (!kept.includes(guard)) await emit(queryRunner, dropInstalled(guard), createInstalled(guard))
  }
  await synchronize(builder)
  for (const guard of wanted) {
    if (!kept.some((one) => isInstalled(guard, one))) await emit(queryRunner, guard.create, guard.drop)
  }
}

/** Runs the statements, or records them, as the query runner's mode says. `down` is given in the order to run. */
async function emit(queryRunner: QueryRunner, up: readonly string[], down: readonly string[]): Promise<void> {
  const { executeQueries } = queryRunner as unknown as {
    executeQueries?: (up: Statement[], down: Statement[]) => Promise<void>
  }
  if (typeof executeQueries !== 'function') throw unsupported()
  const statements = (list: readonly string[]): Statement[] => list.map((query) => ({ query, parameters: undefined }))
  // TypeORM runs what it recorded for `down` from the last to the first.
  await executeQueries.call(queryRunner, statements(up), statements(down).toReversed())
}

/** What TypeORM would do, found by letting it do so on copies while the query runner only records. */
async function dryRun(
  builder: SchemaBuilder,
  synchronize: (on: SchemaBuilder) => Promise<void>,
): Promise<readonly { readonly query: string }[]> {
  const { queryRunner } = builder
  const recording = (queryRunner as unknown as { sqlMemoryMode: boolean }).sqlMemoryMode
  const copy = Object.create(builder, {
    tables: { value: builder.tables.map((table) => table.clone()), writable: true },
    views: { value: builder.views.map((view) => view.clone()), writable: true },
  }) as SchemaBuilder
  queryRunner.enableSqlMemory()
  try {
    await synchronize(copy)
    return [...queryRunner.getMemorySql().upQueries]
  } finally {
    queryRunner.clearSqlMemory()
    if (!recording) queryRunner.disableSqlMemory()
  }
}

async function guardsOf(
  queryRunner: QueryRunner,
  { searchSchema = 'public' }: Driver,
  metadatas: readonly EntityMetadata[],
): Promise<PlacedGuard[]> {
  const key = (schema: string, table: string): string => JSON.stringify([schema, table])
  const tables = new Set(metadatas.map(({ schema, tableName }) => key(schema ?? searchSchema, tableName)))
  const schemas = [...new Set(metadatas.map(({ schema }) => schema ?? searchSchema))]
  const guards = await installedGuards(async (sql, values) => await queryRunner.query(sql, values), schemas)
  return guards
    .filter(({ schema, table }) => tables.has(key(schema, table)))
    .map((guard) => ({
      ...guard,
      place: { schema: guard.schema === searchSchema ? undefined : guard.schema, table: guard.table },
    }))
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
