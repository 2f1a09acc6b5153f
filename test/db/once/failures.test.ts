import type { EntityManager } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  AttemptsExhaustedError,
  DeclarationError,
  OnceFailedError,
  OnceRunningError,
  TokenReusedError,
  TransactionAbortedError,
} from '../../../src'
import { once, OnceToken, removeExpiredTokens, tokenOf } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { Payment } from '../../support/entities'
import { rejection } from '../../support/ledger'

const db = useDatabase()
const dataSource = db.useDataSource([Payment, OnceToken])
const plain = db.useDataSource([Payment, OnceToken], { synchronize: false, emptied: false }, { prepare: false })

const declined = new Error('no money')
const KEEP = { keepFailures: (error: unknown) => ({ reason: (error as Error).message }) }
const KEPT = { reason: 'no money' }

const fail = async (manager: EntityManager): Promise<never> => {
  await manager.insert(Payment, { token: 'undone' })
  throw declined
}
const late = (): string => 'a later one'
const payments = async (): Promise<string[]> =>
  (await dataSource.getRepository(Payment).find()).map(({ token }) => token)

test.each([
  ['', () => dataSource],
  [' without prepared statements', () => plain],
])('a failure is kept%s: its call throws the error, later ones what was kept of it', async (_, of) => {
  const { manager } = of()
  expect(await rejection(once(manager, 'token', fail, KEEP))).toBe(declined)
  const later = await rejection(once(manager, 'token', late))
  expect(later).toBeInstanceOf(OnceFailedError)
  expect(later).toMatchObject({ code: 'ONCE_FAILED', failure: KEPT })
  expect(await tokenOf(manager, 'token')).toEqual({ answer: KEPT, failed: true })
  expect(await payments()).toEqual([])
})

test('work that succeeds is answered as without the option', async () => {
  const pay = async (manager: EntityManager): Promise<string> => {
    await manager.insert(Payment, { token: 'paid' })
    return 'done'
  }
  expect(await once(dataSource.manager, 'token', pay, KEEP)).toEqual({ answer: 'done', replayed: false })
  expect(await once(dataSource.manager, 'token', late, KEEP)).toEqual({ answer: 'done', replayed: true })
  expect(await payments()).toEqual(['paid'])
})

test('a failure that is not to be kept leaves no token', async () => {
  expect(await rejection(once(dataSource.manager, 'token', fail, { keepFailures: () => undefined }))).toBe(declined)
  expect(await once(dataSource.manager, 'token', late)).toMatchObject({ replayed: false })
})

test('null is a failure that is kept', async () => {
  await rejection(once(dataSource.manager, 'token', fail, { keepFailures: () => null }))
  expect(await rejection(once(dataSource.manager, 'token', late))).toBeInstanceOf(OnceFailedError)
})

test('the failure of a statement is kept, and what was written before it is undone', async () => {
  const work = async (manager: EntityManager): Promise<void> => {
    await manager.insert(Payment, { token: 'undone' })
    await manager.query('select 1 / 0')
  }
  expect(await rejection(once(dataSource.manager, 'token', work, KEEP))).toMatchObject({
    driverError: { code: '22012' },
  })
  expect(await rejection(once(dataSource.manager, 'token', late))).toMatchObject({
    failure: { reason: 'division by zero' },
  })
  expect(await payments()).toEqual([])
})

test.each([new TransactionAbortedError(undefined), new OnceRunningError(), new AttemptsExhaustedError('token', 10, 1)])(
  '$name is not kept: another call may succeed',
  async (error) => {
    const throwing = (): never => {
      throw error
    }
    const failing = once(dataSource.manager, 'token', throwing, KEEP)
    expect(await rejection(failing)).toBe(error)
    expect(await once(dataSource.manager, 'token', late)).toMatchObject({ replayed: false })
  },
)

test('a serialization failure of a statement is not kept', async () => {
  const work = (manager: EntityManager): Promise<unknown> =>
    manager.query(`do $$ begin raise exception using errcode = '40001'; end $$`)
  expect(await rejection(once(dataSource.manager, 'token', work, KEEP))).toBeInstanceOf(TransactionAbortedError)
  expect(await tokenOf(dataSource.manager, 'token')).toBeNull()
})

