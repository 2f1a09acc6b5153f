import { BaseEntity, type EntityManager } from 'typeorm'
import { describe, expectTypeOf, test } from 'vitest'
import { once, tokenOf } from '../../src/once'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

declare const manager: EntityManager

class Row {
  id!: number
  name!: string | null
}

class Account extends BaseEntity {
  id!: number
}

interface Tree {
  readonly name: string
  readonly children: readonly Tree[]
}

type Json = string | number | boolean | null | Json[] | { [key: string]: Json }

describe('once', () => {
  test('takes an answer that JSON gives back, however deep', () => {
    void (() => once(manager, 'token', () => ({ id: 1, rows: [{ tags: ['a'], none: null, left: undefined }] })))
    void (() => once(manager, 'token', () => new Row()))
    void (() => once(manager, 'token', (): Tree => ({ name: 'root', children: [] })))
    void (() => once(manager, 'token', (): Json => ({ a: [1, null] })))
    void (() => once(manager, 'token', (): [string, number] => ['a', 1]))
    void (() => once(manager, 'token', (): { kind: 'a' } | { kind: 'b'; n?: number } => ({ kind: 'a' })))
    void (() => once(manager, 'token', (): Record<string, number> => ({ a: 1 })))
    // What it cannot know, it checks when the work has run.
    void (() => once(manager, 'token', async () => await manager.query('select 1')))
    void (() => once(manager, 'token', (): unknown => 1))
    void (() => once(manager, 'token', (): { nested: unknown } => ({ nested: 1 })))
  })

  test('refuses what JSON changes or drops, however deep', () => {
    // @ts-expect-error (a Date in an object in a list)
    void (() => once(manager, 'token', () => ({ rows: [{ at: new Date() }] })))
    // @ts-expect-error (an entity has methods)
    void (() => once(manager, 'token', () => new Account()))
    // @ts-expect-error (in an object too)
    void (() => once(manager, 'token', async () => await Promise.resolve({ account: new Account() })))
    // @ts-expect-error (a function)
    void (() => once(manager, 'token', () => ({ next: () => 1 })))
    // @ts-expect-error (a Map)
    void (() => once(manager, 'token', () => ({ map: new Map<string, number>() })))
    // @ts-expect-error (bytes)
    void (() => once(manager, 'token', () => Buffer.from('a')))
    // @ts-expect-error (a bigint, perhaps)
    void (() => once(manager, 'token', (): { id?: bigint | string } => ({})))
    // @ts-expect-error (a symbol)
    void (() => once(manager, 'token', () => [Symbol('s')]))
  })

  test('gives the type of the answer', async () => {
    expectTypeOf((await once(manager, 'token', () => ({ id: 1, at: 'now' }))).answer).toEqualTypeOf<{
      id: number
      at: string
    }>()
    expectTypeOf((await once(manager, 'token', (): Tree => ({ name: '', children: [] }))).answer).toEqualTypeOf<Tree>()
    expectTypeOf((await once(manager, 'token', async () => {})).answer).toEqualTypeOf<void>()
  })

  test('takes patience where it waits', () => {
    const how = 'refuse' as 'refuse' | 'wait'
    void (() => once(manager, 'token', () => 1, { whileRunning: how }))
    void (() => once(manager, 'token', () => 1, { patience: '5 seconds' }))
    void (() => once(manager, 'token', () => 1, { whileRunning: 'wait', patience: '1 minute' }))
    // @ts-expect-error (who refuses does not wait)
    void (() => once(manager, 'token', () => 1, { whileRunning: 'refuse', patience: '1 minute' }))
    // @ts-expect-error (no such unit)
    void (() => once(manager, 'token', () => 1, { patience: '5 ms' }))
  })
})

test('tokenOf gives an answer of an unknown type, or null', async () => {
  const found = await tokenOf(manager, 'token')
  expectTypeOf(found?.answer).toBeUnknown()
  expectTypeOf(found?.failed).toEqualTypeOf<boolean | undefined>()
})
