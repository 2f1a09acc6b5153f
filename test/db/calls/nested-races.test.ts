import type { EntityManager, EntitySubscriberInterface, InsertEvent, QueryRunner } from 'typeorm'
import { Entity, In, JoinTable, ManyToMany, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, TransactionAbortedError, UniqueText } from '../../../src'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'
import { endOrWait, openSession, type Outcome, type Session } from '../../support/sessions'
import { Author } from '../../support/entities'

const db = useDatabase()

@Entity()
class Tag {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @ManyToMany(() => Book, (book: Book) => book.tags) books!: Book[]
}

@Entity()
class Book {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() title!: string
  @ManyToOne(() => Author, { nullable: true }) author!: Author | null
  @ManyToMany(() => Tag, (tag) => tag.books) @JoinTable() tags!: Tag[]
}

const resolve = { relations: 'findOrCreate' } as const
const values = { title: 'Emma', author: { name: 'Austen' } }
let other: Session
let runner: QueryRunner
let pid: number
const dataSource = db.useDataSource([Author, Tag, Book], { extra: { options: '-c deadlock_timeout=10ms' } })
const { manager } = dataSource
const observer = db.useClient()

beforeAll(async () => {
  // The one that Postgres ends in a deadlock is the one that waited first, or whose limit is shorter: ours.
  other = await openSession(await db.client(), 60_000)
})
beforeEach(async () => {
  runner = dataSource.createQueryRunner()
  const [row] = (await runner.query('SELECT pg_backend_pid() AS pid')) as { pid: number }[]
  pid = row?.pid ?? 0
})
afterEach(async () => {
  await other.run('ROLLBACK')
  if (runner.isTransactionActive) await runner.rollbackTransaction()
  await runner.release()
})

/** The call waits for the other session. */
async function waits(call: Promise<unknown>): Promise<void> {
  let ended: Outcome | undefined
  const end = (): Outcome => (ended = { ok: true, command: '', count: null, rows: [] })
  const statement = { outcome: call.then(end, end), ended: () => ended }
  expect(await endOrWait(observer, { session: { ...other, pid }, statement })).toBe('waits')
}

const stored = async (): Promise<unknown> => ({
  books: await manager.find(Book, { relations: { author: true } }),
  authors: await manager.find(Author),
})

test('an owner that another transaction is storing is waited for, and found', async () => {
  const call = () => findOrCreate(runner.manager, Book, values, resolve)
  const insert = `INSERT INTO author (name) VALUES ('Austen')`
  const { entity, created, attempts } = await meet({ other: other.client, observer }, insert, call)
  expect({ created, attempts }).toEqual({ created: true, attempts: 1 })
  expect(await stored()).toMatchObject({
    books: [{ id: entity.id, author: { id: entity.author?.id } }],
    authors: [{ name: 'Austen' }],
  })
})

test('a row that another transaction stores meanwhile is found, with the relations that it has', async () => {
  const insert = `INSERT INTO author (name) VALUES ('Austen'), ('another');
    INSERT INTO book (title, "authorId") SELECT 'Emma', id FROM author WHERE name = 'another'`
  const call = () => findOrCreate(runner.manager, Book, values, resolve)
  const result = await meet({ other: other.client, observer }, insert, call)
  expect(result).toMatchObject({ created: false, entity: { author: { name: 'another' } } })
})

describe('a deadlock with a transaction that stores the same texts in the other order', () => {
  /** Ours holds the author and waits for the book; the other then asks for the author. */
  async function inACircle<T>(call: () => Promise<T>): Promise<T> {
    await other.run('BEGIN')
    await other.run(`INSERT INTO book (title) VALUES ('Emma')`)
    const inTransaction = runner.isTransactionActive
    const called = call()
    await waits(called)
    const insert = other.run(`INSERT INTO author (name) VALUES ('Austen')`)
    // In a transaction of the caller's, only its end lets the other one go on.
    if (inTransaction) {
      await called
      await runner.rollbackTransaction()
    }
    await insert
    await other.run('COMMIT')
    return await called
  }

  // Ours has waited longer than its limit by the time the circle is closed, so Postgres must look again.
  beforeEach(() => runner.query(`SET deadlock_timeout TO '500ms'`))

  // The next attempt can be first at the author again and meet the same circle, so there is no upper bound.
  const tried = expect.toSatisfy((attempts: number) => attempts >= 2, 'two attempts or more')

  test('is an attempt, and the next one begins from the start', async () => {
    const result = await inACircle(() => findOrCreate(runner.manager, Book, values, resolve))
    expect(result).toMatchObject({ created: false, attempts: tried })
    expect(await stored()).toMatchObject({ books: [{ title: 'Emma' }], authors: [{ name: 'Austen' }] })
  })

  test('of a batch too', async () => {
    const inputs = [values, { title: 'Persuasion', author: { name: 'Austen' } }]
    const results = await inACircle(() => findOrCreateMany(runner.manager, Book, inputs, resolve))
    expect(results).toMatchObject([
      { created: false, attempts: tried },
      { created: true, attempts: tried },
    ])
    expect(await manager.count(Author)).toBe(1)
  })

  test("in the caller's transaction is the caller's to try again", async () => {
    await runner.startTransaction()
    const error = await inACircle(() => rejection(findOrCreate(runner.manager, Book, values, resolve)))
    expect(error).toBeInstanceOf(TransactionAbortedError)
  })
})

test('many calls at once store each text once, from whichever side they come', async () => {
  const names = ['a', 'b', 'c', 'd']
  const calls = Array.from({ length: 24 }, (_, index) => {
    const shifted = names.map((__, nth) => names[(nth + index) % names.length] ?? '')
    return index % 2 === 0
      ? findOrCreate(manager, Book, { title: `book ${index % 6}`, tags: shifted.map((name) => ({ name })) }, resolve)
      : findOrCreate(manager, Tag, { name: `tag ${index % 3}`, books: [{ title: `book ${index % 6}` }] }, resolve)
  })
  const results = await Promise.all(calls)
  const created = results.filter((result) => result.created).map(({ entity }) => JSON.stringify(Object.values(entity)))
  expect(new Set(created).size).toBe(created.length)
  const books = await manager.find(Book, { relations: { tags: true } })
  expect(new Set(books.map(({ title }) => title)).size).toBe(books.length)
  const tags = await manager.findBy(Tag, { name: In(names) })
  expect(tags.length).toBeLessThanOrEqual(names.length)
})

test('in one transaction, calls at once have their turns', async () => {
  const call = (own: EntityManager, index: number) =>
    findOrCreate(own, Book, { title: `${index % 2}`, author: { name: `${index % 3}` } }, resolve)
  await dataSource.transaction(async (own) => {
    const results = await Promise.all(Array.from({ length: 6 }, (_, index) => call(own, index)))
    expect(results.filter(({ created }) => created)).toHaveLength(2)
  })
  expect(await manager.count(Book)).toBe(2)
})

test('a conflict that a subscriber meets ends the transaction of the caller, which has to be repeated', async () => {
  const loses: EntitySubscriberInterface = {
    beforeInsert: async (event: InsertEvent<unknown>) => {
      await event.queryRunner.query(`do $$ begin raise sqlstate '40001'; end $$`)
    },
  }
  dataSource.subscribers.push(loses)
  try {
    const call = dataSource.transaction(async (own) => await findOrCreate(own, Book, values, resolve))
    expect(await rejection(call)).toBeInstanceOf(TransactionAbortedError)
  } finally {
    dataSource.subscribers.splice(dataSource.subscribers.indexOf(loses), 1)
  }
})
