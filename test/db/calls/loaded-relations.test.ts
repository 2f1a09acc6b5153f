import type { FindOptionsRelations } from 'typeorm'
import {
  AfterLoad,
  ChildEntity,
  Column,
  DeleteDateColumn,
  Entity,
  JoinColumn,
  JoinTable,
  ManyToMany,
  ManyToOne,
  OneToMany,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  QueryFailedError,
  TableInheritance,
} from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import type { FindOrCreateOptions } from '../../../src'
import { DeclarationError, findOneByText, findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { onlyRowOf } from '../../support/results'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'

const db = useDatabase()

const heard: string[] = []

@Entity()
class Country {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) name!: string
  @AfterLoad() hear(): void {
    heard.push(`country ${this.name}`)
  }
}

@Entity()
class Author {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
  @ManyToOne(() => Country, { eager: true, nullable: true }) country!: Country | null
  @DeleteDateColumn() deletedAt!: Date | null
  @OneToMany(() => Page, 'author') pages!: Page[]
}

const Tag = entity('Tag', { name: column('text') })
type Tag = InstanceType<typeof Tag>

class Review {
  @Column({ type: 'integer', default: 0 }) stars!: number
  @ManyToOne(() => Author, { nullable: true }) reviewer!: Author | null
}

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @ManyToOne(() => Author, 'pages', { nullable: true }) author!: Author | null
  @ManyToMany(() => Tag) @JoinTable() tags!: Tag[]
  @ManyToOne(() => Author, { lazy: true, nullable: true }) editor!: Promise<Author | null>
  @Column(() => Review) review!: Review
}

/** Eager, and with a key of two columns. */
@Entity()
class Item {
  @PrimaryColumn({ type: 'integer' }) shop!: number
  @PrimaryColumn({ type: 'text' }) code!: string
  @UniqueText({ scope: ['shop'] }) label!: string
  @ManyToOne(() => Country, { eager: true, nullable: true }) @JoinColumn({ name: 'origin_id' }) origin!: Country | null
  @DeleteDateColumn() deletedAt!: Date | null
  @AfterLoad() hear(): void {
    heard.push(`item ${this.label} of ${this.origin?.name}`)
  }
}

