import { Column, DeleteDateColumn, Entity, ManyToOne, OneToMany, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, expect, test } from 'vitest'
import type { FindOrCreateManyResult } from '../../../src'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, updateOrFail, upsertByText } from '../../../src'
import { url } from '../../../src/text'
import { uniqueTextPaths } from '../../../src/typeorm-calls'
import { copyIn } from '../../stress/copy-in'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

@Entity({ name: 'site' })
class Site {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @OneToMany(() => Page, ({ site }) => site, { cascade: true }) pages!: Page[]
}

@Entity({ name: 'page' })
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @ManyToOne(() => Site, ({ pages }) => pages, { nullable: true }) site!: Site | null
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
}

const db = useDatabase()
const dataSource = db.useDataSource([Site, Page])
const { manager } = dataSource

beforeEach(async () => {
  // So that an id that is right by chance is not taken for one.
  await manager.insert(Page, [{ url: 'http://first/' }, { url: 'http://taken/' }])
})

const pages = () => dataSource.getRepository(Page)

/** Entities hold what is stored under their ids. */
async function expectRight(entities: readonly Pick<Page, 'id' | 'url'>[], urls: readonly string[]): Promise<void> {
  expect(entities.map((entity) => entity.url)).toEqual(urls)
  for (const { id, url: text } of entities) expect((await pages().findOneByOrFail({ id })).url).toBe(text)
}

/** A text that is taken, however it is spelt, is refused, and nothing is written. */
async function expectRefused(call: () => Promise<unknown>): Promise<void> {
  const before = await pages().count({ withDeleted: true })
  const error = await rejection(call())
  expect(['23505', 'TEXT_TAKEN']).toContain((error as { code?: unknown }).code)
  expect(await pages().count({ withDeleted: true })).toBe(before)
}

function entitiesOf(results: readonly FindOrCreateManyResult<Page>[]): Page[] {
  return results.map((result) => {
    if ('error' in result) throw result.error
    return result.entity
  })
}

test('save() of new entities', async () => {
  const saved = await pages().save(pages().create([{ url: 'HTTP://A' }, { url: 'HTTP://B' }]))
  await expectRight(saved, ['http://a/', 'http://b/'])
  await expectRefused(() => pages().save([{ url: 'http://c' }, { url: 'HTTP://TAKEN' }]))
})

test('save() of changed entities', async () => {
  const page = await pages().findOneByOrFail({ url: 'http://first' })
  page.url = 'HTTP://A'
  await expectRight([await pages().save(page)], ['http://a/'])
  page.url = 'HTTP://TAKEN'
  await expectRefused(() => pages().save(page))
})

test('save() of an entity whose change is none', async () => {
  const page = await pages().findOneByOrFail({ url: 'http://first' })
  page.url = 'HTTP://First'
  await expectRight([await pages().save(page)], ['http://first/'])
})

test('save() with { listeners: false }', async () => {
  const page = await pages().save({ url: 'HTTP://A' }, { listeners: false })
  expect(page.url).toBe('HTTP://A')
  await expectRight([await pages().findOneByOrFail({ id: page.id })], ['http://a/'])
  await expectRefused(() => pages().save({ url: 'HTTP://TAKEN' }, { listeners: false }))
})

test('save() with cascades', async () => {
  const site = await dataSource.getRepository(Site).save({ pages: [{ url: 'HTTP://A' }, { url: 'HTTP://B' }] })
  await expectRight(site.pages, ['http://a/', 'http://b/'])
  await expectRefused(() => dataSource.getRepository(Site).save({ pages: [{ url: 'HTTP://TAKEN' }] }))
})

test('insert(), and the query builder of an insert', async () => {
  const given = [{ url: 'HTTP://A' }, { url: 'HTTP://B' }] as { id: number; url: string }[]
  await pages().insert(given)
  await expectRight(given, ['http://a/', 'http://b/'])
  const built = { url: 'HTTP://C' } as { id: number; url: string }
  await pages().createQueryBuilder().insert().values(built).execute()
  await expectRight([built], ['http://c/'])
  await expectRefused(() => pages().insert({ url: 'HTTP://TAKEN' }))
})

test('update(), and the query builder of an update', async () => {
  const values = Object.freeze({ url: 'HTTP://A' })
  await pages().update({ id: 1 }, values)
  await expectRight([await pages().findOneByOrFail({ id: 1 })], ['http://a/'])
  await pages().createQueryBuilder().update(values).where({ id: 1 }).execute()
  expect(values.url).toBe('HTTP://A')
  await expectRefused(() => pages().update({ id: 1 }, { url: 'HTTP://TAKEN' }))
})

test('upsert() with uniqueTextPaths()', async () => {
  const given = [{ url: 'HTTP://TAKEN', title: 'new' }, { url: 'HTTP://A' }] as (Pick<Page, 'id' | 'url'> & object)[]
  await pages().upsert(given, uniqueTextPaths(Page))
  await expectRight(given, ['http://taken/', 'http://a/'])
  expect(await pages().count()).toBe(3)
})

