import { type EntityManager, Like, type QueryRunner } from 'typeorm'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, insertOrFail, upsertByText } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity } from '../../support/entity'
import { rejection } from '../../support/ledger'
import type { QueryHook } from '../../support/query-subscriber'
import { Author, Book, Tag } from '../../support/entities'

const Note = entity('Note', { text: column('text') })

const { hooks, QuerySubscriber } = await vi.hoisted(async () => await import('../../support/query-subscriber'))

const db = useDatabase()
let runner: QueryRunner
const dataSource = db.useDataSource([Author, Tag, Book, Note], { subscribers: [QuerySubscriber] })

beforeAll(async () => {
  await findOneByText(dataSource.manager, Author, { name: 'known to be ready' })
  await findOneByText(dataSource.manager, Book, { title: 'known to be ready' })
  await findOneByText(dataSource.manager, Tag, { name: 'known to be ready' })
})
beforeEach(async () => {
  runner = dataSource.createQueryRunner()
})
afterEach(async () => {
  hooks.before = undefined
  hooks.after = undefined
  if (runner.isTransactionActive) await runner.rollbackTransaction()
  await runner.release()
})

const resolve = { relations: 'findOrCreate' } as const

/** Each writes into several tables, and so in a transaction or behind a savepoint. */
const TOGETHER: Readonly<Record<string, (manager: EntityManager, name: string, code?: string) => Promise<unknown>>> = {
  insertOrFail: async (manager, name, code = 'short') =>
    await insertOrFail(manager, [
      [Author, { name }],
      [Book, { title: name, code }],
    ]),
  "findOrCreate with relations: 'findOrCreate'": async (manager, name, code = 'short') =>
    await findOrCreate(manager, Book, { title: name, code, author: { name } }, resolve),
  "findOrCreateMany with relations: 'findOrCreate'": async (manager, name, code = 'short') => {
    const [result] = await findOrCreateMany(manager, Book, [{ title: name, code, author: { name } }], resolve)
    if (!result || 'error' in result) throw result?.error
  },
}

describe.each(Object.entries(TOGETHER))('%s', (_, write) => {
  test('in parallel on one query runner, outside a transaction, each is a whole of its own', async () => {
    await runner.connect()
    const { manager } = runner
    const ways = [
      async (name: string) => await findOrCreate(manager, Author, { name }),
      async (name: string) => await upsertByText(manager, Author, [{ name }]),
      async (name: string) => await insertOrFail(manager, Author, { name }),
      async (name: string) => await write(manager, name),
      async (name: string) => await manager.insert(Author, { name }),
    ]
    const good = [write(manager, 'first')]
    const bad = [rejection(write(manager, 'bad', 'too long'))]
    // At any moment of a call's own transaction another one may begin.
    for (let nth = 0; nth < 100; nth += 1) {
      good.push(ways[nth % ways.length]?.(`text ${nth}`) ?? Promise.resolve())
      if (nth % 7 === 0) bad.push(rejection(write(manager, `bad ${nth}`, 'too long')))
      await new Promise((go) => setImmediate(go))
    }
    const settled = await Promise.allSettled(good)
    expect(settled.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []))).toEqual([])
    for (const error of await Promise.all(bad)) {
      expect(error).toMatchObject({ message: expect.stringContaining('varying(5)') })
    }
    expect(await dataSource.manager.count(Author)).toBe(good.length)
    expect(await dataSource.manager.countBy(Author, { name: Like('bad%') })).toBe(0)
  })

  test("that fails in a transaction undoes nothing that its caller's own statements did in parallel", async () => {
    await runner.startTransaction()
    const call = rejection(write(runner.manager, 'a', 'too long'))
    const notes: Promise<unknown>[] = []
    const insert = (): void => void notes.push(runner.manager.insert(Note, { text: 'kept' }))
    insert()
    for (let nth = 0; nth < 50; nth += 1) {
      await new Promise((go) => setImmediate(go))
      insert()
    }
    expect(await call).toMatchObject({ message: expect.stringContaining('varying(5)') })
    await Promise.all(notes)
    await runner.commitTransaction()
    expect(await dataSource.manager.count(Note)).toBe(notes.length)
    expect(await dataSource.manager.count(Author)).toBe(0)
  })

  test('in a transaction ends, where a subscriber queries on its connection', async () => {
    await insertOrFail(dataSource.manager, Author, { name: 'held' })
    let busy = false
    let heard = 0
    const hook: QueryHook = async ({ queryRunner }) => {
      if (busy) return
      busy = true
      heard += 1
      await queryRunner.query('SELECT 1').finally(() => (busy = false))
    }
    await runner.startTransaction()
    hooks.before = hook
    hooks.after = hook
    await write(runner.manager, 'a')
    await rejection(write(runner.manager, 'b', 'too long'))
    hooks.before = undefined
    hooks.after = undefined
    await runner.commitTransaction()
    expect(heard).toBeGreaterThan(0)
    expect(await dataSource.manager.count(Book)).toBe(1)
  })
})

