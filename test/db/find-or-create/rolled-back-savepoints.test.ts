import type { Client } from 'pg'
import { Column, type DataSource, Entity, type EntityManager, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TransactionAbortedError,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { saveFindingTexts } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'
import { Author } from '../../support/entities'

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'integer', nullable: true }) n!: number | null
  @ManyToOne(() => Author, { nullable: true, cascade: true }) author!: Author | null
}

const db = useDatabase()
let dataSource: DataSource

beforeAll(async () => {
  dataSource = await db.dataSource([Page, Author, OnceToken])
  await findOrCreate(dataSource.manager, Page, { url: 'known to be ready' })
  await findOrCreate(dataSource.manager, Author, { name: 'known to be ready' })
  await once(dataSource.manager, 'known to be ready', () => {})
})
beforeEach(async () => {
  await dataSource.query('truncate page, author, once_tokens restart identity')
})

const stored = async (): Promise<string[]> =>
  (await dataSource.getRepository(Page).find({ order: { url: 'ASC' } })).map(({ url }) => url)

/** Something that is let through once. */
function gate(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open = (): void => {}
  const passed = new Promise<void>((resolve) => (open = resolve))
  return { passed, open }
}

const no = new Error('no')

const fail = async (): Promise<never> => await Promise.reject(no)

/** Sends SQL right behind the statement that is sent next, and past TypeORM, which hears nothing of it. */
async function behindNext(manager: EntityManager, sql: string): Promise<void> {
  const client = (await manager.queryRunner?.connect()) as unknown as { query: (...args: unknown[]) => unknown }
  const { query } = client
  await new Promise<unknown>((resolve) => {
    client.query = (...args: unknown[]): unknown => {
      client.query = query
      const answer = query.apply(client, args)
      resolve(client.query(sql))
      return answer
    }
  })
}

/** Each stores the page `url`. */
const CALLS: Readonly<Record<string, (manager: EntityManager, url: string) => Promise<unknown>>> = {
  findOrCreate: async (manager, url) => await findOrCreate(manager, Page, { url }),
  findOrCreateMany: async (manager, url) => {
    const results = await findOrCreateMany(manager, Page, [{ url }, { url: `${url} 2` }])
    for (const one of results) if ('error' in one) throw one.error
  },
  insertOrFail: async (manager, url) => await insertOrFail(manager, Page, { url }),
  'insertOrFail of two tables': async (manager, url) =>
    await insertOrFail(manager, [
      [Page, { url }],
      [Author, { name: url }],
    ]),
  upsertByText: async (manager, url) => await upsertByText(manager, Page, [{ url, n: 1 }]),
  updateOrFail: async (manager, url) => {
    const { entity } = await findOrCreate(manager, Page, { url: `${url} before` })
    await updateOrFail(manager, Page, entity.id, { url })
  },
  'findOrCreate with relations': async (manager, url) =>
    await findOrCreate(manager, Page, { url, author: { name: url } }, { relations: 'findOrCreate' }),
  once: async (manager, url) => await once(manager, url, async (own) => void (await own.insert(Page, { url }))),
}

describe.each(Object.entries(CALLS))('%s', (_, call) => {
  test('beside work of once that fails is not told that it was rolled back', async () => {
    await dataSource.transaction(async (manager) => {
      const [begun, held] = [gate(), gate()]
      const failing = rejection(
        once(manager, 'fails', async () => {
          begun.open()
          await held.passed
          throw no
        }),
      )
      const early = call(manager, 'early')
      await begun.passed
      const late = call(manager, 'late')
      held.open()
      expect(await failing).toBe(no)
      await Promise.all([early, late])
    })
    expect(await stored()).toEqual(expect.arrayContaining(['early', 'late']))
  })

  test('that begins before a nested transaction which is rolled back, and goes on after it, is told nothing', async () => {
    await dataSource.transaction(async (manager) => {
      await call(manager, 'before')
      expect(await rejection(manager.transaction(fail))).toBe(no)
      await call(manager, 'after')
    })
    expect(await stored()).toEqual(expect.arrayContaining(['before', 'after']))
  })

  test.each(['ROLLBACK TO mine', '/* c */ rollback -- c\n work to savepoint "mine"', 'SELECT 1; ROLLBACK TO MINE'])(
    'whose statements are undone by %s, on their way, is told so',
    async (rollBack) => {
      await dataSource.transaction(async (manager) => {
        await manager.query('SAVEPOINT mine')
        await call(manager, 'doomed too')
        const undone = behindNext(manager, rollBack)
        expect(await rejection(call(manager, 'doomed'))).toBeInstanceOf(TransactionAbortedError)
        await undone
        await call(manager, 'after')
      })
      expect(await stored()).not.toEqual(expect.arrayContaining([expect.stringContaining('doomed')]))
      expect(await stored()).toContain('after')
    },
  )

  test.each(['ABORT', '/* c */ ROLLBACK', 'rollback and chain', 'SELECT 1; ABORT WORK'])(
    'that is under way at %s is told so',
    async (rollBack) => {
      const runner = dataSource.createQueryRunner()
      await runner.startTransaction()
      await runner.query('SELECT 1')
      try {
        await call(runner.manager, 'doomed too')
        const undone = behindNext(runner.manager, rollBack)
        expect(await rejection(call(runner.manager, 'doomed'))).toBeInstanceOf(TransactionAbortedError)
        await undone
      } finally {
        await runner.query('ROLLBACK')
        await runner.release()
      }
      expect(await stored()).toEqual([])
    },
  )
})

