import { type DataSource, type EntityMetadata } from 'typeorm'
import { UnsupportedDatabaseError } from '../errors'
import type { ServerState } from '../sql/catalog'

/** A `server_version_num`. Older servers lack features that the guard and its catalog query use. */
const OLDEST_VERSION = 140_000

/** @returns an error for a server that answers like PostgreSQL but is not. The guard relies on PostgreSQL's locks. */
const otherEngine = (engine: string): UnsupportedDatabaseError | undefined =>
  /^PostgreSQL (?!.*-YB-)/u.test(engine)
    ? undefined
    : new UnsupportedDatabaseError(
        `The server is "${engine.slice(0, 40)}", not PostgreSQL: its locks differ, and unique texts were never tested there. ` +
          `Use PostgreSQL 14 or later.`,
      )

/**
 * @param triggers whether declarations need triggers
 * @throws UnsupportedDatabaseError if the server is another engine or too old, or the database's encoding is not UTF8
 */
export function requireServer({ encoding, version, engine, plpgsql }: ServerState, triggers: boolean): void {
  const other = otherEngine(engine)
  if (other) throw other
  if (version < OLDEST_VERSION) {
    throw new UnsupportedDatabaseError(
      `The server is PostgreSQL ${Math.floor(version / 10_000)}, and typeorm-unique-text needs 14 or later. Upgrade it.`,
    )
  }
  if (triggers && !plpgsql) {
    throw new UnsupportedDatabaseError(
      'The database has no PL/pgSQL, in which triggers are written. Run CREATE EXTENSION plpgsql, or declare guard: false.',
    )
  }
  if (encoding !== 'UTF8') {
    throw new UnsupportedDatabaseError(
      `The database's encoding is ${encoding}: its md5() would see other bytes. ` +
        `Move the data to a database made with ENCODING 'UTF8'.`,
    )
  }
}

/**
 * @param lacks the SQLSTATE by which the server refuses what triggers need
 * @throws UnsupportedDatabaseError also if TypeORM would misread every type and drop the columns
 */
export function requireBuildable(server: ServerState | undefined, lacks: string | undefined): void {
  if (server) requireServer(server, true)
  if (lacks !== undefined) {
    throw new UnsupportedDatabaseError(
      `The server refuses what the triggers of this package need (SQLSTATE ${lacks}), whatever it calls itself. Use PostgreSQL 14 or later.`,
    )
  }
  if (server?.quotesAll) {
    throw new UnsupportedDatabaseError(
      'quote_all_identifiers is on: TypeORM would then drop and add columns whose types it reads with quotes, and lose ' +
        'what they hold. Turn it off while a migration is generated or run.',
    )
  }
}

/** @throws UnsupportedDatabaseError for a DataSource of another database, or one connected to another engine */
export function requirePostgres({ options: { type }, driver }: DataSource, what: string): void {
  if (type !== 'postgres') {
    throw new UnsupportedDatabaseError(
      `${what} needs PostgreSQL, and this DataSource is of type "${type}". Use type "postgres".`,
    )
  }
  // TypeORM removes "PostgreSQL " from the server's version string, and keeps any other name.
  const { version = '' } = driver as { readonly version?: string }
  const other = /^[\d.]*$/u.test(version) ? undefined : otherEngine(version)
  if (other) throw other
}

/** `any`: the member exists, with any value. */
type Kind = 'function' | 'array' | 'boolean' | 'object' | 'string' | 'any'
type Parts = { readonly [kind in Kind]?: readonly string[] }

/**
 * All protected, private and undocumented parts of TypeORM that are used here, by their class. Any further part must be
 * added here.
 */
