import { Column, Entity, type EntityManager, PrimaryGeneratedColumn, QueryFailedError } from 'typeorm'
import { expect, test } from 'vitest'
import { findOneByText, findOrCreate, UniqueText, upsertByText } from '../../src'
import { useDatabase } from '../support/database'
import { rejection } from '../support/ledger'

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'varchar', length: 3, nullable: true }) title!: string | null
}

const db = useDatabase()

async function failure(call: Promise<unknown>): Promise<QueryFailedError> {
  const error = await rejection(call)
  expect(error).toBeInstanceOf(QueryFailedError)
  return error as QueryFailedError
}

async function inOneWay(inTransaction: boolean, work: (manager: EntityManager) => Promise<void>): Promise<void> {
  const dataSource = await db.dataSource([Page])
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

test.each([false, true])(
  'a call passes at most 7 of our frames on its way to the driver (transaction: %s)',
  async (inside) => {
    await inOneWay(inside, async (manager) => {
      const limit = Error.stackTraceLimit
      Error.stackTraceLimit = 50
      try {
        const { driverError } = await failure(findOrCreate(manager, Page, { url: 'a', title: 'too long' }))
        // That of the driver: it begins at the client's `query`.
        const frames = (driverError.stack ?? '').split('\n')
        const ours = frames.filter((line) => line.includes('/src/'))
        expect(frames.join('\n')).toContain('call-stack.test.ts')
        expect(ours.length).toBeLessThanOrEqual(7)
      } finally {
        Error.stackTraceLimit = limit
      }
    })
  },
)
