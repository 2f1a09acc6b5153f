import type { Client } from 'pg'
import type { EntityManager, EntitySubscriberInterface, QueryRunner } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TransactionAbortedError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { gate } from '../../support/gate'
import { rowOf } from '../../support/results'
import { useSmallBatches } from '../../support/small-batches'
import { column, entity, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { Author } from '../../support/entities'

const nested = { relations: 'findOrCreate' } as const

const Page = entity('Page', {
  url: text(),
  n: column('integer', { nullable: true }),
  author: toOne(() => Author, { cascade: true }),
})

/** Rows of a batch. */
const ROWS = 50

const db = useDatabase()
useSmallBatches(ROWS)
const dataSource = db.useDataSource([Page, Author, OnceToken])
const { manager } = dataSource

beforeAll(async () => {
  await findOrCreate(manager, Page, { url: 'known to be ready' })
  await findOrCreate(manager, Author, { name: 'known to be ready' })
  await once(manager, 'known to be ready', () => {})
})

const stored = async (): Promise<string[]> =>
  (await dataSource.getRepository(Page).find({ order: { url: 'ASC' } })).map(({ url }) => url)

const no = new Error('no')

const fail = (): Promise<never> => Promise.reject(no)

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
  findOrCreate: (manager, url) => findOrCreate(manager, Page, { url }),
  findOrCreateMany: async (manager, url) => {
    for (const result of await findOrCreateMany(manager, Page, [{ url }, { url: `${url} 2` }])) rowOf(result)
  },
  insertOrFail: (manager, url) => insertOrFail(manager, Page, { url }),
  'insertOrFail of two tables': (manager, url) =>
    insertOrFail(manager, [
      [Page, { url }],
      [Author, { name: url }],
    ]),
  upsertByText: (manager, url) => upsertByText(manager, Page, [{ url, n: 1 }]),
  updateOrFail: async (manager, url) => {
    const { entity } = await findOrCreate(manager, Page, { url: `${url} before` })
    await updateOrFail(manager, Page, entity.id, { url })
  },
  'findOrCreate with relations': (manager, url) =>
    findOrCreate(manager, Page, { url, author: { name: url } }, { relations: 'findOrCreate' }),
  once: (manager, url) => once(manager, url, async (own) => void (await own.insert(Page, { url }))),
}

describe.each(Object.entries(CALLS))('%s', (name, call) => {
  /** How SQL is read does not depend on the call: one of them tries every form. */
  const someOf = (forms: readonly string[]): readonly string[] => (name === 'findOrCreate' ? forms : forms.slice(0, 1))

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

  test.skipIf(name === 'updateOrFail')(
    'begun just before a nested transaction that fails is not undone by it',
    async () => {
      for (let turns = 0; turns < 3; turns += 1) {
        await dataSource.transaction(async (manager) => {
          const begun = call(manager, `begun ${turns}`)
          const nested = manager.transaction(async (own) => {
            await own.insert(Page, { url: `undone ${turns}` })
            for (let nth = 0; nth < turns * 4; nth += 1) await new Promise((go) => setImmediate(go))
            throw no
          })
          expect(await rejection(nested)).toBe(no)
          await begun
        })
      }
      expect(await stored()).toEqual(expect.arrayContaining(['begun 0', 'begun 1', 'begun 2']))
      expect(await stored()).not.toContain(expect.stringContaining('undone'))
    },
  )

  test('that begins before a nested transaction which is rolled back, and goes on after it, is told nothing', async () => {
    await dataSource.transaction(async (manager) => {
      await call(manager, 'before')
      expect(await rejection(manager.transaction(fail))).toBe(no)
      await call(manager, 'after')
    })
    expect(await stored()).toEqual(expect.arrayContaining(['before', 'after']))
  })

  test.each(
    someOf(['ROLLBACK TO mine', '/* c */ rollback -- c\n work to savepoint "mine"', 'SELECT 1; ROLLBACK TO MINE']),
  )('whose statements are undone by %s, on their way, is told so', async (rollBack) => {
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
  })

  test.each(someOf(['ABORT', '/* c */ ROLLBACK', 'rollback and chain', 'SELECT 1; ABORT WORK']))(
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
  const rows = Array.from({ length: 3 * ROWS }, (_, nth) => ({ url: `page ${nth}` }))
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
  expect(await stored()).toHaveLength(3 * ROWS)
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
    const create = (): Promise<{ n: number }> => undoing(manager)
    expect(await findOrCreate(manager, Page, { url: 'a' }, { create })).toMatchObject({ created: true })
    const nested = { create, relations: 'findOrCreate' } as const
    expect(await findOrCreate(manager, Page, { url: 'b', author: { name: 'b' } }, nested)).toMatchObject({
      created: true,
    })
  })
  expect(await stored()).toEqual(['a', 'b'])
})