test('relations are loaded in a transaction while a subscriber queries on its connection', async () => {
  await findOrCreate(dataSource.manager, Book, { title: 'a', author: { name: 'b' }, tags: [{ name: 'c' }] }, resolve)
  let busy = false
  hooks.before = hooks.after = async ({ queryRunner }) => {
    if (busy) return
    busy = true
    await queryRunner.query('SELECT 1').finally(() => (busy = false))
  }
  await runner.startTransaction()
  for (const relationLoadStrategy of ['join', 'query'] as const) {
    const found = await findOneByText(
      runner.manager,
      Book,
      { title: 'a' },
      { relations: ['author', 'tags'], relationLoadStrategy },
    )
    expect(found).toMatchObject({ author: { name: 'b' }, tags: [{ name: 'c' }] })
  }
})

describe('a holder that cannot be asked for', () => {
  test("does not abort the caller's transaction after a rollback to a savepoint", async () => {
    await insertOrFail(dataSource.manager, Author, { name: 'held' })
    await dataSource.query(
      `DROP ROLE IF EXISTS writer; CREATE ROLE writer; GRANT INSERT ON author, note TO writer;
       GRANT SELECT ("nameHash", "nameHashNumber", name) ON author TO writer; GRANT SELECT ON note TO writer`,
    )
    try {
      await runner.startTransaction()
      await runner.query('SET LOCAL ROLE writer')
      await runner.query('SAVEPOINT s')
      const error = await rejection(runner.query(`INSERT INTO author (name) VALUES ($1)`, ['held']))
      expect(error).toMatchObject({ code: 'TEXT_TAKEN' })
      await runner.query('ROLLBACK TO SAVEPOINT s')
      await runner.manager.insert(Note, { text: 'kept' })
      await runner.commitTransaction()
    } finally {
      await dataSource.query('DROP OWNED BY writer; DROP ROLE writer')
    }
    expect(await dataSource.manager.count(Note)).toBe(1)
  })
})

describe('a driver that does not tell whether a transaction is open', () => {
  beforeEach(async () => {
    Object.defineProperty(await runner.connect(), 'getTransactionStatus', { value: undefined, configurable: true })
  })
  const calls = async (): Promise<void> => {
    await insertOrFail(runner.manager, [
      [Author, { name: 'raw' }],
      [Tag, { name: 'raw' }],
    ])
    await rejection(insertOrFail(runner.manager, Author, { name: 'raw' }))
  }

  test('is asked, and the transaction stays that of the caller', async () => {
    await runner.query('BEGIN')
    await calls()
    await runner.query('ROLLBACK')
    expect(await dataSource.manager.count(Author)).toBe(0)
  })

  test('is asked, and outside one a call has its own', async () => {
    await calls()
    expect(await dataSource.manager.count(Author)).toBe(1)
  })
})
