import type { DataSource } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, TextRejectedError } from '../../../src'
import { once, OnceToken, TokenReusedError } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { STEVENS } from '../../support/md5-collisions'
import { rejection } from '../../support/ledger'

const Account = entity('Account', { email: text(), handle: text(), balance: column('integer', { default: 0 }) })

const db = useDatabase()
let runs = 0
const dataSource = db.useDataSource([Account, OnceToken])

beforeEach(async () => {
  runs = 0
})

const tokens = (): Promise<OnceToken[]> => dataSource.getRepository(OnceToken).find()

const create =
  (email: string, handle = email) =>
  async (manager: DataSource['manager']): Promise<{ id: number; created: boolean }> => {
    runs += 1
    const { entity, created } = await findOrCreate(manager, Account, { email, handle }, { by: 'email' })
    return { id: entity.id, created }
  }

test('the work runs once, and a repeated call gives its answer and says that it is a replay', async () => {
  const first = await once(dataSource.manager, 'token', create('a'))
  const second = await once(dataSource.manager, 'token', create('b'))
  expect(first).toEqual({ answer: { id: first.answer.id, created: true }, replayed: false })
  expect(second).toEqual({ answer: first.answer, replayed: true })
  expect(runs).toBe(1)
  expect(await dataSource.getRepository(Account).count()).toBe(1)
})

test('work that throws leaves no token, nothing that it wrote, and its own error', async () => {
  const failure = new Error('no money')
  const work = async (manager: DataSource['manager']): Promise<never> => {
    await create('a')(manager)
    throw failure
  }
  expect(await rejection(once(dataSource.manager, 'token', work))).toBe(failure)
  expect(await tokens()).toEqual([])
  expect(await dataSource.getRepository(Account).count()).toBe(0)
  expect(await once(dataSource.manager, 'token', create('a'))).toMatchObject({ replayed: false })
})

test('work that hides an error of the database leaves no token', async () => {
  const work = async (manager: DataSource['manager']): Promise<string> => {
    await create('a')(manager)
    await manager.query('select no_such_column').catch(() => {})
    return 'done'
  }
  expect(await rejection(once(dataSource.manager, 'token', work))).toMatchObject({ driverError: { code: '25P02' } })
  expect(await tokens()).toEqual([])
  expect(await dataSource.getRepository(Account).count()).toBe(0)
})

test('work that rolls back a transaction within its own goes on', async () => {
  const { answer } = await once(dataSource.manager, 'token', async (manager) => {
    await rejection(
      manager.transaction(async (inner) => {
        await create('a')(inner)
        throw new Error('no')
      }),
    )
    return await create('b')(manager)
  })
  expect(await dataSource.getRepository(Account).find()).toMatchObject([{ id: answer.id, email: 'b' }])
  expect(await once(dataSource.manager, 'token', create('c'))).toEqual({ answer, replayed: true })
})

test('whoever logs statements sees each of them, in their order', async () => {
  const logged: string[] = []
  const logger = loggerOf({
    logQuery: (sql: string) => void logged.push(sql.split(/[ \n]/)[0] ?? ''),
  })
  const heard = await db.dataSource([Account, OnceToken], { synchronize: false, logger })
  await once(heard.manager, 'first', () => 1)
  logged.length = 0
  await once(heard.manager, 'token', (manager) => manager.query('VALUES (1)'))
  expect(logged).toEqual(['START', 'WITH', 'VALUES', 'WITH', 'COMMIT'])
  logged.length = 0
  expect(await once(heard.manager, 'token', () => 2)).toMatchObject({ replayed: true })
  expect(logged).toEqual(['SELECT'])
})

test('it needs no prepared statements', async () => {
  const plain = await db.dataSource([Account, OnceToken], { synchronize: false }, { prepare: false })
  const first = await once(plain.manager, 'token', create('a'))
  expect(await once(dataSource.manager, 'token', create('b'))).toEqual({ ...first, replayed: true })
  expect(await rejection(once(plain.manager, 'other', () => 1n as never))).toBeInstanceOf(DeclarationError)
  expect(await tokens()).toHaveLength(1)
})

describe('a request', () => {
  test('of another content under the same token is refused, and the work does not run', async () => {
    await once(dataSource.manager, 'token', create('a'), { request: { email: 'a', more: [1, { b: 2, c: null }] } })
    const error = await rejection(once(dataSource.manager, 'token', create('b'), { request: { email: 'b' } }))
    expect(error).toBeInstanceOf(TokenReusedError)
    expect(error).toMatchObject({ code: 'TOKEN_REUSED' })
    expect(String(error)).not.toContain('token"')
    expect(runs).toBe(1)
  })

  test('differs from none', async () => {
    await once(dataSource.manager, 'with', create('a'), { request: 1 })
    await once(dataSource.manager, 'without', create('b'))
    await expect(once(dataSource.manager, 'with', create('a'))).rejects.toBeInstanceOf(TokenReusedError)
    await expect(once(dataSource.manager, 'without', create('b'), { request: null })).rejects.toBeInstanceOf(
      TokenReusedError,
    )
  })

  test('is the same whatever the order of its properties', async () => {
    await once(dataSource.manager, 'token', create('a'), { request: { a: 1, b: { c: 2, d: 3 }, e: undefined } })
    const again = await once(dataSource.manager, 'token', create('a'), { request: { b: { d: 3, c: 2 }, a: 1 } })
    expect(again.replayed).toBe(true)
  })

  test('that JSON does not hold is refused before any SQL', async () => {
    await expect(
      once(dataSource.manager, 'token', create('a'), { request: { at: new Date() } }),
    ).rejects.toBeInstanceOf(DeclarationError)
    expect(runs).toBe(0)
    expect(await tokens()).toEqual([])
  })
})

describe('a token', () => {
  test.each([
    ['that is empty', ''],
    ['with U+0000', 'a\0b'],
    ['with a lone surrogate', '\ud800'],
    ['that is no string', 7 as unknown as string],
    ['that is missing', undefined as unknown as string],
  ])('%s is refused before any SQL', async (_, token) => {
    await expect(once(dataSource.manager, token, create('a'))).rejects.toBeInstanceOf(TextRejectedError)
    expect(runs).toBe(0)
  })

  test('may be as long as a text can be', async () => {
    const long = Array.from({ length: 1 << 17 }, (_, place) => (place * 7919).toString(36).padStart(8, '-')).join('')
    await once(dataSource.manager, long, create('a'))
    expect(await once(dataSource.manager, long, create('b'))).toMatchObject({ replayed: true })
    expect(await once(dataSource.manager, `${long}.`, create('b'))).toMatchObject({ replayed: false })
  })

  test('of equal MD5 is another token', async () => {
    const [one, other] = STEVENS
    expect(await once(dataSource.manager, one, () => 1)).toEqual({ answer: 1, replayed: false })
    expect(await once(dataSource.manager, other, () => 2)).toEqual({ answer: 2, replayed: false })
    expect(await once(dataSource.manager, one, () => 3)).toEqual({ answer: 1, replayed: true })
    expect(await once(dataSource.manager, other, () => 3)).toEqual({ answer: 2, replayed: true })
  })
})

test('a DataSource without OnceToken says what is missing', async () => {
  const other = await db.dataSource([Account], { synchronize: false })
  await expect(once(other.manager, 'token', () => 1)).rejects.toThrow('OnceToken is not among the entities')
})

test('a second comparison of entities and table finds nothing to do', async () => {
  const { upQueries } = await dataSource.driver.createSchemaBuilder().log()
  expect(upQueries).toEqual([])
})
