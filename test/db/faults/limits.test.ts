import { hash } from 'node:crypto'
import { once } from 'node:events'
import type { Client } from 'pg'
import { type DataSource, type EntityManager, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany } from '../../../src'
import { useFaultServer } from '../../support/fault-server'
import { driverError, expectAtRest, openDataSource, openLedger, Page, poolOf, rejection } from '../../support/ledger'
import { type Proxy, startProxy } from '../../support/proxy'

const ledger = openLedger()
const server = useFaultServer()
let proxy: Proxy
let observer: Client

beforeAll(async () => {
  proxy = await startProxy(server().url)
  observer = await server().client()
  await openDataSource(server().url)
})
afterAll(async () => await proxy.close())

/** Longer than anything takes that is not held up, on a busy machine too. */
const LIMIT_MILLISECONDS = 400

const open = async (settings: string, options: Parameters<typeof openDataSource>[1] = {}): Promise<DataSource> => {
  const { extra = {}, ...others } = options
  return await openDataSource(server().url, {
    poolSize: 2,
    synchronize: false,
    ...others,
    extra: { options: settings, ...(extra as object) },
  })
}

const calls = {
  'a single call': async (manager: EntityManager, url: string) => (await findOrCreate(manager, Page, { url })).entity,
  'a bulk call': async (manager: EntityManager, url: string) => {
    const [result] = await findOrCreateMany(manager, Page, [{ url }])
    if (!result || 'error' in result) throw result?.error
    return result.entity
  },
} as const

const callNames = Object.keys(calls) as (keyof typeof calls)[]

/** Runs the call while an open transaction of another session holds its text. */
async function held<T>(url: string, call: () => Promise<T>): Promise<T> {
  const holder = await server().client()
  await holder.query('begin')
  await holder.query('insert into page (url, "urlHash") values ($1, $2)', [url, hash('md5', url)])
  try {
    return await call()
  } finally {
    await holder.query('rollback')
    ledger.fault()
  }
}

async function expectToGoOn(dataSource: DataSource, url: string, name: keyof typeof calls): Promise<void> {
  const row = await calls[name](dataSource.manager, url)
  ledger.acknowledge(Page, row)
  expect(await calls[name](dataSource.manager, url)).toEqual(row)
  await expectAtRest(dataSource, observer)
  await ledger.check(dataSource, observer)
}

const limits = [
  ['statement_timeout', '57014'],
  ['lock_timeout', '55P03'],
] as const

describe.each(limits)('%s', (setting, sqlstate) => {
  describe.each(callNames)('ends %s', (name) => {
    const call = calls[name]

    test(`with the driver's own ${sqlstate}, and the connection goes on`, async () => {
      const dataSource = await open(`-c ${setting}=${LIMIT_MILLISECONDS}`, { poolSize: 1 })
      const url = `${setting}, ${name}`
      await findOneByText(dataSource.manager, Page, { url })
      const [before] = await pidsOf(dataSource)
      const error = await held(url, async () => await rejection(call(dataSource.manager, url)))
      expect(driverError(error)).toBe(sqlstate)
      expect(await pidsOf(dataSource)).toEqual([before])
      await expectToGoOn(dataSource, url, name)
    })

    test(`in the caller's transaction with ${sqlstate}, which rolls everything back`, async () => {
      const dataSource = await open(`-c ${setting}=${LIMIT_MILLISECONDS}`)
      const url = `${setting}, ${name}, in a transaction`
      const work = async () =>
        await dataSource.transaction(async (manager) => {
          await calls[name](manager, `${url}, before`)
          return await call(manager, url)
        })
      const error = await held(url, async () => await rejection(work()))
      expect(driverError(error)).toBe(sqlstate)
      expect(await findOneByText(dataSource.manager, Page, { url: `${url}, before` })).toBeNull()
      await expectAtRest(dataSource, observer)
      await work()
      await expectToGoOn(dataSource, url, name)
    })
  })

  test('of a bulk call leaves the transaction of the caller usable', async () => {
    const dataSource = await open(`-c ${setting}=${LIMIT_MILLISECONDS}`)
    const url = `${setting}, caught`
    await dataSource.transaction(async (manager) => {
      const before = await calls['a single call'](manager, `${url}, before`)
      const error = await held(url, async () => await rejection(calls['a bulk call'](manager, url)))
      expect(driverError(error)).toBe(sqlstate)
      expect(await findOneByText(manager, Page, { url: before.url })).toEqual(before)
    })
    await expectToGoOn(dataSource, `${url}, before`, 'a single call')
  })

  test('of a single call that the caller catches aborts the transaction: its next statement says so', async () => {
    const dataSource = await open(`-c ${setting}=${LIMIT_MILLISECONDS}`)
    const url = `${setting}, caught single`
    const work = dataSource.transaction(async (manager) => {
      await calls['a single call'](manager, `${url}, before`)
      await held(url, async () => await rejection(calls['a single call'](manager, url)))
      await calls['a single call'](manager, `${url}, after`)
    })
    expect(driverError(await rejection(work))).toBe('25P02')
    expect(await findOneByText(dataSource.manager, Page, { url: `${url}, before` })).toBeNull()
    await expectToGoOn(dataSource, url, 'a single call')
  })
})