test('a change and a save begun just before a nested transaction that fails are not undone by it', async () => {
  const { entity } = await findOrCreate(manager, Page, { url: 'before' })
  await dataSource.transaction(async (manager) => {
    const begun = updateOrFail(manager, Page, entity.id, { url: 'changed' })
    const saved = findOrCreate(manager, Page, { url: 'saved', author: { name: 'ada' } }, nested)
    expect(await rejection(manager.transaction(fail))).toBe(no)
    await Promise.all([begun, saved])
  })
  expect(await stored()).toEqual(['changed', 'saved'])
})

test('a call sends nothing in a savepoint that the caller has set since it began', async () => {
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
    goOn.open()
    expect(await call).toBeInstanceOf(TransactionAbortedError)
    await manager.query('ROLLBACK TO mine')
  })
  expect(await stored()).toEqual([])
})

test('a list of two batches fails where a savepoint is set between them and left open', async () => {
  const rows = Array.from({ length: 2 * ROWS }, (_, nth) => ({ url: `page ${nth}` }))
  await dataSource.transaction(async (manager) => {
    const client = (await manager.queryRunner?.connect()) as Client
    let batches = 0
    const onProgress = (): void => {
      batches += 1
      void client.query(`SAVEPOINT mine`)
    }
    expect(await rejection(findOrCreateMany(manager, Page, rows, { onProgress }))).toBeInstanceOf(
      TransactionAbortedError,
    )
    expect(batches).toBe(1)
    await manager.query('ROLLBACK TO mine')
  })
  expect(await stored()).toHaveLength(ROWS)
})

