import { Client } from 'pg'
import { AfterInsert, BeforeInsert, Entity, type EntityManager, PrimaryGeneratedColumn } from 'typeorm'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { useDatabase } from '../../support/database'
import { onlyRowOf, rowOf } from '../../support/results'
import { deleteDate, entity, plain, text, toMany, toOne } from '../../support/entity'
import { poolOf, rejection } from '../../support/ledger'
import { Author, Tag } from '../../support/entities'

const Book = entity('Book', {
  title: text(),
  note: plain(),
  author: toOne(() => Author, { cascade: true }),
  tags: toMany(() => Tag, { cascade: true }),
  deletedAt: deleteDate(),
})

let heard: (() => Promise<unknown>) | undefined

/** Its listeners do what a test says. */
@Entity()
class Heard {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @BeforeInsert() async before(): Promise<void> {
    await heard?.()
  }
  @AfterInsert() async after(): Promise<void> {
    await heard?.()
  }
}

const db = useDatabase()

const resolve = { relations: 'findOrCreate' } as const

/** Every call that writes, into as many tables as it can. */
const CALLS: Readonly<Record<string, (own: EntityManager, name: string) => Promise<unknown>>> = {
  insertOrFail: (own, title) =>
    insertOrFail(own, [
      [Author, { name: title }],
      [Book, { title }],
    ]),
  'updateOrFail of several': (own, title) =>
    updateOrFail(own, [
      [Book, 1, { title }],
      [Book, 2, { title: `${title}, too` }],
    ]),
  upsertByText: (own, title) => upsertByText(own, Book, { title: 'first', note: title }),
  'upsertByText of many': (own, title) => upsertByText(own, Book, [{ title: 'first', note: title }, { title }]),
  "relations: 'findOrCreate'": (own, title) =>
    findOrCreate(own, Book, { title, author: { name: title }, tags: [{ name: title }] }, resolve),
  "findOrCreateMany, relations: 'findOrCreate'": async (own, title) => {
    const values = [{ title, author: { name: title } }, { title: `${title}, too` }]
    for (const result of await findOrCreateMany(own, Book, values, resolve)) rowOf(result)
  },
  "deleted: 'restore'": (own) => findOrCreate(own, Book, { title: 'deleted' }, { deleted: 'restore' }),
  "deleted: 'restore' of many": (own) =>
    onlyRowOf(findOrCreateMany(own, Book, [{ title: 'deleted' }], { deleted: 'restore' })),
  create: (own, title) =>
    findOrCreate(own, Book, { title }, { create: async () => ({ note: String(await manager.count(Book)) }) }),
  'create of many': (own, title) =>
    findOrCreateMany(own, Book, [{ title }, { title: 'first' }], {
      create: async () => ({ note: String(await manager.count(Book)) }),
    }),
  'a plain save that is refused': async (own) => {
    const error = await rejection(own.save(Book, { title: 'first' }))
    if ((error as { code?: string }).code !== 'TEXT_TAKEN') throw error
  },
  'relations that are loaded': (own) => findOneByText(own, Book, { title: 'first' }, { relations: ['author', 'tags'] }),
}

const dataSource = db.useDataSource([Author, Tag, Book, Heard], { poolSize: 1, applicationName: 'one connection' })
const { manager } = dataSource
const observer = db.useClient()

beforeEach(async () => {
  heard = undefined
  await manager.query(`INSERT INTO author (name) VALUES ('known')`)
  await manager.query(
    `INSERT INTO book (title, "authorId", "deletedAt") VALUES ('first', 1, NULL), ('second', 1, NULL), ('deleted', NULL, now())`,
  )
})
afterEach(async () => {
  const { totalCount, idleCount, waitingCount } = poolOf(dataSource)
  expect({ inUse: totalCount - idleCount, waitingCount }).toEqual({ inUse: 0, waitingCount: 0 })
  const { rows } = await observer.query(
    `SELECT state, query FROM pg_stat_activity WHERE application_name = 'one connection' AND state <> 'idle'`,
  )
  expect(rows).toEqual([])
})

describe.each(Object.entries(CALLS))('with one connection: %s', (name, call) => {
  test('twenty calls at once end', async () => {
    const settled = await Promise.allSettled(Array.from({ length: 20 }, (_, nth) => call(manager, `text ${nth % 4}`)))
    const reasons = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as { code?: string }] : []))
    const mayRefuse = /OrFail/.test(name)
    expect(reasons.filter(({ code }) => !(mayRefuse && code === 'TEXT_TAKEN'))).toEqual([])
  })

  test('a connection that is lost at any statement leaves nothing half done, open or hanging', async () => {
    let nth = 1
    for (let before = await picture(); ; nth += 1) {
      const current = `killed ${nth}`
      if (!(await killAt(nth, () => call(manager, current)))) break
      const after = await picture()
      // All of it, or nothing; the answer to what was done may be lost.
      expect([before, before + 1]).toContain(after)
      before = after
    }
    expect(nth).toBeGreaterThan(1)
    await call(manager, 'afterwards')
  })
})

