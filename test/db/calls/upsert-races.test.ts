import type { EntityManager } from 'typeorm'
import {
  AfterUpdate,
  BeforeInsert,
  BeforeUpdate,
  ChildEntity,
  Column,
  Entity,
  PrimaryGeneratedColumn,
  TableInheritance,
} from 'typeorm'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type FindOrCreateResult, TransactionAbortedError, UniqueText, upsertByText } from '../../../src'
import { textsOfEntity } from '../../../src/registry/registry'
import { meet, untilBlocked } from '../../support/blocked'
import { onlyRowOf } from '../../support/results'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { entity, plain, text, version } from '../../support/entity'
import { violations } from '../../support/guarded-table'
import { rejection } from '../../support/ledger'

/** All texts share one hash. */
const Word = entity('Word', { text: text({ digest: oneHash }), note: plain(), version: version() })
type Word = InstanceType<typeof Word>

/** Each has a hash of its own. */
const Page = entity('Page', { text: text(), note: plain() })

const heard: string[] = []

@Entity({ name: 'heard' })
class Heard {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ digest: oneHash }) text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
  @Column({ type: 'text', nullable: true }) filled!: string | null
  @BeforeInsert() async inserting(): Promise<void> {
    heard.push(`insert ${this.note}`)
    this.filled = 'on insert'
    await onInsert(this)
  }
  @BeforeUpdate() async updating(): Promise<void> {
    heard.push(`update ${this.note}`)
    this.filled = 'on update'
    await onUpdate(this)
  }
  @AfterUpdate() updated(): void {
    heard.push(`updated ${this.id}`)
  }
}

/** What a listener does, and others meanwhile. */
let onInsert: (entity: object) => Promise<unknown> = async () => {}
let onUpdate: (entity: object) => Promise<unknown> = async () => {}

/** Hears of inserts only. */
@Entity({ name: 'born' })
class Born {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
  @BeforeInsert() inserting(): void {
    heard.push(`insert ${this.note}`)
  }
}

/** Sets and takes away what the test says. */
let change: (animal: Animal) => void = () => {}

@Entity({ name: 'animal' })
@TableInheritance({ column: { type: 'text', name: 'kind' } })
class Animal {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
  @Column({ type: 'text', nullable: true }) food!: string | null
  @Column({ type: 'text', nullable: true }) color!: string | null
  @Column({ type: 'text', update: false, default: 'nowhere' }) origin!: string
  @Column({ type: 'integer', unique: true, nullable: true }) tag!: number | null
  @BeforeUpdate() updating(): void {
    heard.push(`update ${this.name}`)
    change(this)
  }
}
@ChildEntity()
class Cat extends Animal {}
@ChildEntity()
class Dog extends Animal {}

const db = useDatabase()
const dataSource = db.useDataSource([Word, Page, Heard, Born, Animal, Cat, Dog])
const { manager } = dataSource
const other = db.useClient()
const observer = db.useClient()

const meetOther = <T>(sql: string, call: () => Promise<T>, end?: 'COMMIT' | 'ROLLBACK'): Promise<T> =>
  meet({ other, observer }, sql, call, end)

beforeEach(async () => {
  heard.length = 0
  change = () => {}
  onInsert = async () => {}
  onUpdate = async () => {}
})

type Call = (manager: EntityManager, row: { text: string; note: string }) => Promise<FindOrCreateResult<Word>>

const CALLS: Readonly<Record<string, Call>> = {
  'of one row': (manager, row) => upsertByText(manager, Word, row),
  'of many': (manager, row) => onlyRowOf(upsertByText(manager, Word, [row])),
}

const row = { text: 'a', note: 'new' }
const stored = (): Promise<Word[]> => manager.find(Word, { order: { text: 'asc' } })

afterEach(async () => {
  const [declaration] = textsOfEntity(dataSource.getMetadata(Word))
  if (!declaration) throw new TypeError('Word declares a text.')
  expect(await violations(observer, declaration.table)).toEqual([])
})

