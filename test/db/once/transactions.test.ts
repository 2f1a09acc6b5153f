import type { DataSource, EntityManager, EntitySubscriberInterface, InsertEvent, TransactionStartEvent } from 'typeorm'
import { EventSubscriber } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOneByText, TransactionAbortedError } from '../../../src'
import { once, OnceToken, removeExpiredTokens, TokenReusedError } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { gate } from '../../support/gate'
import { poolOf, rejection } from '../../support/ledger'
import { LEVELS } from '../../support/sessions'
import { Payment } from '../../support/entities'

const heard: string[] = []

@EventSubscriber()
class Listener implements EntitySubscriberInterface {
  beforeTransactionStart(): void {
    heard.push('start')
  }
  afterInsert({ metadata }: InsertEvent<unknown>): void {
    heard.push(metadata.name)
  }
  afterTransactionCommit(): void {
    heard.push('commit')
  }
  afterTransactionRollback(): void {
    heard.push('rollback')
  }
}

const db = useDatabase()
/** With one connection. */
let single: DataSource
const dataSource = db.useDataSource([Payment, OnceToken])

beforeAll(async () => {
  single = await db.dataSource([Payment, OnceToken], { poolSize: 1, subscribers: [Listener] })
})
beforeEach(async () => {
  heard.length = 0
})

const pay =
  (token: string) =>
  async (manager: EntityManager): Promise<unknown> =>
    (await manager.insert(Payment, { token })).identifiers[0]

const paid = async (): Promise<string[]> =>
  (await dataSource.getRepository(Payment).find({ order: { id: 'ASC' } })).map(({ token }) => token)
const stored = async (): Promise<string[]> =>
  (await dataSource.getRepository(OnceToken).find({ order: { id: 'ASC' } })).map(({ token }) => token)

describe.each(LEVELS)("in the caller's transaction at %s", (level) => {
  test('the token is committed with it', async () => {
    await dataSource.transaction(level, async (manager) => {
      expect(await once(manager, 'token', pay('a'))).toMatchObject({ replayed: false })
      expect(await stored()).toEqual([])
    })
    expect(await once(dataSource.manager, 'token', pay('b'))).toMatchObject({ replayed: true })
    expect(await paid()).toEqual(['a'])
  })

  test('a token that is rolled back with it was never used', async () => {
    const failure = new Error('no')
    const transaction = dataSource.transaction(level, async (manager) => {
      await once(manager, 'token', pay('a'))
      throw failure
    })
    expect(await rejection(transaction)).toBe(failure)
    expect(await once(dataSource.manager, 'token', pay('b'))).toMatchObject({ replayed: false })
    expect(await paid()).toEqual(['b'])
  })

  test('the same token a second time gives the answer', async () => {
    await dataSource.transaction(level, async (manager) => {
      const { answer } = await once(manager, 'token', pay('a'))
      expect(await once(manager, 'token', pay('b'))).toEqual({ answer, replayed: true })
    })
    expect(await paid()).toEqual(['a'])
  })

  test('calls at the same time with one token run the work once', async () => {
    await dataSource.transaction(level, async (manager) => {
      const results = await Promise.all(['a', 'b', 'c'].map((token) => once(manager, 'token', pay(token))))
      expect(results.map(({ replayed }) => replayed)).toEqual([false, true, true])
    })
    expect(await paid()).toEqual(['a'])
  })

  test('it stays usable after work that fails, which leaves nothing', async () => {
    const failure = new Error('no')
    await dataSource.transaction(level, async (manager) => {
      await pay('before')(manager)
      const work = async (own: EntityManager): Promise<void> => {
        await pay('inside')(own)
        throw failure
      }
      expect(await rejection(once(manager, 'token', work))).toBe(failure)
      const broken = once(manager, 'token', (own) => own.query('select no_such_column'))
      expect(await rejection(broken)).toMatchObject({ driverError: { code: '42703' } })
      await pay('after')(manager)
      expect(await once(manager, 'token', pay('again'))).toMatchObject({ replayed: false })
    })
    expect(await paid()).toEqual(['before', 'after', 'again'])
    expect(await stored()).toEqual(['token'])
  })

  test('it stays usable after every refusal', async () => {
    await dataSource.transaction(level, async (manager) => {
      await once(manager, 'token', pay('a'), { request: 1 })
      expect(await rejection(once(manager, 'token', pay('b'), { request: 2 }))).toBeInstanceOf(TokenReusedError)
      expect(await rejection(once(manager, 'other', () => new Date() as never))).toBeInstanceOf(DeclarationError)
      const nested = once(manager, 'nested', (own) => once(own, 'nested', () => 1))
      expect(await rejection(nested)).toBeInstanceOf(DeclarationError)
      await pay('after')(manager)
    })
    expect(await paid()).toEqual(['a', 'after'])
    expect(await stored()).toEqual(['token'])
  })

  test('expired tokens are removed with it', async () => {
    await once(dataSource.manager, 'token', pay('a'), { expires: '1 hour' })
    await dataSource.query(`update once_tokens set expires_at = now() - interval '1 second'`)
    const failure = new Error('no')
    const transaction = dataSource.transaction(level, async (manager) => {
      expect(await removeExpiredTokens(manager)).toBe(1)
      throw failure
    })
    expect(await rejection(transaction)).toBe(failure)
    expect(await stored()).toEqual(['token'])
    expect(await dataSource.transaction(level, removeExpiredTokens)).toBe(1)
    expect(await stored()).toEqual([])
  })

  test('a token that was stored since its snapshot is replayed, or the transaction is to be run again', async () => {
    const transaction = dataSource.transaction(level, async (manager) => {
      await manager.query('select 1 from payment')
      await once(dataSource.manager, 'token', pay('a'))
      return await once(manager, 'token', pay('b'))
    })
    const outcome = transaction.then(
      ({ replayed }) => (replayed ? 'replayed' : 'ran'),
      (error: Error) => error.name,
    )
    expect(await outcome).toBe(level === 'READ COMMITTED' ? 'replayed' : 'TransactionAbortedError')
    expect(await paid()).toEqual(['a'])
  })

  test('a transaction that the caller began by SQL is one too', async () => {
    const queryRunner = dataSource.createQueryRunner()
    await queryRunner.query(`begin isolation level ${level}`)
    await once(queryRunner.manager, 'token', pay('a'))
    expect(await rejection(once(queryRunner.manager, 'other', () => 1n as never))).toBeInstanceOf(DeclarationError)
    await pay('b')(queryRunner.manager)
    await queryRunner.query('rollback')
    await queryRunner.release()
    expect(await stored()).toEqual([])
    expect(await paid()).toEqual([])
  })
})

