import { EventEmitter, once } from 'node:events'
import type { Client } from 'pg'
import { type EntityManager, QueryFailedError, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { findOrCreate, findOrCreateMany, TransactionAbortedError } from '../../../src'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { Page } from '../../support/entities'

const Query = entity('Query', { sql: text() })

const { hooks, QuerySubscriber } = await vi.hoisted(() => import('../../support/query-subscriber'))

const db = useDatabase()
// One connection, so that the next transaction gets that of the last one.
const dataSource = db.useDataSource([Page, Query], {
  emptied: false,
  subscribers: [QuerySubscriber],
  extra: { max: 1 },
})

beforeAll(async () => {
  await findOrCreate(dataSource.manager, Page, { url: 'the tables are known to be ready' })
  await findOrCreate(dataSource.manager, Query, { sql: '' })
})
afterEach(() => {
  hooks.before = undefined
  hooks.after = undefined
})

const stored = (url: string): Promise<number> => dataSource.manager.countBy(Page, { url })

describe('a call that is under way when its transaction ends stores nothing', () => {
  test('where the rollback is on its way', async () => {
    const calls: Promise<unknown>[] = []
    const failed = dataSource.transaction(async (manager) => {
      for (let index = 0; index < 5; index += 1) calls.push(rejection(findOrCreate(manager, Page, { url: 'late' })))
      await Promise.reject(new Error('of the caller'))
    })
    await expect(failed).rejects.toThrow('of the caller')
    for (const error of await Promise.all(calls)) {
      expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED', message: expect.stringContaining('await every call') })
    }
    expect(await stored('late')).toBe(0)
  })

  test('where a nested transaction is rolled back', async () => {
    await dataSource.transaction(async (outer) => {
      let call: Promise<unknown> | undefined
      const failed = outer.transaction(async (inner) => {
        call = rejection(findOrCreate(inner, Page, { url: 'nested' }))
        await Promise.reject(new Error('of the caller'))
      })
      await expect(failed).rejects.toThrow('of the caller')
      expect(await call).toBeInstanceOf(TransactionAbortedError)
      expect(await findOrCreate(outer, Page, { url: 'after it' })).toMatchObject({ created: true })
    })
    expect(await stored('nested')).toBe(0)
    expect(await stored('after it')).toBe(1)
  })

  test('where the connection serves another transaction by now', async () => {
    const hooked = new EventEmitter()
    const told = once(hooked, 'told')
    hooks.before = async ({ parameters }) => {
      if (!parameters?.includes('overtaken')) return
      hooks.before = undefined
      const goes = once(hooked, 'go')
      hooked.emit('told')
      await goes
    }
    let call: Promise<unknown> | undefined
    await dataSource.transaction(async (manager) => {
      call = rejection(findOrCreate(manager, Page, { url: 'overtaken' }))
      await told
    })
    await dataSource.transaction(async (another) => {
      await another.count(Page)
      hooked.emit('go')
      expect(await call).toBeInstanceOf(QueryRunnerAlreadyReleasedError)
    })
    expect(await stored('overtaken')).toBe(0)
  })
})

test.each(['before', 'after'] as const)('a subscriber that stores what it hears %s a query ends', async (when) => {
  let busy = false
  const store = async (manager: EntityManager, sql: string): Promise<void> => {
    if (busy) return
    busy = true
    await findOrCreate(manager, Query, { sql }).finally(() => (busy = false))
  }
  hooks[when] = async ({ manager, query }) => {
    await store(manager, query)
  }
  await dataSource.transaction(async (manager) => {
    await findOrCreate(manager, Page, { url: `heard ${when}` })
    await findOrCreateMany(manager, Page, [{ url: `heard ${when}, in bulk` }])
  })
  expect(await stored(`heard ${when}`)).toBe(1)
  const failed = dataSource.transaction(async (manager) => {
    await findOrCreate(manager, Page, { url: `undone ${when}` })
    throw new Error('of the caller')
  })
  await expect(failed).rejects.toThrow('of the caller')
  // Were the rollback kept from the server, this would commit what it should undo.
  await dataSource.transaction((manager) => manager.count(Page))
  expect(await stored(`undone ${when}`)).toBe(0)
})

test('a savepoint that was never set is not rolled back to', async () => {
  const blocker = await db.client()
  await blocker.query('SELECT pg_advisory_lock(1)')
  const hurried = await db.dataSource([Page], { synchronize: false, extra: { query_timeout: 500 } })
  await findOrCreate(hurried.manager, Page, { url: 'known to be ready' })
  await hurried.transaction(async (manager) => {
    await manager.insert(Page, { url: 'kept' })
    const client = (await manager.queryRunner?.connect()) as Client
    // What is sent for the savepoint waits in the driver's queue, and is taken out of it when its time is over.
    const slow = rejection(manager.query('SELECT pg_advisory_xact_lock(1)'))
    const call = rejection(findOrCreateMany(manager, Page, [{ url: 'too slow' }]))
    const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown
    Object.assign(client, {
      query: (...args: readonly unknown[]): unknown => {
        // Were it asked for, it should reach the server.
        if (args[0] === 'ROLLBACK TO SAVEPOINT typeorm_unique_text') void blocker.query('SELECT pg_advisory_unlock(1)')
        return query(...args)
      },
    })
    expect(await call).toBeInstanceOf(QueryFailedError)
    expect(await slow).toBeInstanceOf(QueryFailedError)
    Reflect.deleteProperty(client, 'query')
    await blocker.query('SELECT pg_advisory_unlock_all()')
    expect(await findOrCreate(manager, Page, { url: 'kept' })).toMatchObject({ created: false })
  })
  expect(await stored('kept')).toBe(1)
  expect(await stored('too slow')).toBe(0)
})