describe.each(Object.entries(CALLS))('an upsert %s', (_, call) => {
  /** `statement` is in progress, in a transaction of another session, when the upsert meets it. */
  const upsertMeeting = (statement: string, end: 'COMMIT' | 'ROLLBACK'): Promise<FindOrCreateResult<Word>> =>
    meetOther(statement, () => call(manager, row), end)

  const insert = `INSERT INTO word (text, note, version) VALUES`

  test('creates the row again that others delete meanwhile', async () => {
    await other.query(`${insert} ('a', 'old', 1)`)
    expect(await upsertMeeting(`DELETE FROM word WHERE text = 'a'`, 'COMMIT')).toMatchObject({ created: true })
    expect(await stored()).toMatchObject([{ id: 2, text: 'a', note: 'new', version: 1 }])
  })

  test('updates the row that others did not delete after all', async () => {
    await other.query(`${insert} ('a', 'old', 1)`)
    expect(await upsertMeeting(`DELETE FROM word WHERE text = 'a'`, 'ROLLBACK')).toMatchObject({
      created: false,
      attempts: 1,
    })
    expect(await stored()).toMatchObject([{ id: 1, text: 'a', note: 'new', version: 2 }])
  })

  test('updates the row that others insert meanwhile', async () => {
    expect(await upsertMeeting(`${insert} ('a', 'theirs', 1)`, 'COMMIT')).toMatchObject({ created: false })
    expect(await stored()).toMatchObject([{ text: 'a', note: 'new', version: 2 }])
  })

  test('creates the row that others did not insert after all', async () => {
    expect(await upsertMeeting(`${insert} ('a', 'theirs', 1)`, 'ROLLBACK')).toMatchObject({ created: true })
    expect(await stored()).toMatchObject([{ text: 'a', note: 'new', version: 1 }])
  })

  test('leaves alone the row of a text of equal hash that comes meanwhile', async () => {
    expect(await upsertMeeting(`${insert} ('b', 'theirs', 1)`, 'COMMIT')).toMatchObject({ created: true })
    expect(await stored()).toMatchObject([
      { text: 'a', note: 'new' },
      { text: 'b', note: 'theirs', version: 1 },
    ])
  })

  test('leaves alone the row that takes the number of its own, deleted meanwhile', async () => {
    await other.query(`${insert} ('a', 'old', 1)`)
    await other.query(`${insert} ('b', 'theirs', 1)`)
    expect(await upsertMeeting(`DELETE FROM word WHERE text = 'a'`, 'COMMIT')).toMatchObject({ created: true })
    expect(await stored()).toMatchObject([
      { text: 'a', note: 'new' },
      { text: 'b', note: 'theirs', version: 1 },
    ])
  })

  test('leaves alone a row that gets another text between look-up and update', async () => {
    // By way of another hash: in place, the guard refuses it.
    await dataSource.query(`${insert} ('a', 'old', 1)`)
    const moved = `WITH gone AS (DELETE FROM word WHERE text = 'a' RETURNING id)
      INSERT INTO word (id, text, note, version) OVERRIDING SYSTEM VALUE SELECT id, 'b', 'theirs', 7 FROM gone`
    expect(await upsertMeeting(moved, 'COMMIT')).toMatchObject({ created: true })
    expect(await stored()).toMatchObject([
      { text: 'a', note: 'new', version: 1 },
      { text: 'b', note: 'theirs', version: 7 },
    ])
  })

  test('writes over what others write meanwhile, as the later one', async () => {
    await other.query(`${insert} ('a', 'old', 1)`)
    expect(await upsertMeeting(`UPDATE word SET note = 'theirs', version = 5`, 'COMMIT')).toMatchObject({ attempts: 1 })
    expect(await stored()).toMatchObject([{ text: 'a', note: 'new', version: 6 }])
  })

  test('at REPEATABLE READ aborts a transaction whose snapshot is too old, and says so', async () => {
    await other.query(`${insert} ('a', 'old', 1)`)
    const error = await rejection(
      dataSource.transaction('REPEATABLE READ', async (manager) => {
        await manager.count(Word)
        await other.query(`UPDATE word SET note = 'theirs'`)
        await call(manager, row)
      }),
    )
    expect(error).toBeInstanceOf(TransactionAbortedError)
    expect(error).toMatchObject({ cause: { code: '40001' } })
    expect(await stored()).toMatchObject([{ note: 'theirs' }])
  })

  test('at REPEATABLE READ outside a transaction tries again', async () => {
    const strict = await db.dataSource([Word], {
      synchronize: false,
      extra: { options: '-c default_transaction_isolation=repeatable\\ read' },
    })
    await other.query(`${insert} ('a', 'old', 1)`)
    const theirs = `UPDATE word SET note = 'theirs', version = 5`
    const result = await meetOther(theirs, () => call(strict.manager, row))
    expect(result).toMatchObject({ created: false, attempts: 2 })
    expect(await stored()).toMatchObject([{ note: 'new', version: 6 }])
  })

  test('loses no update of those that run at once', async () => {
    const calls = Array.from({ length: 20 }, async (_unused, index) => {
      const { created, entity } = await call(manager, { text: 'a', note: `n${index}` })
      expect(entity.note).toBe(`n${index}`)
      return created
    })
    expect((await Promise.all(calls)).filter(Boolean)).toHaveLength(1)
    expect(await stored()).toMatchObject([{ version: 20 }])
  })
})

