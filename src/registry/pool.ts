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
export const CALLS_OWN: unique symbol = Symbol.for('typeorm-unique-text.callsOwn')

/** Whether TypeORM's method has not been replaced. */
export function obtainsAsMade({ driver }: DataSource): boolean {
  if (!Object.hasOwn(driver, 'obtainMasterConnection')) return true
  return Reflect.get((driver as unknown as PoolDriver).obtainMasterConnection, CALLS_OWN) === true
}

/** @throws DataSourceDestroyedError if `destroy()` was called before or is called meanwhile */
export function untilDestroyed(pool: PoolDriver, taking: Promise<Taken>): Promise<Taken> {
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

/** A client that a pool provides. */
export interface PoolClient {
  on(event: 'error', listener: Listener): unknown
}

const losses = new WeakMap<object, { error?: Error }>()

/**
 * Between the removal of the pool's listener and the query runner's own, a client has no listener. If its backend were
 * terminated at that moment, the process would end. The client's next statement reports the error.
 */
export function hearLosses(client: PoolClient): void {
  if (losses.has(client)) return
  const loss: { error?: Error } = {}
  losses.set(client, loss)
  client.on('error', (error) => (loss.error ??= error))
}

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
