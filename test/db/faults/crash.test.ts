import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany } from '../../../src'
import { useFaultServer } from '../../support/fault-server'
import {
  driverError,
  expectAtRest,
  FAULT_ROUNDS,
  Note,
  openDataSource,
  openLedger,
  Page,
  rejection,
  type Stored,
} from '../../support/ledger'

const ledger = openLedger()
const server = useFaultServer({ settings: { max_connections: '40', checkpoint_timeout: '30s' } })
let dataSource: DataSource

beforeAll(async () => {
  dataSource = await openDataSource(server().url)
})

/** Few enough that clients meet on the same texts, many enough that rows are created to the end. */
const TEXTS = 6_000
const randomText = (): string => `text ${Math.floor(Math.random() * TEXTS)}`
const randomEntity = (): Stored => (Math.random() < 0.5 ? Page : Note)

type Work = (entity: Stored) => Promise<void>

const works: Record<string, Work> = {
  'one by one': async (entity) => {
    const { entity: row } = await findOrCreate(dataSource.manager, entity, { url: randomText() })
    ledger.acknowledge(entity, row)
  },
  'in bulk': async (entity) => {
    const inputs = Array.from({ length: 100 }, () => ({ url: randomText() }))
    for (const result of await findOrCreateMany(dataSource.manager, entity, inputs)) {
      if ('error' in result) throw result.error
      ledger.acknowledge(entity, result.entity)
    }
  },
  // Several texts in one order would be one way not to deadlock; here the server may abort one of two, as it does.
  'in transactions': async (entity) => {
    const rows = await dataSource.transaction(async (manager) => {
      const url = randomText()
      const one = await findOrCreate(manager, entity, { url })
      const [many] = await findOrCreateMany(manager, entity, [{ url: `${url} too` }])
      if (!many || 'error' in many) throw new Error('No row came.')
      return [one.entity, many.entity]
    })
    for (const row of rows) ledger.acknowledge(entity, row)
  },
}

/** Clients that work until the server is gone; gives what each of them was told. */
async function workUntilGone(afterTexts: number, strike: () => Promise<unknown>): Promise<unknown[]> {
  const goal = ledger.acknowledged() + afterTexts
  let struck: Promise<unknown> | undefined
  const client = async (work: Work): Promise<unknown> => {
    for (;;) {
      try {
        await work(randomEntity())
      } catch (error) {
        if (struck) return error
        // Two transactions may deadlock, which is no fault of this test's making.
        if (!(error instanceof Error && 'code' in error && error.code === 'TRANSACTION_ABORTED')) throw error
      }
      // No client awaits it: it must fall into the midst of the others' work.
      if (ledger.acknowledged() >= goal) struck ??= strike()
    }
  }
  const clients = [...Object.values(works), ...Object.values(works)].map(client)
  const errors = await Promise.all(clients)
  await struck
  return errors
}

/** The last is TypeORM's own, at the COMMIT of a transaction whose connection was lost since its last statement. */
const GONE = /^(?:Connection terminated|Client has encountered|ECONN|EPIPE|57P0[123]$|Query runner already released)/

async function expectEverythingThere(observer: Client): Promise<void> {
  await ledger.check(dataSource, observer)
  await expectAtRest(dataSource, observer)
}