const pidsOf = async (dataSource: DataSource): Promise<unknown[]> => {
  const rows: unknown = await dataSource.query('select pg_backend_pid() as pid')
  return (rows as { pid: unknown }[]).map(({ pid }) => pid)
}

test.each(callNames)(
  'idle_in_transaction_session_timeout: %s fails, and the pool gets a new connection',
  async (name) => {
    const dataSource = await open(`-c idle_in_transaction_session_timeout=${LIMIT_MILLISECONDS}`, { poolSize: 1 })
    const url = `idle, ${name}`
    const work = dataSource.transaction(async (manager) => {
      await calls[name](manager, url)
      const client = (await manager.queryRunner?.connect()) as Client
      await once(client, 'error').catch(() => {})
      return await calls[name](manager, url)
    })
    expect(driverError(await rejection(work))).toBe('25P03')
    ledger.fault()
    await expectToGoOn(dataSource, url, name)
    expect(poolOf(dataSource).totalCount).toBe(1)
  },
)

describe('a pool that is exhausted', () => {
  test('serves 200 calls at once by its one connection', async () => {
    const dataSource = await open('', { poolSize: 1 })
    const rows = await Promise.all(
      Array.from({ length: 200 }, async (_, place) => {
        const name = callNames[place % 2] ?? 'a single call'
        return await calls[name](dataSource.manager, `crowd ${place % 20}`)
      }),
    )
    for (const row of rows) ledger.acknowledge(Page, row)
    ledger.fault()
    expect(new Set(rows.map(({ id }) => id)).size).toBe(20)
    expect(poolOf(dataSource).totalCount).toBe(1)
    await expectAtRest(dataSource, observer)
  })

  test('needs no second connection for a call in a transaction, not even for its first use', async () => {
    const dataSource = await open('', { poolSize: 1, extra: { connectionTimeoutMillis: 5_000 } })
    const rows = await dataSource.transaction(async (manager) => [
      await calls['a single call'](manager, 'one connection 1'),
      await calls['a bulk call'](manager, 'one connection 2'),
      ...(await Promise.all(
        ['3', '4', '5'].map(async (n) => await calls['a single call'](manager, `one connection ${n}`)),
      )),
    ])
    for (const row of rows) ledger.acknowledge(Page, row)
    ledger.fault()
    await expectToGoOn(dataSource, 'one connection 1', 'a bulk call')
  })

  test.each(callNames)("gives %s the pool's own error after connectionTimeoutMillis, and goes on", async (name) => {
    const dataSource = await open('', { poolSize: 1, extra: { connectionTimeoutMillis: LIMIT_MILLISECONDS } })
    const url = `no connection, ${name}`
    await dataSource.transaction(async (manager) => {
      await calls[name](manager, url)
      // Without the manager: another connection, and there is none.
      const refused = await Promise.all(
        [1, 2, 3].map(async () => await rejection(calls[name](dataSource.manager, url))),
      )
      ledger.fault(3)
      for (const error of refused) expect(driverError(error)).toBe('timeout exceeded when trying to connect')
    })
    expect(poolOf(dataSource).waitingCount).toBe(0)
    await expectToGoOn(dataSource, url, name)
  })

  test("gives the server's own 53300 where the server takes no more connections", async () => {
    await observer.query(`create role few login password 'few' connection limit 1 superuser`)
    await observer.query('alter role few nosuperuser')
    await observer.query('grant all on all tables in schema public to few')
    const url = new URL(server().url)
    url.username = 'few'
    url.password = 'few'
    const dataSource = await openDataSource(url.href, { poolSize: 4, synchronize: false })
    const outcomes = await Promise.allSettled(
      ['1', '2', '3', '4'].map(async (n) => await calls['a single call'](dataSource.manager, `few ${n}`)),
    )
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []))
    for (const outcome of outcomes) if (outcome.status === 'fulfilled') ledger.acknowledge(Page, outcome.value)
    ledger.fault(refused.length)
    expect(refused.map(driverError)).toEqual(['53300', '53300', '53300'])
    await expectToGoOn(dataSource, 'few 1', 'a bulk call')
  })
})

