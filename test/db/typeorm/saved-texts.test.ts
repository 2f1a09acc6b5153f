import type { ValueTransformer } from 'typeorm'
import { Column, Entity, EntitySchema, ManyToOne, OneToMany, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, UniqueText, uniqueTextSchema } from '../../../src'
import { trim, url } from '../../../src/text'
import { uniqueTextPaths } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { column, embedded, entity, text } from '../../support/entity'
import { queriesOf } from '../../support/queries'
import { rejection } from '../../support/ledger'

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

test('after insert() and upsert(), the objects that were given hold the stored text', async () => {
  const pages = dataSource.getRepository(Page)
  const rows = [{ url: 'HTTP://A' }, { url: 'HTTP://B' }]
  await pages.insert(rows)
  expect(rows).toMatchObject([{ url: 'http://a/' }, { url: 'http://b/' }])
  const again = { url: 'HTTP://A', title: 'A' }
  await pages.upsert(again, uniqueTextPaths(Page))
  expect(again).toMatchObject({ id: 1, url: 'http://a/', title: 'A' })
})

test('with { listeners: false } the normalized text is stored, and the entity keeps what it was given', async () => {
  const pages = dataSource.getRepository(Page)
  const page = pages.create({ url: 'HTTP://A' })
  await pages.save(page, { listeners: false })
  expect(page.url).toBe('HTTP://A')
  expect(await pages.find()).toMatchObject([{ url: 'http://a/' }])
})

describe('a frozen object', () => {
  test('can be inserted where TypeORM itself does not write into it', async () => {
    const values = Object.freeze({ url: 'HTTP://A' })
    const insert = dataSource.createQueryBuilder().insert().into(Page).values(values).updateEntity(false)
    await insert.execute()
    await dataSource.getRepository(Page).update({ id: 1 }, Object.freeze({ url: 'HTTP://B' }))
    const { entity } = await findOrCreate(dataSource.manager, Page, Object.freeze({ url: 'HTTP://B' }))
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
    expect(await dataSource.manager.find(Lower)).toMatchObject([{ host: 'a' }])
  })
})

test('a look-up writes into nothing that it is given', async () => {
  const pages = dataSource.getRepository(Page)
  await pages.insert({ url: 'http://a/' })
  const where = pages.create({ url: 'HTTP://A' })
  const values = { url: 'HTTP://A', title: 'new' }
  const found = pages.findOneByOrFail({ url: where.url })
  await Promise.all([found, pages.update({ url: where.url }, values), findOrCreate(dataSource.manager, Page, where)])
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
