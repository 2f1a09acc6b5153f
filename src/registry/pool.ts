import { type DataSource, QueryFailedError, type QueryRunner } from 'typeorm'
import { DataSourceDestroyedError } from '../errors'

/** The methods of TypeORM's driver that its query runners use. */
export interface PoolDriver {
  readonly isReplicated: boolean
  /** The pool. TypeORM removes it once it has ended. */
  readonly master?: { readonly ending?: boolean }
  /** `destroy()` releases them before it ends the pool. */
  readonly connectedQueryRunners: { release(): unknown }[]
  obtainMasterConnection: Obtain
  obtainSlaveConnection: Obtain
}

type Taken = readonly [client: unknown, release: (error?: Error) => void]
type Obtain = () => Promise<Taken>

/** A property of our method: whether the method that it calls is TypeORM's own. */
const CALLS_OWN = Symbol.for('typeorm-unique-text.callsOwn')

/**
 * Ends all waits for a connection when `destroy()` is called, because a pool of `pg` forgets its waiting clients.
 * Afterwards, no query runner gets a connection. It would enter TypeORM's list although it is already released, and
 * `destroy()` releases the first of the list until the list is empty.
 */
export function endWaiting({ driver }: DataSource): void {
  const pool = driver as unknown as PoolDriver
  for (const name of ['obtainMasterConnection', 'obtainSlaveConnection'] as const) {
    if (CALLS_OWN in pool[name]) continue
    const obtain = pool[name].bind(pool)
    const ending = async (): Promise<Taken> => await untilDestroyed(pool, obtain())
    pool[name] = Object.assign(ending, { [CALLS_OWN]: !Object.hasOwn(pool, name) })
  }
}

/** Whether TypeORM's method has not been replaced. */
export function obtainsAsMade({ driver }: DataSource): boolean {
  if (!Object.hasOwn(driver, 'obtainMasterConnection')) return true
  return Reflect.get((driver as unknown as PoolDriver).obtainMasterConnection, CALLS_OWN) === true
}

/** @throws DataSourceDestroyedError if `destroy()` was called before or is called meanwhile */
function untilDestroyed(pool: PoolDriver, taking: Promise<Taken>): Promise<Taken> {
  const { connectedQueryRunners: all } = pool
  return new Promise((resolve, reject) => {
    // `destroy()` releases this entry like a query runner that has a connection.
    const waiting = {
      release: (): void => {
        removeOne(all, waiting)
        reject(new DataSourceDestroyedError())
        // If a connection arrives late, it is returned to the pool.
        void taking.then(
          ([, handBack]) => handBack(),
          () => undefined,
        )
      },
    }
    all.push(waiting)
    const taken = (one: Taken): void => {
      removeOne(all, waiting)
      resolve(one)
    }
    taking.then(taken, (error: unknown) => {
      removeOne(all, waiting)
      const isOver = !pool.master || pool.master.ending === true
      reject(error instanceof Error && !isOver ? error : new DataSourceDestroyedError(error))
    })
  })
}

function removeOne(all: unknown[], one: unknown): void {
  const place = all.indexOf(one)
  if (place !== -1) all.splice(place, 1)
}

type Listener = (error: Error) => void

/** The event of a `pg` pool for each client that it provides, before it removes its own listener. */
interface Pool {
  on(event: 'acquire', listener: (client: { on(event: 'error', listener: Listener): unknown }) => void): unknown
}

const heard = new WeakSet<object>()
const losses = new WeakMap<object, { error?: Error }>()

/**
 * Between the removal of the pool's listener and the query runner's own, a client has no listener. If its backend were
 * terminated at that moment, the process would end. The client's next statement reports the error.
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
 * Returns the cause of a lost connection (25P03, 57P01). TypeORM only releases the query runner and drops the cause.
 *
 * @param sql the statement that was to be sent
 */
export function lossOf(queryRunner: QueryRunner, sql = ''): QueryFailedError | undefined {
  const client: unknown = Reflect.get(queryRunner, 'databaseConnection')
  const error = typeof client === 'object' && client !== null ? losses.get(client)?.error : undefined
  return error && new QueryFailedError(sql, undefined, error)
}
