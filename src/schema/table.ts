import type { EntityMetadata, QueryRunner, Table } from 'typeorm'
import { registry, rootOf, tableDeclarations, type TriggerWork } from '../registry/registry'
import { requireBuildable } from '../registry/internals'
import { type Change, indexCondition, lockTables, sameCondition } from '../sql/alter'
import { type InstalledKernel, type InstalledTriggers, installedTriggers, type Query } from '../sql/catalog'
import { ONE_CONNECTION } from '../sql/spread'
import type { TextRows } from '../sql/text-table'
import type { TriggerSet } from '../sql/trigger-set'
import type { Digest } from '../text/digest'
import { guardsOf } from '../triggers/guard'
import type { TriggerSite } from '../triggers/plan'

/** A table whose declarations may change. */
export interface ChangingTable {
  readonly queryRunner: QueryRunner
  readonly metadata: EntityMetadata
  /** The schema builder's picture of the table, which every statement must update. */
  readonly table: Table
  /** The database has Citus, which may distribute the table at any time. */
  readonly citus: boolean
}

/** The former rules of the rows, from the note of the installed guard. */
export interface RowsBefore extends Omit<TextRows, 'digest'> {
  readonly digestName: string
  /** undefined for the user's own digest that this program no longer has. */
  readonly digest: Digest | undefined
}

export const hasColumn = ({ table }: ChangingTable, name: string): boolean => table.findColumnByName(name) !== undefined

export const hasIndex = ({ table }: ChangingTable, name: string): boolean =>
  table.indices.some((index) => index.name === name)

/** Whether the index exists and holds the rows that it should. TypeORM does not compare conditions. */
export const hasWholeIndex = ({ table }: ChangingTable, rows: Pick<TextRows, 'index' | 'deleted'>): boolean =>
  table.indices.some(({ name, where }) => name === rows.index && sameCondition(indexCondition(rows), where))

export const hasCheck = ({ table }: ChangingTable, name: string): boolean =>
  table.checks.some((check) => check.name === name)

/** Whether a column of this name is declared. */
export const isDeclared = ({ metadata }: ChangingTable, name: string): boolean =>
  metadata.columns.some(({ databaseName }) => databaseName === name)

/** A statement as the query runner takes it. */
export interface SchemaStatement {
  readonly query: string
  readonly parameters?: readonly unknown[] | undefined
}

/** The protected parts of the query runner: its mode, and its picture of the database, on which the builder works. */
interface Recorder {
  readonly sqlMemoryMode: boolean
  readonly loadedTables: Table[]
  readonly loadedViews: { clone(): unknown }[]
  /** Runs or records statements, depending on the mode. */
  executeQueries(
    up: SchemaStatement | readonly SchemaStatement[],
    down: SchemaStatement | readonly SchemaStatement[],
  ): Promise<void>
}

export const recorderOf = (queryRunner: QueryRunner): Recorder => queryRunner as unknown as Recorder

const statement = (query: string): SchemaStatement => ({ query, parameters: undefined })

/** Runs or records the statements, depending on the query runner's mode. */
export async function emit(queryRunner: QueryRunner, { up, down }: Change): Promise<void> {
  // TypeORM runs what it recorded for `down` from the last to the first.
  await recorderOf(queryRunner).executeQueries(up.map(statement), down.map(statement).toReversed())
}

const CONCURRENT = /^(?:CREATE(?: UNIQUE)?|(DROP)) INDEX CONCURRENTLY\b/i

/** Whether a statement must be alone, because it has values or cannot be in a transaction. */
const isAlone = ({ query, parameters = [] }: SchemaStatement): boolean =>
  parameters.length > 0 || CONCURRENT.test(query)

/** Queries the database, even while statements are recorded. */
export const queryOf =
  (asked: { query(sql: string, values?: unknown[]): Promise<unknown> }): Query =>
  async (sql, values) =>
    (await asked.query(sql, values)) as unknown[]

/** Whether statements are recorded, as for a migration, and not run. */
export const isRecording = (queryRunner: QueryRunner): boolean => recorderOf(queryRunner).sqlMemoryMode

/**
 * Joins all statements that are run or recorded meanwhile into one, and all their inverses into another. The server
 * runs the statements in one string as one transaction, even if a migration has none.
 */
export async function asOneStatement(queryRunner: QueryRunner, work: () => Promise<void>): Promise<void> {
  // `synchronize` has a transaction already, and its errors name single statements.
  await (queryRunner.isTransactionActive ? work() : changed(queryRunner, work, together))
}

/** How statements run. */
interface Running {
  /** All of them as one. */
  readonly isWhole: boolean
  /** Citus may forward them to its nodes. */
  readonly citus: boolean
}

/** Makes a migration begin with locks on the tables that it works on. */
export async function withLocks(
  queryRunner: QueryRunner,
  { isWhole, citus }: Running,
  work: () => Promise<void>,
): Promise<void> {
  if (!isRecording(queryRunner)) {
    if (citus) await emit(queryRunner, { up: [ONE_CONNECTION], down: [] })
    await (isWhole ? asOneStatement(queryRunner, work) : work())
    return
  }
  await changed(queryRunner, work, (statements, inverse) => {
    const [sql = [], back = []] = [statements, inverse].map((all) => all.map(({ query }) => query))
    const first = citus && sql.some((one) => one.includes(' FUNCTION ')) ? [ONE_CONNECTION] : []
    const all = [...[...first, ...lockTables(sql, back)].map(statement), ...statements]
    return isWhole ? together(all) : all
  })
}

