import type { Client } from 'pg'
import type { DataSource, EntityManager } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany } from '../../../src'
import { useFaultServer } from '../../support/fault-server'
import { driverError, expectAtRest, openDataSource, openLedger, Page, poolOf, rejection } from '../../support/ledger'
import { type ConnectionFault, type Proxy, startProxy } from '../../support/proxy'

const ledger = openLedger()
const server = useFaultServer()
let proxy: Proxy
let dataSource: DataSource
let observer: Client

beforeAll(async () => {
  proxy = await startProxy(server().url)
  dataSource = await openDataSource(proxy.url, { poolSize: 4 })
  observer = await server().client()
  // Readiness is asked for once; the faults are to hit what follows.
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
})
afterAll(async () => await proxy.close())

/** Ways to bring texts in, each giving the rows it promises. */
const calls = {
  'a single call': async (manager: EntityManager, url: string) => [(await findOrCreate(manager, Page, { url })).entity],
  'a bulk call': async (manager: EntityManager, url: string) => {
    const results = await findOrCreateMany(manager, Page, [{ url: `${url} 2` }, { url }, { url: `${url} 3` }])
    return results.map((result) => {
      if ('error' in result) throw result.error
      return result.entity
    })
  },
} as const

const callNames = Object.keys(calls) as (keyof typeof calls)[]

/** What a cut connection is called, by Node.js or by `pg`. */
const CUT = /^(?:Connection terminated unexpectedly|Client has encountered a connection error|ECONNRESET|EPIPE)/

/** Part of every request that runs a statement of ours, prepared or not. */
const OURS = ['unique_text_', 'WITH input AS']

const faults: readonly ConnectionFault[] = ['request lost', 'cut at once', 'answer lost', 'closed to the client']

const rowsWith = async (url: string): Promise<number> => {
  const { rows } = await observer.query<{ n: number }>('select count(*)::int as n from page where url like $1', [
    `${url}%`,
  ])
  return rows[0]?.n ?? -1
}

/** The repeat gives rows, one for each text, and these are the ones that are stored. */
async function expectSettledBy(repeat: () => Promise<readonly Page[]>, url: string): Promise<void> {
  const rows = await repeat()
  for (const row of rows) ledger.acknowledge(Page, row)
  expect(await rowsWith(url)).toBe(rows.length)
  expect(await repeat()).toEqual(rows)
  await expectAtRest(dataSource, observer)
  await ledger.check(dataSource, observer)
}

describe.each(callNames)('%s whose connection is cut', (name) => {
  const call = calls[name]

  test.each(faults)('(%s) says so, and is settled by finding again', async (fault) => {
    const url = `${name}, ${fault}`
    const sprung = proxy.once(OURS, fault)
    const error = await rejection(call(dataSource.manager, url))
    await sprung
    ledger.fault()
    expect(driverError(error)).toMatch(CUT)
    await expectSettledBy(async () => await call(dataSource.manager, url), url)
  })

  test.each(faults)('(%s) at the COMMIT of the caller says so, and is settled by finding again', async (fault) => {
    const url = `${name} at COMMIT, ${fault}`
    const work = async () => await dataSource.transaction(async (manager) => await call(manager, url))
    const sprung = proxy.once(['COMMIT'], fault)
    const error = await rejection(work())
    await sprung
    ledger.fault()
    expect(driverError(error)).toMatch(CUT)
    await expectSettledBy(work, url)
  })

  test.each(faults)('(%s) inside the transaction of the caller stores nothing', async (fault) => {
    const url = `${name} inside, ${fault}`
    const work = async () => await dataSource.transaction(async (manager) => await call(manager, url))
    const sprung = proxy.once(OURS, fault)
    const error = await rejection(work())
    await sprung
    ledger.fault()
    expect(driverError(error)).toMatch(CUT)
    await expectAtRest(dataSource, observer)
    expect(await rowsWith(url)).toBe(0)
    await expectSettledBy(work, url)
  })

  test('was done, where the server said so before the cut', async () => {
    const url = `${name}, done`
    const sprung = proxy.once(OURS, 'answer lost')
    await rejection(call(dataSource.manager, url))
    await sprung
    ledger.fault()
    expect(await findOneByText(dataSource.manager, Page, { url })).toMatchObject({ url })
    expect(await findOrCreate(dataSource.manager, Page, { url })).toMatchObject({ created: false, attempts: 1 })
  })

  test('(closed to the server) gets its answer, and the connection is not used again', async () => {
    const url = `${name}, closed to the server`
    const sprung = proxy.once(OURS, 'closed to the server')
    const rows = await call(dataSource.manager, url)
    await sprung
    ledger.fault()
    for (const row of rows) ledger.acknowledge(Page, row)
    await expectNoIdleConnection()
    await expectSettledBy(async () => await call(dataSource.manager, url), url)
  })

  test('waits for a delayed answer', async () => {
    const url = `${name}, delayed`
    const sprung = proxy.once(OURS, 'answer held')
    const pending = call(dataSource.manager, url)
    await sprung
    ledger.fault()
    // Stored, and not yet known to the caller: another one finds it.
    expect(await findOneByText(dataSource.manager, Page, { url })).toMatchObject({ url })
    proxy.release()
    const rows = await pending
    for (const row of rows) ledger.acknowledge(Page, row)
    await expectSettledBy(async () => await call(dataSource.manager, url), url)
  })
})