describe('a server killed in the midst of work', () => {
  test.each(Array.from({ length: FAULT_ROUNDS }, (_, round) => round + 1))(
    'has lost nothing that was acknowledged when it is started again, and the same DataSource goes on (round %i)',
    async () => {
      const errors = await workUntilGone(1_000 + Math.random() * 1_000, async () => await server().kill())
      ledger.fault()
      expect(errors.map(driverError).filter((told) => !GONE.test(told))).toEqual([])
      expect(driverError(await rejection(findOrCreate(dataSource.manager, Page, { url: 'nobody listens' })))).toMatch(
        /ECONNREFUSED/,
      )

      await server().start()
      expect(server().log()).toContain('automatic recovery in progress')
      const { entity } = await findOrCreate(dataSource.manager, Page, { url: randomText() })
      ledger.acknowledge(Page, entity)
      await expectEverythingThere(await server().client())
    },
  )

  test('finds every text again that was under way, and creates none twice', async () => {
    const inputs = Array.from({ length: 500 }, (_, place) => ({ url: `under way ${place}` }))
    const calls = inputs.map(async (input) => await findOrCreate(dataSource.manager, Note, input))
    const first = await Promise.race(calls)
    ledger.acknowledge(Note, first.entity)
    await server().kill()
    ledger.fault()
    for (const outcome of await Promise.allSettled(calls)) {
      if (outcome.status === 'fulfilled') ledger.acknowledge(Note, outcome.value.entity)
    }

    await server().start()
    const results = await findOrCreateMany(dataSource.manager, Note, inputs)
    for (const result of results) if ('entity' in result) ledger.acknowledge(Note, result.entity)
    expect(results.filter((result) => 'error' in result)).toEqual([])
    const observer = await server().client()
    const { rows } = await observer.query(`select count(*)::int as n from note where url like 'under way %'`)
    expect(rows).toEqual([{ n: 500 }])
    await expectEverythingThere(observer)
  })
})

test.each(Array.from({ length: FAULT_ROUNDS }, (_, round) => round + 1))(
  'one backend is killed: the server ends all others, recovers by itself, and the same DataSource goes on (round %i)',
  async () => {
    const errors = await workUntilGone(500, async () => {
      const [victim] = await server().backends()
      if (victim !== undefined) process.kill(victim, 'SIGKILL')
    })
    ledger.fault()
    expect(errors.map(driverError).filter((told) => !GONE.test(told))).toEqual([])
    const { entity } = await whenBack(async () => await findOrCreate(dataSource.manager, Note, { url: randomText() }))
    ledger.acknowledge(Note, entity)
    await expectEverythingThere(await server().client())
  },
)

describe('failover', () => {
  test.each(['fast', 'immediate'] as const)(
    'a server that stops (%s) and comes back on its port is used by the same DataSource at the first call',
    async (mode) => {
      const errors = await workUntilGone(500, async () => await server().stop(mode))
      ledger.fault()
      expect(errors.map(driverError).filter((told) => !GONE.test(told))).toEqual([])
      await server().start()
      const { entity, attempts } = await findOrCreate(dataSource.manager, Page, { url: randomText() })
      expect(attempts).toBe(1)
      ledger.acknowledge(Page, entity)
      await expectEverythingThere(await server().client())
    },
  )

  test('a standby finds what is there and refuses to create; promoted, it creates', async () => {
    const { url, id } = (await findOrCreate(dataSource.manager, Page, { url: 'before the failover' })).entity
    await server().stop('fast')
    await server().standBy()
    ledger.fault()
    expect(await findOneByText(dataSource.manager, Page, { url })).toMatchObject({ id })
    const refused = await rejection(findOrCreate(dataSource.manager, Page, { url: 'on the standby' }))
    expect(driverError(refused)).toBe('25006')
    const [many] = await Promise.allSettled([findOrCreateMany(dataSource.manager, Page, [{ url: 'on the standby' }])])
    expect(driverError(many?.status === 'rejected' ? many.reason : undefined)).toBe('25006')

    const observer = await server().client()
    await observer.query('select pg_promote()')
    const { entity, created } = await findOrCreate(dataSource.manager, Page, { url: 'on the standby' })
    expect(created).toBe(true)
    ledger.acknowledge(Page, entity)
    await expectEverythingThere(observer)
  })
})

/** Asks again until the server accepts connections; each refusal must say that it is starting up. */
async function whenBack<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      const told = driverError(error)
      if (!GONE.test(told)) throw new Error(`An error of another kind: ${told}`, { cause: error })
    }
  }
}