test('a list of three batches stands although a savepoint that was set and undone between two of them does not', async () => {
  const rows = Array.from({ length: 3_000 }, (_, nth) => ({ url: `page ${nth}` }))
  let batches = 0
  await dataSource.transaction(async (manager) => {
    const client = (await manager.queryRunner?.connect()) as Client
    const onProgress = (): void => {
      batches += 1
      void client.query(`SAVEPOINT s; INSERT INTO page (url) VALUES ('undone'); ROLLBACK TO s`)
    }
    const results = await findOrCreateMany(manager, Page, rows, { onProgress })
    expect(results.filter((one) => 'error' in one)).toEqual([])
  })
  expect(batches).toBe(3)
  expect(await stored()).toHaveLength(3_000)
})

const undoing = async (manager: EntityManager): Promise<{ n: number }> => {
  const nested = manager.transaction(async (inner) => {
    await inner.insert(Page, { url: 'undone' })
    throw no
  })
  expect(await rejection(nested)).toBe(no)
  return { n: 1 }
}

test('a nested transaction that fails in create() undoes nothing of the call that asks for it', async () => {
  await dataSource.transaction(async (manager) => {
    const create = async (): Promise<{ n: number }> => await undoing(manager)
    expect(await findOrCreate(manager, Page, { url: 'a' }, { create })).toMatchObject({ created: true })
    const nested = { create, relations: 'findOrCreate' } as const
    expect(await findOrCreate(manager, Page, { url: 'b', author: { name: 'b' } }, nested)).toMatchObject({
      created: true,
    })
  })
  expect(await stored()).toEqual(['a', 'b'])
})

test('a call that sends a statement in a savepoint that is undone is told so, although it began before', async () => {
  await dataSource.transaction(async (manager) => {
    const [asked, goOn] = [gate(), gate()]
    const create = async (): Promise<{ n: number }> => {
      asked.open()
      await goOn.passed
      return { n: 1 }
    }
    const call = rejection(findOrCreate(manager, Page, { url: 'a' }, { create }))
    await asked.passed
    await manager.query('SAVEPOINT mine')
    const undone = behindNext(manager, 'ROLLBACK TO mine')
    goOn.open()
    expect(await call).toBeInstanceOf(TransactionAbortedError)
    await undone
  })
  expect(await stored()).toEqual([])
})

test('a nested find-or-create that holds back the rollback of its transaction is told of it', async () => {
  await dataSource.transaction(async (outer) => {
    let call: Promise<unknown> = Promise.resolve()
    const nested = outer.transaction(async (manager) => {
      const begun = gate()
      call = rejection(
        once(manager, 'token', async (own) => {
          begun.open()
          await own.query('SELECT pg_sleep(0.05)')
        }),
      )
      await begun.passed
      throw no
    })
    expect(await rejection(nested)).toBe(no)
    expect(await call).toBeInstanceOf(TransactionAbortedError)
  })
  expect(await dataSource.getRepository(OnceToken).count()).toBe(0)
})

test('calls that wait behind saves are told nothing of the savepoints which are undone meanwhile', async () => {
  const save = async (manager: EntityManager, url: string): Promise<unknown> =>
    await saveFindingTexts(manager, Page, { url, author: { name: 'ada' } })
  await dataSource.transaction(async (manager) => {
    const calls = [
      findOrCreate(manager, Page, { url: 'found' }),
      save(manager, 'same'),
      save(manager, 'same'),
      save(manager, 'same'),
      save(manager, 'saved'),
      insertOrFail(manager, Page, { url: 'inserted' }),
    ]
    const results = await Promise.allSettled(calls)
    expect(
      results.map((one) => (one.status === 'rejected' ? Reflect.get(one.reason as object, 'code') : one.status)),
    ).toEqual(['fulfilled', 'fulfilled', 'TEXT_TAKEN', 'TEXT_TAKEN', 'fulfilled', 'fulfilled'])
  })
  expect(await stored()).toEqual(['found', 'inserted', 'same', 'saved'])
})

test('what was undone in a former transaction of a connection is nothing to the calls of the next one', async () => {
  const one = await db.dataSource([Page, Author, OnceToken], { poolSize: 1 })
  await rejection(
    one.transaction(async (manager) => {
      await findOrCreate(manager, Page, { url: 'undone' })
      await fail()
    }),
  )
  await one.transaction(async (manager) => {
    const calls = ['a', 'b'].map(
      async (url) => await saveFindingTexts(manager, Page, { url, author: { name: 'grace' } }),
    )
    await Promise.all(calls)
  })
  expect(await stored()).toEqual(['a', 'b'])
})
