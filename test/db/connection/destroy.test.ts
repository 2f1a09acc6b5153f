import type { Pool, PoolClient } from 'pg'
import type { DataSource } from 'typeorm'
import { describe, expect, test, vi } from 'vitest'
import {
  DataSourceDestroyedError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TextTakenError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { adopt } from '../../../src/adopt'
import { doctor } from '../../../src/doctor'
import { once, OnceToken } from '../../../src/once'
import { findOrCreateStream, findOrCreateTransform } from '../../../src/stream'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const db = useDatabase()

const Page = entity('Page', { url: text(), title: column('varchar', { length: 10, nullable: true }) })

interface Driver {
  readonly master: Pool
  readonly connectedQueryRunners: unknown[]
}

const driverOf = ({ driver }: DataSource): Driver => driver as unknown as Driver

// It makes the tables. No call of the tests comes to do anything.
db.useDataSource([Page, OnceToken], { emptied: false })

/** A pool on which the tables were found ready. */
async function open(max: number, options: Parameters<typeof db.dataSource>[1] = {}): Promise<DataSource> {
  const dataSource = await db.dataSource([Page, OnceToken], { synchronize: false, extra: { max }, ...options })
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
  await once(dataSource.manager, 'first', () => 1)
  return dataSource
}

const URLS = [{ url: 'first' }, { url: 'next' }]

/** What asks for a connection of the pool. */
const calls: Record<string, (dataSource: DataSource) => Promise<unknown>> = {
  findOrCreate: async ({ manager }) => await findOrCreate(manager, Page, { url: 'next' }),
  findOneByText: async ({ manager }) => await findOneByText(manager, Page, { url: 'first' }),
  findOrCreateMany: async ({ manager }) => await findOrCreateMany(manager, Page, URLS),
  insertOrFail: async ({ manager }) => await insertOrFail(manager, Page, { url: 'next' }),
  'insertOrFail of many': async ({ manager }) => await insertOrFail(manager, Page, URLS),
  updateOrFail: async ({ manager }) => await updateOrFail(manager, Page, { id: 1 }, { url: 'next' }),
  upsertByText: async ({ manager }) => await upsertByText(manager, Page, { url: 'next' }),
  'once, of a known token': async ({ manager }) => await once(manager, 'first', () => 1),
  'once, of a new token': async ({ manager }) => await once(manager, 'next', () => 1),
  findOrCreateStream: async (dataSource) => {
    for await (const result of findOrCreateStream(dataSource, Page, URLS)) expect(result).toBeDefined()
  },
  findOrCreateTransform: async (dataSource) => {
    const transform = findOrCreateTransform(dataSource, Page)
    transform.write(URLS[1])
    transform.end()
    await transform.toArray()
  },
  doctor: async (dataSource) => await doctor(dataSource),
  adopt: async (dataSource) => await adopt(dataSource, Page),
  dropDatabase: async (dataSource) => await dataSource.dropDatabase(),
  'find of TypeORM, by the text': async ({ manager }) => await manager.findOneBy(Page, { url: 'first' }),
  'transaction of TypeORM': async ({ manager }) =>
    await manager.transaction(async (own) => await findOrCreate(own, Page, { url: 'next' })),
}

async function holdAll({ master }: Driver): Promise<PoolClient[]> {
  return await Promise.all(Array.from({ length: master.options.max }, async () => await master.connect()))
}

describe.each(Object.keys(calls))('%s', (name) => {
  const call = calls[name] ?? fail

  test('ends when destroy() is called while it waits for a connection', async () => {
    const dataSource = await open(1)
    const driver = driverOf(dataSource)
    const { master } = driver
    const held = await holdAll(driver)
    const failed = rejection(call(dataSource))
    await vi.waitFor(() => expect(master.waitingCount).toBe(1))
    const destroyed = dataSource.destroy()
    expect(await failed).toBeInstanceOf(DataSourceDestroyedError)
    for (const one of held) one.release()
    await destroyed
    expect([master.totalCount, driver.connectedQueryRunners.length]).toEqual([0, 0])
  })

  test('reports after destroy() that it was called', async () => {
    const dataSource = await open(1)
    const { master } = driverOf(dataSource)
    const [held] = await holdAll(driverOf(dataSource))
    const destroyed = dataSource.destroy()
    await vi.waitFor(() => expect(master.ending).toBe(true))
    const during = await rejection(call(dataSource))
    held?.release()
    await destroyed
    const after = await rejection(call(dataSource))
    for (const error of [during, after]) {
      expect(error).toBeInstanceOf(DataSourceDestroyedError)
      expect(error).toMatchObject({ code: 'DATA_SOURCE_DESTROYED' })
    }
  })
})

test('destroy() ends beside forty refused insertOrFail on a warm pool of eight', async () => {
  const dataSource = await open(8)
  for (const one of await holdAll(driverOf(dataSource))) one.release()
  const refused = Array.from({ length: 40 }, async () => {
    return await rejection(insertOrFail(dataSource.manager, Page, { url: 'first' }))
  })
  await Promise.race(refused)
  await dataSource.destroy()
  const errors = await Promise.all(refused)
  const known = errors.filter((error) => error instanceof TextTakenError || error instanceof DataSourceDestroyedError)
  expect(known.length).toBeGreaterThan(0)
  expect(driverOf(dataSource).connectedQueryRunners).toEqual([])
})

/** Keeps every new connection of a pool back. @returns gives them */
function keepBack({ master }: Driver): () => void {
  let give = (): void => {}
  const given = new Promise<void>((resolve) => (give = resolve))
  Object.assign(master.options, { verify: async (_: unknown, done: () => void) => (await given, done()) })
  return give
}

test.each(Object.keys(calls))('a connection on its way to %s is given back after destroy()', async (name) => {
  // A logger makes calls go by query runners.
  const dataSource = await open(2, { logging: true, logger: 'debug' })
  const driver = driverOf(dataSource)
  const { master } = driver
  const give = keepBack(driver)
  // The call opens another one.
  const held = await master.connect()
  const total = master.totalCount
  const failed = rejection((calls[name] ?? fail)(dataSource))
  await vi.waitFor(() => expect(master.totalCount).toBe(total + 1))
  const destroyed = dataSource.destroy()
  expect(await failed).toBeInstanceOf(DataSourceDestroyedError)
  held.release()
  give()
  await destroyed
  expect([master.totalCount, driver.connectedQueryRunners.length]).toEqual([0, 0])
})

function fail(): never {
  throw new Error('no such call')
}
