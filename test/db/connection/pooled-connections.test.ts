import type { Client, Pool } from 'pg'
import { type DataSource, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany } from '../../../src'
import { PoolSession } from '../../../src/connection/open-session'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const db = useDatabase()

const Page = entity('Page', { url: text(), title: column('varchar', { length: 10, nullable: true }) })

// It makes the tables, and empties them before each test.
db.useDataSource([Page])

/** A pool of one connection, on which the table was found ready. */
async function open(options: Parameters<typeof db.dataSource>[1] = {}): Promise<DataSource> {
  const dataSource = await db.dataSource([Page], { synchronize: false, extra: { max: 1 }, ...options })
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
  return dataSource
}

interface Driver {
  readonly master: Pool
  readonly connectedQueryRunners: unknown[]
  createQueryRunner(mode: string): QueryRunner
  obtainMasterConnection(): Promise<[Client, () => void]>
}

const driverOf = ({ driver }: DataSource): Driver => driver as unknown as Driver

/** Every way to take a connection of the pool. */
const calls: Record<string, (dataSource: DataSource) => Promise<unknown>> = {
  findOrCreate: async ({ manager }) => await findOrCreate(manager, Page, { url: 'first' }),
  findOneByText: async ({ manager }) => await findOneByText(manager, Page, { url: 'first' }),
  findOrCreateMany: async ({ manager }) => await findOrCreateMany(manager, Page, [{ url: 'first' }, { url: 'next' }]),
}

describe.each(Object.keys(calls))('%s outside a transaction', (name) => {
  const call = calls[name] ?? fail

  test('makes no query runner where nobody hears of its statement, and leaves nothing on the connection', async () => {
    const dataSource = await open()
    const { master, connectedQueryRunners } = driverOf(dataSource)
    const client: Client = await master.connect().then((one) => (one.release(), one))
    const listeners = client.listenerCount('error')
    await call(dataSource)
    const driver = driverOf(dataSource)
    const create = driver.createQueryRunner.bind(driver)
    let made = 0
    driver.createQueryRunner = (mode) => {
      made += 1
      return create(mode)
    }
    // One to see that it takes connections as TypeORM's does.
    for (let round = 0; round < 5; round += 1) await call(dataSource)
    expect(made).toBe(1)
    expect([client.listenerCount('error'), master.idleCount, connectedQueryRunners.length]).toEqual([listeners, 1, 0])
  })

  test('takes its connection by a query runner that is not as TypeORM made it', async () => {
    const dataSource = await open()
    const driver = driverOf(dataSource)
    const create = driver.createQueryRunner.bind(driver)
    let connected = 0
    driver.createQueryRunner = (mode) => {
      const queryRunner = create(mode)
      const connect = queryRunner.connect.bind(queryRunner)
      queryRunner.connect = async () => {
        connected += 1
        return (await connect()) as unknown
      }
      return queryRunner
    }
    await call(dataSource)
    expect(connected).toBeGreaterThan(0)
  })

  test('takes its connection by a query runner of a derived class, which takes one as TypeORM does', async () => {
    const dataSource = await open()
    const driver = driverOf(dataSource)
    const create = driver.createQueryRunner.bind(driver)
    let connected = 0
    driver.createQueryRunner = (mode) => {
      const queryRunner = create(mode)
      return Object.setPrototypeOf(queryRunner, {
        __proto__: Object.getPrototypeOf(queryRunner) as object,
        async connect() {
          connected += 1
          const [client, handBack] = await driver.obtainMasterConnection()
          Object.assign(queryRunner, { databaseConnection: client, releaseCallback: handBack })
          driver.connectedQueryRunners.push(queryRunner)
          Reflect.set(queryRunner, 'connect', () => Promise.resolve(client))
          return client
        },
      }) as QueryRunner
    }
    await call(dataSource)
    expect(connected).toBeGreaterThan(0)
  })
})

async function untilOneWaits(observer: Client): Promise<void> {
  for (let waiting = 0; waiting === 0;) {
    const { rowCount } = await observer.query(
      `SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    )
    waiting = rowCount ?? 0
  }
}

test('an error is logged by a logger that logs errors only, and the pool has its connection again', async () => {
  const dataSource = await open({ logging: ['error'], logger: 'simple-console' })
  const logged: unknown[][] = []
  const { logger } = dataSource
  logger.logQueryError = (error, sql, values, queryRunner) => {
    logged.push([(error as { code?: string }).code, sql.slice(0, 10), values, queryRunner?.isReleased])
  }
  const values = { url: 'second', title: 'too long for it' }
  expect(await rejection(findOrCreate(dataSource.manager, Page, values))).toMatchObject({ code: '22001' })
  expect(logged).toEqual([['22001', 'WITH found', expect.arrayContaining(['second']), false]])
  expect(driverOf(dataSource).master.idleCount).toBe(1)
  expect(await findOrCreate(dataSource.manager, Page, { url: 'second' })).toMatchObject({ created: true })
})

test('a slow statement is told of, by a query runner, where nobody hears of others', async () => {
  const dataSource = await open({ maxQueryExecutionTime: 20 })
  const slow: unknown[][] = []
  dataSource.logger.logQuerySlow = (_, sql, values, queryRunner) => {
    slow.push([sql.slice(0, 10), values, queryRunner?.isReleased])
  }
  const holder = await db.client()
  // The clock stands still, however busy the machine is.
  vi.useFakeTimers({ toFake: ['Date', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
  expect(slow).toEqual([])
  await holder.query('BEGIN; LOCK TABLE page')
  const waiting = findOrCreate(dataSource.manager, Page, { url: 'first' })
  await untilOneWaits(holder)
  vi.advanceTimersByTime(21)
  await holder.query('ROLLBACK')
  await waiting
  expect(slow).toEqual([['WITH found', expect.arrayContaining(['first']), false]])
})

test('a connection that arrives after its session was closed goes back to the pool', async () => {
  const dataSource = await open()
  const { master } = driverOf(dataSource)
  const held = await master.connect()
  const session = new PoolSession(dataSource, 'master')
  const taking = rejection(session.take())
  expect(master.waitingCount).toBe(1)
  await session.close()
  held.release()
  expect(await taking).toBeInstanceOf(QueryRunnerAlreadyReleasedError)
  expect(master.idleCount).toBe(1)
})

function fail(): never {
  throw new Error('no such call')
}