test('what the caller sends beside the work is not undone with it', async () => {
  await dataSource.transaction(async (manager) => {
    const begun = gate()
    const failing = once(manager, 'token', async (own) => {
      begun.open()
      await pay('inside')(own)
      throw new Error('no')
    })
    await begun.passed
    const beside = manager.query(`insert into payment (token) values ('beside')`)
    await rejection(failing)
    await beside
  })
  expect(await paid()).toEqual(['beside'])
})

test('a query runner without a transaction gets one for the work', async () => {
  const queryRunner = dataSource.createQueryRunner()
  expect(await once(queryRunner.manager, 'token', pay('a'))).toMatchObject({ replayed: false })
  expect(queryRunner.isTransactionActive).toBe(false)
  expect(await once(queryRunner.manager, 'token', pay('a'))).toMatchObject({ replayed: true })
  await queryRunner.release()
  expect(await paid()).toEqual(['a'])
})

describe('inside work', () => {
  test('another token runs its own, in the same transaction', async () => {
    const result = await once(single.manager, 'outer', async (manager) => {
      const inner = await once(manager, 'inner', pay('inner'))
      return { inner, own: await pay('outer')(manager) }
    })
    expect(result).toMatchObject({ replayed: false, answer: { inner: { replayed: false } } })
    expect(await once(single.manager, 'inner', pay('again'))).toMatchObject({ replayed: true })
    expect(await paid()).toEqual(['inner', 'outer'])
  })

  test('another token that fails leaves the work to go on', async () => {
    await once(single.manager, 'outer', async (manager) => {
      const inner = once(manager, 'inner', async (own) => {
        await pay('inner')(own)
        throw new Error('no')
      })
      await rejection(inner)
      return await pay('outer')(manager)
    })
    expect(await paid()).toEqual(['outer'])
    expect(await stored()).toEqual(['outer'])
  })

  test('another token goes with the work that fails', async () => {
    const outer = once(single.manager, 'outer', async (manager) => {
      await once(manager, 'inner', pay('inner'))
      throw new Error('no')
    })
    await rejection(outer)
    expect(await stored()).toEqual([])
    expect(await paid()).toEqual([])
  })

  test.each(['the manager of the work', 'another connection'])('its own token, by %s, is a clear error', async (by) => {
    const outer = once(dataSource.manager, 'token', async (manager) => {
      const inner = by === 'another connection' ? dataSource.manager : manager
      return await once(inner, 'between', (own) => once(own, 'token', pay('a')))
    })
    const error = await rejection(outer)
    expect(error).toBeInstanceOf(DeclarationError)
    expect(String(error)).toContain('its own token')
    expect(await stored()).toEqual([])
    expect(await once(dataSource.manager, 'token', pay('b'))).toMatchObject({ replayed: false })
  })

  test('its own token is free again for what the work has left behind', async () => {
    let left: Promise<unknown> = Promise.resolve()
    const over = gate()
    const first = await once(dataSource.manager, 'token', async (manager) => {
      left = over.passed.then(() => once(dataSource.manager, 'token', pay('b')))
      return await pay('a')(manager)
    })
    over.open()
    expect(await left).toEqual({ answer: first.answer, replayed: true })
  })

  test('its own expired token is not removed under it', async () => {
    await once(single.manager, 'token', pay('a'), { expires: '1 hour' })
    await dataSource.query(`update once_tokens set expires_at = now() - interval '1 second'`)
    const result = await once(single.manager, 'token', (manager) => removeExpiredTokens(manager))
    expect(result).toEqual({ answer: 0, replayed: false })
    expect(await stored()).toEqual(['token'])
  })

  test('a token that the work removes is an error, and nothing is stored', async () => {
    const removed = once(dataSource.manager, 'token', async (manager) => {
      await pay('a')(manager)
      await manager.delete(OnceToken, { token: 'token' })
    })
    expect(await rejection(removed)).toBeInstanceOf(TransactionAbortedError)
    expect(await paid()).toEqual([])
  })
})

