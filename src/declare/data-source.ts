import type { DataSource, EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { type DataSourceSettings, endWaiting, hearPools, noteTransactions, registry } from '../registry/registry'
import { requireInternals, requirePostgres } from '../registry/internals'
import { hookSchemaBuilder } from '../schema/hook'
import { quote } from '../sql/identifier'
import { rewriteQueries } from '../typeorm/conditions'
import { explainErrors } from '../typeorm/explain-errors'
import { subscribe } from '../typeorm/subscriber'

/** Options of `withUniqueText`. */
export interface UniqueTextDataSourceOptions {
  /**
   * Send named prepared statements. Set it to false behind a pooler that gives each statement another session and does
   * not support prepared statements (PgBouncer before 1.21 in transaction mode).
   * @default true
   */
  readonly prepare?: boolean
  /**
   * Connections of this DataSource set a `search_path` of their own, so that one entity has a table for every tenant. An
   * operation on an entity without a schema then asks which table it means, in a round trip of its own, and the first
   * one on each table looks at its index, check and guard. Without the option, the first operation looks for all: a
   * tenant whose table lacks them would go unseen. A DataSource for every tenant needs no option.
   * @default false
   */
  readonly tenantsBySearchPath?: boolean
  /**
   * Let conditions by property (`findBy({ url })`, `update({ url }, …)`, `.where({ url })`) look by the hash too, so that
   * they use the unique index. Set it to false to get the SQL that TypeORM makes of them; texts are normalized all the
   * same, and `textEquals` and `textIn` still use the index.
   * @default true
   */
  readonly rewriteQueries?: boolean
  /**
   * Let calls of `findOrCreate` and `findOneByText` share a look-up: of those outside transactions that come while eight
   * others of the same unique text are under way, all that wait are looked up in one statement. Each still has an answer, an
   * error and an entity of its own, from a statement that was sent after the call began.
   *
   * Set it to false where connections of the pool are not alike: where one is given the rights or the settings of a
   * caller before it is used (`SET ROLE`, `SET app.user` for row security), another caller's look-up must not run on it.
   * Not done with `tenantsBySearchPath`, nor on a table with row security.
   * @default true
   */
  readonly coalesce?: boolean
}

const DEFAULT_SETTINGS: DataSourceSettings = {
  prepare: true,
  tenantsBySearchPath: false,
  rewriteQueries: true,
  coalesce: true,
}

/**
 * Gives a DataSource that is not initialised yet options of this package. A DataSource whose entities declare unique
 * texts needs no other preparation. One from which the last declaration has gone does: only so do TypeORM's
 * `migration:generate`, `schema:log`, `schema:sync` and `synchronize` also remove the guard that the table still has.
 *
 * Called again, it changes the options that are given and leaves the others as they are.
 *
 * @returns the same DataSource
 * @throws UnsupportedDatabaseError if it is not of type `postgres`
 * @throws DeclarationError if it is none, or is initialised already, and for an option that does not exist
 * @example
 * ```ts
 * export default withUniqueText(new DataSource({ type: 'postgres', url, entities: [Page] }), { prepare: false })
 * ```
 */
export function withUniqueText<T extends DataSource>(dataSource: T, options: UniqueTextDataSourceOptions = {}): T {
  const given = dataSource as Partial<DataSource> | null | undefined
  if (given?.driver === undefined) {
    throw new DeclarationError('withUniqueText(): expected a DataSource. Pass `new DataSource(options)`.')
  }
  // A mistake here would send prepared statements through a pooler that loses them.
  checkOptions('withUniqueText()', options, SETTING_RULES)
  requirePostgres(dataSource, 'typeorm-unique-text')
  if (dataSource.isInitialized) {
    throw new DeclarationError(
      'withUniqueText() must be called before initialize(). Move the call to `new DataSource`.',
    )
  }
  hookSchemaBuilder(dataSource)
  const before = registry.settings.get(dataSource) ?? DEFAULT_SETTINGS
  const { prepare = before.prepare, tenantsBySearchPath = before.tenantsBySearchPath } = options
  const { rewriteQueries = before.rewriteQueries, coalesce = before.coalesce } = options
  registry.settings.set(dataSource, { prepare, tenantsBySearchPath, rewriteQueries, coalesce })
  return dataSource
}

const SETTING_RULES: Rules<UniqueTextDataSourceOptions> = {
  rewriteQueries: RULE.boolean,
  prepare: RULE.boolean,
  tenantsBySearchPath: RULE.boolean,
  coalesce: RULE.boolean,
}

/** The parts of TypeORM's IndexMetadata that are used here; the class is not exported with its fields. */
export interface IndexMetadata {
  readonly entityMetadata: EntityMetadata
  readonly embeddedMetadata?: unknown
  readonly target?: unknown
  givenName?: string
  where?: string
  synchronize?: boolean
}

/**
 * Prepares a DataSource for declarations, once per `initialize()`: by then TypeORM has made the list of subscribers and
 * connected, but built no schema.
 *
 * @param what declares it, for an error
 * @throws UnsupportedDatabaseError
 */
export function attachDataSource(dataSource: DataSource, what: string): void {
  requirePostgres(dataSource, what)
  requireInternals(dataSource)
  hookSchemaBuilder(dataSource)
  subscribe(dataSource)
  rewriteQueries(dataSource)
  explainErrors(dataSource)
  hearPools(dataSource)
  endWaiting(dataSource)
  noteTransactions(dataSource.manager)
}

/** TypeORM would make the index twice, and one of the two would lack its options. */
export function requireOneClass(
  decorator: string,
  { metadata, name, target }: { readonly metadata: EntityMetadata; readonly name: string; readonly target: unknown },
  other: Pick<IndexMetadata, 'target'>,
): void {
  if (other.target === target) return
  throw new DeclarationError(
    `${decorator} on ${metadata.name}.${name}: two classes of one table declare it, ${targetName(target)} and ` +
      `${targetName(other.target)}. Declare it on one of them (what children share belongs on their parent), or give them two names.`,
  )
}

const targetName = (target: unknown): string => (typeof target === 'function' ? target.name : String(target))

/**
 * The `columns` of an index over a property, for the rows that have a value there. A naming strategy may change the name
 * of the column. Not an arrow function: TypeORM calls it as a method of its IndexMetadata.
 */
export const whereNotNull = (property: string): (() => string[]) =>
  function columns(this: IndexMetadata): string[] {
    const column = this.entityMetadata.columns.find(({ propertyName }) => propertyName === property)
    this.where = `${quote(column?.databaseName ?? '')} IS NOT NULL`
    return [property]
  }
