import type { DataSource, ReplicationMode } from 'typeorm'
import { obtainsAsMade, type PoolDriver } from '../registry/connections'
import { isPgClient, type PgClient, requireTextFormat } from './pg-client'

/** A client of the pool while it is ours, held as TypeORM's query runners hold theirs. */
export class PooledClient {
  private isReleased = false

  private constructor(
    readonly client: PgClient,
    private readonly handBack: (error?: Error) => void,
    private readonly others: { release(): unknown }[],
  ) {
    others.push(this)
    // Without a listener, a connection that is lost would end the process.
    client.on('error', this.release)
  }

  /**
   * @param mode `slave` is TypeORM's word for a replica
   * @returns undefined if it is not a client of `pg`
   * @throws UnsupportedDatabaseError for one that gives wrong values
   */
  static async take({ driver }: DataSource, mode: ReplicationMode): Promise<PooledClient | undefined> {
    const pool = driver as unknown as PoolDriver
    const [client, handBack] =
      mode === 'slave' && pool.isReplicated ? await pool.obtainSlaveConnection() : await pool.obtainMasterConnection()
    if (!isPgClient(client)) {
      handBack()
      others.add(driver)
      return undefined
    }
    try {
      requireTextFormat(client)
    } catch (error) {
      handBack()
      throw error
    }
    return new PooledClient(client, handBack, pool.connectedQueryRunners)
  }

  /** Gives the client back; with an error, the pool drops it. */
  readonly release = (error?: Error): void => {
    if (this.isReleased) return
    this.isReleased = true
    this.client.removeListener('error', this.release)
    this.others.splice(this.others.indexOf(this), 1)
    this.handBack(error)
  }
}

/** Drivers of other clients. */
const others = new WeakSet<object>()

/** How a DataSource makes its query runners, and whether they take a client as `PooledClient` does. */
interface Making {
  readonly ofDataSource: unknown
  readonly ofDriver: unknown
  readonly isKnown: boolean
}

const makings = new WeakMap<object, Making>()

/** A client can be taken without a query runner: it is one of `pg`, and nobody has put anything of their own between. */
export const givesClients = (dataSource: DataSource): boolean =>
  !others.has(dataSource.driver) && connectsAsMade(dataSource)

/** Nobody has put anything of their own between a call and its connection, as some do to choose a tenant. */
export function connectsAsMade(dataSource: DataSource): boolean {
  const { driver } = dataSource
  if (!obtainsAsMade(dataSource)) return false
  const ofDataSource: unknown = Reflect.get(dataSource, 'createQueryRunner')
  const ofDriver: unknown = Reflect.get(driver, 'createQueryRunner')
  const making = makings.get(driver)
  if (making && making.ofDataSource === ofDataSource && making.ofDriver === ofDriver) return making.isKnown
  const connect: unknown = Reflect.get(dataSource.createQueryRunner('master'), 'connect')
  // By its source, since a class that is derived from TypeORM's, or a wrapper, has a method of its own.
  const isKnown = String(connect).includes('obtainMasterConnection')
  makings.set(driver, { ofDataSource, ofDriver, isKnown })
  return isKnown
}
