import type { Pool } from 'pg'
import type { DataSource, EntityManager } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, OnceRunningError } from '../../../src'
import { once, type OnceOptions, OnceToken, tokenOf } from '../../../src/once'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { Payment } from '../../support/entities'
import { gate } from '../../support/gate'
import { poolOf, rejection } from '../../support/ledger'
import { loggerOf } from '../../support/logger'
import { STEVENS } from '../../support/md5-collisions'
import { LEVELS } from '../../support/sessions'

const db = useDatabase()
const entities = [Payment, OnceToken]
/** As three processes have them: nothing of ours is shared by two of them. */
const first = db.useDataSource(entities, { poolSize: 3 })
const second = db.useDataSource(entities, { synchronize: false, emptied: false, poolSize: 3 })
const third = db.useDataSource(entities, { synchronize: false, emptied: false, poolSize: 3 })
const observer = db.useClient()

const REFUSE = { whileRunning: 'refuse' } as const
const BRIEF = { patience: '1 second' } as const

/** Work that has begun, and ends when it is let. */
async function underWay(manager: EntityManager, token = 'token', fails?: Error, options: OnceOptions = {}) {
  const [begun, ended] = [gate(), gate()]
  const work = async (): Promise<string> => {
    begun.open()
    await ended.passed
    if (fails) throw fails
    return 'the first'
  }
  const call = once(manager, token, work, options)
  call.catch(() => {})
  await begun.passed
  return { call, end: ended.open }
}

let runs = 0
const late = (): string => {
  runs += 1
  return 'a later one'
}
beforeEach(() => {
  runs = 0
})

const expire = async (): Promise<void> => {
  await once(first.manager, 'token', () => 'old', { expires: '1 hour' })
  await observer.query(`update once_tokens set expires_at = now() - interval '1 second'`)
}
const starts = [
  ['no token', async (): Promise<void> => {}],
  ['an expired token', expire],
] as const

const timeoutOf = async (manager: EntityManager): Promise<string | undefined> =>
  (await manager.query<{ lock_timeout: string }[]>('show lock_timeout'))[0]?.lock_timeout

describe.each(starts)('while another process works for the token, where there was %s,', (there, start) => {
  beforeEach(start)

  test('a call that refuses throws, and replays when the work has ended', async () => {
    const { call, end } = await underWay(first.manager)
    const error = await rejection(once(second.manager, 'token', late, REFUSE))
    expect(error).toBeInstanceOf(OnceRunningError)
    expect(error).toMatchObject({ code: 'ONCE_RUNNING' })
    end()
    await call
    expect(await once(second.manager, 'token', late, REFUSE)).toEqual({ answer: 'the first', replayed: true })
    expect(runs).toBe(0)
  })

  test('a call that refuses throws behind one that waits', async () => {
    const { call, end } = await underWay(first.manager)
    const waits = once(second.manager, 'token', late)
    await untilBlocked(observer)
    expect(await rejection(once(third.manager, 'token', late, REFUSE))).toBeInstanceOf(OnceRunningError)
    end()
    await call
    expect(await waits).toEqual({ answer: 'the first', replayed: true })
  })

  test('a call that refuses runs its own work once that of the other has failed', async () => {
    const { call, end } = await underWay(first.manager, 'token', new Error('no'))
    expect(await rejection(once(second.manager, 'token', late, REFUSE))).toBeInstanceOf(OnceRunningError)
    end()
    await rejection(call)
    expect(await once(second.manager, 'token', late, REFUSE)).toEqual({ answer: 'a later one', replayed: false })
  })

  test('a call with patience replays if the work ends in time', async () => {
    const { call, end } = await underWay(first.manager)
    const waits = once(second.manager, 'token', late, { patience: '1 minute' })
    await untilBlocked(observer)
    end()
    await call
    expect(await waits).toEqual({ answer: 'the first', replayed: true })
  })

  test('a call whose patience ends throws', async () => {
    const { call, end } = await underWay(first.manager)
    expect(await rejection(once(second.manager, 'token', late, BRIEF))).toBeInstanceOf(OnceRunningError)
    end()
    await call
    expect(runs).toBe(0)
  })

  // The wait takes a second, and is the same whatever was there.
  const both = there === 'no token' ? [REFUSE, BRIEF] : [REFUSE]
  test.each(LEVELS.flatMap((level) => both.map((options) => [level, options] as const)))(
    "a caller's transaction at %s stays usable after %j has thrown",
    async (level, options) => {
      const { call, end } = await underWay(first.manager)
      await second.transaction(level, async (manager) => {
        await manager.insert(Payment, { token: 'before' })
        await manager.query(`set local lock_timeout = '7s'`)
        expect(await rejection(once(manager, 'token', late, options))).toBeInstanceOf(OnceRunningError)
        expect(await timeoutOf(manager)).toBe('7s')
        await manager.insert(Payment, { token: 'after' })
      })
      end()
      await call
      expect(await second.manager.count(Payment)).toBe(2)
      expect(runs).toBe(0)
    },
  )

  test('a transaction that the caller began by SQL stays usable, too', async () => {
    const { call, end } = await underWay(first.manager)
    const queryRunner = second.createQueryRunner()
    await queryRunner.query('BEGIN')
    expect(await rejection(once(queryRunner.manager, 'token', late, REFUSE))).toBeInstanceOf(OnceRunningError)
    await queryRunner.manager.insert(Payment, { token: 'after' })
    await queryRunner.query('COMMIT')
    await queryRunner.release()
    end()
    await call
    expect(await second.manager.count(Payment)).toBe(1)
  })
})