test('a failure is not kept when the connection is lost, and the error is that of the work', async () => {
  const work = async (manager: EntityManager): Promise<never> => {
    const [{ pid } = { pid: 0 }] = (await manager.query('select pg_backend_pid() as pid')) as { pid: number }[]
    await plain.query('select pg_terminate_backend($1, 5000)', [pid])
    throw declined
  }
  expect(await rejection(once(dataSource.manager, 'token', work, KEEP))).toBe(declined)
  expect(await tokenOf(plain.manager, 'token')).toBeNull()
})

test('an answer that JSON cannot represent is refused before the commit', async () => {
  const answer = once<unknown>(dataSource.manager, 'token', () => new Date(), KEEP)
  expect(await rejection(answer)).toBeInstanceOf(DeclarationError)
  expect(await tokenOf(dataSource.manager, 'token')).toBeNull()
})

const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)])

test.each<[string, (error: unknown) => unknown]>([
  ['returns what JSON cannot represent', (error) => error],
  ['returns what is nested too deep', () => deep(501)],
  ['throws', () => expect.unreachable('of the callback')],
  ['is async', async () => await Promise.resolve({ reason: 'x' })],
  ['is async and throws', async () => await Promise.reject(new Error('of the callback'))],
])('the error of the work is thrown where keepFailures %s, and nothing is stored', async (_, keepFailures) => {
  expect(await rejection(once(dataSource.manager, 'token', fail, { keepFailures }))).toBe(declined)
  expect(await tokenOf(dataSource.manager, 'token')).toBeNull()
  expect(await payments()).toEqual([])
  expect(await once(dataSource.manager, 'token', late)).toEqual({ answer: 'a later one', replayed: false })
})

test('a kept failure is of its request, and expires', async () => {
  const options = { ...KEEP, request: 1, expires: '1 hour' } as const
  await rejection(once(dataSource.manager, 'token', fail, options))
  expect(await rejection(once(dataSource.manager, 'token', late, { request: 2 }))).toBeInstanceOf(TokenReusedError)
  expect(await rejection(once(dataSource.manager, 'token', late, { request: 1 }))).toBeInstanceOf(OnceFailedError)
  await dataSource.query(`update once_tokens set expires_at = now() - interval '1 second'`)
  expect(await once(dataSource.manager, 'token', late)).toEqual({ answer: 'a later one', replayed: false })
  expect(await tokenOf(dataSource.manager, 'token')).toEqual({ answer: 'a later one', failed: false })
  expect(await removeExpiredTokens(dataSource.manager)).toBe(0)
})

test('copies in one process run failing work once', async () => {
  let runs = 0
  const work = (): never => {
    runs += 1
    throw declined
  }
  const errors = await Promise.all(
    Array.from({ length: 10 }, () => rejection(once(dataSource.manager, 'token', work, KEEP))),
  )
  expect(runs).toBe(1)
  expect(errors.filter((error) => error instanceof OnceFailedError)).toHaveLength(9)
})

describe("in the caller's transaction", () => {
  test.each([
    ['by TypeORM', (run: (manager: EntityManager) => Promise<void>) => dataSource.transaction(run)],
    [
      'by SQL',
      async (run: (manager: EntityManager) => Promise<void>) => {
        const queryRunner = dataSource.createQueryRunner()
        await queryRunner.query('BEGIN')
        await run(queryRunner.manager)
        await queryRunner.query('COMMIT')
        await queryRunner.release()
      },
    ],
  ])('%s a failure is kept if the caller commits', async (_, inTransaction) => {
    await inTransaction(async (manager) => {
      await manager.insert(Payment, { token: 'before' })
      expect(await rejection(once(manager, 'token', fail, KEEP))).toBe(declined)
      expect(await rejection(once(manager, 'token', late))).toBeInstanceOf(OnceFailedError)
      await manager.insert(Payment, { token: 'after' })
    })
    expect(await tokenOf(dataSource.manager, 'token')).toEqual({ answer: KEPT, failed: true })
    expect(await payments()).toEqual(['before', 'after'])
  })

  test('a failure goes with the transaction when that is rolled back', async () => {
    const outer = dataSource.transaction((manager) => once(manager, 'token', fail, KEEP))
    expect(await rejection(outer)).toBe(declined)
    expect(await tokenOf(dataSource.manager, 'token')).toBeNull()
  })
})
