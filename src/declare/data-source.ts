import type { DataSource, EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { dataSourceOf, type DataSourceSettings, registry, rootOf } from '../registry/registry'
import { requireInternals, requireMetadataInternals, requirePostgres } from '../registry/internals'
import { quote } from '../sql/identifier'
import { patchDataSource, patchSchemaBuilder } from './patches'

/** Options of `withUniqueText`. */
export interface UniqueTextDataSourceOptions {
  /**
   * Whether to send named prepared statements. Set it to false behind a pooler that gives each statement another
   * session and does not support prepared statements (PgBouncer before 1.21 in transaction mode).
   * @default true
   */
  readonly prepare?: boolean
  /**
   * Whether connections of this DataSource set their own `search_path`, so that one entity has a table for every
   * tenant. An operation on an entity without a schema then finds its table in an extra round trip, and the first one
   * on each table checks its index, check and guard. Without the option, only the very first operation checks them: a
   * tenant whose table lacks them would not be noticed. A DataSource for every tenant needs no option.
   * @default false
   */
  readonly tenantsBySearchPath?: boolean
  /**
   * Whether conditions by property (`findBy({ url })`, `update({ url }, …)`, `.where({ url })`) also compare the hash,
   * so that they use the unique index. Set it to false to get TypeORM's own SQL. Texts are normalized all the same, and
   * `textEquals` and `textIn` still use the index.
   * @default true
   */
  readonly rewriteQueries?: boolean
  /**
   * Whether calls of `findOrCreate` and `findOneByText` outside transactions share a look-up. While eight calls of the
   * same unique text are under way, further calls wait, and one statement looks up all their texts. Each call still has
   * its own answer, error and entity, from a statement that was sent after the call began.
   *
   * Set it to false if connections of the pool differ. If a connection gets the rights or the settings of a caller
   * before it is used (`SET ROLE`, `SET app.user` for row security), another caller's look-up must not run on it. It is
   * not done with `tenantsBySearchPath`, nor on a table with row security.
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
 * Sets options of this package on a DataSource that is not initialised yet. If the entities declare unique texts, the
 * call is optional. After the last declaration is removed, it is needed, so that TypeORM's `migration:generate`,
 * `schema:log`, `schema:sync` and `synchronize` also remove the guard that the table still has.
 *
 * A second call changes the options that it passes and leaves the others as they are.
 *
 * @returns the same DataSource
 * @throws UnsupportedDatabaseError if it is not of type `postgres`
 * @throws DeclarationError if it is not a DataSource or is already initialised, and for an option that does not exist
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
  checkOptions('withUniqueText()', options, {
    rewriteQueries: RULE.boolean,
    prepare: RULE.boolean,
    tenantsBySearchPath: RULE.boolean,
    coalesce: RULE.boolean,
  } satisfies Rules<UniqueTextDataSourceOptions>)
  requirePostgres(dataSource, 'typeorm-unique-text')
  if (dataSource.isInitialized) {
    throw new DeclarationError(
      'withUniqueText() must be called before initialize(). Move the call to `new DataSource`.',
    )
  }
  patchSchemaBuilder(dataSource)
  const before = registry.settings.get(dataSource) ?? DEFAULT_SETTINGS
  const { prepare = before.prepare, tenantsBySearchPath = before.tenantsBySearchPath } = options
  const { rewriteQueries = before.rewriteQueries, coalesce = before.coalesce } = options
  registry.settings.set(dataSource, { prepare, tenantsBySearchPath, rewriteQueries, coalesce })
  return dataSource
}

/** The parts of TypeORM's IndexMetadata that are used here. TypeORM does not export the class with its fields. */
export interface IndexMetadata {
  readonly entityMetadata: EntityMetadata
  readonly embeddedMetadata?: unknown
  readonly target?: unknown
  givenName?: string
  where?: string
  synchronize?: boolean
}

/** A declaration whose index TypeORM builds, and the metadata of its table. */
export interface Attached {
  readonly index: IndexMetadata
  readonly metadata: EntityMetadata
  /** Names the declaration in an error. */
  readonly where: string
}

/**
 * Prepares the DataSource of a declaration when TypeORM calls the `columns` function of its index.
 *
 * @param index the IndexMetadata on which TypeORM calls the function
 * @throws UnsupportedDatabaseError
 */
export function attachTo(index: object, decorator: string, property: string): Attached {
  const { entityMetadata } = index as Partial<IndexMetadata>
  // Checked before the IndexMetadata is used: for some databases TypeORM makes a constraint of a unique index.
  if (entityMetadata)
    requirePostgres(dataSourceOf(entityMetadata), `${decorator} on ${entityMetadata.name}.${property}`)
  requireMetadataInternals(index)
  const metadata = rootOf(index.entityMetadata)
  const where = `${decorator} on ${metadata.name}.${property}`
  attachDataSource(dataSourceOf(metadata), where)
  return { index, metadata, where }
}

/** @throws DeclarationError for a property of an embedded */
export function refuseEmbedded(
  { index, where }: Pick<Attached, 'index' | 'where'>,
  remedy = 'Declare it on a property of the entity itself.',
): void {
  if (index.embeddedMetadata === undefined) return
  throw new DeclarationError(`${where}: a property of an embedded cannot declare it. ${remedy}`)
}

/**
 * Prepares a DataSource for declarations, once per `initialize()`. At that time TypeORM has created the subscribers and
 * connected, but has built no schema.
 *
 * @param what names the declaration in an error
 * @throws UnsupportedDatabaseError
 */
export function attachDataSource(dataSource: DataSource, what: string): void {
  requirePostgres(dataSource, what)
  requireInternals(dataSource)
  patchDataSource(dataSource)
}

/** Refuses declarations on two classes of one table: TypeORM would create two indexes, one without its options. */
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
 * Returns the `columns` of an index over a property, for rows with a value in it. A naming strategy may change the
 * column's name. Not an arrow function, because TypeORM calls it as a method of its IndexMetadata.
 */
export const whereNotNull = (property: string): (() => string[]) =>
  function columns(this: IndexMetadata): string[] {
    const column = this.entityMetadata.columns.find(({ propertyName }) => propertyName === property)
    this.where = `${quote(column?.databaseName ?? '')} IS NOT NULL`
    return [property]
  }
