import type { DataSource, EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { explainErrors } from './explain-errors'
import { noteTransactions } from './open-transactions'
import { rewriteQueries } from './rewrite-queries'
import { hookSchemaBuilder } from './schema-hook'
import { subscribe } from './subscriber'
import { requireInternals, requirePostgres } from './supported'

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
  noteTransactions(dataSource.manager)
}

/** What a pool of `pg` tells of each client that it gives, before it takes its own listener off. */
interface Pool {
  on(event: 'acquire', listener: (client: { on(event: 'error', listener: () => void): unknown }) => void): unknown
}

const heard = new WeakSet<object>()

/**
 * Between the pool's listener and that of a query runner there is a moment in which a client has none: a backend that
 * is terminated then would end the process. The next statement of the client reports it.
 */
function hearPools({ driver }: DataSource): void {
  const { master, slaves = [] } = driver as { master?: unknown; slaves?: readonly unknown[] }
  for (const pool of [master, ...slaves]) {
    if (!isPool(pool) || heard.has(pool)) continue
    heard.add(pool)
    pool.on('acquire', (client) => {
      if (heard.has(client)) return
      heard.add(client)
      client.on('error', () => {})
    })
  }
}

const isPool = (pool: unknown): pool is Pool & object =>
  typeof pool === 'object' && pool !== null && typeof Reflect.get(pool, 'on') === 'function' && 'totalCount' in pool

/** What one class of a table declared. */
interface Declared {
  readonly metadata: EntityMetadata
  readonly name: string
  readonly target: unknown
}

/** TypeORM would make the index twice, and one of the two would lack its options. */
export function requireOneClass(
  decorator: string,
  { metadata, name, target }: Declared,
  other: Pick<IndexMetadata, 'target'>,
): void {
  if (other.target === target) return
  throw new DeclarationError(
    `${decorator} on ${metadata.name}.${name}: two classes of one table declare it, ${nameOf(target)} and ` +
      `${nameOf(other.target)}. Declare it on one of them (what children share belongs on their parent), or give them two names.`,
  )
}

const nameOf = (target: unknown): string => (typeof target === 'function' ? target.name : String(target))
