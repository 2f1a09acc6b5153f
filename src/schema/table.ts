import type { EntityMetadata, QueryRunner, Table } from 'typeorm'
import {
  registry,
  type RemovedRows,
  rootOf,
  type RowsChange,
  textsOfTable,
  type TriggerWork,
} from '../registry/registry'
import { type Change, indexCondition, lockTables, sameCondition } from '../sql/alter'
import { isRefusalOfLarge } from '../sql/rows'
import type { LookupIndex, Query, TableState } from '../sql/catalog'
import { partUsedBy } from '../sql/library'
import { ONE_CONNECTION } from '../sql/spread'
import type { TextRows } from '../sql/text-table'
import type { Digest } from '../text/digest'
import type { WantedDeclaration } from '../triggers/attached'
import type { DeclaredTable, TriggerPlan } from '../triggers/plan'

/** The table of an entity in a run of the schema builder, and what its triggers require of the rows. */
export interface SchemaEntity extends Omit<DeclaredTable, 'touched'>, RowsPlan {
  readonly metadata: EntityMetadata
  /** The schema that `search_path` begins with. */
  readonly searchSchema: string
  /** The registered triggers, which are wanted besides the guards. */
  readonly works: readonly TriggerWork[]
  /** The table does not exist yet. */
  readonly isNew: boolean
  /** Everything that a declaration makes, as it is. Null if the table does not exist. */
  readonly state: TableState | null
  /** The database has Citus, which may distribute the table at any time. */
  readonly citus: boolean
}

/** The changes of one table's rows that new, changed or removed triggers require. */
export interface RowsPlan {
  readonly changes: readonly PlannedChange[]
  /** The rows of what is no longer declared. */
  readonly removed: readonly RemovedRows[]
  readonly released: DeclaredTable['released']
}

interface PlannedChange extends RowsChange {
  readonly work: TriggerWork
}

/** An existing table whose declarations may change. */
export interface ChangingTable extends SchemaEntity {
  readonly queryRunner: QueryRunner
  /** The schema builder's picture of the table, which every statement must update. */
  readonly picture: Table
}

/** What a run of the schema builder does to the triggers of an entity's table. */
export type TablePlan = SchemaEntity & TriggerPlan

/** The former rules of the rows, from the declaration of the installed guard. */
export interface RowsBefore extends Omit<TextRows, 'digest'> {
  readonly digestName: string
  /** undefined for the user's own digest that this program no longer has. */
  readonly digest: Digest | undefined
}

export const hasColumn = ({ picture }: ChangingTable, name: string): boolean =>
  picture.findColumnByName(name) !== undefined

export const hasIndex = ({ picture }: ChangingTable, name: string): boolean =>
  picture.indices.some((index) => index.name === name)

/** Whether the index exists and holds the rows that it should. TypeORM does not compare conditions. */
export const hasWholeIndex = ({ picture }: ChangingTable, rows: Pick<TextRows, 'index' | 'deleted'>): boolean =>
  picture.indices.some(({ name, where }) => name === rows.index && sameCondition(indexCondition(rows), where))

export const hasCheck = ({ picture }: ChangingTable, name: string): boolean =>
  picture.checks.some((check) => check.name === name)

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

/** How statements run. */
interface Running {
  /** All of them as one. The server runs the statements in one string as one transaction, even if a migration has none. */
  readonly isWhole: boolean
  /** Citus may forward them to its nodes. */
  readonly citus: boolean
  /** Those that run before a lock is taken or a row is read: refusals, and what creates the library. */
  readonly first: readonly string[]
}

/** Makes a migration begin with locks on the tables that it works on. */
export async function withLocks(
  queryRunner: QueryRunner,
  { isWhole, citus, first }: Running,
  work: () => Promise<void>,
): Promise<void> {
  if (!isRecording(queryRunner)) {
    if (citus) await emit(queryRunner, { up: [ONE_CONNECTION], down: [] })
    // `synchronize` has a transaction already, and its errors name single statements.
    await (isWhole && !queryRunner.isTransactionActive ? changed(queryRunner, work, together) : work())
    return
  }
  await changed(queryRunner, work, (statements, inverse) => {
    const [sql = [], back = []] = [statements, inverse].map((all) => all.map(({ query }) => query))
    const makes = sql.some((one) => one.includes(' FUNCTION ') || partUsedBy(one) !== undefined)
    // A large table is refused, by a function, before anything waits for a lock.
    const beforeLocks = [
      ...(citus && makes ? [ONE_CONNECTION] : []),
      ...sql.filter((one) => first.includes(one)),
      ...sql.filter(isRefusalOfLarge),
    ]
    const others = statements.filter(({ query }) => !beforeLocks.includes(query))
    const all = [...[...beforeLocks, ...lockTables(sql, back)].map(statement), ...others]
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

export const declaredIn = (works: readonly TriggerWork[]): WantedDeclaration[] => works.map(({ declared }) => declared)

/** The look-up indexes that an entity's declarations ask for. */
export function wantedLookups({ metadata, works }: Pick<SchemaEntity, 'metadata' | 'works'>): LookupIndex[] {
  const ofTexts = textsOfTable(metadata).flatMap(({ lookup: name, table: rows }) => {
    const [column] = rows.text
    return name === undefined || !column ? [] : { rows, name, column: column.name }
  })
  return [...ofTexts, ...works.flatMap(({ lookups = [] }) => lookups)]
}