describe('a read-only server', () => {
  test('finds by text, and refuses to create with 25006, the transaction ended and the pool at rest', async () => {
    const writing = await open('')
    const row = await calls['a single call'](writing.manager, 'read only')
    ledger.acknowledge(Page, row)
    const dataSource = await open('-c default_transaction_read_only=on')
    expect(await findOneByText(dataSource.manager, Page, { url: 'read only' })).toEqual(row)
    for (const name of callNames) {
      expect(driverError(await rejection(calls[name](dataSource.manager, 'read only')))).toBe('25006')
      const inside = dataSource.transaction(async (manager) => await calls[name](manager, 'read only'))
      expect(driverError(await rejection(inside))).toBe('25006')
      ledger.fault(2)
    }
    expect(await findOneByText(dataSource.manager, Page, { url: 'read only' })).toEqual(row)
    await expectAtRest(dataSource, observer)
    await ledger.check(dataSource, observer)
  })
})

describe('a network that swallows the answer', () => {
  test.each(callNames)(
    '%s ends with query_timeout of pg, and the connection does not go back to the pool',
    async (name) => {
      const dataSource = await openDataSource(proxy.url, { poolSize: 1, extra: { query_timeout: 1_000 } })
      const url = `swallowed, ${name}`
      await findOrCreate(dataSource.manager, Page, { url: 'awake' })
      const sprung = proxy.once(['unique_text_', 'WITH input AS'], 'answer held')
      const failed = rejection(calls[name](dataSource.manager, url))
      await sprung
      ledger.fault()
      expect(driverError(await failed)).toBe('Query read timeout')
      // The next caller neither waits behind the old answer nor gets it.
      await vi.waitFor(() => expect(poolOf(dataSource).totalCount).toBe(0))
      await expectToGoOn(dataSource, url, name)
      proxy.release()
    },
  )
})

test('a call by the manager of a transaction that has ended is refused: its connection serves another one', async () => {
  const dataSource = await open('', { poolSize: 1 })
  const ended = await dataSource.transaction(async (manager) => {
    await findOrCreate(manager, Page, { url: 'in time' })
    return manager
  })
  await dataSource.transaction(async () => {
    for (const name of callNames) {
      const error = await rejection(calls[name](ended, 'too late'))
      expect(error).toBeInstanceOf(QueryRunnerAlreadyReleasedError)
      ledger.fault()
    }
  })
  expect(await findOneByText(dataSource.manager, Page, { url: 'too late' })).toBeNull()
  await expectToGoOn(dataSource, 'in time', 'a single call')
})
