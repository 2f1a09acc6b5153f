import { Client } from 'pg'
import type { DataSource, EntityManager } from 'typeorm'
import { expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, upsertByText } from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Page = entity('Page', { url: text(), title: column('varchar', { length: 3, nullable: true }) })

const db = useDatabase()
// It makes the tables, and empties them before each test.
db.useDataSource([Page, OnceToken])

/** The object as whoever has it sees it, without one of its properties; its own code still has it. */
function hide(object: object, hidden: string, parts: ReadonlyMap<string, object> = new Map()): object {
  const bound = new WeakMap<object, unknown>()
  return new Proxy(object, {
    has: (target, name) => name !== hidden && name in target,
    get: (target, name) => {
      if (name === hidden) return undefined
      const value: unknown = parts.get(String(name)) ?? Reflect.get(target, name)
      if (typeof value !== 'function' || Object.hasOwn(target, name)) return value
      if (!bound.has(value)) bound.set(value, value.bind(target))
      return bound.get(value)
    },
  })
}

/** A class of clients of which nobody outside sees a property, or one of their connection's. */
const clientWithout = (part: 'client' | 'connection', hidden: string): unknown =>
  class extends Client {
    constructor(...args: ConstructorParameters<typeof Client>) {
      super(...args)
      const own = Reflect.get(this, 'connection') as object
      const connection = part === 'connection' ? hide(own, hidden) : own
      return hide(this, part === 'client' ? hidden : '', new Map([['connection', connection]])) as this
    }
  }

/** What a call gives and leaves behind, of whatever the client consists. */
async function operations(manager: EntityManager, prefix: string): Promise<unknown[]> {
  const url = (name: string): { url: string } => ({ url: `${prefix} ${name}` })
  const created = await findOrCreate(manager, Page, { ...url('a'), title: 'é' })
  const found = await findOrCreate(manager, Page, url('a'))
  const refused = await rejection(findOrCreate(manager, Page, { ...url('b'), title: 'too long' })).catch(
    () => undefined,
  )
  const looked = await findOneByText(manager, Page, url('a'))
  const many = await findOrCreateMany(manager, Page, [url('a'), url('c'), { ...url('d'), title: 'too long' }])
  const upserted = await upsertByText(manager, Page, { ...url('a'), title: 'new' })
  return [
    created.created,
    found.created,
    found.entity.title,
    (refused as Error | undefined)?.name,
    looked?.title,
    many.map((one) => ('error' in one ? one.error.name : one.created)),
    upserted.entity.title,
  ]
}

const EXPECTED = [true, false, 'é', 'QueryFailedError', 'é', [false, true, 'QueryFailedError'], 'new']

/** In a transaction, what would abort it comes last. */
async function inTransaction(dataSource: DataSource): Promise<unknown[]> {
  return await dataSource.transaction(async (manager) => {
    const { created } = await findOrCreate(manager, Page, { url: 'in a transaction' })
    const results = await findOrCreateMany(manager, Page, [
      { url: 'in a transaction' },
      { url: 'second' },
      { url: 'third', title: 'too long' },
    ])
    const upserted = await upsertByText(manager, Page, { url: 'second', title: 'new' })
    return [created, results.map((one) => 'error' in one || one.created), upserted.created]
  })
}

async function oneAnswer(dataSource: DataSource): Promise<unknown> {
  const work = async (manager: EntityManager): Promise<object> => {
    const { created } = await findOrCreate(manager, Page, { url: 'once' })
    return { created }
  }
  const first = await once(dataSource.manager, 'token', work)
  const second = await once(dataSource.manager, 'token', work)
  return [first, second]
}

async function requireAll(dataSource: DataSource): Promise<void> {
  expect(await operations(dataSource.manager, 'alone')).toEqual(EXPECTED)
  expect(await inTransaction(dataSource)).toEqual([true, [false, true, true], false])
  expect(await oneAnswer(dataSource)).toMatchObject([
    { answer: { created: true }, replayed: false },
    { answer: { created: true }, replayed: true },
  ])
  const together = Array.from({ length: 30 }, async (_, nth) => {
    const { created } = await findOrCreate(dataSource.manager, Page, { url: `together ${nth % 3}` })
    return created
  })
  expect((await Promise.all(together)).filter((created) => created)).toHaveLength(3)
}

test.each([
  ['client', 'connection'],
  ['client', 'getTransactionStatus'],
  ['client', 'getTypeParser'],
  ['client', 'processID'],
  ['client', 'readyForQuery'],
  ['connection', 'close'],
  ['connection', 'parse'],
  ['connection', 'parsedStatements'],
  ['connection', 'stream'],
  ['connection', 'sync'],
] as const)('without what pg does not document, every call goes its ordinary way: %s.%s', async (part, hidden) => {
  const extra = { max: 3, Client: clientWithout(part, hidden) }
  await requireAll(await db.dataSource([Page, OnceToken], { synchronize: false, extra }))
})

test.each(['idleCount', 'totalCount', 'waitingCount', 'options'])(
  'nor does the pool have to tell of itself: %s',
  async (name) => {
    const dataSource = await db.dataSource([Page, OnceToken], { synchronize: false, extra: { max: 3 } })
    const driver = dataSource.driver as unknown as { master: object }
    driver.master = hide(driver.master, name)
    await requireAll(dataSource)
  },
)

test.each(['defaults', 'types'])('nor the module of pg: %s', async (name) => {
  const dataSource = await db.dataSource([Page, OnceToken], { synchronize: false, extra: { max: 3 } })
  const driver = dataSource.driver as unknown as { postgres: object }
  driver.postgres = hide(driver.postgres, name)
  await requireAll(dataSource)
})