test('a row that gets a text of another hash between look-up and update is left alone', async () => {
  for (const rows of [{ text: 'a', note: 'new' }, [{ text: 'a', note: 'new' }]]) {
    await dataSource.query(`TRUNCATE page; INSERT INTO page (text, note) VALUES ('a', 'old')`)
    const upsert = (): Promise<unknown> => upsertByText(manager, Page, rows as never)
    const result = await meetOther(`UPDATE page SET text = 'b', note = 'theirs'`, upsert)
    expect([result].flat()).toMatchObject([{ created: true, entity: { text: 'a', note: 'new' } }])
    expect(await manager.find(Page, { order: { text: 'asc' } })).toMatchObject([
      { text: 'a', note: 'new' },
      { text: 'b', note: 'theirs' },
    ])
  }
})

test('an upsert that skips what does not change looks at what others have changed meanwhile', async () => {
  const options = { skipUpdateIfNoValuesChanged: true }
  for (const rows of [row, [row]]) {
    await dataSource.query(`TRUNCATE word; INSERT INTO word (text, note, version) VALUES ('a', 'new', 1)`)
    const upsert = (): Promise<unknown> => upsertByText(manager, Word, rows as never, options)
    const updated = await meetOther(`UPDATE word SET note = 'theirs'`, upsert)
    expect([updated].flat()).toMatchObject([{ created: false, entity: { note: 'new', version: 2 } }])
    expect(await stored()).toMatchObject([{ note: 'new', version: 2 }])
    // And leaves alone what they made equal.
    await other.query(`UPDATE word SET note = 'old'`)
    const skipped = await meetOther(`UPDATE word SET note = 'new'`, upsert)
    expect([skipped].flat()).toMatchObject([{ created: false, entity: { note: 'new', version: 2 } }])
    expect(await stored()).toMatchObject([{ note: 'new', version: 2 }])
  }
})

test('two upserts that meet in many rows wait for each other, and do not deadlock', async () => {
  const rows = Array.from({ length: 50 }, (_, index) => ({ text: `text ${index}` }))
  await upsertByText(manager, Page, rows)
  // Neither gets past this row before both hold others: in different orders each would then wait for the other's.
  await other.query(
    `BEGIN; SELECT FROM page WHERE id = (SELECT id FROM page ORDER BY "textHash" OFFSET 25 LIMIT 1) FOR UPDATE`,
  )
  const bulk = (given: readonly { text: string; note: string }[]): Promise<unknown> =>
    dataSource.transaction((own) => upsertByText(own, Page, given))
  const first = bulk(rows.map((one) => ({ ...one, note: 'first' })))
  await untilBlocked(observer, 1)
  const second = bulk(rows.toReversed().map((one) => ({ ...one, note: 'second' })))
  await untilBlocked(observer, 2)
  await other.query('COMMIT')
  await Promise.all([first, second])
  const notes = await manager.find(Page, { select: { note: true } })
  expect(new Set(notes.map(({ note }) => note)).size).toBe(1)
})