test.each([REFUSE, BRIEF])(
  'with %j the work and what follows it have the lock_timeout of the caller',
  async (options) => {
    let inside: (string | undefined)[] = []
    const work = async (manager: EntityManager): Promise<void> => {
      inside = [...inside, await timeoutOf(manager)]
    }
    const [stored, colliding] = STEVENS
    for (const token of [stored, colliding, 'other']) await once(first.manager, token, work, options)
    await observer.query(`update once_tokens set expires_at = now() - interval '1 second'`)
    await first.transaction(async (manager) => {
      await manager.query(`set local lock_timeout = '7s'`)
      for (const token of [colliding, 'other', 'new']) await once(manager, token, work, options)
      expect(await timeoutOf(manager)).toBe('7s')
    })
    expect(inside).toEqual(['0', '0', '0', '7s', '7s', '7s'])
  },
)

test('a call that refuses waits for nothing but a call with its token', async () => {
  const [stored, colliding] = STEVENS
  const { call, end } = await underWay(first.manager, stored)
  expect(await once(second.manager, 'another', late, REFUSE)).toMatchObject({ replayed: false })
  end()
  await call
  const other = await underWay(first.manager, colliding)
  expect(await rejection(once(second.manager, colliding, late, REFUSE))).toBeInstanceOf(OnceRunningError)
  expect(await once(second.manager, stored, late, REFUSE)).toMatchObject({ replayed: true })
  other.end()
  await other.call
})

test('a call that refuses takes a wait for anything else for no sign of work, and tries again', async () => {
  await observer.query(`alter table once_tokens add slow text default pg_advisory_xact_lock_shared(7)::text`)
  await observer.query('select pg_advisory_lock(7)')
  let failures = 0
  let goOn: Promise<unknown> = Promise.resolve()
  const logger = loggerOf({
    logQueryError: () => {
      failures += 1
      goOn = observer.query('select pg_advisory_unlock(7)')
    },
  })
  const heard = await db.dataSource(entities, { synchronize: false, logger })
  expect(await once(heard.manager, 'token', late, REFUSE)).toMatchObject({ replayed: false })
  await goOn
  expect(failures).toBeGreaterThan(0)
  await observer.query('alter table once_tokens drop slow')
})

test('an end of the work that comes while others refuse is seen by the next call', async () => {
  for (let round = 0; round < 30; round += 1) {
    const token = `token ${round}`
    const { call, end } = await underWay(first.manager, token)
    const others = [second, third].map(async ({ manager }) => {
      const result = await once(manager, token, late, REFUSE).catch((error: unknown) => error)
      return result instanceof OnceRunningError || (result as { answer: string }).answer === 'the first'
    })
    end()
    const [, ...seen] = await Promise.all([call, ...others])
    expect(seen).toEqual([true, true])
    expect(await once(second.manager, token, late, REFUSE)).toEqual({ answer: 'the first', replayed: true })
  }
  expect(runs).toBe(0)
})

test.each([{ prepare: false }, { prepare: true }])('it works with %j', async (settings) => {
  const { call, end } = await underWay(first.manager)
  const plain = await db.dataSource(entities, { synchronize: false }, settings)
  expect(await rejection(once(plain.manager, 'token', late, REFUSE))).toBeInstanceOf(OnceRunningError)
  expect(await once(plain.manager, 'other', late, REFUSE)).toMatchObject({ replayed: false })
  end()
  await call
})

