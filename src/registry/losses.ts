import { type DataSource, QueryFailedError, type QueryRunner } from 'typeorm'

type Listener = (error: Error) => void

/** What a pool of `pg` tells of each client that it gives, before it takes its own listener off. */
interface Pool {
  on(event: 'acquire', listener: (client: { on(event: 'error', listener: Listener): unknown }) => void): unknown
}

const heard = new WeakSet<object>()
const losses = new WeakMap<object, { error?: Error }>()

/**
 * Between the pool's listener and that of a query runner there is a moment in which a client has none: a backend that is
 * terminated then would end the process. The next statement of the client reports it.
 */
export function hearPools({ driver }: DataSource): void {
  const { master, slaves = [] } = driver as { master?: unknown; slaves?: readonly unknown[] }
  for (const pool of [master, ...slaves]) {
    if (!isPool(pool) || heard.has(pool)) continue
    heard.add(pool)
    pool.on('acquire', (client) => {
      if (losses.has(client)) return
      const loss: { error?: Error } = {}
      losses.set(client, loss)
      client.on('error', (error) => (loss.error ??= error))
    })
  }
}

const isPool = (pool: unknown): pool is Pool & object =>
  typeof pool === 'object' && pool !== null && typeof Reflect.get(pool, 'on') === 'function' && 'totalCount' in pool

/**
 * TypeORM releases a query runner whose connection is lost, and forgets why; the caller should hear it (25P03, 57P01).
 *
 * @param sql what was to be sent
 */
export function lossOf(queryRunner: QueryRunner, sql = ''): QueryFailedError | undefined {
  const client: unknown = Reflect.get(queryRunner, 'databaseConnection')
  const error = typeof client === 'object' && client !== null ? losses.get(client)?.error : undefined
  return error && new QueryFailedError(sql, undefined, error)
}