const Animal = entity('Animal', { name: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Animal)

@ChildEntity()
class Dog extends Animal {
  @ManyToOne(() => Country, { eager: true, nullable: true }) origin!: Country | null
}

const dataSource = db.useDataSource([Country, Author, Tag, Page, Item, Animal, Dog], { extra: { max: 1 } })
const { manager } = dataSource

beforeEach(async () => {
  for (const entity of [Author, Page, Animal, Dog]) await findOneByText(manager, entity, { [key(entity)]: 'first use' })
  await findOneByText(manager, Item, { shop: 1, label: 'first use' })
  heard.length = 0
})

const key = (entity: object): string => (entity === Page ? 'url' : 'name')

const statementsOf = async (call: () => Promise<unknown>): Promise<number> => (await queriesOf(dataSource, call)).length

/** A page with everything. */
async function storePage(url: string): Promise<Page> {
  const country = await manager.save(manager.create(Country, { name: `country of ${url}` }))
  const author = await manager.save(manager.create(Author, { name: `author of ${url}`, country }))
  const tags = await manager.save([manager.create(Tag, { name: 'b' }), manager.create(Tag, { name: 'c' })])
  const page = manager.create(Page, { url, author, tags, review: { stars: 5, reviewer: author } })
  page.editor = Promise.resolve(author)
  await manager.save(page)
  heard.length = 0
  return page
}

const EVERYTHING: FindOptionsRelations<Page> = {
  author: { pages: true },
  tags: true,
  editor: true,
  review: { reviewer: true },
}

/** Lazy relations are behind getters, which are no part of a comparison. */
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

const operations: Record<string, (options: FindOrCreateOptions<Page>) => Promise<Page>> = {
  findOrCreate: async (options) => (await findOrCreate(manager, Page, { url: 'a' }, options)).entity,
  findOrCreateMany: async (options) =>
    (await onlyRowOf(findOrCreateMany(manager, Page, [{ url: 'a' }], options as object))).entity,
  findOneByText: async (options) => {
    const page = await findOneByText(manager, Page, { url: 'a' }, options as object)
    if (!page) throw new TypeError('The page is not there.')
    return page
  },
}

describe.each(Object.entries(operations))('%s', (_, call) => {
  test.each(['join', 'query'] as const)(
    'loads the relations that it is asked for, as find does (%s)',
    async (strategy) => {
      const { id } = await storePage('a')
      const options = { relations: EVERYTHING, relationLoadStrategy: strategy }
      const found = await manager.findOneOrFail(Page, { where: { id }, ...options })
      expect(plain(await call(options))).toEqual(plain(found))
      expect(found.tags).toHaveLength(2)
    },
  )

  test('takes a list of paths too', async () => {
    await storePage('a')
    const paths = ['author.pages', 'author', 'tags', 'editor', 'review.reviewer']
    expect(plain(await call({ relations: paths }))).toEqual(plain(await call({ relations: EVERYTHING })))
  })

  test('loads lazy relations, which then need no query', async () => {
    const page = await storePage('a')
    const { editor } = await call({ relations: { editor: true } })
    expect(await statementsOf(async () => await editor)).toBe(0)
    expect(await editor).toMatchObject({ id: (await page.editor)?.id })
  })

  test('sends one statement more for all of them, and none where there are none', async () => {
    await storePage('a')
    expect(await statementsOf(() => call({ relations: EVERYTHING }))).toBe(2)
    expect(await statementsOf(() => call({ relations: { author: false } }))).toBe(1)
    expect(await statementsOf(() => call({}))).toBe(1)
  })

  test.each([
    [{ athor: true }, 'Page has no relation "athor"'],
    [{ author: { page: true } }, 'Author has no relation "page"'],
    [{ review: { author: true } }, 'Page has no relation "review.author"'],
    [['author.url'], 'Author has no relation "url"'],
    [{ url: true }, 'Page has no relation "url"'],
  ])('refuses %j before any SQL', async (relations, message) => {
    let error: unknown
    const count = await statementsOf(async () => {
      error = await rejection(call({ relations: relations as FindOptionsRelations<Page> }))
    })
    expect(error).toBeInstanceOf(DeclarationError)
    expect(String(error)).toContain(message)
    expect(count).toBe(0)
  })

  test('tells AfterLoad listeners of related rows, once', async () => {
    await storePage('a')
    for (const relationLoadStrategy of ['join', 'query'] as const) {
      heard.length = 0
      await call({ relations: { author: true }, relationLoadStrategy })
      expect(heard).toEqual(['country country of a'])
    }
  })
})

test('a row that is created has its relations, and its related rows are told of', async () => {
  const country = await manager.save(manager.create(Country, { name: 'Chad' }))
  for (const relationLoadStrategy of ['join', 'query'] as const) {
    heard.length = 0
    const options = { relationLoadStrategy }
    const label = `created by ${relationLoadStrategy}`
    const { entity } = await findOrCreate(manager, Item, { shop: 1, code: label, label, origin: country }, options)
    expect(entity.origin).toEqual(country)
    expect(entity.origin).toBeInstanceOf(Country)
    expect(heard).toEqual(['country Chad'])
    heard.length = 0
    await findOrCreate(manager, Item, { shop: 1, code: label, label }, options)
    expect(heard).toContain('country Chad')
  }
})

test('eager relations are loaded where nothing is said, and AfterLoad of the row sees them', async () => {
  const country = await manager.save(manager.create(Country, { name: 'Chad' }))
  await manager.insert(Item, { shop: 1, code: 'x', label: 'a', origin: country })
  const { entity } = await findOrCreate(manager, Item, { shop: 1, code: 'x', label: 'a' })
  expect(entity).toStrictEqual(await manager.findOneByOrFail(Item, { shop: 1, code: 'x' }))
  expect(heard).toEqual(['country Chad', 'item a of Chad', 'country Chad', 'item a of Chad'])
})

test('many rows, with a key of two columns, take one statement more', async () => {
  const countries = await manager.save(['Chad', 'Fiji'].map((name) => manager.create(Country, { name })))
  const inputs = Array.from({ length: 30 }, (_, index) => ({
    shop: index % 3,
    code: `c${index}`,
    label: `label ${index}`,
    origin: countries[index % 2] ?? null,
  }))
  inputs.push({ ...inputs[0], shop: 0, code: 'again', label: 'label 0', origin: null })
  let results: Awaited<ReturnType<typeof findOrCreateMany<Item>>> = []
  const count = await statementsOf(async () => (results = await findOrCreateMany(manager, Item, inputs)))
  expect(count).toBe(2)
  expect(results.map((result) => ('error' in result ? result : result.entity.origin?.name))).toEqual(
    inputs.map((_, index) => (index === 30 ? 'Chad' : countries[index % 2]?.name)),
  )
})

test('more rows than one statement asks for have their relations, each of them', async () => {
  const country = await manager.save(manager.create(Country, { name: 'Chad' }))
  const inputs = Array.from({ length: 2_100 }, (_, index) => ({ name: `${index}`, country }))
  const results = await findOrCreateMany(manager, Author, inputs)
  const names = results.map((result) => ('error' in result ? result : result.entity.country?.name))
  expect(new Set(names)).toEqual(new Set(['Chad']))
})

test('the load strategy of the DataSource counts where the call names none', async () => {
  const other = await db.dataSource([Country, Author, Tag, Page, Item, Animal, Dog], {
    synchronize: false,
    relationLoadStrategy: 'query',
  })
  await manager.insert(Author, { name: 'Ann' })
  const load = async (options: object): Promise<number> =>
    (await queriesOf(other, () => findOneByText(other.manager, Author, { name: 'Ann' }, options))).length
  const relations = { pages: true }
  await load({ relations })
  const byQueries = await load({ relations, relationLoadStrategy: 'query' })
  expect(await load({ relations })).toBe(byQueries)
  expect(await load({ relations, relationLoadStrategy: 'join' })).toBeLessThan(byQueries)
})

test('a row that is softly deleted has its relations, as with withDeleted', async () => {
  const country = await manager.save(manager.create(Country, { name: 'Chad' }))
  await manager.insert(Author, { name: 'Ann', country })
  await manager.insert(Author, { name: 'Bob', country })
  await manager.softDelete(Author, { name: 'Ann' })
  const results = await findOrCreateMany(manager, Author, [{ name: 'Ann' }, { name: 'Bob' }])
  expect(results).toMatchObject([{ entity: { name: 'Ann', country } }, { entity: { name: 'Bob', country } }])
})

test('of single table inheritance, a class gives its own eager relations', async () => {
  const country = await manager.save(manager.create(Country, { name: 'Chad' }))
  const { entity } = await findOrCreate(manager, Dog, { name: 'Rex', origin: country })
  expect(entity.origin).toEqual(country)
  const asked = await findOneByText(manager, Animal, { name: 'Rex' })
  expect(asked).toStrictEqual(await manager.findOneBy(Animal, { name: 'Rex' }))
})

test('a relation that cannot be read leaves the transaction usable', async () => {
  const client = await db.client()
  await storePage('a')
  await client.query('ALTER TABLE tag RENAME COLUMN name TO gone')
  try {
    await dataSource.transaction(async (inner) => {
      const error = await rejection(findOrCreate(inner, Page, { url: 'b' }, { relations: { tags: true } }))
      expect(error).toBeInstanceOf(QueryFailedError)
      await findOrCreate(inner, Page, { url: 'c' })
    })
  } finally {
    await client.query('ALTER TABLE tag RENAME COLUMN gone TO name')
  }
  expect(await manager.existsBy(Page, { url: 'c' })).toBe(true)
})

test('in a transaction, relations are those that the transaction sees', async () => {
  await dataSource.transaction(async (inner) => {
    const author = await inner.save(inner.create(Author, { name: 'Ann' }))
    const { entity } = await findOrCreate(inner, Page, { url: 'a', author }, { relations: { author: true } })
    expect(entity.author).toMatchObject({ name: 'Ann' })
  })
})
