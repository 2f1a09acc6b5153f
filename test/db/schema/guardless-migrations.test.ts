import type { DataSource, ObjectLiteral, ObjectType } from 'typeorm'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError, type UniqueTextPropertyOptions } from '../../../src'
import { doctor } from '../../../src/doctor'
import { lowerCase, trim } from '../../../src/text'
import { sha256 } from '../../../src/text/digest'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { generate, migrate, runAll } from '../../support/generated'
import { rejection } from '../../support/ledger'

const db = useDatabase()
const client = db.useClient({ emptied: true })

type Page = ObjectType<ObjectLiteral>

const shop = column('integer', { default: 1 })
const page = (options: UniqueTextPropertyOptions): Page =>
  entity('Page', { shop, url: text({ digest: 'sha256', ...options }) })
const plain = (): Page => entity('Page', { shop, url: column('text') })

const open = async (entity: Page): Promise<DataSource> => await db.dataSource([entity], { synchronize: false })

const isReady = async (dataSource: DataSource, entity: Page, url: string): Promise<void> => {
  await findOrCreate(dataSource.manager, entity, { url, shop: 1 })
  expect(await generate(dataSource)).toStrictEqual({ up: [], down: [] })
  expect((await doctor(dataSource)).findings).toStrictEqual([])
}

const select = async (sql: string): Promise<unknown> => (await client.query(sql)).rows

/** Functions and triggers of ours. */
const left = (): Promise<unknown> =>
  select(`SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prorettype = 'trigger'::regtype`)

const rows = (): Promise<unknown> =>
  select(`SELECT id, url, encode("urlHash", 'hex') AS hash, "urlHashNumber" AS number FROM page ORDER BY id`)

const table = (): Promise<unknown> =>
  select(`SELECT conname AS name, pg_get_constraintdef(oid) AS is FROM pg_constraint
      WHERE conrelid = 'page'::regclass AND contype = 'c'
    UNION ALL SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'page'
    UNION ALL SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'page'::regclass
    UNION ALL SELECT attname, concat(atttypid::regtype, attnotnull, col_description(attrelid, attnum))
      FROM pg_attribute WHERE attrelid = 'page'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1`)

const guardless = { guard: false } as const

test('a new table gets columns, index and check, and nothing that acts', async () => {
  const entity = page(guardless)
  const dataSource = await open(entity)
  const { up, down } = await migrate(dataSource)
  expect(up.filter((sql) => /\b(?:TRIGGER|FUNCTION|DO)\b/.test(sql))).toStrictEqual([])
  await isReady(dataSource, entity, 'a')
  expect(await left()).toStrictEqual([])
  await runAll(dataSource, down)
})

/** From one declaration to another on a table with rows, and back. */
const changes: readonly (readonly [name: string, from: UniqueTextPropertyOptions, to: UniqueTextPropertyOptions])[] = [
  ['the guard goes', {}, guardless],
  ['the guard comes', guardless, {}],
  ['the guard goes with MD5', { digest: 'md5' }, guardless],
  ['the guard comes with MD5', guardless, { digest: 'md5' }],
  ['the guard goes, and the scope comes', {}, { ...guardless, scope: ['shop'] }],
  ['a scope comes', guardless, { ...guardless, scope: ['shop'] }],
  ['the text may be NULL', guardless, { ...guardless, nullable: true }],
  ['the text is stored by another name, and the guard goes', { name: 'url' }, { ...guardless, hidden: { hash: 'h' } }],
]

test.each(changes)('%s, and the way back leaves what was', async (_, from, to) => {
  const [before, after] = [page(from), page(to)]
  const first = await open(before)
  await migrate(first)
  for (const url of ['a', 'b', 'c']) await findOrCreate(first.manager, before, { url, shop: 1 })
  const was = await table()
  const second = await open(after)
  const { down } = await migrate(second)
  await isReady(second, after, 'd')
  await client.query(`DELETE FROM page WHERE url = 'a'`)
  await runAll(second, down)
  expect(await table()).toStrictEqual(was)
  const third = await open(before)
  await isReady(third, before, 'e')
  expect(await client.query('SELECT FROM page')).toMatchObject({ rowCount: 4 })
})