// Not `create`, which asks for a second connection; nor what aborts a transaction of TypeORM's own.
const INSIDE = Object.entries(CALLS).filter(([name]) => !/^(?:create|a plain save)/.test(name))

test.each(INSIDE)(
  "a connection that is lost in the caller's transaction undoes it, and nobody hangs: %s",
  async (_, call) => {
    const before = await picture()
    let nth = 1
    const transact = async (): Promise<void> => {
      await dataSource.transaction(async (own) => {
        const calls = [call(own, 'a'), own.count(Tag), call(own, 'b'), own.insert(Tag, { name: `${nth}` })]
        const settled = await Promise.allSettled(calls)
        for (const one of settled) if (one.status === 'rejected') throw one.reason
        throw new Error('undone')
      })
    }
    for (; ; nth += 1) {
      const killed = await killAt(nth, async () => {
        const error = await rejection(transact())
        if (error instanceof Error && error.message !== 'undone') throw error
      })
      expect(await picture()).toBe(before)
      if (!killed) break
    }
    expect(nth).toBeGreaterThan(1)
  },
)

/** Rows whose texts come from one call count once. */
async function picture(): Promise<number> {
  const { rows } = await observer.query<{ n: number }>(
    `SELECT count(DISTINCT split_part(t, ',', 1))::int AS n FROM (
       SELECT name AS t FROM author UNION ALL SELECT title FROM book UNION ALL SELECT name FROM tag) AS all_texts`,
  )
  return rows[0]?.n ?? 0
}

/** Ends the backend before the nth statement of the call is sent. False where the call sends fewer. */
async function killAt(nth: number, call: () => Promise<unknown>): Promise<boolean> {
  const prototype = Client.prototype as unknown as { query: (...args: readonly unknown[]) => unknown }
  const { query } = prototype
  let sent = 0
  prototype.query = async function killing(this: { readonly processID: number }, ...args) {
    sent += 1
    if (sent === nth) await query.call(observer, 'SELECT pg_terminate_backend($1, 5000)', [this.processID])
    return await query.apply(this, [...args])
  }
  try {
    await call()
  } catch (error) {
    if (sent < nth) throw error
  } finally {
    prototype.query = query
  }
  return sent >= nth
}

test('a listener that finds, creates or refuses by itself ends, in a transaction and outside', async () => {
  heard = async () => {
    heard = undefined
    await findOrCreate(manager, Book, { title: 'by a listener', author: { name: 'known' } }, resolve)
    await rejection(insertOrFail(manager, Book, { title: 'first' }))
  }
  await insertOrFail(manager, Heard, { text: 'a' })
  expect(await manager.countBy(Book, { title: 'by a listener' })).toBe(1)
  await dataSource.transaction(async (own) => {
    const again = async (): Promise<void> => {
      heard = undefined
      await findOrCreate(own, Book, { title: 'by another', author: { name: 'known' } }, resolve)
      await rejection(insertOrFail(own, Book, { title: 'first' }))
      heard = again
    }
    heard = again
    await insertOrFail(own, [
      [Heard, { text: 'b' }],
      [Author, { name: 'b' }],
    ]).catch(() => {})
    heard = undefined
    await findOrCreate(own, Heard, { text: 'c' })
  })
  expect(await manager.countBy(Heard, [{ text: 'a' }, { text: 'c' }])).toBe(2)
})

test('create that asks for the very text ends, and finds what it created', async () => {
  const create = async (): Promise<object> => {
    await findOrCreate(manager, Book, { title: 'nested', note: 'inner' })
    return { note: 'outer' }
  }
  for (const options of [{ create }, { create, ...resolve }]) {
    await manager.delete(Book, { title: 'nested' })
    const { created, entity } = await findOrCreate(manager, Book, { title: 'nested' }, options)
    expect({ created, note: entity.note }).toEqual({ created: false, note: 'inner' })
  }
  await manager.delete(Book, { title: 'nested' })
  const [one] = await findOrCreateMany(manager, Book, [{ title: 'nested' }], { create })
  expect(one).toMatchObject({ created: false, entity: { note: 'inner' } })
})