describe('in one process', () => {
  const inUse = ({ driver }: DataSource): number => {
    const { totalCount, idleCount, waitingCount } = poolOf({ driver } as DataSource) as unknown as Pool
    return totalCount - idleCount + waitingCount
  }

  test('copies refuse at once, and leave the connection of the first as the only one in use', async () => {
    const { call, end } = await underWay(first.manager)
    const copies = Array.from({ length: 50 }, () => rejection(once(first.manager, 'token', late, REFUSE)))
    for (const error of await Promise.all(copies)) expect(error).toBeInstanceOf(OnceRunningError)
    expect(inUse(first)).toBe(1)
    end()
    expect(await call).toEqual({ answer: 'the first', replayed: false })
    expect(await once(first.manager, 'token', late, REFUSE)).toMatchObject({ replayed: true })
  })

  test('a copy whose patience ends throws; one that is more patient gets the answer', async () => {
    const { call, end } = await underWay(first.manager)
    const patient = once(first.manager, 'token', late, { patience: '1 hour' })
    expect(await rejection(once(first.manager, 'token', late, BRIEF))).toBeInstanceOf(OnceRunningError)
    expect(inUse(first)).toBe(1)
    end()
    await call
    expect(await patient).toEqual({ answer: 'the first', replayed: true })
  })

  test.each([
    ['a new token', async () => {}],
    ['an expired token', expire],
  ])('patience ends the wait for a connection, too, with %s, and the work does not run later', async (_, start) => {
    const narrow = await db.dataSource(entities, { synchronize: false, poolSize: 1 })
    await start()
    await once(narrow.manager, 'first use', () => 1)
    runs = 0
    await narrow.transaction(async () => {
      const calls = Array.from({ length: 5 }, () => rejection(once(narrow.manager, 'token', late, BRIEF)))
      for (const error of await Promise.all(calls)) expect(error).toBeInstanceOf(OnceRunningError)
    })
    await expect.poll(() => inUse(narrow)).toBe(0)
    expect(runs).toBe(0)
    expect(await once(narrow.manager, 'token', late, { patience: '100 years' })).toMatchObject({ replayed: false })
  })

  test('a second call in the same transaction waits for the first and replays, for there is nothing to refuse', async () => {
    const results = await first.transaction((manager) =>
      Promise.all([once(manager, 'token', () => 'one', REFUSE), once(manager, 'token', () => 'two', REFUSE)]),
    )
    expect(results).toEqual([
      { answer: 'one', replayed: false },
      { answer: 'one', replayed: true },
    ])
  })
})

test.each([
  [{ whileRunning: 'refuse', patience: '1 second' }],
  [{ whileRunning: 'no' }],
  [{ patience: 'long' }],
  [{ patience: 5 }],
  [{ patience: '0 seconds' }],
  [{ keepFailures: true }],
])('the options %j are refused before any SQL', async (options) => {
  expect(await rejection(once(first.manager, 'token', late, options as never))).toBeInstanceOf(DeclarationError)
  expect(runs).toBe(0)
})

describe('tokenOf', () => {
  test('gives the answer, and null before there is one and after it has expired', async () => {
    expect(await tokenOf(first.manager, 'token')).toBeNull()
    const { call, end } = await underWay(first.manager, 'token', undefined, { request: 1, expires: '1 hour' })
    expect(await tokenOf(first.manager, 'token')).toBeNull()
    expect(await tokenOf(second.manager, 'token')).toBeNull()
    end()
    await call
    expect(await tokenOf(second.manager, 'token')).toEqual({ answer: 'the first', failed: false })
    await observer.query(`update once_tokens set expires_at = now() - interval '1 second'`)
    expect(await tokenOf(second.manager, 'token')).toBeNull()
  })

  test('gives undefined for the answer of work that returned nothing', async () => {
    await once(first.manager, 'token', () => {})
    expect(await tokenOf(first.manager, 'token')).toEqual({ answer: undefined, failed: false })
  })

  test('inside the work for the token gives null, as the work has no answer yet', async () => {
    const { answer } = await once(first.manager, 'token', async (manager) => (await tokenOf(manager, 'token')) === null)
    expect(answer).toBe(true)
  })
})
