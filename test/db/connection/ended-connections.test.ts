import type { Client } from 'pg'
import { type DataSource, QueryFailedError, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate } from '../../../src'
import { ALL_CALLS, ENTITIES, Page, prepare } from '../../support/all-calls'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { driverError, poolOf, rejection } from '../../support/ledger'

const db = useDatabase()
const dataSource = db.useDataSource(ENTITIES, { emptied: false, poolSize: 2 })
const observer = db.useClient()
const locker = db.useClient()

beforeAll(() => prepare(dataSource.manager))

let number = 0
const text = (): string => `text ${number++}`

const tick = async (): Promise<void> => await new Promise((go) => setImmediate(go))

async function terminate(pid: unknown): Promise<void> {
  await observer.query('SELECT pg_terminate_backend($1, 10000)', [pid])
}

/** What a connection that was lost is called: by the server, or by `pg` where its last words were not heard. */
const LOST = /^(?:57P01|Connection terminated|Client has encountered a connection error)/

function expectLost(error: unknown): void {
  expect(error).toBeInstanceOf(QueryFailedError)
  expect(driverError(error)).toMatch(LOST)
}

/** A client of the pool, as a call is given it. */
interface Taken {
  readonly processID: number
  once(event: 'end', listener: () => void): unknown
}

type Given = (error: Error | undefined, client: Taken, release: unknown) => void

interface Connecting {
  connect: (given?: Given) => unknown
}

/** The next client that the pool gives has lost its backend by the time the call gets it. */
function terminateNextTaken({ driver }: DataSource): void {
  const pool = (driver as unknown as { master: Connecting }).master
  const { connect } = pool
  pool.connect = (given) => {
    pool.connect = connect
    return connect.call(pool, (error, client, release) => {
      client.once('end', () => given?.(error, client, release))
      observer.query('SELECT pg_terminate_backend($1)', [client.processID], () => {})
    })
  }
}

/** Every statement of the package waits from now on, until `COMMIT`. */
async function lockTables(): Promise<void> {
  const { rows } = await locker.query<{ all: string }>(
    `SELECT string_agg(oid::regclass::text, ', ') AS all FROM pg_class
     WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`,
  )
  await locker.query(`BEGIN; LOCK TABLE ${rows[0]?.all ?? ''}`)
}

/** What a connection says, and how it is logged, does not depend on the call: one of each kind tries every form. */
const EVERY_FORM: readonly string[] = ['findOrCreate', 'insertOrFail of several', 'once']

/** Ends the connection of a transaction between two statements. */
async function lose(runner: QueryRunner, code: string): Promise<void> {
  const [{ pid }] = (await runner.query('SELECT pg_backend_pid() AS pid')) as [{ pid: number }]
  if (code === '57P01') await terminate(pid)
  else await runner.query(`SET idle_in_transaction_session_timeout = '1ms'`)
  while (!runner.isReleased) await tick()
}

describe.each(Object.entries(ALL_CALLS))('%s', (name, call) => {
  const isEvery = EVERY_FORM.includes(name)

  test('says that its backend was terminated between the pool and its first statement', async () => {
    const mine = text()
    await call(dataSource.manager, text())
    terminateNextTaken(dataSource)
    expectLost(await rejection(call(dataSource.manager, mine)))
    await call(dataSource.manager, mine)
  })

  test.each([true, false])(
    'says that its backend was terminated in a statement, in a transaction: %s',
    async (within) => {
      await call(dataSource.manager, text())
      await lockTables()
      const work = within
        ? dataSource.transaction(async (manager) => await call(manager, text()))
        : call(dataSource.manager, text())
      const error = rejection(work)
      await untilBlocked(observer)
      await observer.query(
        'SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0',
      )
      await locker.query('COMMIT')
      expectLost(await error)
      expect(poolOf(dataSource)).toMatchObject({ waitingCount: 0 })
    },
  )

  const codes = isEvery ? ['57P01', '25P03'] : ['57P01']
  test.each(codes.flatMap((code) => [true, false].map((again) => [code, again] as const)))(
    'says that its transaction lost its connection (%s, after another call: %s)',
    async (code, again) => {
      const runner = dataSource.createQueryRunner()
      await runner.startTransaction()
      if (again) await call(runner.manager, text())
      await lose(runner, code)
      const error = await rejection(call(runner.manager, text()))
      expect(error).toBeInstanceOf(QueryFailedError)
      expect(error).toMatchObject({ driverError: { code } })
    },
  )

  test('gives a QueryFailedError, or its answer, if the server knows of no transaction (25P01)', async () => {
    const runner = dataSource.createQueryRunner()
    await runner.startTransaction()
    const client = (await runner.connect()) as unknown as Client
    // Past TypeORM, which takes the transaction for an open one.
    await client.query('COMMIT')
    const told: unknown = await call(runner.manager, text()).then(
      () => '25P01',
      (error: unknown) => (error instanceof QueryFailedError ? driverError(error) : error),
    )
    expect(told).toBe('25P01')
    await runner.release()
  })
})

test('a client of the pool has a listener for its end from the moment it is taken', async () => {
  const pool = poolOf(dataSource) as unknown as {
    connect(done: (error: unknown, client: { listenerCount(event: string): number }, release: () => void) => void): void
  }
  const listeners = await new Promise<number>((resolve) => {
    pool.connect((_error, client, release) => {
      resolve(client.listenerCount('error'))
      release()
    })
  })
  expect(listeners).toBeGreaterThan(0)
})

test("TypeORM's own statements, and its COMMIT, say that the connection was lost", async () => {
  for (const sends of ['query', 'commitTransaction'] as const) {
    const runner = dataSource.createQueryRunner()
    await runner.startTransaction()
    await lose(runner, '57P01')
    const error = await rejection(runner[sends]('SELECT 1'))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toMatchObject({ driverError: { code: '57P01' } })
  }
})

test('a query runner that its user has released says so', async () => {
  const runner = dataSource.createQueryRunner()
  await runner.connect()
  await runner.release()
  expect(await rejection(findOrCreate(runner.manager, Page, { url: text() }))).toBeInstanceOf(
    QueryRunnerAlreadyReleasedError,
  )
})

const REFUSES = `
  CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '57P03'; END $$;
  CREATE TRIGGER ends BEFORE INSERT ON page FOR EACH ROW WHEN (NEW.url = 'ends') EXECUTE FUNCTION ends()`

test.each([true, false])('a connection that the server is ending serves no next call, logged: %s', async (logging) => {
  const small = await db.dataSource(ENTITIES, { poolSize: 1, logging, logger: 'debug' })
  const pid = async (): Promise<unknown> => await small.query('SELECT pg_backend_pid()')
  await small.query(REFUSES)
  const before = await pid()
  await findOrCreate(small.manager, Page, { url: 'c' })
  expect(await pid()).toEqual(before)
  await rejection(findOrCreate(small.manager, Page, { url: 'ends' }))
  expect(await pid()).not.toEqual(before)
  await small.query('DROP FUNCTION ends CASCADE')
})