test('what the work has started and not awaited does not take the COMMIT of the answer', async () => {
  for (let ticks = 0; ticks < 20; ticks += 1) {
    const token = `token ${ticks}`
    let late: Promise<unknown> = Promise.resolve()
    await once(dataSource.manager, token, async (manager) => {
      await pay(token)(manager)
      const five = Array.from({ length: 5 }, () => findOneByText(manager, OnceToken, { token }))
      late = Promise.allSettled(five)
      for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve()
    })
    await late
    const of = `select xmin::text as xid from`
    const [answer] = (await dataSource.query(`${of} once_tokens where token = $1`, [token])) as unknown[]
    const [payment] = (await dataSource.query(`${of} payment where token = $1`, [token])) as unknown[]
    expect(answer).toEqual(payment)
  }
})

test('a call that waits longer than query_timeout leaves no transaction open in the pool', async () => {
  const extra = { query_timeout: 300 }
  const impatient = await db.dataSource([Payment, OnceToken], { poolSize: 1, synchronize: false, extra })
  await once(impatient.manager, 'first', pay('a'))
  const waiting = await dataSource.transaction(async (manager) => {
    await once(manager, 'token', pay('b'))
    return await rejection(once(impatient.manager, 'token', pay('c')))
  })
  expect(waiting).toMatchObject({ message: 'Query read timeout' })
  // A transaction that somebody had left open would take it in, and commit it only with the next one.
  await impatient.manager.insert(Payment, { token: 'next' })
  expect(await paid()).toContain('next')
  await once(impatient.manager, 'second', pay('d'))
  const [{ open } = { open: '' }] = (await dataSource.query(
    `select count(*)::text as open from pg_stat_activity where datname = current_database() and state like 'idle in%'`,
  )) as { open: string }[]
  expect(open).toBe('0')
  expect(await stored()).toEqual(['first', 'token', 'second'])
})

test('one connection is enough for calls at the same time', async () => {
  const calls = Array.from({ length: 10 }, () => once(single.manager, 'token', pay('a')))
  expect((await Promise.all(calls)).filter(({ replayed }) => !replayed)).toHaveLength(1)
  expect(poolOf(single)).toMatchObject({ totalCount: 1, idleCount: 1, waitingCount: 0 })
})

test('what a subscriber sends at the beginning is in the transaction, and so is the work', async () => {
  @EventSubscriber()
  class Sender implements EntitySubscriberInterface {
    async afterTransactionStart({ queryRunner }: TransactionStartEvent): Promise<void> {
      await queryRunner.query(`insert into payment (token) values ('subscriber')`)
    }
  }
  const sending = await db.dataSource([Payment, OnceToken], { subscribers: [Sender], synchronize: false })
  const failing = once(sending.manager, 'token', async (manager) => {
    await manager.insert(Payment, { token: 'work' })
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  expect(await dataSource.getRepository(Payment).find()).toEqual([])
  expect(await dataSource.getRepository(OnceToken).find()).toEqual([])
})

describe("the client's query", () => {
  const answerOf = async (change: (client: { query: unknown }) => void, inside = change): Promise<object> => {
    const queryRunner = dataSource.createQueryRunner()
    try {
      const client = (await queryRunner.connect()) as { query: unknown }
      change(client)
      await once(queryRunner.manager, 'token', () => {
        inside(client)
      })
      return client
    } finally {
      await queryRunner.release()
    }
  }
  const trace = (client: { query: unknown }): void => {
    const { query } = client as { query: (...args: unknown[]) => unknown }
    client.query = (...args: unknown[]) => query.apply(client, args)
  }
  test('is as it was before', async () => {
    expect(Object.hasOwn(await answerOf(() => {}), 'query')).toBe(false)
  })
  test.each(['who traces it, from before', 'who began to trace it meanwhile'])('is that of %s', async (who) => {
    let own: unknown
    const traced = (one: { query: unknown }): void => {
      trace(one)
      own = one.query
    }
    const client = await (who.endsWith('before') ? answerOf(traced, () => {}) : answerOf(() => {}, traced))
    expect(client).toHaveProperty('query', own)
    Reflect.deleteProperty(client, 'query')
  })
})

test('subscribers hear of the transaction and of what the work writes', async () => {
  await once(single.manager, 'token', pay('a'))
  expect(heard).toEqual(['start', 'Payment', 'commit'])
  await once(single.manager, 'token', pay('a'))
  expect(heard).toHaveLength(3)
  await rejection(
    once(single.manager, 'other', async (manager) => {
      await pay('b')(manager)
      throw new Error('no')
    }),
  )
  expect(heard.slice(3)).toEqual(['start', 'Payment', 'rollback'])
})
