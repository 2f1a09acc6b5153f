import type { DataSource, EntityMetadata } from 'typeorm'
import { UnsupportedDatabaseError } from '../errors'
import type { ServerState } from '../sql/catalog'

/** As `server_version_num`. Older ones lack what the guard and its look-up in the catalog use. */
const OLDEST_VERSION = 140_000

/** @throws UnsupportedDatabaseError if the server is too old, or the database's encoding is not UTF8 */
export function requireServer({ encoding, version }: ServerState): void {
  if (version < OLDEST_VERSION) {
    throw new UnsupportedDatabaseError(
      `The server is PostgreSQL ${Math.floor(version / 10_000)}, and typeorm-unique-text needs 14 or later. Upgrade it.`,
    )
  }
  if (encoding !== 'UTF8') {
    throw new UnsupportedDatabaseError(
      `The database's encoding is ${encoding}: its md5() would see other bytes. ` +
        `Move the data to a database made with ENCODING 'UTF8'.`,
    )
  }
}

/** @throws UnsupportedDatabaseError also where TypeORM would take every type for another, and drop the columns */
export function requireBuildable(server: ServerState): void {
  requireServer(server)
  if (server.quotesAll) {
    throw new UnsupportedDatabaseError(
      'quote_all_identifiers is on: TypeORM would then drop and add columns whose types it reads with quotes, and lose ' +
        'what they hold. Turn it off while a migration is generated or run.',
    )
  }
}

type Kind = 'function' | 'array' | 'boolean' | 'object' | 'string'

interface Internal {
  readonly owner: string
  readonly name: string
  readonly kind: Kind
}

const internals = (owner: string, kind: Kind, ...names: string[]): Internal[] =>
  names.map((name) => ({ owner, name, kind }))

const DATA_SOURCE = internals('DataSource', 'function', 'setOptions', 'createQueryRunner')
const DRIVER = internals('PostgresDriver', 'function', 'createSchemaBuilder', 'normalizeType', 'getColumnLength')
const BUILDER = [
  ...internals(
    'RdbmsSchemaBuilder',
    'function',
    'executeSchemaSyncOperationsInProperOrder',
    'getTablePath',
    'createNewIndices',
  ),
  ...internals('RdbmsSchemaBuilder', 'array', 'entityToSyncMetadatas'),
]
const QUERY_RUNNER = [
  ...internals('PostgresQueryRunner', 'function', 'executeQueries', 'enableSqlMemory', 'disableSqlMemory'),
  ...internals('PostgresQueryRunner', 'function', 'getMemorySql', 'clearSqlMemory'),
  ...internals('PostgresQueryRunner', 'array', 'loadedTables', 'loadedViews'),
  ...internals('PostgresQueryRunner', 'boolean', 'sqlMemoryMode'),
]
const INDEX = internals('IndexMetadata', 'object', 'entityMetadata')
const ENTITY = [
  ...internals('EntityMetadata', 'function', 'getInsertionReturningColumns'),
  ...internals('EntityMetadata', 'array', 'columns', 'primaryColumns', 'relations', 'indices', 'uniques', 'checks'),
  ...internals('EntityMetadata', 'array', 'inheritanceTree'),
]
const CONNECTED_DRIVER = internals('PostgresDriver', 'string', 'searchSchema')

/**
 * Looks for every part of TypeORM that it does not promise and this package stands on, before any is used.
 *
 * @throws UnsupportedDatabaseError which names the one that is missing
 */
export function requireInternals(dataSource: DataSource): void {
  requireAll(dataSource, DATA_SOURCE)
  requireAll(dataSource.driver, DRIVER)
}

/** The same for the metadata of an entity and of an index of it, while they are built. */
export function requireMetadataInternals(index: unknown): asserts index is { readonly entityMetadata: EntityMetadata } {
  requireAll(index, INDEX)
  requireAll((index as { readonly entityMetadata: EntityMetadata }).entityMetadata, ENTITY)
}

/** The same for a schema builder. */
export function requireBuilderInternals(builder: unknown): void {
  requireAll(builder, BUILDER)
}

/** The same for what a schema builder works with, once it has a connection. */
export function requireRunInternals(queryRunner: unknown, driver: unknown): void {
  requireAll(queryRunner, QUERY_RUNNER)
  requireAll(driver, CONNECTED_DRIVER)
}

function requireAll(object: unknown, list: readonly Internal[]): void {
  for (const { owner, name, kind } of list) {
    const found: unknown = typeof object === 'object' && object !== null ? Reflect.get(object, name) : undefined
    const is = Array.isArray(found) ? 'array' : typeof found
    if (is !== kind) throw missingInternal(`${owner}.${name}`)
  }
}

export const missingInternal = (name: string): UnsupportedDatabaseError =>
  new UnsupportedDatabaseError(
    `This version of TypeORM has no ${name}, on which typeorm-unique-text stands. ` +
      `Use a version that its peerDependencies name.`,
  )
