import { Column, Entity, type EntityManager, ManyToOne, PrimaryGeneratedColumn, QueryFailedError } from 'typeorm'
import { expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, UniqueText, upsertByText } from '../../../src'
import { saveFindingTexts } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

@Entity()
class Site {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
}

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'varchar', length: 3, nullable: true }) title!: string | null
  @ManyToOne(() => Site, { cascade: true }) site!: Site | null
}

const db = useDatabase()

async function failure(call: Promise<unknown>): Promise<QueryFailedError> {
  const error = await rejection(call)
  expect(error).toBeInstanceOf(QueryFailedError)
  return error as QueryFailedError
}

async function inOneWay(inTransaction: boolean, work: (manager: EntityManager) => Promise<void>): Promise<void> {
  const dataSource = await db.dataSource([Site, Page])
  // After the first use, which asks the catalog.
  await findOneByText(dataSource.manager, Page, { url: 'x' })
  if (inTransaction) await dataSource.transaction(work)
  else await work(dataSource.manager)
}

test.each([false, true])(
  "the caller's line is in the stack of the driver's error (transaction: %s)",
  async (inside) => {
    await inOneWay(inside, async (manager) => {
      const { stack } = await failure(findOrCreate(manager, Page, { url: 'a', title: 'too long' }))
      expect(stack).toContain('call-stack.test.ts')
    })
  },
)

test.each([false, true])("and in that of an upsert's (transaction: %s)", async (inside) => {
  await inOneWay(inside, async (manager) => {
    const { stack } = await failure(upsertByText(manager, Page, { url: 'x', title: 'too long' }))
    expect(stack).toContain('call-stack.test.ts')
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
    const saved = await failure(saveFindingTexts(manager, Page, values))
    expect(saved.stack).toContain('call-stack.test.ts')
  })
})

test.each([false, true])(
  'a call passes at most 6 of our frames on its way to the driver (transaction: %s)',
  async (inside) => {
    await inOneWay(inside, async (manager) => {
      const limit = Error.stackTraceLimit
      Error.stackTraceLimit = 50
      try {
        const { driverError } = await failure(findOrCreate(manager, Page, { url: 'a', title: 'too long' }))
        // That of the driver: it begins at the client's `query`.
        const frames = (driverError.stack ?? '').split('\n')
        // The frames around the caller's transaction are not part of the call.
        const caller = frames.findIndex((line) => line.includes('call-stack.test.ts'))
        expect(caller).toBeGreaterThan(0)
        const ours = frames.slice(0, caller).filter((line) => line.includes('/src/'))
        expect(ours.length).toBeLessThanOrEqual(6)
      } finally {
        Error.stackTraceLimit = limit
      }
    })
  },
)
