import type { Client } from 'pg'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, type FindOrCreateResult, TransactionAbortedError } from '../../../src'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'

/** Two chains hold everything. */
const Page = entity('Page', { url: text({ digest: fewHashes(2) }), title: plain() })
type Page = InstanceType<typeof Page>

const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const
const MANY_FOUND = 64

const db = useDatabase()
let [other, observer]: Client[] = []
let known: FindOrCreateResult<Page>
const dataSource = db.useDataSource([Page], { emptied: false })
const { manager } = dataSource

beforeAll(async () => {
  other = await db.client()
  observer = await db.client()
  known = { ...(await findOrCreate(manager, Page, { url: 'known' })), created: false }
})
beforeEach(async () => {
  await findMany(MANY_FOUND)
})

async function findMany(count: number): Promise<void> {
  for (let call = 0; call < count; call += 1) await findOrCreate(manager, Page, { url: 'known' })
}

async function kindsOf(run: () => Promise<unknown>): Promise<string[]> {
  const queries = await queriesOf(dataSource, run)
  return queries.map((sql) => (sql.includes('INSERT') ? 'find or create' : 'look'))
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
    expect(await kindsOf(async () => await findMany(MANY_FOUND))).toEqual(
      Array.from({ length: MANY_FOUND }, () => 'find or create'),
    )
    expect(await kindsOf(async () => await findMany(1))).toEqual(['look'])
  })

  test('a row that is deleted is created again', async () => {
    const first = await call('deleted')
    await findMany(MANY_FOUND)
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