/** @param change converts the statements; its second argument is their inverses, both in the order to run */
async function changed(
  queryRunner: QueryRunner,
  work: () => Promise<void>,
  change: (statements: readonly SchemaStatement[], inverse: readonly SchemaStatement[]) => SchemaStatement[],
): Promise<void> {
  const recorder = recorderOf(queryRunner)
  const executeQueries = recorder.executeQueries.bind(recorder)
  const [up, down]: [SchemaStatement[], SchemaStatement[]] = [[], []]
  const list = (given: SchemaStatement | readonly SchemaStatement[]): readonly SchemaStatement[] =>
    'query' in given ? [given] : given
  recorder.executeQueries = async (ups, downs) => {
    up.push(...list(ups))
    down.push(...list(downs))
    await Promise.resolve()
  }
  try {
    await work()
  } finally {
    recorder.executeQueries = executeQueries
  }
  down.reverse()
  await recorder.executeQueries(change(up, down), change(down, up).toReversed())
}

/** Joins statements that can run together, and keeps their order. */
function together(statements: readonly SchemaStatement[]): SchemaStatement[] {
  const alone = statements.filter(isAlone)
  // An index is dropped before its columns are.
  const isFirst = ({ query }: SchemaStatement): boolean => CONCURRENT.exec(query)?.[1] !== undefined
  const joined = statements.filter((one) => !isAlone(one)).map(({ query }) => query.replace(/;\s*$/, ''))
  // A user's view may end with a comment.
  const ended = joined.map((one) => (/--[^\n]*$/.test(one) ? `${one}\n` : one))
  return [
    ...alone.filter(isFirst),
    ...(ended.length === 0 ? [] : [statement(ended.join(';\n'))]),
    ...alone.filter((one) => !isFirst(one)),
  ]
}

/**
 * Registers triggers for the table of an entity. A decorator calls it while TypeORM builds metadata.
 *
 * @param name identifies the triggers among others of the table; the last registration of a name counts
 * @param make is called when all metadata is built, so that it may read other entities
 */
export function registerTriggers(metadata: EntityMetadata, name: string, make: () => TriggerWork): void {
  const root = rootOf(metadata)
  const works = registry.triggers.get(root) ?? new Map<string, () => TriggerWork>()
  registry.triggers.set(root, works.set(name, make))
}

/** Returns the triggers that were registered for the table of an entity, with their work on rows. */
export function triggerWorks(metadata: EntityMetadata): TriggerWork[] {
  return [...(registry.triggers.get(rootOf(metadata))?.values() ?? [])].map((make) => make())
}

/** Returns all triggers that the table of an entity needs: its guards, and those that were registered. */
export function wantedSets(metadata: EntityMetadata): TriggerSet[] {
  return [
    ...tableDeclarations(metadata).flatMap(({ table }) => guardsOf(table)),
    ...triggerWorks(metadata).map(({ set }) => set),
  ]
}

/** The triggers of one entity's table. */
export interface EntityTriggers extends Omit<TriggerSite, 'touched' | 'isNew'> {
  readonly metadata: EntityMetadata
}

/** All triggers of ours that concern a run of the schema builder. */
interface FoundTriggers {
  /** The triggers of every entity that has a text or should have triggers, or whose table has some. */
  readonly entities: readonly EntityTriggers[]
  /** The triggers of tables that no entity has. */
  readonly orphans: readonly InstalledTriggers[]
  readonly kernel: readonly InstalledKernel[]
}

/**
 * Looks for the triggers of these entities in the catalog.
 *
 * @param searchSchema the schema of a table that names none
 * @throws UnsupportedDatabaseError if triggers are wanted, on a server that cannot keep them
 */
export async function findTriggers(
  queryRunner: QueryRunner,
  searchSchema: string,
  metadatas: readonly EntityMetadata[],
): Promise<FoundTriggers> {
  const sets = new Map(metadatas.map((one) => [one, wantedSets(one)]))
  const { server, tables, kernel } = await installedTriggers(
    queryOf(queryRunner),
    schemasOf(metadatas, searchSchema),
    [...sets.values()].flat(),
  )
  const entities = metadatas.flatMap((metadata) => {
    const wanted = sets.get(metadata) ?? []
    const found = tables.find((one) => isOf(one, metadata, searchSchema))
    if (wanted.length + tableDeclarations(metadata).length === 0 && !found) return []
    const { schema: given = searchSchema, tableName: table } = metadata
    const installed = found ?? { schema: given, table, functions: [], triggers: [], tables: [], homes: {}, foreign: [] }
    const schema = given === searchSchema ? undefined : given
    return [{ metadata, schema, table, wanted, installed, searchSchema }]
  })
  if (entities.some(({ wanted }) => wanted.length > 0)) requireBuildable(server)
  return {
    entities,
    orphans: tables.filter((one) => !metadatas.some((metadata) => isOf(one, metadata, searchSchema))),
    kernel,
  }
}

/** The schemas of the tables of these entities. */
export const schemasOf = (metadatas: readonly EntityMetadata[], searchSchema: string): string[] => [
  ...new Set(metadatas.map(({ schema }) => schema ?? searchSchema)),
]

/** Whether a table that was found is that of an entity. */
export const isOf = (found: InstalledTriggers, { schema, tableName }: EntityMetadata, searchSchema: string): boolean =>
  found.schema === (schema ?? searchSchema) && found.table === tableName
