import { DataSource, type DataSourceOptions, type EntitySubscriberInterface } from 'typeorm'
import { expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, withUniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Page = entity('Page', { url: text(), slug: text(), title: plain() })

const db = useDatabase()
const dataSource = db.useDataSource([Page])
const { manager } = dataSource

test('a subscriber that comes after the first calls is heard by the next, and not once it has gone', async () => {
  const call = (url: string): Promise<unknown> => findOrCreate(manager, Page, { url, slug: url }, { by: 'url' })
  for (const url of ['a', 'a', 'b']) await call(url)
  const heard: string[] = []
  const hear = (what: string) => (): void => void heard.push(what)
  const subscriber: EntitySubscriberInterface = {}
  dataSource.subscribers.push(subscriber)
  await call('c')
  expect(heard).toEqual([])
  // It gets its methods when it is known already.
  Object.assign(subscriber, { beforeInsert: hear('insert'), afterLoad: hear('load'), beforeQuery: hear('query') })
  await call('d')
  expect(heard).toEqual(expect.arrayContaining(['insert', 'query']))
  await call('d')
  expect(heard).toContain('load')
  dataSource.subscribers.splice(dataSource.subscribers.indexOf(subscriber), 1)
  heard.length = 0
  for (const url of ['d', 'e']) await call(url)
  expect(heard).toEqual([])
})

test('a logger that comes after the first calls hears of the next', async () => {
  const call = (): Promise<unknown> => findOneByText(manager, Page, { url: 'a' }, { by: 'url' })
  await call()
  const logged: string[] = []
  const { logger } = dataSource
  dataSource.logger = Object.assign(Object.create(logger) as typeof logger, {
    logQuery: (sql: string) => void logged.push(sql),
  })
  await call()
  expect(logged).toHaveLength(1)
  dataSource.logger = logger
  await call()
  expect(logged).toHaveLength(1)
})

test('an object with options counts as it is when the call is made', async () => {
  const options: { by: 'url' | 'slug'; deleted?: unknown; create?: object } = { by: 'url' }
  const values = { url: 'a', slug: 'b' }
  expect(await findOrCreate(manager, Page, values, options as { by: 'url' })).toMatchObject({ created: true })
  options.by = 'slug'
  const bySlug = await findOrCreate(manager, Page, { url: 'other', slug: 'b' }, options as { by: 'slug' })
  expect(bySlug).toMatchObject({ created: false, entity: values })
  options.create = { title: 'made' }
  const made = await findOrCreate(manager, Page, { url: 'c', slug: 'c' }, options as { by: 'slug' })
  expect(made).toMatchObject({ created: true, entity: { title: 'made' } })
  options.deleted = 'nonsense'
  expect(await rejection(findOrCreate(manager, Page, values, options as { by: 'slug' }))).toMatchObject({
    message: expect.stringContaining('deleted must be one of') as string,
  })
})

/** The same class as an entity of several DataSources. */
const open = async (schema: string): Promise<DataSource> => {
  const first = await db.dataSource([], {})
  await first.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`)
  const options = { ...first.options, schema, entities: [Page], synchronize: true } as DataSourceOptions
  return await withUniqueText(new DataSource(options)).initialize()
}

test('of one class in several DataSources each call goes to its own table, and after a new start too', async () => {
  const [one, other] = [await open('one'), await open('other')]
  const created = async ({ manager }: DataSource, url: string): Promise<boolean> =>
    (await findOrCreate(manager, Page, { url, slug: url }, { by: 'url' })).created
  try {
    expect([await created(one, 'a'), await created(other, 'a'), await created(one, 'a')]).toEqual([true, true, false])
    await one.destroy()
    await one.initialize()
    expect([await created(one, 'a'), await created(one, 'b'), await created(other, 'b')]).toEqual([false, true, true])
    const rows = [{ url: 'b', slug: 'b' }]
    expect(await findOrCreateMany(one.manager, Page, rows, { by: 'slug' })).toMatchObject([{ created: false }])
  } finally {
    await one.destroy()
    await other.destroy()
  }
})
