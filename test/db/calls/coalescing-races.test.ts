import type { Client } from 'pg'
import { type DataSource, type EntityManager, QueryFailedError } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate } from '../../../src'
import { whileBusy } from '../../support/busy'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { type Proxy, startProxy } from '../../support/proxy'
import { Page } from '../../support/titled-page'

/** Four chains hold everything. */
const Note = entity('Note', { url: text({ digest: fewHashes(4) }) })

const db = useDatabase()
let proxy: Proxy
let dataSource: DataSource
let manager: EntityManager
let sessions: { holder: Client; observer: Client }
const observer = db.useClient()

beforeAll(async () => {
  proxy = await startProxy(db.url)
  dataSource = await db.dataSource([Page, Note], { url: proxy.url, poolSize: 24 })
  ;({ manager } = dataSource)
  sessions = { holder: await db.client(), observer }
  await findOrCreate(manager, Page, { url: 'first' })
})
afterAll(() => proxy.close())

const find = (url: string): Promise<Page | null> => findOneByText(manager, Page, { url })
const three = <T>(call: () => Promise<T>): Promise<T[]> => Promise.all([call(), call(), call()])

/** Runs while a look-up that three calls of the text share is done by the server, and its answer still under way. */
async function whileAnswerIsHeld(url: string, run: () => Promise<void>): Promise<(Page | null)[]> {
  return await whileBusy(dataSource, Page, sessions, async () => {
    const held = proxy.once([url], 'answer held')
    const early = three(() => find(url))
    await held
    try {
      await run()
    } finally {
      proxy.release()
    }
    return await early
  })
}

describe('a call is answered by what was sent after it began', () => {
  test('a row that was deleted before is not given back', async () => {
    const { entity } = await findOrCreate(manager, Page, { url: 'deleted' })
    const early = await whileAnswerIsHeld('deleted', async () => {
      await observer.query(`delete from page where url = 'deleted'`)
      expect(await three(() => find('deleted'))).toEqual([null, null, null])
      const again = await three(() => findOrCreate(manager, Page, { url: 'deleted' }))
      expect(again.map(({ created }) => created)).toEqual([true, false, false])
      expect(again.map(({ entity: { id } }) => id)).not.toContain(entity.id)
    })
    expect(early).toEqual([entity, entity, entity])
  })

  test('a row that was changed before is seen as it is', async () => {
    await findOrCreate(manager, Page, { url: 'changed', title: 'before' })
    const early = await whileAnswerIsHeld('changed', async () => {
      await observer.query(`update page set title = 'after' where url = 'changed'`)
      const late = await three(() => findOrCreate(manager, Page, { url: 'changed' }))
      expect(late.map(({ entity }) => entity.title)).toEqual(['after', 'after', 'after'])
    })
    expect(early.map((page) => page?.title)).toEqual(['before', 'before', 'before'])
  })

  test('a row that was inserted before is found', async () => {
    const early = await whileAnswerIsHeld('inserted', async () => {
      await observer.query(`insert into page (url) values ('inserted')`)
      expect((await three(() => find('inserted'))).map((page) => page?.url)).toEqual([
        'inserted',
        'inserted',
        'inserted',
      ])
    })
    expect(early).toEqual([null, null, null])
  })
})

test('a look-up whose answer does not come holds up nobody else', async () => {
  await findOrCreate(manager, Page, { url: 'held' })
  await whileAnswerIsHeld('held', async () => {
    await three(() => findOrCreate(manager, Page, { url: 'first' }))
    await dataSource.transaction((inside) => findOrCreate(inside, Page, { url: 'held' }))
    expect(await findOrCreate(manager, Page, { url: 'alone' })).toMatchObject({ created: true })
  })
})

