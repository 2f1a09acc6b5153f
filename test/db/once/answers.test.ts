import { describe, expect, expectTypeOf, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

const db = useDatabase()
const dataSource = db.useDataSource([OnceToken])

const count = (): Promise<number> => dataSource.getRepository(OnceToken).count()

describe('an answer', () => {
  test.each([
    ['nothing', undefined],
    ['null', null],
    ['false', false],
    ['the empty text', ''],
    ['-0', -0],
    ['the smallest number', 5e-324],
    ['the largest number', Number.MAX_VALUE],
    ['U+0000, lone surrogates and quotes', '\0 \ud800 \udc00\ud800 " \\ \u2028 é 😀'],
    ['keys in an order', { b: 1, a: { 10: 1, 9: 2, ['__proto__']: 3 }, '': [] }],
    ['a list of lists', [[[]], [null, {}]]],
  ])('that is %s comes back as it was, from the first call and from the next', async (_, answer) => {
    const first = await once<unknown>(dataSource.manager, 'token', () => answer)
    const second = await once<unknown>(dataSource.manager, 'token', () => 'another')
    expect(first).toStrictEqual({ answer, replayed: false })
    expect(second).toStrictEqual({ answer, replayed: true })
    expect(JSON.stringify(second.answer)).toBe(JSON.stringify(answer))
    expect(Object.is(second.answer, first.answer) || typeof answer === 'object').toBe(true)
  })

  test('is what it was when the work ended, whatever becomes of the object', async () => {
    const object = { n: 1 }
    const { answer } = await once(dataSource.manager, 'token', () => object)
    object.n = 2
    expect(answer).toEqual({ n: 1 })
  })

  test('lacks properties that are undefined, in the first call too', async () => {
    const first = await once<object>(dataSource.manager, 'token', () => ({ a: 1, b: undefined }))
    expect(first.answer).toStrictEqual({ a: 1 })
    expect((await once<object>(dataSource.manager, 'token', () => ({}))).answer).toStrictEqual({ a: 1 })
  })

  test.each<[string, unknown]>([
    ['undefined in a list', [undefined]],
    ['NaN', { n: Number.NaN }],
    ['Infinity', Number.NEGATIVE_INFINITY],
    ['a BigInt', { id: 1n }],
    ['a Date', { at: new Date(0) }],
    ['a Map', new Map()],
    ['an entity', Object.assign(new OnceToken(), { id: '1' })],
    ['a function', () => 1],
    ['a symbol', Symbol('s')],
  ])('with %s is refused before the commit, and nothing is stored', async (_, answer) => {
    expect(await rejection(once(dataSource.manager, 'token', () => answer))).toBeInstanceOf(DeclarationError)
    expect(await count()).toBe(0)
  })

  test('that holds itself is refused before the commit', async () => {
    const circle: { self?: unknown } = {}
    circle.self = circle
    expect(await rejection(once(dataSource.manager, 'token', () => circle))).toBeInstanceOf(DeclarationError)
    expect(await count()).toBe(0)
  })

  test('that is too deep for the database is refused before the commit', async () => {
    let deep: unknown = null
    for (let level = 0; level < 50_000; level += 1) deep = [deep]
    expect(await rejection(once(dataSource.manager, 'token', () => deep))).toBeInstanceOf(Error)
    expect(await count()).toBe(0)
  })

  test('may be large', async () => {
    const answer = Array.from({ length: 100_000 }, (_, n) => ({ n, text: `text ${n}` }))
    await once(dataSource.manager, 'token', () => answer)
    expect((await once(dataSource.manager, 'token', () => [])).answer).toEqual(answer)
  })

  test('has the type that the work gives', async () => {
    const promised = await once(dataSource.manager, 'one', () => Promise.resolve({ id: 1 }))
    expectTypeOf(promised.answer).toEqualTypeOf<{ id: number }>()
    const plain = await once(dataSource.manager, 'two', () => 'text')
    expectTypeOf(plain.answer).toEqualTypeOf<string>()
    const none = await once(dataSource.manager, 'three', async () => {})
    expectTypeOf(none.answer).toEqualTypeOf<void>()
    expectTypeOf(none.replayed).toEqualTypeOf<boolean>()
  })
})

describe('a token that expires', () => {
  const expiry = async (): Promise<string> => {
    const [row] = (await dataSource.query(`select (expires_at - answered_at)::text as left from once_tokens`)) as [
      { left: string },
    ]
    return row.left
  }
  const expire = async (): Promise<void> => {
    await dataSource.query(`update once_tokens set expires_at = now() - interval '1 second'`)
  }

  test('does so a duration after its answer, or at a time', async () => {
    await once(dataSource.manager, 'token', () => 1, { expires: '90 minutes' })
    expect(await expiry()).toBe('01:30:00')
    await dataSource.query('truncate once_tokens')
    const at = new Date(Date.now() + 3_600_000)
    await once(dataSource.manager, 'token', () => 1, { expires: at })
    expect(await dataSource.getRepository(OnceToken).find()).toMatchObject([{ expiresAt: at }])
  })

  test('may do so at any time that a Date has', async () => {
    for (const at of [new Date('9999-12-31T23:59:59.999Z'), new Date('+010000-01-01T00:00:00Z'), new Date(8.64e15)]) {
      await dataSource.query('truncate once_tokens')
      await once(dataSource.manager, 'token', () => 1, { expires: at })
      const seconds = `select extract(epoch from expires_at)::text as at from once_tokens`
      const [row] = (await dataSource.query(seconds)) as [{ at: string }]
      expect(Number(row.at) * 1000).toBe(at.getTime())
    }
  })

  test('never does so without the option', async () => {
    await once(dataSource.manager, 'token', () => 1)
    expect(await dataSource.getRepository(OnceToken).find()).toMatchObject([{ expiresAt: null }])
  })

  test('runs its work again, whatever the request was, and has the new answer', async () => {
    await once(dataSource.manager, 'token', () => 1, { expires: '1 hour', request: 'a' })
    await expire()
    await dataSource.query(`update once_tokens set created_at = '2020-01-01'`)
    expect(await once(dataSource.manager, 'token', () => 2, { request: 'b' })).toEqual({ answer: 2, replayed: false })
    expect(await once(dataSource.manager, 'token', () => 3, { request: 'b' })).toEqual({ answer: 2, replayed: true })
    const [stored] = await dataSource.getRepository(OnceToken).find()
    expect(stored).toMatchObject({ expiresAt: null, answer: 2 })
    expect(Number(stored?.createdAt)).toBeGreaterThan(Date.parse('2020-01-02'))
  })

  test('stays expired where the new work fails', async () => {
    await once(dataSource.manager, 'token', () => 1, { expires: '1 hour' })
    await expire()
    await rejection(once(dataSource.manager, 'token', () => Promise.reject(new Error('no'))))
    expect(await dataSource.getRepository(OnceToken).find()).toMatchObject([{ answer: 1 }])
    expect(await removeExpiredTokens(dataSource.manager)).toBe(1)
  })

  test('is removed in batches, and no other is', async () => {
    const tokens = Array.from({ length: 7 }, (_, nth) => `token ${nth}`)
    for (const token of tokens) await once(dataSource.manager, token, () => 1, { expires: '1 hour' })
    await expire()
    await once(dataSource.manager, 'later', () => 1, { expires: '1 hour' })
    await once(dataSource.manager, 'never', () => 1)
    expect(await removeExpiredTokens(dataSource.manager, { batch: 3 })).toBe(7)
    expect(await removeExpiredTokens(dataSource.manager)).toBe(0)
    expect(await count()).toBe(2)
  })

  test.each<[string, unknown]>([
    ['no duration', 'soon'],
    ['a number', 5],
    ['no date', new Date(Number.NaN)],
    ['in the past', new Date(0)],
    ['null', null],
  ])('is refused where "expires" is %s', async (_, expires) => {
    const call = once(dataSource.manager, 'token', () => 1, { expires: expires as Date })
    expect(await rejection(call)).toBeInstanceOf(DeclarationError)
  })

  test.each([0, -1, 1.5, '10', Number.NaN])('is not removed in batches of %s', async (batch) => {
    const call = removeExpiredTokens(dataSource.manager, { batch: batch as number })
    expect(await rejection(call)).toBeInstanceOf(DeclarationError)
  })
})