export const INTERNALS: Readonly<Record<string, Parts>> = {
  DataSource: {
    function: ['createQueryRunner', 'createQueryBuilder'],
    array: ['subscribers'],
    object: ['driver', 'logger', 'namingStrategy'],
  },
  PostgresDriver: {
    function: [
      'createSchemaBuilder',
      'createQueryRunner',
      'obtainMasterConnection',
      'obtainSlaveConnection',
      'normalizeType',
      'getColumnLength',
      'createFullType',
      'prepareHydratedValue',
    ],
    array: ['connectedQueryRunners'],
    boolean: ['isReplicated'],
    // This is null if the search_path names no schema.
    any: ['searchSchema'],
  },
  RdbmsSchemaBuilder: {
    function: ['executeSchemaSyncOperationsInProperOrder', 'getTablePath', 'createNewIndices'],
    array: ['entityToSyncMetadatas'],
  },
  PostgresQueryRunner: {
    function: ['executeQueries', 'enableSqlMemory', 'disableSqlMemory', 'getMemorySql', 'clearSqlMemory'],
    array: ['loadedTables', 'loadedViews'],
    boolean: ['sqlMemoryMode'],
    object: ['broadcaster'],
  },
  Broadcaster: { function: ['broadcast'] },
  SelectQueryBuilder: {
    function: [
      'getWhereCondition',
      'buildWhere',
      'createQueryBuilder',
      'clone',
      'select',
      'insert',
      'update',
      'delete',
      'softDelete',
      'restore',
      'setFindOptions',
      'callListeners',
    ],
    object: ['expressionMap'],
  },
  UpdateQueryBuilder: { function: ['getValueSet', 'createParameter'] },
  QueryExpressionMap: { array: ['joinAttributes'] },
  IndexMetadata: { object: ['entityMetadata'], boolean: ['synchronize'] },
  EntityMetadata: {
    function: [
      'create',
      'getEntityIdMap',
      'getInsertionReturningColumns',
      'findColumnsWithPropertyPath',
      'findRelationWithPropertyPath',
      'findEmbeddedWithPropertyPath',
    ],
    string: ['tableName', 'tableType'],
    array: [
      'columns',
      'primaryColumns',
      'relations',
      'indices',
      'uniques',
      'checks',
      'inheritanceTree',
      'childEntityMetadatas',
      'nonVirtualColumns',
      'lazyRelations',
      'eagerRelations',
      'beforeInsertListeners',
      'afterInsertListeners',
      'afterLoadListeners',
    ],
  },
  ColumnMetadata: {
    function: ['getEntityValue', 'setEntityValue'],
    string: ['propertyPath', 'databaseName', 'databasePath', 'databaseNameWithoutPrefixes'],
    boolean: ['isNullable', 'isSelect', 'isInsert', 'isVirtual'],
  },
  RelationMetadata: {
    function: ['getEntityValue', 'setEntityValue'],
    array: ['joinColumns'],
    string: ['propertyPath'],
    boolean: ['isOwning', 'isLazy', 'isOneToMany', 'isManyToMany', 'isManyToManyOwner'],
  },
}

const checked = new WeakSet<object>()

/**
 * Tests once that all parts of TypeORM's internals that this package depends on exist, before any is used.
 *
 * @param dataSource connected, while its metadata or its schema is built
 * @param createBuilder calls the driver's own method
 * @throws UnsupportedDatabaseError that names the missing part
 */
export function requireInternals(
  dataSource: DataSource,
  createBuilder = (): object => dataSource.driver.createSchemaBuilder(),
): void {
  if (checked.has(dataSource)) return
  // The order matters, because the later objects are created by the earlier ones.
  requireAll('DataSource', dataSource)
  requireAll('PostgresDriver', dataSource.driver)
  requireAll('RdbmsSchemaBuilder', createBuilder())
  // A query runner takes no connection before it is used.
  const queryRunner = dataSource.createQueryRunner('master')
  requireAll('PostgresQueryRunner', queryRunner)
  requireAll('Broadcaster', queryRunner.broadcaster)
  const queryBuilder = dataSource.createQueryBuilder()
  requireAll('SelectQueryBuilder', queryBuilder)
  requireAll('UpdateQueryBuilder', queryBuilder.update())
  requireAll('QueryExpressionMap', queryBuilder.expressionMap)
  checked.add(dataSource)
}

/** Tests all parts that are used of the metadata of an entity and its index, while TypeORM builds them. */
export function requireMetadataInternals(index: object): asserts index is { readonly entityMetadata: EntityMetadata } {
  requireAll('IndexMetadata', index)
  const { entityMetadata } = index as { readonly entityMetadata: EntityMetadata }
  requireAll('EntityMetadata', entityMetadata)
  for (const column of entityMetadata.columns) requireAll('ColumnMetadata', column)
  for (const relation of entityMetadata.relations) requireAll('RelationMetadata', relation)
}

function requireAll(owner: string, object: object): void {
  for (const [kind, names] of Object.entries(INTERNALS[owner] ?? {})) {
    for (const name of names) {
      const found: unknown = Reflect.get(object, name)
      const is = kind === 'any' && name in object ? kind : Array.isArray(found) ? 'array' : typeof found
      if (is !== kind) throw missingInternal(owner, name)
    }
  }
}

export const missingInternal = (owner: string, name: string): UnsupportedDatabaseError =>
  new UnsupportedDatabaseError(
    `This version of TypeORM has no ${owner}.${name}, which typeorm-unique-text depends on. ` +
      `Use a version that its peerDependencies name.`,
  )