describe('listeners', () => {
  const upsert = (values: object): Promise<FindOrCreateResult<Heard>> =>
    upsertByText(manager, Heard, values, { update: ['note'] })

  test('hear of an insert or of an update, as it is, and may fill in columns of either', async () => {
    const created = await upsert({ text: 'a', note: '1' })
    const updated = await upsert({ text: 'a', note: '2' })
    const [many] = await upsertByText(manager, Heard, [{ text: 'a', note: '3' }])
    expect(heard).toEqual(['insert 1', 'update 2', 'updated 1', 'update 3', 'updated 1'])
    expect([created, updated, many]).toMatchObject([
      { created: true, entity: { filled: 'on insert' } },
      { created: false, entity: { note: '2', filled: 'on update' } },
      { created: false, entity: { note: '3', filled: 'on update' } },
    ])
    expect(await manager.find(Heard)).toEqual([(many as FindOrCreateResult<Heard>).entity])
  })

  test('hear of each row that changes what an equal text in the same call has set', async () => {
    const rows = [
      { text: 'a', note: '1' },
      { text: 'a', note: '2' },
    ]
    await upsertByText(manager, Heard, rows)
    await upsertByText(manager, Heard, rows)
    expect(heard).toEqual(['insert 1', 'update 2', 'updated 1', 'update 1', 'updated 1', 'update 2', 'updated 1'])
  })

  test('hear of no update of a row of another class, which is refused', async () => {
    await upsertByText(manager, Cat, { name: 'Tom', food: 'fish' })
    const dog = { name: 'Tom', food: 'bones' }
    expect(await rejection(upsertByText(manager, Dog, dog))).toMatchObject({ code: 'TEXT_TAKEN' })
    expect(heard).toEqual([])
    const { entity } = await upsertByText(manager, Animal, { name: 'Tom', food: 'meat' })
    expect(entity).toBeInstanceOf(Cat)
    expect(heard).toEqual(['update Tom'])
    expect(await manager.find(Animal)).toMatchObject([{ food: 'meat' }])
  })

  test('may take away what was to be updated, and set what was not', async () => {
    await upsertByText(manager, Cat, { name: 'Tom', food: 'fish' })
    change = (animal) => Object.assign(animal, { food: undefined })
    expect(await upsertByText(manager, Cat, { name: 'Tom', food: 'meat' })).toMatchObject({ entity: { food: 'fish' } })
    change = (animal) => Object.assign(animal, { food: undefined, color: 'black' })
    const both = { name: 'Tom', food: 'meat', color: 'white' }
    const [result] = await upsertByText(manager, Cat, [both], { update: ['food'] })
    expect(result).toMatchObject({ created: false, entity: { food: 'fish', color: 'black' } })
  })

  test('find what they put on the entity on the result', async () => {
    onInsert = (entity) => Promise.resolve(Object.assign(entity, { mark: 'on insert' }))
    onUpdate = (entity) => Promise.resolve(Object.assign(entity, { mark: 'on update' }))
    expect((await upsert({ text: 'a', note: '1' })).entity).toMatchObject({ mark: 'on insert' })
    expect((await upsert({ text: 'a', note: '2' })).entity).toMatchObject({ mark: 'on update' })
  })

  test('of inserts alone hear of each row that is created, and of no other', async () => {
    await upsertByText(manager, Born, { text: 'a', note: '1' })
    await upsertByText(manager, Born, { text: 'a', note: '2' })
    await upsertByText(manager, Born, [
      { text: 'a', note: '3' },
      { text: 'b', note: '4' },
    ])
    expect(heard).toEqual(['insert 1', 'insert 4'])
    expect(await manager.find(Born, { order: { text: 'asc' } })).toMatchObject([{ note: '3' }, { note: '4' }])
  })

  test('cannot set what no update may change', async () => {
    await upsertByText(manager, Cat, { name: 'Tom', food: 'fish' })
    change = (animal) => Object.assign(animal, { origin: 'listener', color: 'black' })
    await upsertByText(manager, Cat, { name: 'Tom', food: 'meat' })
    expect(await manager.find(Cat)).toMatchObject([{ food: 'meat', color: 'black', origin: 'nowhere' }])
  })

  test("an update that is refused leaves the caller's transaction usable, though they heard of it", async () => {
    await upsertByText(manager, Cat, [
      { name: 'Tom', tag: 1 },
      { name: 'Kit', tag: 2 },
    ])
    await dataSource.transaction(async (manager) => {
      expect(await rejection(upsertByText(manager, Cat, { name: 'Kit', tag: 1 }))).toMatchObject({ code: '23505' })
      await upsertByText(manager, Cat, { name: 'Kit', tag: 3 })
    })
    expect(await manager.countBy(Cat, { tag: 3 })).toBe(1)
  })

  test('hear of an insert and of an update once each, where others insert and delete the row meanwhile', async () => {
    const insert = (): Promise<unknown> => other.query(`INSERT INTO heard (text, note) VALUES ('a', 'theirs')`)
    const remove = (): Promise<unknown> => other.query(`DELETE FROM heard`)
    onInsert = insert
    onUpdate = remove
    expect(await upsert({ text: 'a', note: '1' })).toMatchObject({ created: true, attempts: 3, entity: { note: '1' } })
    expect(heard).toEqual(['insert 1', 'update 1'])
    heard.length = 0
    expect(await upsert({ text: 'a', note: '2' })).toMatchObject({ created: false, attempts: 3, entity: { note: '2' } })
    expect(heard).toEqual(['update 2', 'insert 2', 'updated 3'])
  })

  test('of an update hear once, however often it is tried', async () => {
    await upsert({ text: 'a', note: '1' })
    const result = await meetOther(`DELETE FROM heard WHERE text = 'a'`, () => upsert({ text: 'a', note: '2' }))
    expect(result).toMatchObject({ created: true, attempts: 2, entity: { note: '2', filled: 'on insert' } })
    expect(heard).toEqual(['insert 1', 'update 2', 'insert 2'])
  })
})
