import { type EntityManager, QueryFailedError } from 'typeorm'
import { afterEach, describe, expect, test } from 'vitest'
import {
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TransactionAbortedError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { meet } from '../../support/blocked'
import { onlyRowOf } from '../../support/results'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { entity, text } from '../../support/entity'
import { poolOf, rejection } from '../../support/ledger'
import { Author, Book, Tag } from '../../support/entities'
import { SNAPSHOT_LEVELS } from '../../support/sessions'

/** All texts share one hash. */
const Word = entity('Word', { text: text({ digest: oneHash }) })

const db = useDatabase()
const dataSource = db.useDataSource([Author, Tag, Book, Word], { poolSize: 2 })
const { manager } = dataSource
const other = db.useClient()
const observer = db.useClient()

afterEach(async () => {
  await other.query('ROLLBACK')
  const { totalCount, idleCount, waitingCount } = poolOf(dataSource)
  expect({ inUse: totalCount - idleCount, waitingCount }).toEqual({ inUse: 0, waitingCount: 0 })
})

const resolve = { relations: 'findOrCreate' } as const

const RAISE_40001 = `DO $$ BEGIN RAISE EXCEPTION 'of the user' USING ERRCODE = '40001'; END $$`

describe('create', () => {
  test.each(['40001', '23505'])(
    'that fails with %s says so, and nothing is created without its values',
    async (code) => {
      const create = async (): Promise<object> => {
        await manager.query(`DO $$ BEGIN RAISE EXCEPTION 'of the user' USING ERRCODE = '${code}'; END $$`)
        return { code: 'given' }
      }
      for (const options of [{ create }, { create, ...resolve }]) {
        const error = await rejection(
          findOrCreate(manager, Book, { title: 'a', author: 'relations' in options ? { name: 'b' } : null }, options),
        )
        expect(error).toMatchObject({ driverError: { code } })
      }
      expect(await manager.count(Book)).toBe(0)
    },
  )
})

test('a row that was created stays created where loading its relations fails', async () => {
  const failing = {
    beforeQuery: async ({ query }: { query: string }): Promise<void> => {
      if (query.includes('SELECT') && query.includes('book_tags_tag')) await manager.query(RAISE_40001)
    },
  }
  dataSource.subscribers.push(failing)
  const relations = { author: 'findOrCreate', tags: true } as const
  const created = findOrCreate(manager, Book, { title: 'a', author: { name: 'b' } }, { relations })
  expect(await rejection(created)).toMatchObject({ driverError: { code: '40001' } })
  dataSource.subscribers.splice(dataSource.subscribers.indexOf(failing), 1)
  expect(await manager.find(Book, { relations: { author: true } })).toMatchObject([
    { title: 'a', author: { name: 'b' } },
  ])
})

describe('a row that is found, and deleted before it is referred to', () => {
  const CALLS: Readonly<Record<string, () => Promise<unknown>>> = {
    findOrCreate: () => findOrCreate(manager, Book, { title: 'a', author: { name: 'b' } }, resolve),
    'findOrCreate with a join table': () => findOrCreate(manager, Book, { title: 'a', tags: [{ name: 'b' }] }, resolve),
    findOrCreateMany: () =>
      onlyRowOf(findOrCreateMany(manager, Book, [{ title: 'a', author: { name: 'b' } }], resolve)),
  }
  test.each(Object.entries(CALLS))('is created again: %s', async (_, call) => {
    await manager.query(`INSERT INTO author (name) VALUES ('b'); INSERT INTO tag (name) VALUES ('b')`)
    await meet({ other, observer }, `DELETE FROM author; DELETE FROM tag`, call)
    expect(await manager.find(Book, { relations: { author: true, tags: true } })).toHaveLength(1)
  })
})

test('a row that is found, and deleted again and again, is tried for again', async () => {
  await manager.insert(Author, { name: 'b' })
  let left = 3
  const failing = {
    beforeQuery: async ({ query }: { query: string }): Promise<void> => {
      if (/INSERT INTO "book"/u.test(query) && left > 0) {
        left -= 1
        await manager.query(RAISE_40001.replace('40001', '23503'))
      }
    },
  }
  dataSource.subscribers.push(failing)
  await findOrCreate(manager, Book, { title: 'a', author: { name: 'b' } }, resolve)
  dataSource.subscribers.splice(dataSource.subscribers.indexOf(failing), 1)
  expect(left).toBe(0)
  expect(await manager.find(Book, { relations: { author: true } })).toMatchObject([{ author: { name: 'b' } }])
})

test('a change to another text of equal hash is refused as such, at once, and the transaction goes on', async () => {
  const { id } = await manager.save(Word, { text: 'a' })
  const refused = { driverError: { code: '40001', hint: expect.stringContaining('store the text as a new row') } }
  expect(await rejection(updateOrFail(manager, Word, id, { text: 'b' }))).toMatchObject(refused)
  await dataSource.transaction(async (own) => {
    const error = await rejection(updateOrFail(own, Word, id, { text: 'b' }))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toMatchObject(refused)
    await own.insert(Author, { name: 'after it' })
  })
  expect(await manager.count(Author)).toBe(1)
  expect(await manager.find(Word)).toMatchObject([{ text: 'a' }])
})

describe.each(SNAPSHOT_LEVELS)('at %s, a snapshot that does not show the row that holds the text', (level) => {
  const CALLS: Readonly<Record<string, (own: EntityManager) => Promise<unknown>>> = {
    insertOrFail: (own) => insertOrFail(own, Author, { name: 'b' }),
    'insertOrFail into two tables': (own) =>
      insertOrFail(own, [
        [Tag, { name: 'b' }],
        [Author, { name: 'b' }],
      ]),
    updateOrFail: (own) => updateOrFail(own, Author, 1, { name: 'b' }),
    upsertByText: (own) => upsertByText(own, Author, [{ name: 'b' }]),
    findOrCreate: (own) => findOrCreate(own, Book, { title: 'a', author: { name: 'b' } }, resolve),
  }
  test.each(Object.entries(CALLS))('is to be given up: %s', async (_, call) => {
    await manager.query(`INSERT INTO author (name) VALUES ('first')`)
    const error = await rejection(
      dataSource.transaction(level, async (own) => {
        await own.count(Author)
        await other.query(`INSERT INTO author (name) VALUES ('b')`)
        await call(own)
      }),
    )
    expect(error).toBeInstanceOf(TransactionAbortedError)
  })
})
