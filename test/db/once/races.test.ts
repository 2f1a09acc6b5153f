import type { DataSource, EntityManager } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { TransactionAbortedError } from '../../../src'
import { once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { gate } from '../../support/gate'
import { gatePart } from '../../support/gate-part'
import { STEVENS } from '../../support/md5-collisions'
import { poolOf, rejection } from '../../support/ledger'
import { type Level, LEVELS } from '../../support/sessions'
import { Payment } from '../../support/entities'

const db = useDatabase()
const pools = new Map<Level, readonly DataSource[]>()

/** Several pools for each level, as several processes have them. */
const POOLS = 3
const observer = db.useClient()

beforeAll(async () => {
  for (const level of LEVELS) {
    const options = `-c default_transaction_isolation=${level.toLowerCase().replaceAll(' ', String.raw`\ `)}`
    const opened: DataSource[] = []
    for (let nth = 0; nth < POOLS; nth += 1) {
      opened.push(await db.dataSource([Payment, OnceToken], { poolSize: 6, extra: { options } }))
    }
    pools.set(level, opened)
  }
})
beforeEach(async () => {
  await observer.query('truncate payment, once_tokens')
})

/** The first pool of a level, and another. */
function twoOf(level: Level): readonly [DataSource, DataSource] {
  const [one, other] = pools.get(level) ?? []
  if (!one || !other) throw new TypeError('There are pools for each level.')
  return [one, other]
}

const pay =
  (token: string) =>
  async (manager: EntityManager): Promise<{ id: number }> => {
    const { id } = await manager.save(manager.create(Payment, { token }))
    return { id }
  }

const payments = async (): Promise<Record<string, number>> => {
  const { rows } = await observer.query<{ token: string; n: number }>(
    'select token, count(*)::int as n from payment group by token order by token',
  )
  return Object.fromEntries(rows.map(({ token, n }) => [token, n]))
}

/** A call whose work has begun and waits. */
async function underWay(
  manager: EntityManager,
  end: (manager: EntityManager) => Promise<unknown>,
): Promise<{ readonly call: Promise<unknown>; readonly goOn: () => void }> {
  const [begun, held] = [gate(), gate()]
  const call = once(manager, 'token', async (own) => {
    begun.open()
    await held.passed
    return await end(own)
  })
  call.catch(() => {})
  await begun.passed
  return { call, goOn: held.open }
}

/** As a user at SERIALIZABLE has to: work that lost against others is run again, with the same token. */
async function persist<Answer>(call: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof TransactionAbortedError)) throw error
    }
  }
}

/** What stands when an expired token, or none, is there before. */
const beforehand = { 'no token': async (): Promise<void> => {}, 'an expired token': expire } as const

async function expire(): Promise<void> {
  await once(twoOf('READ COMMITTED')[0].manager, 'token', () => 'old', { expires: '1 hour' })
  await observer.query(`update once_tokens set expires_at = now() - interval '1 second'`)
}

const starts = Object.keys(beforehand) as (keyof typeof beforehand)[]
/** In the gate one of them for each level. */
const matrix = LEVELS.flatMap((level, index) =>
  gatePart(2, index === 1 ? starts.toReversed() : starts).map((start) => [level, start] as const),
)