test('a connection that is cut fails none of those who share it', async () => {
  await findOrCreate(manager, Page, { url: 'cut once' })
  await whileBusy(dataSource, Page, sessions, async () => {
    for (const fault of ['request lost', 'answer lost'] as const) {
      const cut = proxy.once(['cut once'], fault)
      const pages = await three(() => find('cut once'))
      await cut
      expect(pages.map((page) => page?.url)).toEqual(['cut once', 'cut once', 'cut once'])
    }
    const cut = proxy.once(['cut once'], 'answer lost')
    const urls = ['cut once', 'cut and new', 'cut and newer']
    const calls = await Promise.all(urls.map((url) => findOrCreate(manager, Page, { url })))
    await cut
    expect(calls.map(({ created }) => created)).toEqual([false, true, true])
  })
})

test('where each connection is cut, each call has an error of its own, with the line of its caller', async () => {
  await findOrCreate(manager, Page, { url: 'cut' })
  await whileBusy(dataSource, Page, sessions, async () => {
    const cutAll = async (): Promise<void> => {
      // The shared one, and one for each call.
      for (let count = 0; count < 4; count += 1) await proxy.once(['cut'], 'request lost')
    }
    const cut = cutAll()
    const errors = await three(() => rejection(find('cut')))
    await cut
    expect(new Set(errors).size).toBe(3)
    for (const error of errors) {
      expect(error).toBeInstanceOf(QueryFailedError)
      const { stack, driverError } = error as QueryFailedError
      expect(stack).toContain('coalescing-races.test.ts')
      expect(driverError).toBeInstanceOf(Error)
    }
    expect(new Set(errors.map((error) => (error as QueryFailedError).driverError)).size).toBe(3)
    expect((await three(() => find('cut'))).map((page) => page?.url)).toEqual(['cut', 'cut', 'cut'])
  })
})

const CALLERS = 32
const CALLS = 60
const TEXTS = 12

test('many callers, and others who delete: no row is given back that was deleted before', async () => {
  const deleted = new Set<number>()
  const deletions = new Set<number>()
  const standing = new Map<string, number>()
  const created = new Map<number, number>()
  const seen = new Set<number>()
  const faults: string[] = []
  const left = { callers: CALLERS }

  const call = async (url: string, byText: boolean): Promise<void> => {
    const before = new Set(deleted)
    const stood = standing.get(url)
    const result = byText
      ? { entity: await findOneByText(manager, Note, { url }), created: false }
      : await findOrCreate(manager, Note, { url })
    const { entity } = result
    if (entity === null) {
      if (stood !== undefined && !deletions.has(stood)) faults.push(`${stood} stands and was not found`)
      return
    }
    if (entity.url !== url) faults.push(`${entity.url} in place of ${url}`)
    if (before.has(entity.id)) faults.push(`${entity.id} was deleted before`)
    seen.add(entity.id)
    if (!deletions.has(entity.id)) standing.set(url, entity.id)
    if (result.created) created.set(entity.id, (created.get(entity.id) ?? 0) + 1)
  }
  const caller = async (number: number): Promise<void> => {
    for (let index = 0; index < CALLS; index += 1) {
      await call(`text ${(number * 7 + index * index) % TEXTS}`, (number + index) % 3 === 0)
    }
    left.callers -= 1
  }
  const deleter = async (): Promise<void> => {
    const client = await db.client()
    for (let index = 0; left.callers > 0; index += 1) {
      const url = `text ${index % TEXTS}`
      // By id, so that it is known which row goes before it does.
      const { rows } = await client.query<{ id: number }>('select id from note where url = $1', [url])
      for (const { id } of rows) {
        deletions.add(id)
        if (standing.get(url) === id) standing.delete(url)
        await client.query('delete from note where id = $1', [id])
        deleted.add(id)
      }
    }
  }
  await Promise.all([deleter(), ...Array.from({ length: CALLERS }, (_, number) => caller(number))])
  expect(faults).toEqual([])
  expect(deleted.size).toBeGreaterThan(0)
  expect([...seen].filter((id) => created.get(id) !== 1)).toEqual([])
  const { rows } = await observer.query('select url from note group by url having count(*) > 1')
  expect(rows).toEqual([])
})
