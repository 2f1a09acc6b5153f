import { AsyncResource } from 'node:async_hooks'
import { BeforeInsert, type DataSource, Entity, type EntityManager, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  UniqueTextEntity,
  updateOrFail,
  upsertByText,
  WaitsForItselfError,
} from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { findOrCreateStream } from '../../../src/stream'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { LONGER_SECONDS, useShortPatience } from '../../support/patience'

const Site = entity('Site', { host: text() })
type Site = InstanceType<typeof Site>

@Entity()
class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @ManyToOne(() => Site) site!: Site | null
}

@Entity()
class Heard {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @BeforeInsert() hear(): void {}
}

const db = useDatabase()
useShortPatience()
let dataSource: DataSource
let logged: DataSource
let small: DataSource
let starved: DataSource

const many = { poolSize: 60, synchronize: false } as const

beforeAll(async () => {
  const first = await db.dataSource([Site, Page, Heard, OnceToken])
  await first.query(`INSERT INTO site (host) VALUES ('standing')`)
  dataSource = await db.dataSource([Site, Page, Heard, OnceToken], many)
  logged = await db.dataSource([Site, Page, Heard, OnceToken], { ...many, logging: true, logger: 'debug' })
  small = await db.dataSource([Site, Page, Heard, OnceToken], { poolSize: 2, synchronize: false })
  const extra = { connectionTimeoutMillis: 500 }
  starved = await db.dataSource([Site, Page, Heard, OnceToken], { poolSize: 2, synchronize: false, extra })
  // The last: every DataSource takes the entities that derive from TypeORM's BaseEntity when it is initialised.
  Page.useDataSource(dataSource)
})

// Otherwise tests wait for each other in the pool of another DataSource, whose connections are too few.
afterAll(() => expect(Page.getRepository().manager).toBe(dataSource.manager))

const INSERT = 'INSERT INTO page (url) VALUES ($1)'

let given = 0
/** No test waits for the rows of another. */
const another = (): string => `text ${(given += 1)}`

/** Writes a text, by the manager of the transaction or by another one. */
type Call = (manager: EntityManager, text: string) => Promise<unknown>

const CALLS: Readonly<Record<string, Call>> = {
  findOrCreate: (manager, url) => findOrCreate(manager, Page, { url }),
  findOrCreateMany: (manager, url) => findOrCreateMany(manager, Page, [{ url }, { url: another() }]),
  'findOrCreateMany with create': (manager, url) =>
    findOrCreateMany(manager, Page, [{ url }, { url: another() }], { create: () => ({}) }),
  'findOrCreateMany of rows that a listener hears': (manager, url) =>
    findOrCreateMany(manager, Heard, [{ url }, { url: another() }]),
  upsertByText: (manager, url) => upsertByText(manager, Page, [{ url }]),
  insertOrFail: (manager, url) => insertOrFail(manager, Page, { url }),
  'insertOrFail of several': (manager, url) =>
    insertOrFail(manager, [
      [Page, { url }],
      [Site, { host: another() }],
    ]),
  updateOrFail: async (manager, url) => {
    const { id } = await insertOrFail(manager, Page, { url: another() })
    return await updateOrFail(manager, Page, { id }, { url })
  },
  'findOrCreate with relations': (manager, url) =>
    findOrCreate(manager, Page, { url, site: { host: url } }, { relations: 'findOrCreate' }),
  findOrCreateStream: async (manager, url) => {
    if (manager.queryRunner) await findOrCreate(manager, Page, { url })
    else
      for await (const result of findOrCreateStream(manager.dataSource, Page, [{ url }]))
        expect(result).toHaveProperty('entity')
  },
  once: (manager, token) => once(manager, token, () => 1),
  'work of once': (manager, url) =>
    once(manager, another(), async (own) => {
      await findOrCreate(own, Page, { url })
    }),
}

/** How statements are logged does not depend on the call. */
const LOGGED: readonly string[] = ['findOrCreate', 'insertOrFail of several', 'once']

const isRefused = async (call: Promise<unknown>): Promise<void> => {
  const error = await rejection(call)
  expect(error).toBeInstanceOf(WaitsForItselfError)
  expect(error).toMatchObject({ code: 'WAITS_FOR_ITSELF' })
}