describe.each(matrix)('at %s, where there was %s', (level, start) => {
  beforeEach(async () => {
    await beforehand[start]()
  })

  test('a call that comes while the work is under way waits, and gives its answer', async () => {
    const [one, other] = twoOf(level)
    const first = await underWay(one.manager, pay('token'))
    const second = once(other.manager, 'token', pay('token'))
    await untilBlocked(observer)
    first.goOn()
    const { answer } = (await first.call) as { answer: { id: number } }
    expect(await second).toEqual({ answer, replayed: true })
    expect(await payments()).toEqual({ token: 1 })
  })

  test('a call that comes while the work is under way runs its own where that fails', async () => {
    const [one, other] = twoOf(level)
    const failure = new Error('no')
    const first = await underWay(one.manager, async (manager) => {
      await pay('first')(manager)
      throw failure
    })
    const second = once(other.manager, 'token', pay('second'))
    await untilBlocked(observer)
    first.goOn()
    expect(await rejection(first.call)).toBe(failure)
    expect(await second).toMatchObject({ replayed: false })
    expect(await payments()).toEqual({ second: 1 })
  })

  test('a transaction that waits for the work gives its answer, or is to be run again and then gives it', async () => {
    const [one, other] = twoOf(level)
    const first = await underWay(one.manager, pay('token'))
    const inTransaction = () =>
      other.transaction(async (manager) => {
        await manager.query('select 1 from payment limit 1')
        return await once(manager, 'token', pay('token'))
      })
    const lost: string[] = []
    const second = inTransaction().catch(async (error: Error) => {
      lost.push(error.name)
      return await inTransaction()
    })
    await untilBlocked(observer)
    first.goOn()
    const { answer } = (await first.call) as { answer: { id: number } }
    expect(await second).toEqual({ answer, replayed: true })
    expect(lost).toEqual(level === 'READ COMMITTED' ? [] : ['TransactionAbortedError'])
    expect(await payments()).toEqual({ token: 1 })
  })

  test('a call waits for the transaction that holds the token, and runs its own where that is rolled back', async () => {
    const [one, other] = twoOf(level)
    const queryRunner = one.createQueryRunner()
    await queryRunner.startTransaction()
    expect(await once(queryRunner.manager, 'token', pay('first'))).toMatchObject({ replayed: false })
    const second = once(other.manager, 'token', pay('second'))
    await untilBlocked(observer)
    await queryRunner.rollbackTransaction()
    await queryRunner.release()
    expect(await second).toMatchObject({ replayed: false })
    expect(await payments()).toEqual({ second: 1 })
  })

  test('the work runs once for each token, however many call from several pools', async () => {
    const tokens = ['token', 'b', 'c']
    const calls = (pools.get(level) ?? []).flatMap(({ manager }) =>
      Array.from({ length: 20 }, (_, nth) => ({ manager, token: tokens[nth % tokens.length] ?? '' })),
    )
    const results = await Promise.all(
      calls.map(async ({ manager, token }) => ({
        token,
        ...(await persist(() => once(manager, token, pay(token)))),
      })),
    )
    expect(await payments()).toEqual({ b: 1, c: 1, token: 1 })
    for (const token of tokens) {
      const ofToken = results.filter((result) => result.token === token)
      expect(ofToken.filter(({ replayed }) => !replayed)).toHaveLength(1)
      expect(new Set(ofToken.map(({ answer }) => answer.id)).size).toBe(1)
    }
    for (const { driver } of pools.get(level) ?? []) {
      const { totalCount, idleCount } = poolOf({ driver } as DataSource)
      expect(idleCount).toBe(totalCount)
    }
  })

  test('the work runs once for each token, where half of the work fails', async () => {
    let failures = 0
    const call = async (manager: EntityManager): Promise<boolean> => {
      const work = async (own: EntityManager): Promise<void> => {
        await pay('token')(own)
        failures += 1
        if (failures <= 5) throw new Error('no')
      }
      const result = persist(() => once(manager, 'token', work))
      return await result.then(({ replayed }) => !replayed).catch(() => false)
    }
    const calls = (pools.get(level) ?? []).flatMap(({ manager }) => Array.from({ length: 10 }, () => manager))
    const ran = await Promise.all(calls.map(call))
    expect(ran.filter(Boolean)).toHaveLength(1)
    expect(failures).toBeGreaterThanOrEqual(6)
    expect(await payments()).toEqual({ token: 1 })
  })

  test('a token that is taken over, or made, is not removed as expired', async () => {
    const [one, other] = twoOf(level)
    const first = await underWay(one.manager, pay('token'))
    expect(await removeExpiredTokens(other.manager)).toBe(0)
    first.goOn()
    await first.call
    expect(await removeExpiredTokens(other.manager)).toBe(0)
    expect(await once(other.manager, 'token', pay('token'))).toMatchObject({ replayed: true })
  })
})

test('tokens are removed beside calls that take them over, and the work of each runs again once', async () => {
  const all = pools.get('READ COMMITTED') ?? []
  const [one] = twoOf('READ COMMITTED')
  const tokens = Array.from({ length: 30 }, (_, nth) => `token ${nth}`)
  await Promise.all(tokens.map((token) => once(one.manager, token, () => 'old', { expires: '1 hour' })))
  await observer.query(`update once_tokens set expires_at = now() - interval '1 second'`)
  await Promise.all(
    all.map(async ({ manager }, nth) => {
      if (nth === 0) await removeExpiredTokens(manager, { batch: 3 })
      const calls = tokens.map((token) => once(manager, token, pay(token), { expires: '1 day' }))
      const answers = await Promise.all(calls)
      expect(answers.every(({ answer }) => typeof answer.id === 'number')).toBe(true)
    }),
  )
  expect(Object.values(await payments())).toEqual(tokens.map(() => 1))
  expect(await removeExpiredTokens(one.manager)).toBe(0)
})

test.each(LEVELS)(
  'two calls at %s with one token, whose hash another token has: the second gives the answer of the first',
  async (level) => {
    const [one, other] = twoOf(level)
    const [stored, token] = STEVENS
    await once(one.manager, stored, () => 'another')
    const [begun, held] = [gate(), gate()]
    const first = once(one.manager, token, async () => {
      begun.open()
      await held.passed
      return 'the first'
    })
    await begun.passed
    const second = once(other.manager, token, () => 'the second')
    await untilBlocked(observer)
    held.open()
    expect([await first, await second]).toEqual([
      { answer: 'the first', replayed: false },
      { answer: 'the first', replayed: true },
    ])
  },
)

test('a token that the guard refuses once, for another call was faster, is tried again', async () => {
  const [{ manager }] = twoOf('READ COMMITTED')
  const [stored, token] = STEVENS
  await once(manager, stored, () => 'another')
  await observer.query(`
    create sequence refusals;
    create function refuse_once() returns trigger language plpgsql as $$ begin
      if new.token_hash_number is null and nextval('refusals') = 1 then
        raise exception using errcode = '23505';
      end if;
      return new;
    end $$;
    create trigger a_refusal before insert on once_tokens for each row execute function refuse_once()`)
  expect(await once(manager, token, () => 'answer')).toEqual({ answer: 'answer', replayed: false })
  const { rows } = await observer.query('select last_value::int as tries from refusals')
  expect(rows).toEqual([{ tries: 2 }])
  await observer.query('drop trigger a_refusal on once_tokens')
})