describe.each([
  ["PREPARE TRANSACTION 'never'", 'CREATE TEMP TABLE t () ON COMMIT DROP'],
  ['COMMIT', 'CREATE TEMP TABLE t (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO t VALUES (1), (1)'],
  ['COMMIT', 'SELECT 1/0'],
])('at a %s that fails, after %s,', (end, before) => {
  const ending = async (
    run: (runner: QueryRunner, fails: () => Promise<unknown>) => Promise<unknown>,
  ): Promise<void> => {
    const runner = dataSource.createQueryRunner()
    await runner.startTransaction()
    const client = (await runner.connect()) as Client
    let ended: Promise<unknown> | undefined
    const fails = async (): Promise<unknown> =>
      await (ended ??= Promise.allSettled([client.query(before), client.query(end)]))
    expect(await rejection(run(runner, fails))).toBeInstanceOf(TransactionAbortedError)
    await ended
    await runner.rollbackTransaction()
    await runner.release()
    expect(await stored()).toEqual([])
  }

  test('a list under way is told so', async () => {
    const rows = Array.from({ length: 2 * ROWS }, (_, nth) => ({ url: `page ${nth}` }))
    await ending(({ manager }, fails) => findOrCreateMany(manager, Page, rows, { onProgress: () => void fails() }))
  })

  test('a find-or-create whose create() runs is told so', async () => {
    const create = async (fails: () => Promise<unknown>): Promise<{ n: number }> => {
      await fails()
      return { n: 1 }
    }
    await ending(({ manager }, fails) => findOrCreate(manager, Page, { url: 'a' }, { create: () => create(fails) }))
  })
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

test('a savepoint that the caller sets at any moment of a call undoes nothing of what the call has reported', async () => {
  const told = { done: 0, aborted: 0 }
  for (let ticks = 0; ticks < 40; ticks += 1) {
    const url = `after ${ticks}`
    const isDone = await dataSource.transaction(async (manager) => {
      const client = (await manager.queryRunner?.connect()) as Client
      const call = Promise.allSettled([
        insertOrFail(manager, [
          [Page, { url }],
          [Author, { name: url }],
        ]),
      ])
      for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve()
      await client.query('SAVEPOINT mine')
      const [result] = await call
      await client.query('ROLLBACK TO mine')
      return result.status === 'fulfilled'
    })
    told[isDone ? 'done' : 'aborted'] += 1
    expect([url, (await stored()).includes(url)]).toEqual([url, isDone])
  }
  // Both before the call holds the connection, and after.
  expect(Object.values(told)).not.toContain(0)
})

test('a call whose savepoint is being released when its transaction is rolled back is told of it', async () => {
  await dataSource.transaction(async (manager) => {
    await manager.query('SAVEPOINT mine')
    const client = (await manager.queryRunner?.connect()) as unknown as { query: (...args: unknown[]) => unknown }
    const { query } = client
    const released = new Promise<void>((resolve) => {
      client.query = (...args: unknown[]): unknown => {
        if (args[0] === 'RELEASE SAVEPOINT typeorm_unique_text_whole') resolve()
        return query.apply(client, args)
      }
    })
    const call = rejection(once(manager, 'token', () => {}))
    await released
    await manager.query('ROLLBACK TO mine')
    expect(await call).toBeInstanceOf(TransactionAbortedError)
  })
  expect(await dataSource.getRepository(OnceToken).count()).toBe(0)
})

describe('a save in which a listener has swallowed an error of the server', () => {
  const swallows: EntitySubscriberInterface = {
    afterInsert: async ({ manager, metadata }) => {
      if (metadata.target === Author) await rejection(manager.query('SELECT 1/0'))
    },
  }
  const failingSave = async (manager: EntityManager): Promise<void> => {
    const save = findOrCreate(manager, Page, { url: 'undone', author: { name: 'undone' } }, nested)
    expect(await rejection(save)).toMatchObject({ code: '25P02' })
  }
  beforeAll(() => void dataSource.subscribers.push(swallows))
  afterAll(() => void dataSource.subscribers.splice(dataSource.subscribers.indexOf(swallows), 1))

  test('is undone, leaves no savepoint, and the transaction goes on', async () => {
    await dataSource.transaction(async (manager) => {
      await failingSave(manager)
      await manager.query('SAVEPOINT mine')
      const release = manager.query('RELEASE SAVEPOINT typeorm_unique_text_whole')
      expect(await rejection(release)).toMatchObject({ code: '3B001' })
      await manager.query('ROLLBACK TO mine')
      await manager.query(`INSERT INTO page (url) VALUES ('goes on')`)
    })
    expect(await stored()).toEqual(['goes on'])
  })

  test('undoes nothing of a list that is under way', async () => {
    const rows = Array.from({ length: 2 * ROWS }, (_, nth) => ({ url: `page ${nth}` }))
    await dataSource.transaction(async (manager) => {
      let saved: Promise<void> | undefined
      await findOrCreateMany(manager, Page, rows, { onProgress: () => void (saved ??= failingSave(manager)) })
      await saved
    })
    expect(await stored()).toHaveLength(2 * ROWS)
  })
})

describe('a list, between two of whose batches the caller sends', () => {
  const listBeside = (...sql: readonly string[]): Promise<PromiseSettledResult<unknown>> =>
    dataSource.transaction(async (manager) => {
      // From the first call of a transaction on, its savepoints are heard.
      await findOrCreate(manager, Author, { name: 'before' })
      await manager.query('SAVEPOINT mine')
      const rows = Array.from({ length: 2 * ROWS }, (_, nth) => ({ url: `page ${nth}` }))
      const create = async (_: unknown, nth: number): Promise<object> => {
        if (nth === 1.5 * ROWS) for (const one of sql) await manager.query(one).catch(() => {})
        return {}
      }
      const [result] = await Promise.allSettled([findOrCreateMany(manager, Page, rows, { create })])
      return result
    })

  test('a SAVEPOINT that is refused, and a rollback to the former one of that name, is told of it', async () => {
    const result = await listBeside('SELECT 1/0', 'SAVEPOINT mine', 'ROLLBACK TO mine')
    expect(result).toMatchObject({ status: 'rejected', reason: { code: 'TRANSACTION_ABORTED' } })
    expect(await stored()).toEqual([])
  })

  test.each(['RELEASE', 'ROLLBACK TO'])(
    'a savepoint of its own, a %s of one that does not exist, and a rollback to its own, is told nothing',
    async (command) => {
      const result = await listBeside('SAVEPOINT own', `${command} none`, 'ROLLBACK TO own')
      expect(result).toMatchObject({ status: 'fulfilled' })
      expect(await stored()).toHaveLength(2 * ROWS)
    },
  )
})

test.each(['typeorm_unique_text', 'typeorm_unique_text_whole'])('a call that is refused leaves no %s', async (name) => {
  await dataSource.transaction(async (manager) => {
    expect(await rejection(once(manager, 'token', fail))).toBe(no)
    const rows = [{ url: 'a' }, { url: 'a' }] as const
    const call = insertOrFail(manager, [
      [Page, rows[0]],
      [Author, { name: 'a' }],
      [Page, rows[1]],
    ])
    expect(await rejection(call)).toMatchObject({ code: 'TEXT_TAKEN' })
    await manager.query('SAVEPOINT mine')
    expect(await rejection(manager.query(`RELEASE SAVEPOINT ${name}`))).toMatchObject({ code: '3B001' })
    await manager.query('ROLLBACK TO mine')
  })
})

test('calls that wait behind saves are told nothing of the savepoints which are undone meanwhile', async () => {
  const save = (manager: EntityManager, url: string, n = 1): Promise<unknown> =>
    findOrCreate(manager, Page, { url, n, author: { name: 'ada' } }, nested)
  await dataSource.transaction(async (manager) => {
    const calls = [
      findOrCreate(manager, Page, { url: 'found' }),
      save(manager, 'same'),
      save(manager, 'refused', 2 ** 40),
      save(manager, 'refused too', 2 ** 40),
      save(manager, 'saved'),
      insertOrFail(manager, Page, { url: 'inserted' }),
    ]
    const results = await Promise.allSettled(calls)
    expect(
      results.map((one) => (one.status === 'rejected' ? Reflect.get(one.reason as object, 'code') : one.status)),
    ).toEqual(['fulfilled', 'fulfilled', '22003', '22003', 'fulfilled', 'fulfilled'])
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
    const calls = ['a', 'b'].map((url) => findOrCreate(manager, Page, { url, author: { name: 'grace' } }, nested))
    await Promise.all(calls)
  })
  expect(await stored()).toEqual(['a', 'b'])
})
