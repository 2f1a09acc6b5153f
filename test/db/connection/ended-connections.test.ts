import { type DataSource, QueryFailedError } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, insertOrFail, upsertByText } from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { poolOf, rejection } from '../../support/ledger'
import { Page } from '../../support/entities'

const db = useDatabase()
let dataSource: DataSource

beforeAll(async () => {
  dataSource = await db.dataSource([Page, OnceToken])
})

const url = 'a'

const CALLS: Readonly<Record<string, (from: DataSource) => Promise<unknown>>> = {
  findOrCreate: async ({ manager }) => await findOrCreate(manager, Page, { url }),
  findOneByText: async ({ manager }) => await findOneByText(manager, Page, { url }),
  findOrCreateMany: async ({ manager }) => await findOrCreateMany(manager, Page, [{ url }]),
  insertOrFail: async ({ manager }) => await insertOrFail(manager, Page, { url }),
  upsertByText: async ({ manager }) => await upsertByText(manager, Page, [{ url }]),
  'findOrCreate with relations': async ({ manager }) =>
    await findOrCreate(manager, Page, { url }, { relations: 'findOrCreate' }),
  once: async ({ manager }) => await once(manager, 'token', () => 1),
}

describe.each(Object.entries(CALLS))('%s that waits for a connection', (_, call) => {
  test.each([true, false])('when destroy() is called ends with an error, logged: %s', async (logging) => {
    const small = await db.dataSource([Page, OnceToken], {
      poolSize: 1,
      synchronize: false,
      logging,
      logger: 'debug',
    })
    const holding = small.createQueryRunner()
    await holding.connect()
    const waiting = rejection(call(small))
    while (poolOf(small).waitingCount === 0) await new Promise((go) => setImmediate(go))
    await small.destroy()
    expect(await waiting).toBeInstanceOf(Error)
  })
})

test('a client of the pool has a listener for its end from the moment it is taken', async () => {
  const pool = poolOf(dataSource) as unknown as {
    connect(done: (error: unknown, client: { listenerCount(event: string): number }, release: () => void) => void): void
  }
  const listeners = await new Promise<number>((resolve) => {
    pool.connect((_error, client, release) => {
      resolve(client.listenerCount('error'))
      release()
    })
  })
  expect(listeners).toBeGreaterThan(0)
})

test('a connection that was lost between two statements of a transaction is a QueryFailedError', async () => {
  const client = await db.client()
  const runner = dataSource.createQueryRunner()
  await runner.startTransaction()
  await findOrCreate(runner.manager, Page, { url: 'b' })
  const [{ pid }] = (await runner.query('SELECT pg_backend_pid() AS pid')) as [{ pid: number }]
  await client.query('SELECT pg_terminate_backend($1)', [pid])
  while (!runner.isReleased) await new Promise((go) => setImmediate(go))
  const error = await rejection(findOrCreate(runner.manager, Page, { url: 'c' }))
  expect(error).toBeInstanceOf(QueryFailedError)
  expect(error).toMatchObject({ driverError: { code: '57P01' } })
})

const REFUSES = `
  CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '57P03'; END $$;
  CREATE TRIGGER ends BEFORE INSERT ON page FOR EACH ROW WHEN (NEW.url = 'ends') EXECUTE FUNCTION ends()`

test.each([true, false])('a connection that the server is ending serves no next call, logged: %s', async (logging) => {
  const small = await db.dataSource([Page, OnceToken], { poolSize: 1, logging, logger: 'debug' })
  const pid = async (): Promise<unknown> => await small.query('SELECT pg_backend_pid()')
  await small.query(REFUSES)
  const before = await pid()
  await findOrCreate(small.manager, Page, { url: 'c' })
  expect(await pid()).toEqual(before)
  await rejection(findOrCreate(small.manager, Page, { url: 'ends' }))
  expect(await pid()).not.toEqual(before)
  await small.query('DROP FUNCTION ends CASCADE')
})