/** The pool hears of a connection's end as of anything else: by and by. */
const expectNoIdleConnection = async (): Promise<void> =>
  await vi.waitFor(() => expect(poolOf(dataSource).totalCount).toBe(0))

test('connections that are cut while they are idle are replaced', async () => {
  await Promise.all(Array.from({ length: 4 }, async () => await dataSource.query('select pg_sleep(0.05)')))
  expect(poolOf(dataSource).idleCount).toBe(4)
  ledger.fault(proxy.cutAll())
  await expectNoIdleConnection()
  const { entity } = await findOrCreate(dataSource.manager, Page, { url: 'after the cut' })
  ledger.acknowledge(Page, entity)
  await expectAtRest(dataSource, observer)
})

test('a connection that is refused is an error of the driver; the next that is not is used', async () => {
  proxy.refuse(true)
  ledger.fault(proxy.cutAll() + 3)
  const refused = await Promise.allSettled(
    callNames.map(async (name) => await calls[name](dataSource.manager, 'refused')),
  )
  const inside = await rejection(
    dataSource.transaction(async (manager) => await findOrCreate(manager, Page, { url: 'refused' })),
  )
  proxy.refuse(false)
  for (const { reason } of refused as PromiseRejectedResult[]) expect(driverError(reason)).toMatch(CUT)
  expect((inside as Error).message).toMatch(CUT)
  await expectSettledBy(async () => await calls['a bulk call'](dataSource.manager, 'refused'), 'refused')
})

test('connections that are cut again and again, under 20 callers of the same texts, store no text twice', async () => {
  const texts = Array.from({ length: 40 }, (_, place) => `again ${place}`)
  let answered = 0
  let cuts = 0
  const caller = async (): Promise<void> => {
    for (const url of texts) {
      for (let row: Page | undefined; !row;) {
        try {
          row = (await findOrCreate(dataSource.manager, Page, { url })).entity
          ledger.acknowledge(Page, row)
          answered += 1
          if (answered % 50 === 0) cuts += proxy.cutAll()
        } catch (error) {
          const told = driverError(error)
          if (!CUT.test(told)) throw new Error(`An error of another kind: ${told}`, { cause: error })
        }
      }
    }
  }
  await Promise.all(Array.from({ length: 20 }, caller))
  ledger.fault(cuts)
  expect(cuts).toBeGreaterThan(15)
  expect(await rowsWith('again ')).toBe(40)
  await expectAtRest(dataSource, observer)
  await ledger.check(dataSource, observer)
})
