import { DataSource, type EntityManager } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError, withUniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { loggerOf } from '../../support/logger'
import { rejection } from '../../support/ledger'
import { type Proxy, startProxy } from '../../support/proxy'
import { Page } from '../../support/entities'

const db = useDatabase()

const client = db.useClient()
beforeAll(async () => {
  await db.dataSource([Page])
})

const CATALOG = 'server_encoding'

/** A DataSource that has asked nothing yet, and what it sends. */
async function fresh(extra: object = {}): Promise<{ readonly dataSource: DataSource; readonly asked: string[] }> {
  const asked: string[] = []
  const logger = loggerOf({ logQuery: (sql) => void asked.push(sql) })
  const dataSource = await db.dataSource([Page], { synchronize: false, logging: true, logger, ...extra })
  asked.length = 0
  return { dataSource, asked }
}

test('first use asks the catalog once', async () => {
  const { dataSource, asked } = await fresh()
  await findOrCreate(dataSource.manager, Page, { url: 'once' })
  expect(asked.filter((sql) => sql.includes(CATALOG))).toHaveLength(1)
  expect(asked).toHaveLength(2)
})

describe('of calls that come at once', () => {
  const call = async (dataSource: DataSource): Promise<unknown> =>
    await findOrCreate(dataSource.manager, Page, { url: 'at once' })

  test.each([1, 32])('with %i connections, one asks the catalog', async (poolSize) => {
    const { dataSource, asked } = await fresh({ poolSize })
    await Promise.all(Array.from({ length: 32 }, async () => await call(dataSource)))
    expect(asked.filter((sql) => sql.includes(CATALOG))).toHaveLength(1)
  })

  test('each hears of a table that is not ready, and is right again when it is', async () => {
    const { dataSource } = await fresh()
    await client.query('alter table page disable trigger unique_text_page__url_place_insert')
    const errors = await Promise.all(Array.from({ length: 4 }, async () => await rejection(call(dataSource))))
    for (const error of errors) expect(error).toBeInstanceOf(SchemaDriftError)
    expect(new Set(errors).size).toBe(4)
    await client.query('alter table page enable trigger unique_text_page__url_place_insert')
    expect(await call(dataSource)).toMatchObject({ entity: { url: 'at once' } })
  })

  describe('one whose connection', () => {
    let proxy: Proxy
    beforeAll(async () => {
      proxy = await startProxy(db.url)
      return async () => await proxy.close()
    })

    test('is cut fails alone', async () => {
      const { dataSource } = await fresh({ url: proxy.url })
      const cut = proxy.once([CATALOG], 'answer lost')
      const first = rejection(call(dataSource))
      const others = [call(dataSource), call(dataSource)]
      await cut
      expect(await first).toMatchObject({ message: expect.stringContaining('terminated') })
      expect(await Promise.all(others)).toHaveLength(2)
    })

    test('gives no answer does not keep the others for ever', async () => {
      const { dataSource } = await fresh({ url: proxy.url })
      const held = proxy.once([CATALOG], 'answer held')
      const first = call(dataSource)
      const other = call(dataSource)
      await held
      expect(await other).toMatchObject({ entity: { url: 'at once' } })
      proxy.release()
      expect(await first).toMatchObject({ entity: { url: 'at once' } })
    })
  })
})

test('a plain call that waits for a connection does not hold up transactions which have the whole pool', async () => {
  const dataSource = await db.dataSource([Page], { synchronize: false, poolSize: 2, extra: { max: 2 } })
  const { manager } = dataSource
  let waiting: Promise<unknown> = Promise.resolve()
  const open: (() => void)[] = []
  const bothOpen = new Promise<void>((resolve) => {
    const arrive = (): void => void (open.push(resolve) === 2 && resolve())
    waiting = Promise.all(
      ['a', 'b'].map(async (url) => {
        await manager.transaction(async (own) => {
          await own.query('select 1')
          arrive()
          await bothOpen
          await plainCallSent
          await findOrCreate(own, Page, { url })
        })
      }),
    )
  })
  let sent = (): void => {}
  const plainCallSent = new Promise<void>((resolve) => (sent = resolve))
  await bothOpen
  const plain = findOrCreate(manager, Page, { url: 'c' })
  sent()
  await waiting
  expect(await plain).toMatchObject({ created: true })
})

test("a user's own JSON parser does not matter", async () => {
  const extra = { types: { getTypeParser: (oid: number) => parser(oid) } }
  const dataSource = await db.dataSource([Page], { synchronize: false, extra })
  expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ entity: { url: 'x' } })
})

/** JSON stays text, all else is as `pg` has it. */
function parser(oid: number): (value: string) => unknown {
  const isInteger = oid === 20 || oid === 23
  if (oid === 16) return (value) => value === 't'
  return isInteger ? Number : (value) => value
}

describe('tenants by search_path', () => {
  let dataSource: DataSource
  const inSchema = async <T>(schema: string, work: (manager: EntityManager) => Promise<T>): Promise<T> =>
    await dataSource.transaction(async (manager) => {
      await manager.query(`select set_config('search_path', $1, true)`, [schema])
      return await work(manager)
    })
  const create = async (schema: string): Promise<unknown> =>
    await inSchema(schema, async (manager) => await findOrCreate(manager, Page, { url: 'x' }))

  beforeAll(async () => {
    await client.query('create schema one; create schema two; create schema bare; create schema nothing')
    for (const schema of ['one', 'two']) {
      await client.query(`alter database "${client.database}" set search_path to ${schema}`)
      await (await db.dataSource([Page])).destroy()
    }
    await client.query(`alter database "${client.database}" reset search_path`)
    await client.query('create table bare.page (like one.page including defaults including identity)')
    dataSource = new DataSource({ type: 'postgres', url: db.url, entities: [Page] })
    await withUniqueText(dataSource, { tenantsBySearchPath: true, prepare: false }).initialize()
    return async () => await dataSource.destroy()
  })

  test('a tenant without index and guard is refused, though another tenant was ready', async () => {
    expect(await create('one')).toMatchObject({ created: true })
    await expect(create('bare')).rejects.toBeInstanceOf(SchemaDriftError)
    await expect(create('nothing')).rejects.toBeInstanceOf(SchemaDriftError)
    expect((await client.query('select from bare.page')).rowCount).toBe(0)
  })
  test('every tenant has its own row', async () => {
    await create('one')
    expect(await create('two')).toMatchObject({ created: true })
    expect(await create('two')).toMatchObject({ created: false })
  })
  test('a tenant whose table is made anew without a guard is refused', async () => {
    await create('two')
    await client.query('drop table two.page; create table two.page (like bare.page)')
    await expect(create('two')).rejects.toBeInstanceOf(SchemaDriftError)
  })
})
