import type { Client } from 'pg'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, type FindOrCreateResult, TransactionAbortedError } from '../../../src'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { SUFFIX_SAFE } from '../../support/md5-collisions'
import { queriesOf } from '../../support/queries'

/** Two chains hold everything. */
const Page = entity('Page', { url: text({ digest: fewHashes(2) }), title: plain() })
type Page = InstanceType<typeof Page>
const Word = entity('Word', { url: text() })

const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const
const LONG_STREAK = 64

const db = useDatabase()
let [other, observer]: Client[] = []
let known: FindOrCreateResult<Page>
const dataSource = db.useDataSource([Page, Word], { emptied: false })
const { manager } = dataSource

beforeAll(async () => {
  other = await db.client()
  observer = await db.client()
  known = { ...(await findOrCreate(manager, Page, { url: 'known' })), created: false }
})
beforeEach(() => findMany(LONG_STREAK))

async function findMany(count: number): Promise<void> {
  for (let call = 0; call < count; call += 1) await findOrCreate(manager, Page, { url: 'known' })
}

async function kindsOf(run: () => Promise<unknown>): Promise<string[]> {
  const queries = await queriesOf(dataSource, run)
  return queries.map((sql) => {
    if (!sql.includes('INSERT')) return 'look'
    return sql.startsWith('INSERT') ? 'create' : 'find or create'
  })
}

const call = async (url: string, given = manager): Promise<FindOrCreateResult<Page>> =>
  await findOrCreate(given, Page, { url, title: 'new' })

describe('when many calls in a row have found their rows', () => {
  test('the next one only looks', async () => {
    expect(await kindsOf(async () => expect(await call('known')).toEqual(known))).toEqual(['look'])
  })

  test('a new text is created all the same, and the next calls go their ordinary way', async () => {
    const created = async (): Promise<void> =>
      expect(await call('new')).toMatchObject({ created: true, attempts: 1, entity: { url: 'new', title: 'new' } })
    expect(await kindsOf(created)).toEqual(['look', 'find or create'])
    expect(await kindsOf(async () => await findMany(LONG_STREAK))).toEqual(
      Array.from({ length: LONG_STREAK }, () => 'find or create'),
    )
    expect(await kindsOf(async () => await findMany(1))).toEqual(['look'])
  })

  test('a row that is deleted is created again', async () => {
    const first = await call('deleted')
    await findMany(LONG_STREAK)
    await observer?.query(`delete from page where url = 'deleted'`)
    const second = await call('deleted')
    expect(second.created).toBe(true)
    expect(second.entity.id).not.toBe(first.entity.id)
  })

  test('a text that another session commits between look and insert is found', async () => {
    await other?.query('begin')
    await other?.query(`insert into page (url) values ('raced')`)
    const raced = call('raced')
    if (observer) await untilBlocked(observer, 1)
    await other?.query('commit')
    expect(await raced).toMatchObject({ created: false, entity: { url: 'raced', title: null } })
    expect((await observer?.query(`select from page where url = 'raced'`))?.rowCount).toBe(1)
  })

  test.each(LEVELS)('a transaction finds and creates at %s', async (level) => {
    await dataSource.transaction(level, async (inside) => {
      expect(await call('known', inside)).toEqual(known)
      expect((await call(`inside ${level}`, inside)).created).toBe(true)
      expect((await call(`inside ${level}`, inside)).created).toBe(false)
    })
    expect((await call(`inside ${level}`)).created).toBe(false)
  })

  test.each(LEVELS.slice(1))('a transaction whose snapshot does not show the row is aborted at %s', async (level) => {
    const aborted = dataSource.transaction(level, async (inside) => {
      expect(await call('known', inside)).toEqual(known)
      await observer?.query(`insert into page (url) values ($1)`, [`unseen ${level}`])
      await call(`unseen ${level}`, inside)
    })
    expect(await rejection(aborted)).toBeInstanceOf(TransactionAbortedError)
  })
})

describe('when many calls in a row have created their rows', () => {
  let texts = 0

  const word = async (url: string, given = manager): Promise<{ created: boolean; entity: { id: number } }> =>
    await findOrCreate(given, Word, { url })

  async function createMany(count: number): Promise<void> {
    for (let nth = 0; nth < count; nth += 1) await word(`text ${(texts += 1)}`)
  }

  const lastId = async (): Promise<unknown> =>
    (await observer?.query<{ id: number }>(`select last_value::int as id from word_id_seq`))?.rows[0]?.id

  beforeAll(() => word('known'))
  beforeEach(() => createMany(LONG_STREAK))

  test('the next one inserts without a look', async () => {
    expect(await kindsOf(async () => expect(await word('new')).toMatchObject({ created: true, attempts: 1 }))).toEqual([
      'create',
    ])
  })

  test('a text that exists is found and burns one id, and the next calls go their ordinary way', async () => {
    const before = Number(await lastId())
    const found = async (): Promise<void> =>
      expect(await word('known')).toMatchObject({ created: false, attempts: 1, entity: { id: 1, url: 'known' } })
    expect(await kindsOf(found)).toEqual(['create', 'look'])
    expect(await kindsOf(found)).toEqual(['find or create'])
    expect(await lastId()).toBe(before + 1)
    expect(await kindsOf(async () => await createMany(LONG_STREAK))).toEqual(
      Array.from({ length: LONG_STREAK }, () => 'find or create'),
    )
    expect(await kindsOf(async () => await createMany(1))).toEqual(['create'])
    expect(await lastId()).toBe(before + 1 + LONG_STREAK + 1)
  })

  test('texts of equal hash get a row each', async () => {
    const created = []
    for (const url of SUFFIX_SAFE) {
      await createMany(LONG_STREAK)
      created.push(await word(url))
    }
    expect(created).toMatchObject(SUFFIX_SAFE.map((url) => ({ created: true, entity: { url } })))
    for (const [index, url] of SUFFIX_SAFE.entries()) {
      await createMany(LONG_STREAK)
      expect(await word(url)).toEqual({ ...created[index], created: false })
    }
  })

  test.each([
    ['commit', false],
    ['rollback', true],
  ])('a text that another session is inserting waits for its %s; created: %s', async (end, created) => {
    await other?.query('begin')
    await other?.query(`insert into word (url) values ($1)`, [end])
    const raced = word(end)
    if (observer) await untilBlocked(observer, 1)
    await other?.query(end)
    expect(await raced).toMatchObject({ created, attempts: 1, entity: { url: end } })
  })

  test.each(LEVELS.slice(1))('a transaction whose snapshot does not show the row is aborted at %s', async (level) => {
    const aborted = dataSource.transaction(level, async (inside) => {
      expect((await word(`first of ${level}`, inside)).created).toBe(true)
      await observer?.query(`insert into word (url) values ($1)`, [`not seen ${level}`])
      await word(`not seen ${level}`, inside)
    })
    expect(await rejection(aborted)).toBeInstanceOf(TransactionAbortedError)
  })
})
