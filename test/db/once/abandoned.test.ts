import { EventEmitter } from 'node:events'
import { BeforeInsert, Entity, type EntityManager, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, TransactionAbortedError, UniqueText, WaitsForItselfError } from '../../../src'
import { forgetToken, once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { gate } from '../../support/gate'
import { LONGER_SECONDS, useShortPatience } from '../../support/patience'
import { rejection } from '../../support/ledger'
import { Author, Payment } from '../../support/entities'

/** What a listener runs, by the name of its row. */
const heard = new Map<string, () => Promise<unknown>>()

@Entity()
class Book {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @ManyToOne(() => Author, { cascade: true }) author!: Author
  @BeforeInsert() async hear(): Promise<void> {
    await heard.get(this.name)?.()
  }
}

const db = useDatabase()
useShortPatience()

const dataSource = db.useDataSource([Payment, Author, Book, OnceToken], { emptied: false })

beforeEach(async ({ task }) => {
  // TRUNCATE may deadlock with a test that runs at the same time; those that do share no rows.
  if (task.concurrent !== true) await dataSource.query('truncate payment, author, book, once_tokens')
})

const pay =
  (token: string) =>
  async (manager: EntityManager): Promise<void> => {
    await manager.insert(Payment, { token })
  }
const paid = async (): Promise<string[]> =>
  (await dataSource.getRepository(Payment).find({ order: { id: 'ASC' } })).map(({ token }) => token)
const tokens = async (): Promise<string[]> =>
  (await dataSource.getRepository(OnceToken).find()).map(({ token }) => token)

/** How work ends its own transaction, and whether what it wrote before stands. */
const ENDS: Readonly<
  Record<string, { readonly end: (manager: EntityManager) => Promise<unknown>; readonly stands: boolean }>
> = {
  COMMIT: { end: (manager) => manager.query('COMMIT'), stands: true },
  'COMMIT, and a transaction anew': { end: (manager) => manager.query('COMMIT; BEGIN'), stands: true },
  'COMMIT AND CHAIN': { end: (manager) => manager.query('COMMIT AND CHAIN'), stands: true },
  'commitTransaction()': { end: async ({ queryRunner }) => await queryRunner?.commitTransaction(), stands: true },
  ROLLBACK: { end: (manager) => manager.query('ROLLBACK'), stands: false },
  'ROLLBACK AND CHAIN': { end: (manager) => manager.query('ROLLBACK AND CHAIN'), stands: false },
  'rollbackTransaction()': { end: async ({ queryRunner }) => await queryRunner?.rollbackTransaction(), stands: false },
}

describe.each(Object.entries(ENDS))('work that ends its transaction by %s', (_, { end, stands }) => {
  const work = async (manager: EntityManager): Promise<string> => {
    await pay('first')(manager)
    await end(manager)
    return 'done'
  }
  const first = stands ? ['first'] : []

  test('is refused, and the next call takes its token over', async () => {
    expect(await rejection(once(dataSource.manager, 'token', work))).toBeInstanceOf(TransactionAbortedError)
    expect(await once(dataSource.manager, 'token', pay('second'))).toMatchObject({ replayed: false })
    expect(await once(dataSource.manager, 'token', pay('third'))).toMatchObject({ replayed: true })
    expect(await paid()).toEqual([...first, 'second'])
  })

  test('is refused, and a call in a transaction takes its token over', async () => {
    await rejection(once(dataSource.manager, 'token', work))
    await dataSource.transaction(async (manager) => {
      expect(await once(manager, 'token', pay('second'))).toMatchObject({ replayed: false })
      expect(await once(manager, 'token', pay('third'))).toMatchObject({ replayed: true })
    })
    expect(await paid()).toEqual([...first, 'second'])
  })

  test('leaves a token that removeExpiredTokens removes', async () => {
    await rejection(once(dataSource.manager, 'token', work))
    expect(await removeExpiredTokens(dataSource.manager)).toBe(stands ? 1 : 0)
    expect(await tokens()).toEqual([])
  })

  test("that is its caller's is refused too", async () => {
    const runner = dataSource.createQueryRunner()
    await runner.startTransaction()
    try {
      expect(await rejection(once(runner.manager, 'token', work))).toBeInstanceOf(TransactionAbortedError)
    } finally {
      await runner.query('ROLLBACK')
      await runner.release()
    }
    expect(await once(dataSource.manager, 'token', pay('second'))).toMatchObject({ replayed: false })
    expect(await paid()).toEqual([...first, 'second'])
  })
})

test('work that has committed its token does not answer it when another call has taken it over', async () => {
  const commits = once(dataSource.manager, 'token', async (manager) => {
    await manager.query('COMMIT')
    await dataSource.query(
      `update once_tokens set answer = '"another"', answered_at = now(), expires_at = null where token = 'token'`,
    )
    return 'mine'
  })
  expect(await rejection(commits)).toBeInstanceOf(TransactionAbortedError)
  expect(await once(dataSource.manager, 'token', () => 'none')).toEqual({ answer: 'another', replayed: true })
})

test('work that asks for its own token by way of code from outside is told so, and not run twice', async () => {
  const emitter = new EventEmitter()
  let inner: Promise<unknown> = Promise.resolve()
  const asked = new Promise<EntityManager>((resolve) => emitter.once('ask', resolve))
  const outside = asked.then((manager) => once(manager, 'token', pay('twice')))
  inner = rejection(outside)
  await once(dataSource.manager, 'token', async (manager) => {
    emitter.emit('ask', manager)
    expect(await inner).toBeInstanceOf(DeclarationError)
    await pay('once')(manager)
  })
  expect(await paid()).toEqual(['once'])
})

describe('forgetToken', () => {
  test('lets the next call run its own work, and says whether there was a token', async () => {
    await once(dataSource.manager, 'token', pay('first'))
    expect(await forgetToken(dataSource.manager, 'token')).toBe(true)
    expect(await forgetToken(dataSource.manager, 'token')).toBe(false)
    expect(await once(dataSource.manager, 'token', pay('second'))).toMatchObject({ replayed: false })
    expect(await paid()).toEqual(['first', 'second'])
  })

  test('in a transaction is rolled back with it', async () => {
    await once(dataSource.manager, 'token', pay('first'))
    const failed = dataSource.transaction(async (manager) => {
      expect(await forgetToken(manager, 'token')).toBe(true)
      throw new Error('no')
    })
    await rejection(failed)
    expect(await once(dataSource.manager, 'token', pay('second'))).toMatchObject({ replayed: true })
  })

  test('inside work that runs for the token is refused', async () => {
    const work = (): Promise<boolean> => forgetToken(dataSource.manager, 'token')
    expect(await rejection(once(dataSource.manager, 'token', work))).toBeInstanceOf(DeclarationError)
  })
})

let given = 0
/** No test waits for the rows of another. */
const another = (): string => `text ${(given += 1)}`

/** Calls in the caller's transaction that run code of the user's while they have its connection to themselves. */
const WHOLE: Record<string, (manager: EntityManager, work: () => Promise<unknown>) => Promise<unknown>> = {
  once: (manager, work) => once(manager, another(), async () => void (await work())),
  'once inside once': (manager, work) =>
    once(manager, another(), async (own) => void (await once(own, another(), async () => void (await work())))),
  'once behind another one in it': (manager, work) =>
    once(manager, another(), async (own) => {
      await once(own, another(), () => {})
      await work()
    }),
}

WHOLE['findOrCreate with relations'] = async (manager, work) => {
  const book = { name: another(), author: { name: another() } }
  heard.set(book.name, work)
  await findOrCreate(manager, Book, book, { relations: 'findOrCreate' })
}

/** What waits for the connection, called from code that was made outside. */
const WAITS: Readonly<Record<string, (manager: EntityManager) => Promise<unknown>>> = {
  'a query': (manager) => manager.query('SELECT 1'),
  findOrCreate: (manager) => findOrCreate(manager, Author, { name: another() }),
  once: (manager) => once(manager, another(), () => 1),
}

describe.each(Object.entries(WHOLE))('%s whose work waits for itself', (_, call) => {
  test.concurrent.each(Object.entries(WAITS))('by way of %s is told so', async (__, wait) => {
    await dataSource.transaction(async (manager) => {
      const emitter = new EventEmitter()
      const asked = new Promise<void>((resolve) => emitter.once('ask', resolve))
      const outside = asked.then(() => wait(manager))
      const work = async (): Promise<unknown> => {
        emitter.emit('ask')
        return await outside
      }
      const error = await rejection(call(manager, work))
      expect(error).toBeInstanceOf(WaitsForItselfError)
      expect(error).toMatchObject({ code: 'WAITS_FOR_ITSELF' })
      await manager.query('SELECT 1')
    })
  })
})

test.concurrent('a statement that waits for work which is at the server longer than that waits until its end', async () => {
  await dataSource.transaction(async (manager) => {
    const begun = gate()
    const slow = once(manager, another(), async (own) => {
      begun.open()
      await own.query(`SELECT pg_sleep(${LONGER_SECONDS})`)
    })
    await begun.passed
    expect(await manager.query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    await slow
  })
})
