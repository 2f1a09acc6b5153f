import type { EntityManager } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, insertOrFail, updateOrFail } from '../../../src'
import { toTextTakenError } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { takenBy } from '../../support/results'
import { column, deleteDate, entity, text } from '../../support/entity'

const db = useDatabase()

const Page = entity('Page', {
  url: text(),
  title: text({ nullable: true, ignoreDeleted: true }),
  code: column('text', { nullable: true, unique: true }),
  deletedAt: deleteDate(),
})

let manager: EntityManager
beforeAll(async () => {
  const dataSource = await db.dataSource([Page])
  manager = dataSource.manager
  await manager.insert(Page, [
    { url: 'deleted', title: 'freed', code: 'deleted' },
    { url: 'live', title: 'live', code: 'live' },
    { url: 'other' },
  ])
  await manager.softDelete(Page, { id: 1 })
})

type Call = (url: string) => Promise<unknown>

describe('a refusal for the text of a softly deleted row says so, and what to do', () => {
  test.each<[string, Call]>([
    ['insertOrFail', (url) => insertOrFail(manager, Page, { url })],
    ['insertOrFail of several', (url) => insertOrFail(manager, Page, [{ url: 'free' }, { url }])],
    ['updateOrFail', (url) => updateOrFail(manager, Page, 3, { url })],
    ['save', (url) => manager.save(Page, { url })],
    ['insert', (url) => manager.insert(Page, { url })],
    ['update', (url) => manager.update(Page, 3, { url })],
    ['save in a transaction', (url) => manager.transaction((own) => own.save(Page, { url }))],
    [
      'an error of raw SQL, explained afterwards',
      async (url) => {
        const sql = 'INSERT INTO page (url) VALUES ($1)'
        const error: unknown = await manager.query(sql, [url]).catch((caught: unknown) => caught)
        throw await toTextTakenError(error, manager.connection)
      },
    ],
  ])('%s', async (_, call) => {
    const { taken, message } = await takenBy(call('deleted'))
    expect(taken).toMatchObject([{ property: 'url', id: { id: 1 }, deleted: true }])
    expect(message).toContain('held by another row, which is deleted softly')
    expect(message).toContain(
      "To use a softly deleted row, restore it: restore(), or findOrCreate() with { deleted: 'restore' }",
    )
    const ofLive = await takenBy(call('live'))
    expect(ofLive.taken).toMatchObject([{ id: { id: 2 } }])
    expect(ofLive.taken[0]).not.toHaveProperty('deleted')
    expect(ofLive.message).not.toContain('deleted')
  })

  test("findOrCreate with deleted: 'throw'", async () => {
    const { taken, message } = await takenBy(
      findOrCreate(manager, Page, { url: 'deleted' }, { by: 'url', deleted: 'throw' }),
    )
    expect(taken).toMatchObject([{ id: { id: 1 }, deleted: true }])
    expect(message).toContain('which is deleted softly')
  })

  test('the text of several rows, each by itself', async () => {
    const rows = ['live', 'deleted', 'free', 'deleted'].map((url) => ({ url }))
    const { taken } = await takenBy(insertOrFail(manager, Page, rows))
    expect(taken.map(({ row, deleted }) => [row, deleted])).toEqual([
      [0, undefined],
      [1, true],
      [3, true],
    ])
  })

  test('an ordinary unique column, and a primary key', async () => {
    const call = insertOrFail(manager, Page, [
      { url: 'x', code: 'deleted' },
      { url: 'y', id: 2 },
    ])
    const { taken } = await takenBy(call)
    expect(taken).toEqual([
      { entity: 'Page', property: 'code', id: { id: 1 }, row: 0, deleted: true },
      { entity: 'Page', property: 'id', id: { id: 2 }, row: 1 },
    ])
  })

  test('and with ignoreDeleted a deleted row holds nothing', async () => {
    const { taken } = await takenBy(insertOrFail(manager, Page, { url: 'z', title: 'live' }))
    expect(taken).toEqual([{ entity: 'Page', property: 'title', id: { id: 2 }, row: 0 }])
    await insertOrFail(manager, Page, { url: 'z', title: 'freed' })
  })
})
