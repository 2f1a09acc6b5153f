import { type DataSource, EventSubscriber, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError, UnsupportedDatabaseError } from '../errors'
import { type DataSourceSettings, registry } from './registry'
import { hookSchemaBuilder } from './schema-hook'
import { RollbackSubscriber, StoredTextSubscriber } from './subscriber'

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
}

EventSubscriber()(StoredTextSubscriber)
// As the first, whatever was loaded before us: what others send when they hear of a rollback is still before it.
getMetadataArgsStorage().entitySubscribers.unshift({ target: RollbackSubscriber })

/**
 * Prepares a DataSource that is not initialised yet: TypeORM's own `migration:generate`, `schema:log`, `schema:sync`
 * and `synchronize` then also create and change the guard, and `save` puts the stored text back on its entity.
 *
 * @returns the same DataSource
 * @throws UnsupportedDatabaseError if it is not of type `postgres`
 * @throws DeclarationError if it is initialised already, and for an option that does not exist
 * @example
 * ```ts
 * export default withUniqueText(new DataSource({ type: 'postgres', url, entities: [Page], migrations: ['migrations/*.js'] }))
 * ```
 */
export function withUniqueText<T extends DataSource>(dataSource: T, options: UniqueTextDataSourceOptions = {}): T {
  const settings = toSettings(options)
  const { type, subscribers = [] } = dataSource.options
  if (type !== 'postgres') {
    throw new UnsupportedDatabaseError(
      `typeorm-unique-text needs PostgreSQL, and this DataSource is of type "${type}". Use type "postgres".`,
    )
  }
  if (dataSource.isInitialized) {
    throw new DeclarationError('withUniqueText() must be called before initialize().')
  }
  hookSchemaBuilder(dataSource)
  registry.settings.set(dataSource, settings)
  const list = Array.isArray(subscribers) ? [...subscribers] : Object.values(subscribers)
  const ours = [RollbackSubscriber, StoredTextSubscriber].filter((one) => !list.includes(one))
  if (ours.length > 0) dataSource.setOptions({ subscribers: [...list, ...ours] })
  return dataSource
}

/** JavaScript has no types, and a mistake here would send prepared statements through a pooler that loses them. */
function toSettings(options: UniqueTextDataSourceOptions): DataSourceSettings {
  const { prepare = true, tenantsBySearchPath = false, ...others } = options
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) {
    throw new DeclarationError(`withUniqueText(): there is no option "${unknown}". Remove it.`)
  }
  const settings = { prepare, tenantsBySearchPath }
  for (const [name, value] of Object.entries(settings)) {
    if (typeof value !== 'boolean') throw new DeclarationError(`withUniqueText(): ${name} must be true or false.`)
  }
  return settings
}