test('upsert() with skipUpdateIfNoValuesChanged', async () => {
  const given = [{ url: 'HTTP://TAKEN' }, { url: 'HTTP://A' }] as Pick<Page, 'id' | 'url'>[]
  await pages().upsert(given, { conflictPaths: uniqueTextPaths(Page), skipUpdateIfNoValuesChanged: true })
  expect(given.map((one) => one.url)).toEqual(['http://taken/', 'http://a/'])
  expect(await pages().count()).toBe(3)
  // TypeORM takes the rows that came back for the first ones.
  expect((await pages().findOneByOrFail({ id: given[0]?.id ?? 0 })).url).toBe('http://a/')
})

test('orUpdate() of the query builder, the text among its columns', async () => {
  const given = [{ url: 'HTTP://TAKEN', title: 'new' }, { url: 'HTTP://A' }] as (Pick<Page, 'id' | 'url'> & object)[]
  const insert = pages().createQueryBuilder().insert().values(given)
  await insert.orUpdate(['url', 'title'], ['urlHash', 'urlHashNumber']).execute()
  await expectRight(given, ['http://taken/', 'http://a/'])
})

test('orIgnore() of the query builder', async () => {
  const given = [{ url: 'HTTP://TAKEN' }, { url: 'HTTP://A' }] as Pick<Page, 'id' | 'url'>[]
  await pages().createQueryBuilder().insert().values(given).orIgnore().execute()
  expect(given.map((one) => one.url)).toEqual(['http://taken/', 'http://a/'])
  expect(await pages().count()).toBe(3)
  // TypeORM #5226: the id of the row that was inserted stands on the entity of the one that was not.
  expect((await pages().findOneByOrFail({ id: given[0]?.id ?? 0 })).url).toBe('http://a/')
})

test('delete() and remove() free the text', async () => {
  await pages().delete({ url: 'HTTP://TAKEN' })
  await pages().remove(await pages().findOneByOrFail({ url: 'http://first' }))
  await pages().insert([{ url: 'http://taken/' }, { url: 'http://first/' }])
})

test('softDelete(), restore(), softRemove() and recover() leave the text to its row', async () => {
  await pages().softDelete({ url: 'HTTP://TAKEN' })
  await expectRefused(() => pages().insert({ url: 'http://taken/' }))
  await pages().restore({ url: 'HTTP://TAKEN' })
  const page = await pages().findOneByOrFail({ url: 'http://taken' })
  await expectRight([await pages().recover(await pages().softRemove(page))], ['http://taken/'])
})

test('raw SQL', async () => {
  await dataSource.query(`insert into page (url) values ('HTTP://TAKEN')`)
  await expectRefused(() => dataSource.query(`insert into page (url) values ('http://taken/')`))
  await expectRefused(() => dataSource.query(`update page set url = 'http://taken/' where id = 1`))
})

test('COPY', async () => {
  const client = await db.client()
  await copyIn(client, 'copy page (url) from stdin', ['HTTP://TAKEN'])
  await expectRefused(async () => {
    await copyIn(client, 'copy page (url) from stdin', ['http://other/', 'http://taken/'])
  })
})

test('findOrCreate() and findOrCreateMany()', async () => {
  const { entity } = await findOrCreate(manager, Page, { url: 'HTTP://TAKEN' })
  await expectRight([entity], ['http://taken/'])
  const results = await findOrCreateMany(manager, Page, [{ url: 'HTTP://A' }, { url: 'HTTP://TAKEN' }])
  await expectRight(entitiesOf(results), ['http://a/', 'http://taken/'])
  expect(await pages().count()).toBe(3)
})

test('upsertByText()', async () => {
  const rows = [{ url: 'HTTP://A' }, { url: 'HTTP://TAKEN', title: 'new' }]
  await expectRight(entitiesOf(await upsertByText(manager, Page, rows)), ['http://a/', 'http://taken/'])
  const one = await upsertByText(manager, Page, { url: 'HTTP://TAKEN', title: 'newer' })
  await expectRight([one.entity], ['http://taken/'])
  expect(await pages().find({ order: { id: 'asc' } })).toMatchObject([{}, { title: 'newer' }, {}])
})

test('insertOrFail() and updateOrFail()', async () => {
  const page = await insertOrFail(manager, Page, { url: 'HTTP://A' })
  await expectRight([page], ['http://a/'])
  await updateOrFail(manager, Page, { id: page.id }, { url: 'HTTP://B' })
  await expectRight([await pages().findOneByOrFail({ id: page.id })], ['http://b/'])
  await expectRefused(() => insertOrFail(manager, Page, { url: 'HTTP://TAKEN' }))
  await expectRefused(() => updateOrFail(manager, Page, { id: page.id }, { url: 'HTTP://TAKEN' }))
})