test.each([
  ['as it is', guardless, {}],
  ['that may be NULL', { ...guardless, nullable: true }, {}],
  ['that gets a guard', guardless, { guard: true }],
  ['that gets a scope', guardless, { scope: ['shop'] }],
  ['beside a flag that goes', guardless, {}],
] as const)('a text %s keeps its rows under another name, forth and back', async (name, from, to) => {
  const hidden = { hash: 'h', number: 'n', chained: 'c' }
  const [before, after] = [page(from), page({ ...from, ...to, name: 'address', hidden })]
  const first = await open(before)
  await migrate(first)
  for (const url of ['a', 'b']) await findOrCreate(first.manager, before, { url, shop: 1 })
  if (name.startsWith('beside')) await client.query('ALTER TABLE page ADD flag boolean')
  const was = await table()
  const second = await open(after)
  const { up, down } = await migrate(second)
  expect(up.filter((sql) => /DROP COLUMN "(?:url|urlHash)"/.test(sql))).toStrictEqual([])
  expect(await select(`SELECT address FROM page ORDER BY id`)).toEqual([{ address: 'a' }, { address: 'b' }])
  await isReady(second, after, 'c')
  await runAll(second, down)
  expect(await table()).toStrictEqual(was)
  await client.query('ALTER TABLE page DROP COLUMN IF EXISTS flag')
  await isReady(await open(before), before, 'd')
  expect(await client.query(`SELECT FROM page WHERE url IN ('a', 'b', 'c')`)).toMatchObject({ rowCount: 3 })
})

test('without a transaction, too', async () => {
  const [before, after] = [page({}), page(guardless)]
  const first = await open(before)
  await migrate(first)
  await findOrCreate(first.manager, before, { url: 'a', shop: 1 })
  const dataSource = await open(after)
  const { up, down } = await generate(dataSource)
  for (const sql of up) await dataSource.query(sql)
  await isReady(dataSource, after, 'b')
  expect(await left()).toStrictEqual([])
  for (const sql of down) await dataSource.query(sql)
  await isReady(await open(before), before, 'c')
})

test('a table with rows gets their hashes, and rows of equal text are refused', async () => {
  const dataSource = await open(plain())
  await migrate(dataSource)
  await client.query(`INSERT INTO page (url) VALUES ('a'), ('b'), ('a')`)
  const entity = page(guardless)
  const other = await open(entity)
  const { up, down } = await generate(other)
  await expect(runAll(other, up)).rejects.toMatchObject({ detail: 'The rows by primary key (id): 1, 3' })
  await client.query(`DELETE FROM page WHERE id = 3`)
  await runAll(other, up)
  expect(await rows()).toMatchObject([
    { url: 'a', hash: sha256.js('a').slice(2), number: 0 },
    { url: 'b', hash: sha256.js('b').slice(2), number: 0 },
  ])
  await isReady(other, entity, 'c')
  await runAll(other, down)
  expect(await select('SELECT url FROM page ORDER BY id')).toEqual([{ url: 'a' }, { url: 'b' }, { url: 'c' }])
})

test('a table of very many rows is refused, with the way that takes a guard meanwhile', async () => {
  await migrate(await open(plain()))
  await client.query(`INSERT INTO page (url) SELECT i::text FROM generate_series(1, 100001) AS i`)
  const dataSource = await open(page(guardless))
  await expect(migrate(dataSource)).rejects.toThrow(
    /Declare the text with its guard, and let a later migration .*adopt/,
  )
})

describe('first use', () => {
  test.each([
    ['a guard stands where none is wanted', {}, guardless],
    ['none stands where one is wanted', guardless, {}],
    [
      'another normalizer made the texts',
      { ...guardless, normalize: trim() },
      { ...guardless, normalize: lowerCase() },
    ],
  ] as const)('refuses a table before its migration: %s', async (_, from, to) => {
    await migrate(await open(page(from)))
    const entity = page(to)
    const { manager } = await open(entity)
    const refused = await rejection(findOrCreate(manager, entity, { url: 'a', shop: 1 }))
    expect(refused).toBeInstanceOf(SchemaDriftError)
    expect((refused as SchemaDriftError).findings).toContainEqual(
      expect.objectContaining({ kind: 'missing', object: 'check' }),
    )
  })
})

test('another normalizer asks for the rows to be normalized', async () => {
  const before = page(guardless)
  const first = await open(before)
  await migrate(first)
  await findOrCreate(first.manager, before, { url: 'A', shop: 1 })
  await expect(migrate(await open(page({ ...guardless, normalize: lowerCase() })))).rejects.toThrow(
    'SQL cannot normalize them',
  )
})

describe('a database without PL/pgSQL', () => {
  beforeEach(async () => await client.query('drop extension plpgsql'))
  afterEach(async () => await client.query('create extension if not exists plpgsql'))

  test('keeps a text without a guard, by its migration and its calls', async () => {
    const Page = page({ guard: false })
    const dataSource = await open(Page)
    await migrate(dataSource)
    for (const created of [true, false])
      expect(await findOrCreate(dataSource.manager, Page, { url: 'http://a/', shop: 1 })).toMatchObject({ created })
    expect(await generate(dataSource)).toStrictEqual({ up: [], down: [] })
    expect(await doctor(dataSource)).toMatchObject({ healthy: true, findings: [{ code: 'definitions.uncompared' }] })
  })

  test('refuses a guard before its migration is written', async () => {
    const dataSource = await open(page({}))
    expect(await rejection(generate(dataSource))).toMatchObject({
      name: 'UnsupportedDatabaseError',
      message: expect.stringContaining('CREATE EXTENSION plpgsql') as string,
    })
  })
})
