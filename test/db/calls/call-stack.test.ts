import { type EntityManager, QueryFailedError } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  countByText,
  deleteByText,
  existsByText,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Site = entity('Site', { name: text() })
const Page = entity('Page', {
  url: text(),
  title: column('varchar', { length: 3, nullable: true }),
  site: toOne(() => Site, { cascade: true }),
})

const Part = entity('Part', { kit: column('integer'), url: text({ scope: ['kit'] }) })

const db = useDatabase()

async function failure(call: Promise<unknown>): Promise<QueryFailedError> {
  const error = await rejection(call)
  expect(error).toBeInstanceOf(QueryFailedError)
  return error as QueryFailedError
}

async function inOneWay(inTransaction: boolean, work: (manager: EntityManager) => Promise<void>): Promise<void> {
  const dataSource = await db.dataSource([Site, Page, Part])
  // After the first use, which asks the catalog.
  await findOneByText(dataSource.manager, Page, { url: 'x' })
  if (inTransaction) await dataSource.transaction(work)
  else await work(dataSource.manager)
}

const tooLong = { url: 'x', title: 'too long' }
// The server refuses it when it looks for the row.
const noInteger = { kit: 'x' as unknown as number, url: 'x' }

describe.each([
  ['findOrCreate', (manager: EntityManager) => findOrCreate(manager, Page, tooLong)],
  ['upsertByText', (manager: EntityManager) => upsertByText(manager, Page, tooLong)],
  ['insertOrFail', (manager: EntityManager) => insertOrFail(manager, Page, tooLong)],
  ['updateOrFail', (manager: EntityManager) => updateOrFail(manager, Page, 1, tooLong)],
  ['findOneByText', (manager: EntityManager) => findOneByText(manager, Part, noInteger)],
  ['existsByText', (manager: EntityManager) => existsByText(manager, Part, noInteger)],
  ['countByText', (manager: EntityManager) => countByText(manager, Part, [noInteger])],
  ['deleteByText', (manager: EntityManager) => deleteByText(manager, Part, noInteger)],
] as const)("the caller's line is in the stack of the driver's error, by %s", (_, call) => {
  test.each([false, true])('transaction: %s', async (inside) => {
    await inOneWay(inside, async (manager) => {
      expect((await failure(call(manager))).stack).toContain('call-stack.test.ts')
    })
  })
})

test.each([false, true])("and in that of every row's in a batch (transaction: %s)", async (inside) => {
  await inOneWay(inside, async (manager) => {
    const rows = [{ url: 'y', title: 'too long' }, { url: 'a\0b' }]
    for (const results of [await findOrCreateMany(manager, Page, rows), await upsertByText(manager, Page, rows)]) {
      const stacks = results.map((result) => ('error' in result ? result.error.stack : undefined))
      expect(stacks).toEqual([
        expect.stringContaining('call-stack.test.ts'),
        expect.stringContaining('call-stack.test'),
      ])
    }
    const thrown = await rejection(findOrCreateMany(manager, Page, rows, { relations: ['nothing'] }))
    expect(thrown).toMatchObject({ stack: expect.stringContaining('call-stack.test.ts') as string })
  })
})

test.each([false, true])('and where nested objects are stored too (transaction: %s)', async (inside) => {
  await inOneWay(inside, async (manager) => {
    const values = { site: { name: 's' }, url: 'a', title: 'too long' }
    const nested = { relations: 'findOrCreate' } as const
    const one = await failure(findOrCreate(manager, Page, values, nested))
    expect(one.stack).toContain('call-stack.test.ts')
    const [many] = await findOrCreateMany(manager, Page, [values], nested)
    expect(many).toMatchObject({ error: { stack: expect.stringContaining('call-stack.test.ts') as string } })
  })
})
