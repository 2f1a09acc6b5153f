import type { DataSource } from 'typeorm'
import { DataSourceDestroyedError } from '../errors'

/** What TypeORM's driver does for its query runners. */
export interface PoolDriver {
  readonly isReplicated: boolean
  /** The pool, which TypeORM forgets once it has ended. */
  readonly master?: { readonly ending?: boolean }
  /** `destroy()` releases them before it ends the pool. */
  readonly connectedQueryRunners: { release(): unknown }[]
  obtainMasterConnection: Obtain
  obtainSlaveConnection: Obtain
}

type Taken = readonly [client: unknown, release: (error?: Error) => void]
type Obtain = () => Promise<Taken>

/** On a method of ours: whether the one that it calls is TypeORM's own. */
const CALLS_OWN = Symbol.for('typeorm-unique-text.callsOwn')

/**
 * Ends everything that waits for a connection when `destroy()` is called: a pool of `pg` forgets those who wait. No query
 * runner gets a connection after that: it would enter TypeORM's list although it is released already, and `destroy()`
 * releases the first of the list until the list is empty.
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

/** Nobody has put a method of their own in the place of TypeORM's. */
export function obtainsAsMade({ driver }: DataSource): boolean {
  if (!Object.hasOwn(driver, 'obtainMasterConnection')) return true
  return Reflect.get((driver as unknown as PoolDriver).obtainMasterConnection, CALLS_OWN) === true
}

/** @throws DataSourceDestroyedError if `destroy()` is called meanwhile, or was called before */
function untilDestroyed(pool: PoolDriver, taking: Promise<Taken>): Promise<Taken> {
  const { connectedQueryRunners: all } = pool
  return new Promise((resolve, reject) => {
    // `destroy()` releases it as it does those that have theirs.
    const waiting = {
      release: (): void => {
        leave(all, waiting)
        reject(new DataSourceDestroyedError())
        void handBackLate(taking)
      },
    }
    all.push(waiting)
    const taken = (one: Taken): void => {
      leave(all, waiting)
      resolve(one)
    }
    taking.then(taken, (error: unknown) => {
      leave(all, waiting)
      const isOver = !pool.master || pool.master.ending === true
      reject(error instanceof Error && !isOver ? error : new DataSourceDestroyedError(error))
    })
  })
}

/** A connection that arrives late belongs to nobody. */
async function handBackLate(taking: Promise<Taken>): Promise<void> {
  const taken = await taking.catch(nothing)
  taken?.[1]()
}

function leave(all: unknown[], one: unknown): void {
  const place = all.indexOf(one)
  if (place !== -1) all.splice(place, 1)
}

function nothing(): void {}
