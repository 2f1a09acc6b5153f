import type { ValueTransformer } from 'typeorm'
import { Column, DeleteDateColumn, Entity, EntitySchema, ManyToOne, OneToMany, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import type { FindOrCreateManyResult } from '../../../src'
import {
  DeclarationError,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  uniqueTextSchema,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { trim, url } from '../../../src/text'
import { uniqueTextPaths } from '../../../src/typeorm-calls'
import { copyIn } from '../../stress/copy-in'
import { useDatabase } from '../../support/database'
import { column, embedded, entity, text } from '../../support/entity'
import { queriesOf } from '../../support/queries'
import { rejection } from '../../support/ledger'
import { rowOf } from '../../support/results'

/** The property is an object, of which the column holds the text. */
class Link {
  constructor(readonly href: string) {}
}
const link: ValueTransformer = {
  to: (value: unknown) => (value instanceof Link ? value.href : value),
  from: (value: unknown) => (typeof value === 'string' ? new Link(value) : value),
}

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

@Entity({ name: 'linked' })
class Linked {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text', transformer: link }) @UniqueText({ normalize: url() }) url!: Link
}

class Address {
  @Column({ type: 'text' }) street!: string
}

const House = entity('House', { address: embedded(() => Address) })
UniqueText({ as: 'place', columns: [{ property: 'address.street', normalize: trim() }] })(House)

const Lower = entity('Lower', { host: column('text') })
UniqueText({
  as: 'both',
  columns: ['host'],
  normalizeValues: ({ host }) => (typeof host === 'string' ? { host: host.toLowerCase() } : {}),
})(Lower)

interface Plain {
  id: number
  url: string
  title: string | null
}
const PlainSchema = new EntitySchema<Plain>(
  uniqueTextSchema<Plain>(
    {
      name: 'Plain',
      tableName: 'plain',
      columns: { id: { type: Number, primary: true, generated: true }, title: { type: 'text', nullable: true } },
    },
    { url: { normalize: url() } },
  ),
)

const db = useDatabase()
const dataSource = db.useDataSource([Site, Page, Linked, House, Lower, PlainSchema])
const { manager } = dataSource

describe.each([
  ['a class', Page],
  ['an EntitySchema', PlainSchema],
] as const)('an entity of %s holds the stored text after save()', (_, target) => {
  const pages = () => dataSource.getRepository<Plain>(target)

  test('that inserts it', async () => {
    const page = pages().create({ url: 'HTTP://A' })
    await pages().save(page)
    expect(page.url).toBe('http://a/')
  })

  test('of several, with { reload: false } too', async () => {
    const several = pages().create([{ url: 'HTTP://A' }, { url: 'HTTP://B' }])
    await pages().save(several, { reload: false })
    expect(several.map((page) => page.url)).toEqual(['http://a/', 'http://b/'])
  })

  test('that changes it', async () => {
    const page = await pages().save({ url: 'http://a/' })
    page.url = 'HTTP://B'
    await pages().save(page)
    expect(page.url).toBe('http://b/')
  })

  test('whose only change is gone once it is normalized', async () => {
    const page = await pages().save({ url: 'http://a/' })
    page.url = 'HTTP://A'
    const sent = await queriesOf(dataSource, () => pages().save(page))
    expect(sent.filter((sql) => !sql.startsWith('SELECT'))).toEqual([])
    expect(page.url).toBe('http://a/')
  })

  test('that changes another column', async () => {
    const page = await pages().save({ url: 'http://a/' })
    Object.assign(page, { url: 'HTTP://A', title: 'new' })
    await pages().save(page)
    expect(page).toMatchObject({ url: 'http://a/', title: 'new' })
    expect(await pages().findOneBy({ id: page.id })).toMatchObject({ url: 'http://a/', title: 'new' })
  })

  test('of a plain object with its id', async () => {
    const { id } = await pages().save({ url: 'http://a/' })
    const plain = { id, url: 'HTTP://A' }
    const saved = await pages().save(plain)
    expect([plain.url, saved.url]).toEqual(['http://a/', 'http://a/'])
  })

  test('in a transaction of the caller that is rolled back later', async () => {
    const page = pages().create({ url: 'HTTP://A' })
    await rejection(
      dataSource.transaction(async (manager) => {
        await manager.save(target, page)
        expect(page.url).toBe('http://a/')
        throw new Error('of the test')
      }),
    )
    expect(await pages().count()).toBe(0)
  })
})

test('after a cascade, the entities that it saved hold the stored text', async () => {
  const sites = dataSource.getRepository(Site)
  const site = await sites.save({ pages: [{ url: 'HTTP://A' }, { url: 'HTTP://B' }] })
  expect(site.pages.map((page) => page.url)).toEqual(['http://a/', 'http://b/'])
  for (const page of site.pages) page.url = page.url.toUpperCase()
  await sites.save(site)
  expect(site.pages.map((page) => page.url)).toEqual(['http://a/', 'http://b/'])
  const again = await sites.findOneOrFail({ where: { id: site.id }, relations: { pages: true } })
  for (const page of again.pages) page.url = `${page.url.toUpperCase()}x`
  await sites.save(again)
  expect(again.pages.map((page) => page.url).sort((a, b) => (a < b ? -1 : 1))).toEqual(['http://a/x', 'http://b/x'])
})

test("a property that the user's own transformer makes holds what is stored, and is left alone where it does", async () => {
  const repository = dataSource.getRepository(Linked)
  const linked = await repository.save({ url: new Link('HTTP://A') })
  expect(linked.url).toEqual(new Link('http://a/'))
  const own = new Link('http://b/')
  linked.url = own
  await repository.save(linked)
  expect(linked.url).toBe(own)
  linked.url = new Link('HTTP://B')
  await repository.save(linked)
  expect(linked.url).toEqual(new Link('http://b/'))
})

test("several transformers of the user's own are undone in turn", async () => {
  const marked = (mark: string): ValueTransformer => ({
    to: (value: unknown) => (typeof value === 'string' ? `${mark}${value}` : value),
    from: (value: unknown) =>
      typeof value === 'string' && value.startsWith(mark) ? value.slice(mark.length) : `not ${mark}`,
  })
  @Entity({ name: 'wrapped' })
  class Wrapped {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @Column({ type: 'text', transformer: [marked('b'), marked('aaa')] })
    @UniqueText({ normalize: trim() })
    text!: string
  }
  const wrapped = (await db.dataSource([Wrapped])).getRepository(Wrapped)
  const entity = await wrapped.save({ text: 'x ' })
  expect(entity.text).toBe('x')
  expect(await wrapped.findOneBy({ text: 'x' })).toEqual(entity)
  entity.text = 'y '
  expect(await wrapped.save(entity)).toMatchObject({ text: 'y' })
})

test('an immutable text that was NULL may still be given by save, and nothing else', async () => {
  const Later = entity('Later', { text: text({ immutable: true, nullable: true }) })
  const later = (await db.dataSource([Later])).getRepository(Later)
  const saved = await later.save({ text: null as string | null })
  saved.text = 'a'
  await later.save(saved)
  expect(await later.countBy({ text: 'a' })).toBe(1)
  for (const text of ['b', null]) {
    saved.text = text
    expect(await rejection(later.save(saved))).toMatchObject({ code: 'IMMUTABLE_TEXT' })
  }
})

test('a text in an embedded is put back where it is', async () => {
  const houses = dataSource.getRepository(House)
  const address = { street: ' Main ' }
  const house = await houses.save({ address })
  expect(address).toEqual({ street: 'Main' })
  house.address.street = 'Main  '
  await houses.save(house)
  expect(house.address).toEqual({ street: 'Main' })
})

describe('a frozen object', () => {
  test('can be inserted where TypeORM itself does not write into it', async () => {
    const values = Object.freeze({ url: 'HTTP://A' })
    const insert = dataSource.createQueryBuilder().insert().into(Page).values(values).updateEntity(false)
    await insert.execute()
    await dataSource.getRepository(Page).update({ id: 1 }, Object.freeze({ url: 'HTTP://B' }))
    const { entity } = await findOrCreate(manager, Page, Object.freeze({ url: 'HTTP://B' }))
    expect(entity).toMatchObject({ id: 1, url: 'http://b/' })
    expect(values.url).toBe('HTTP://A')
  })

  test('can be saved where nothing changes', async () => {
    const pages = dataSource.getRepository(Page)
    await pages.insert({ url: 'http://a/' })
    const frozen = Object.freeze(Object.assign(await pages.findOneByOrFail({ id: 1 }), { url: 'HTTP://A' }))
    await pages.save(frozen)
    expect(frozen.url).toBe('HTTP://A')
  })

  test('whose values are normalized together is refused, unless they are normalized already', async () => {
    const insert = (host: string) =>
      dataSource.createQueryBuilder().insert().into(Lower).values(Object.freeze({ host })).updateEntity(false).execute()
    await insert('a')
    const error = await rejection(insert('B'))
    expect(error).toBeInstanceOf(DeclarationError)
    expect(error).toMatchObject({ message: expect.stringContaining('"host" of Lower cannot be set') })
    expect(await manager.find(Lower)).toMatchObject([{ host: 'a' }])
  })
})

test('a look-up writes into nothing that it is given', async () => {
  const pages = dataSource.getRepository(Page)
  await pages.insert({ url: 'http://a/' })
  const where = pages.create({ url: 'HTTP://A' })
  const values = { url: 'HTTP://A', title: 'new' }
  const found = pages.findOneByOrFail({ url: where.url })
  await Promise.all([found, pages.update({ url: where.url }, values), findOrCreate(manager, Page, where)])
  expect([where.url, values.url]).toEqual(['HTTP://A', 'HTTP://A'])
})

test('save() leaves no hidden column on an object of an EntitySchema', async () => {
  const Note = new EntitySchema<{ id: number; slug: string | null }>(
    uniqueTextSchema(
      { name: 'Note', columns: { id: { type: Number, primary: true, generated: true } } },
      { slug: { nullable: true } },
    ),
  )
  const own = await db.dataSource([Note])
  expect([await own.manager.save(Note, {}), await own.manager.save(Note, { slug: 'a' })]).toEqual([
    { id: 1, slug: null },
    { id: 2, slug: 'a' },
  ])
})

describe('each way to write stores a text once, normalized, and refuses one that is taken:', () => {
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

  const entitiesOf = (results: readonly FindOrCreateManyResult<Page>[]): Page[] =>
    results.map((result) => rowOf(result).entity)

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
    expect(await pages().find({ order: { id: 'ASC' } })).toMatchObject([{}, { id: 2, title: 'new' }, { title: null }])
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
})