describe.concurrent.each(Object.entries(CALLS))('%s', (name, call) => {
  const heard = LOGGED.includes(name) ? [['logged', () => logged] as const] : []
  test.concurrent.each([['unheard', () => dataSource] as const, ...heard])(
    'without the manager of the transaction that holds its rows is told so, %s',
    async (__, of) => {
      const text = another()
      await of().transaction(async (manager) => {
        await call(manager, text)
        await isRefused(call(of().manager, text))
        await manager.query('SELECT 1')
      })
      expect(await of().query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    },
  )
})

const held = async (manager: EntityManager): Promise<string> => {
  const url = another()
  await findOrCreate(manager, Page, { url })
  return url
}

/** Ways in which code comes to be in a transaction. */
const OPENED: Readonly<Record<string, (run: (manager: EntityManager) => Promise<void>) => Promise<unknown>>> = {
  'the work of once': (run) => once(dataSource.manager, another(), run),
  'the work of once in a transaction': (run) => dataSource.transaction((manager) => once(manager, another(), run)),
  'a transaction with an isolation level': (run) => dataSource.transaction('REPEATABLE READ', run),
  "a query runner's manager": async (run) => {
    const runner = dataSource.createQueryRunner()
    await runner.manager.transaction(run)
    await runner.release()
  },
  'a nested transaction': (run) =>
    dataSource.transaction(async (manager) => {
      await manager.transaction(run)
    }),
}

test.concurrent.each(Object.entries(OPENED))('a call without the manager in %s is told so', async (_, open) => {
  await open(async (manager) => {
    const url = await held(manager)
    await isRefused(Page.findOrCreate({ url }))
  })
})

test.concurrent('a call with the manager of another transaction inside is told so', async () => {
  await dataSource.transaction(async (outer) => {
    const url = await held(outer)
    await isRefused(dataSource.transaction((inner) => findOrCreate(inner, Page, { url })))
  })
})

test.concurrent('a call that waits by way of a third transaction is told so', async () => {
  const [third, second] = [await db.client(), another()]
  await third.query('BEGIN')
  await third.query(INSERT, [second])
  const waiting = await dataSource.transaction(async (manager) => {
    const first = await held(manager)
    const blocked = third.query(INSERT, [first])
    await isRefused(findOrCreate(dataSource.manager, Page, { url: second }))
    return [rejection(blocked)]
  })
  expect(await waiting[0]).toMatchObject({ code: '23505' })
  await third.query('ROLLBACK')
})

test.concurrent('a call is told so where the pool has no connection to ask by', async () => {
  await small.transaction(async (manager) => {
    const url = await held(manager)
    await isRefused(findOrCreate(small.manager, Page, { url }))
    expect(await manager.query('SELECT 1 AS one')).toEqual([{ one: 1 }])
  })
})

test.concurrent('a call does not follow one from outside, which waits for the same transaction', async () => {
  const outside = AsyncResource.bind((url: string) =>
    Promise.all(Array.from({ length: 20 }, () => Page.findOrCreate({ url }))),
  )
  const others = await dataSource.transaction(async (manager) => {
    const url = await held(manager)
    const waiting = outside(url)
    await isRefused(Page.findOrCreate({ url }))
    return { waiting }
  })
  expect((await others.waiting).every(({ created }) => !created)).toBe(true)
})

test.concurrent('a call that waits for somebody else in a transaction waits on', async () => {
  const other = await db.client()
  const url = another()
  await other.query('BEGIN')
  await other.query(INSERT, [url])
  await dataSource.transaction(async (manager) => {
    await held(manager)
    const waiting = Page.findOrCreate({ url })
    await other.query(`SELECT pg_sleep(${LONGER_SECONDS})`)
    await other.query('COMMIT')
    expect(await waiting).toMatchObject({ entity: { url }, created: false })
  })
})

test.concurrent('a call that the transaction does not wait for waits on while that sends something', async () => {
  let waiting: Promise<unknown> = Promise.resolve()
  await dataSource.transaction(async (manager) => {
    const url = await held(manager)
    waiting = Page.findOrCreate({ url })
    for (let nth = 0; nth < 6; nth += 1) {
      await dataSource.query(`SELECT pg_sleep(${LONGER_SECONDS / 6})`)
      await manager.query('SELECT 1')
    }
  })
  expect(await waiting).toMatchObject({ created: false })
})

test.concurrent('a call beside a transaction waits on', async () => {
  const url = another()
  let begun = (): void => {}
  const working = new Promise<void>((resolve) => (begun = resolve))
  const [, found] = await Promise.all([
    dataSource.transaction(async (manager) => {
      await findOrCreate(manager, Page, { url })
      begun()
      await dataSource.query(`SELECT pg_sleep(${LONGER_SECONDS})`)
    }),
    working.then(() => Page.findOrCreate({ url })),
  ])
  expect(found).toMatchObject({ created: false })
})

test('a call that waits for a connection, behind calls that wait for its transaction, ends as the pool says', async () => {
  const observer = await db.client()
  const outside = AsyncResource.bind((url: string) => findOrCreate(starved.manager, Page, { url }))
  const others = await starved.transaction(async (manager) => {
    const url = await held(manager)
    const waiting = outside(url)
    await untilBlocked(observer)
    const refused = await rejection(findOrCreate(starved.manager, Page, { url }))
    expect(refused).toMatchObject({ message: 'timeout exceeded when trying to connect' })
    await manager.query('SELECT 1')
    return { waiting }
  })
  expect(await others.waiting).toMatchObject({ created: false })
})
