import {
  ChildEntity,
  Column,
  CreateDateColumn,
  DeleteDateColumn,
  Entity,
  Index,
  ManyToOne,
  PrimaryGeneratedColumn,
  TableInheritance,
  UpdateDateColumn,
  VersionColumn,
} from 'typeorm'
import { describe, expect, test, vi } from 'vitest'
import {
  DeclarationError,
  DuplicateTextError,
  TextTakenError,
  findOrCreate,
  UniqueText,
  upsertByText,
} from '../../../src'
import { url } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { errorOf, rowOf } from '../../support/results'
import { fewHashes } from '../../support/digests'
import { column, deleteDate, entity, plain, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { STEVENS } from '../../support/md5-collisions'
import { queriesOf } from '../../support/queries'

class Meta {
  @Column({ type: 'text', nullable: true }) note!: string | null
  @Column({ type: 'jsonb', nullable: true }) tags!: unknown
}

@Entity({ name: 'page' })
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'varchar', length: 20, default: 'untitled' }) title!: string
  @Column({ type: 'integer', nullable: true }) visits!: number | null
  @Column({ type: 'text', update: false, default: 'nobody' }) author!: string
  @Column(() => Meta) meta!: Meta
  @CreateDateColumn({ type: 'timestamptz' }) createdAt!: Date
  @UpdateDateColumn({ type: 'timestamptz' }) updatedAt!: Date
  @VersionColumn() version!: number
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
}

const Site = entity('Site', {})
type Site = InstanceType<typeof Site>
const Post = entity('Post', {
  site: toOne(() => Site, { nullable: false }),
  slug: text({ scope: ['site'] }),
  email: text({ nullable: true }),
  origin: toOne(() => Site),
  title: plain(),
})
const Colliding = entity('Colliding', { text: text({ digest: fewHashes(256) }), note: plain() })

const Coded = entity('Coded', { text: text(), code: column('integer'), extra: column('json', { nullable: true }) })
Index(['code'], { unique: true })(Coded)

const Animal = entity('Animal', { name: text(), food: plain() })
TableInheritance({ column: { type: 'text', name: 'kind' } })(Animal)
@ChildEntity()
class Cat extends Animal {}
@ChildEntity()
class Lion extends Cat {}
@ChildEntity()
class Dog extends Animal {}

const Draft = entity('Draft', { name: text({ ignoreDeleted: true }), body: plain(), deletedAt: deleteDate() })

@Entity({ name: 'lazy' })
class Lazy {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @ManyToOne(() => Site, { nullable: false, lazy: true }) site!: Promise<Site>
  @UniqueText({ scope: ['site'] }) text!: string
  @ManyToOne(() => Site, { nullable: true, eager: true }) origin!: Site | null
  @Column({ type: 'text', nullable: true }) note!: string | null
}

const Member = entity('Member', { handle: text(), email: text({ immutable: true }), note: plain() })

const db = useDatabase()
const dataSource = db.useDataSource([Page, Site, Post, Colliding, Coded, Animal, Cat, Lion, Dog, Draft, Lazy, Member])
const { manager } = dataSource

describe('upsertByText()', () => {
  test('creates what is missing and updates what is there, aligned with the rows', async () => {
    await findOrCreate(manager, Page, { url: 'http://b/', title: 'old', author: 'me' })
    const results = await upsertByText(
      manager,
      Page,
      [
        { url: 'http://a', title: 'A', author: 'you' },
        { url: 'HTTP://B', title: 'B', author: 'you' },
        { url: 'no URL', title: 'C' },
        { url: 'http://d', title: 'D' },
      ],
      { update: ['title'] },
    )
    expect(results).toMatchObject([
      { created: true, attempts: 1, entity: { url: 'http://a/', title: 'A', author: 'you' } },
      { created: false, attempts: 1, entity: { id: 1, url: 'http://b/', title: 'B', author: 'me' } },
      { error: { code: 'TEXT_REJECTED' } },
      { created: true, attempts: 1, entity: { url: 'http://d/', title: 'D' } },
    ])
    expect(rowOf(results[1]).entity).toBeInstanceOf(Page)
    for (const index of [0, 1, 3]) {
      const { entity } = rowOf(results[index])
      expect(await manager.findOneByOrFail(Page, { id: entity.id })).toEqual(entity)
    }
  })

  test('takes one row alone, and throws what is wrong with it', async () => {
    expect(await upsertByText(manager, Page, { url: 'http://a', title: 'A' })).toMatchObject({ created: true })
    const again = await upsertByText(manager, Page, { url: 'http://a', title: 'B' })
    expect(again).toMatchObject({ created: false, attempts: 1, entity: { id: 1, title: 'B', version: 2 } })
    expect(await rejection(upsertByText(manager, Page, { url: 'no URL' }))).toMatchObject({ code: 'TEXT_REJECTED' })
  })

  test('takes one round trip, for one row and for many, found or missing', async () => {
    await upsertByText(manager, Page, { url: 'http://ready' })
    const one = await queriesOf(dataSource, () => upsertByText(manager, Page, { url: 'http://a', title: 'A' }))
    const same = await queriesOf(dataSource, () => upsertByText(manager, Page, { url: 'http://a', title: 'B' }))
    const rows = [
      { url: 'http://a', title: 'C' },
      { url: 'http://b', title: 'C' },
    ]
    const many = await queriesOf(dataSource, () => upsertByText(manager, Page, rows))
    expect([one, same, many].map(({ length }) => length)).toEqual([1, 1, 1])
  })

  test('burns no value of a sequence for a row that is there', async () => {
    const rows = ['a', 'b', 'c'].map((name) => ({ url: `http://${name}`, title: name }))
    for (let round = 0; round < 5; round += 1) await upsertByText(manager, Page, rows)
    await upsertByText(manager, Page, { url: 'http://a', title: 'once more' })
    const created = await upsertByText(manager, Page, { url: 'http://d', title: 'd' })
    expect(created).toMatchObject({ created: true, entity: { id: 4 } })
  })
})

test('eager relations are loaded, others that are asked for, and a lazy one can be the scope', async () => {
  const site = await dataSource.getRepository(Site).save({})
  const options = { by: 'slug', relations: ['origin'] }
  const post = { site, slug: 'a', title: 'A', origin: site }
  for (const rows of [post, [post]]) {
    const [result] = [await upsertByText(manager, Post, rows as never, options)].flat()
    expect(result).toMatchObject({ entity: { origin: { id: site.id } } })
  }
  const eager = { site: Promise.resolve(site), text: 'a', origin: site }
  for (const rows of [eager, { ...eager, note: 'new' }, [{ ...eager, note: 'newer' }]]) {
    const [result] = [await upsertByText(manager, Lazy, rows as never)].flat()
    expect(result).toMatchObject({ entity: { id: 1, origin: { id: site.id } } })
  }
})

test('looks rows up by the unique index, in a large table too', async () => {
  await manager.query(
    `insert into coded (text, "textHash", code)
      select 'text ' || i, md5('text ' || i)::uuid, i from generate_series(1, 20000) as i`,
  )
  for (const analyze of ['', 'analyze coded']) {
    await manager.query(analyze)
    const rows = Array.from({ length: 200 }, (_, index) => ({ text: `text ${index * 97}`, code: -index }))
    for (const given of [rows[1], rows]) {
      const logged = vi.spyOn(dataSource.logger, 'logQuery')
      await upsertByText(manager, Coded, given as never)
      const [sql, parameters] = logged.mock.calls.at(-1) ?? ['']
      logged.mockRestore()
      const plan = await manager.query(`explain ${sql}`, parameters as unknown[])
      expect(JSON.stringify(plan)).toContain('Index Scan')
      expect(JSON.stringify(plan)).not.toContain('Seq Scan')
    }
  }
})

describe('what an upsert updates', () => {
  const values = { url: 'http://a', title: 'A', visits: 1, author: 'me', meta: { note: 'n', tags: [1] } }

  test('by default every column that the row brings and an update may change', async () => {
    const { entity: before } = await upsertByText(manager, Page, values)
    const changed = { url: 'http://a', visits: 2, author: 'you', meta: { tags: { b: 1 } } }
    const { entity } = await upsertByText(manager, Page, { ...changed, id: 77, createdAt: new Date(0) })
    expect(entity).toMatchObject({
      id: before.id,
      url: before.url,
      title: before.title,
      author: before.author,
      createdAt: before.createdAt,
      visits: 2,
      meta: { note: 'n', tags: { b: 1 } },
      version: 2,
      updatedAt: expect.any(Date),
    })
    expect(entity.updatedAt.getTime()).toBeGreaterThan(before.updatedAt.getTime())
    expect(await manager.find(Page)).toEqual([entity])
  })

  test('with a list only what it names, of one row as of many', async () => {
    await upsertByText(manager, Page, values)
    const changed = { url: 'http://a', title: 'B', visits: 2, meta: { note: 'm', tags: [2] } }
    const one = await upsertByText(manager, Page, changed, { update: ['meta.note'] })
    expect(one.entity).toMatchObject({ ...values, url: 'http://a/', meta: { note: 'm', tags: [1] } })
    const [many] = await upsertByText(manager, Page, [changed], { update: ['meta', 'title'] })
    expect(rowOf(many).entity).toMatchObject({ title: 'B', visits: 1, meta: { note: 'm', tags: [2] } })
  })

  test('in rows that bring different columns, of each what it brings', async () => {
    await upsertByText(manager, Page, [values, { ...values, url: 'http://b' }, { ...values, url: 'http://c' }])
    const results = await upsertByText(manager, Page, [
      { url: 'http://a', title: 'only title' },
      { url: 'http://b', visits: 9 },
      { url: 'http://c' },
      { url: 'http://d', visits: 3 },
    ])
    expect(results.map((result) => rowOf(result).entity)).toMatchObject([
      { title: 'only title', visits: 1, version: 2 },
      { title: 'A', visits: 9, version: 2 },
      { title: 'A', visits: 1, version: 1 },
      { title: 'untitled', visits: 3, version: 1 },
    ])
  })

  test('with an empty list nothing: it is findOrCreate', async () => {
    await upsertByText(manager, Page, values)
    for (const rows of [[{ ...values, title: 'B' }], { ...values, title: 'B' }]) {
      const result = [await upsertByText(manager, Page, rows as never, { update: [] })].flat()
      expect(result).toMatchObject([{ created: false, entity: { title: 'A', version: 1 } }])
    }
  })

  test('null and a relation too', async () => {
    const [site, other] = await dataSource.getRepository(Site).save([{}, {}])
    if (!site || !other) throw new TypeError()
    await upsertByText(manager, Post, { site, slug: 'a', title: 'A', origin: site }, { by: 'slug' })
    const update = { by: 'slug', update: ['title', 'origin', 'email'] } as const
    await upsertByText(manager, Post, { site, slug: 'a', title: null, origin: other, email: 'a@b' }, update)
    const [post] = await manager.find(Post, { relations: { origin: true } })
    expect(post).toMatchObject({ title: null, origin: { id: other.id }, email: 'a@b' })
  })

  test('an update date that is given and listed is kept', async () => {
    await upsertByText(manager, Page, values)
    const updatedAt = new Date('2020-01-01')
    const options = { update: ['updatedAt', 'title'] } as const
    const one = await upsertByText(manager, Page, { url: 'http://a', updatedAt }, options)
    expect(one.entity.updatedAt).toEqual(updatedAt)
    const mixed = [
      { url: 'http://a', title: 'B' },
      { url: 'http://b', updatedAt },
    ]
    await upsertByText(manager, Page, mixed, options)
    const [first, second] = await upsertByText(manager, Page, mixed, options)
    expect(rowOf(first).entity.updatedAt.getFullYear()).toBeGreaterThan(2020)
    expect(rowOf(second).entity.updatedAt).toEqual(updatedAt)
  })

  test('an entity that was loaded and changed is a row like any other', async () => {
    await upsertByText(manager, Page, values)
    const loaded = await manager.findOneByOrFail(Page, { id: 1 })
    loaded.title = 'B'
    await manager.softDelete(Page, { id: 1 })
    const [one] = await upsertByText(manager, Page, [loaded])
    const { entity } = rowOf(one)
    expect(entity).toMatchObject({ id: 1, title: 'B', version: 3, deletedAt: expect.any(Date) })
    expect(entity.updatedAt.getTime()).toBeGreaterThan(loaded.updatedAt.getTime())
    const restored = await upsertByText(manager, Page, { url: 'http://a', deletedAt: null }, { update: ['deletedAt'] })
    expect(restored.entity.deletedAt).toBeNull()
  })

  test.each([
    ['url', 'the row is found by it'],
    ['urlHash', 'the guard maintains it'],
    ['id', 'it is the primary key'],
    ['createdAt', 'creation date'],
    ['version', 'every update increments it'],
    ['author', 'update: false'],
    ['nothing', 'Page has no such column'],
  ])('refuses "%s" in the list before any SQL', async (property, reason) => {
    const call = upsertByText(manager, Page, [values], { update: [property as 'title'] })
    expect(await rejection(call)).toBeInstanceOf(DeclarationError)
    expect(await rejection(call)).toMatchObject({ message: expect.stringContaining(`"${property}": `) })
    expect(await rejection(call)).toMatchObject({ message: expect.stringContaining(reason) })
    expect(await manager.count(Page)).toBe(0)
  })

  test('refuses the scope in the list', async () => {
    const call = upsertByText(manager, Post, [], { by: 'slug', update: ['site'] })
    expect(await rejection(call)).toMatchObject({ message: expect.stringContaining('unique within it') })
  })

  test('a softly deleted row is updated, and stays deleted', async () => {
    await upsertByText(manager, Page, values)
    await manager.softDelete(Page, { id: 1 })
    const { entity, created } = await upsertByText(manager, Page, { url: 'http://a', title: 'B' })
    expect({ entity, created }).toMatchObject({
      created: false,
      entity: { id: 1, title: 'B', deletedAt: expect.any(Date) },
    })
  })

  test('a row without a text is refused, as findOrCreate refuses it', async () => {
    const [result] = await upsertByText(manager, Post, [{ email: null, slug: 'a', site: { id: 1 } }], {
      by: 'email',
    })
    expect(errorOf(result)).toMatchObject({ code: 'TEXT_REJECTED' })
  })
})

describe('skipUpdateIfNoValuesChanged', () => {
  const values = { url: 'http://a', title: 'A', visits: 1, meta: { tags: { b: 1, a: 2 } } }
  const options = { skipUpdateIfNoValuesChanged: true }

  test.each(['one row', 'many'])('leaves version and date of a row that holds the values: %s', async (how) => {
    const upsert = async (row: object): Promise<Page> =>
      how === 'many'
        ? rowOf((await upsertByText(manager, Page, [row], options))[0]).entity
        : (await upsertByText(manager, Page, row, options)).entity
    const first = await upsert(values)
    expect(await upsert({ ...values, meta: { tags: { a: 2, b: 1 } } })).toEqual(first)
    expect(await upsert({ ...values, visits: 2 })).toMatchObject({ visits: 2, version: 2 })
    expect(await upsert({ url: 'http://a', visits: null })).toMatchObject({ visits: null, version: 3 })
    expect(await manager.count(Page)).toBe(1)
  })

  test('in rows that bring different columns compares of each what it brings, in one statement', async () => {
    const rows = [
      { url: 'http://a/', title: 'A' },
      { url: 'http://b/', visits: 1 },
      { url: 'http://c/', title: 'C', visits: null },
    ]
    const old = rows.map((row) => ({ title: 'old', visits: 7, ...row }))
    await upsertByText(manager, Page, old)
    const sent = await queriesOf(dataSource, async () => {
      const results = await upsertByText(manager, Page, rows, options)
      expect(results.map((result) => rowOf(result).entity.version)).toEqual([1, 1, 1])
    })
    expect(sent.filter((sql) => sql.includes('UPDATE'))).toHaveLength(1)
    const changed = rows.map((row) => ({ ...row, ...('visits' in row ? { visits: 2 } : {}) }))
    const results = await upsertByText(manager, Page, changed, options)
    expect(results.map((result) => rowOf(result).entity.version)).toEqual([1, 2, 2])
  })

  test('compares texts as they are, whatever the collation calls equal', async () => {
    await dataSource.query(`create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
    const Loose = entity('Loose', { text: text(), title: column('text', { collation: 'loose' }) })
    const { manager } = await db.dataSource([Loose])
    for (const title of ['a', 'A']) {
      const { entity } = await upsertByText(manager, Loose, { text: 'x', title }, options)
      expect(entity.title).toBe(title)
    }
    const [many] = await upsertByText(manager, Loose, [{ text: 'x', title: 'a' }], options)
    expect(rowOf(many).entity.title).toBe('a')
  })

  test('compares numbers as they are stored', async () => {
    const { manager } = await db.dataSource([Rating])
    const row = { stars: '5', text: 'c', mean: '1.04' }
    const versions = new Set<string>()
    for (const rows of [row, [row], row]) {
      const [result] = [await upsertByText(manager, Rating, rows as never, options)].flat()
      const stored = await manager.query<[{ xmin: string }]>(`select xmin from rating where text = 'c'`)
      versions.add(stored[0].xmin)
      expect(result).toMatchObject({ entity: { mean: '1.0' } })
    }
    expect(versions.size).toBe(1)
  })

  test('compares json, which has no equality', async () => {
    const row = { text: 'a', code: 1, extra: { a: 1 } }
    for (const extra of [{ a: 1 }, { a: 1 }, { a: 2 }]) {
      const [result] = await upsertByText(manager, Coded, [{ ...row, extra }], options)
      expect(rowOf(result).entity).toEqual({ id: 1, ...row, extra })
    }
  })

  test('does not let a value that is too long pass for the one that is there', async () => {
    const title = 'x'.repeat(20)
    await upsertByText(manager, Page, { url: 'http://a', title })
    const long = { url: 'http://a', title: `${title}y` }
    expect(await rejection(upsertByText(manager, Page, long, options))).toMatchObject({ code: '22001' })
    expect(errorOf((await upsertByText(manager, Page, [long], options))[0])).toMatchObject({ code: '22001' })
  })
})

test('what one call updates says nothing of another with the same columns', async () => {
  const values = { url: 'http://a/', title: 'first', visits: 1 }
  await upsertByText(manager, Page, values)
  const titled = await upsertByText(manager, Page, { ...values, title: 'new', visits: 2 }, { update: ['title'] })
  expect(titled.entity).toMatchObject({ title: 'new', visits: 1, version: 2 })
  const visited = await upsertByText(manager, Page, { ...values, title: 'newer', visits: 2 }, { update: ['visits'] })
  expect(visited.entity).toMatchObject({ title: 'new', visits: 2, version: 3 })
  const same = { ...values, title: 'new', visits: 2 }
  const skipped = await upsertByText(manager, Page, same, { update: ['title'], skipUpdateIfNoValuesChanged: true })
  expect(skipped.entity).toMatchObject({ version: 3 })
  expect((await upsertByText(manager, Page, same, { update: ['title'] })).entity).toMatchObject({ version: 4 })
})

const Rating = entity('Rating', {
  stars: column('numeric', { precision: 3, scale: 1 }),
  text: text({ scope: ['stars'] }),
  note: plain(),
  mean: column('numeric', { precision: 3, scale: 1, nullable: true }),
  review: column('text', { nullable: true, insert: false }),
  length: column('integer', { generatedType: 'STORED', asExpression: 'length(text)', nullable: true }),
})

test('a scope that is stored in another form leads to the row all the same', async () => {
  const { manager } = await db.dataSource([Rating])
  for (const note of ['first', 'second', 'third']) {
    const rows = { stars: '1.04', text: 'a', note }
    const result = [await upsertByText(manager, Rating, (note === 'third' ? [rows] : rows) as never)].flat()
    expect(result).toMatchObject([{ created: note === 'first', entity: { stars: '1.0', note, length: 1 } }])
  }
  expect(await manager.countBy(Rating, { text: 'a' })).toBe(1)
  const loaded = await manager.findOneByOrFail(Rating, { text: 'a' })
  loaded.note = 'last'
  expect((await upsertByText(manager, Rating, loaded)).entity).toMatchObject({ note: 'last' })
  for (const [property, reason] of [
    ['length', 'the database generates it'],
    ['review', 'insert: false'],
  ] as const) {
    const call = upsertByText(manager, Rating, loaded, { update: [property] })
    expect(await rejection(call)).toMatchObject({ message: expect.stringContaining(reason) })
  }
})

test('scopes of one batch that are stored alike lead to one row, which the later values change', async () => {
  const { manager } = await db.dataSource([Rating])
  const rows = ['3.04', '2.96'].map((stars) => ({ stars, text: 'b', note: stars }))
  for (const created of [true, false]) {
    const results = await upsertByText(manager, Rating, rows)
    expect(results.map((result) => rowOf(result).created)).toEqual([created, false])
    expect(await manager.findBy(Rating, { text: 'b' })).toMatchObject([{ stars: '3.0', note: '2.96' }])
  }
})

test('a text that two rows hold, since the guard was off, is updated in neither', async () => {
  await upsertByText(manager, Coded, { text: 'a', code: 1 })
  await dataSource.transaction(async (inside) => {
    await inside.query('set local session_replication_role = replica')
    await inside.query(
      `insert into coded (text, code, "textHash", "textHashNumber") select text, 2, "textHash", 1 from coded`,
    )
  })
  for (const skipUpdateIfNoValuesChanged of [false, true]) {
    const options = { update: ['extra'], skipUpdateIfNoValuesChanged } as const
    const one = upsertByText(manager, Coded, { text: 'a', code: 3, extra: 'new' }, options)
    expect(await rejection(one)).toBeInstanceOf(DuplicateTextError)
    const [many] = await upsertByText(manager, Coded, [{ text: 'a', code: 3, extra: 'new' }], options)
    expect(errorOf(many)).toBeInstanceOf(DuplicateTextError)
  }
  expect(await manager.find(Coded, { order: { code: 'asc' } })).toMatchObject([
    { code: 1, extra: null },
    { code: 2, extra: null },
  ])
})

describe('equal texts in one call', () => {
  test('count as upserted one after the other: the first is created, and each changes what it brings', async () => {
    const rows = [
      { url: 'http://a', title: 'first', author: 'me' },
      { url: 'http://A', visits: 2, author: 'you' },
      { url: 'http://b', title: 'b' },
      { url: 'http://a/', title: 'last' },
    ]
    const created = await upsertByText(manager, Page, rows)
    const stored = { url: 'http://a/', title: 'last', visits: 2, author: 'me', version: 2 }
    expect(created.map((result) => rowOf(result).created)).toEqual([true, false, true, false])
    expect(created.map((result) => rowOf(result).entity)).toMatchObject([stored, stored, { url: 'http://b/' }, stored])
    const updated = await upsertByText(manager, Page, [rows[3] ?? {}, rows[0] ?? {}, rows[2] ?? {}])
    expect(rowOf(updated[0]).entity).toMatchObject({ title: 'first', version: 4 })
    expect(updated.map((result) => rowOf(result).created)).toEqual([false, false, false])
  })

  test('of which one brings another text of the entity', async () => {
    const site = await dataSource.getRepository(Site).save({})
    const rows = [
      { site, slug: 'a', email: 'a@a' },
      { site, slug: 'a', email: 'b@b' },
    ]
    const results = await upsertByText(manager, Post, rows, { by: 'slug' })
    expect(rowOf(results[0]).entity).toMatchObject({ email: 'b@b' })
    expect(await upsertByText(manager, Post, { site, slug: 'c', email: 'b@b' }, { by: 'email' })).toMatchObject({
      created: false,
      entity: { slug: 'c' },
    })
  })
})

describe('collisions', () => {
  test('of a published MD5 pair are two rows, each with its own values', async () => {
    const site = await dataSource.getRepository(Site).save({})
    const rows = STEVENS.map((slug) => ({ site, slug, title: `of ${slug}` }))
    const options = { by: 'slug', update: ['title'] } as const
    for (const created of [true, false]) {
      const results = await upsertByText(manager, Post, rows, options)
      expect(results.map((result) => rowOf(result).created)).toEqual([created, created])
      expect(results.map((result) => rowOf(result).entity)).toMatchObject(
        rows.map(({ slug, title }) => ({ slug, title })),
      )
    }
    for (const slug of STEVENS) await upsertByText(manager, Post, { site, slug, title: `new ${slug}` }, options)
    const posts = await manager.find(Post, { order: { slug: 'asc' } })
    expect(posts.map(({ title }) => title)).toEqual(STEVENS.map((slug) => `new ${slug}`))
  })

  test('of a digest cut to a byte never reach the row of another text', async () => {
    const texts = Array.from({ length: 600 }, (_, index) => `text ${index}`)
    for (const round of [1, 2, 3]) {
      const half = texts.filter((_, index) => round === 3 || index % 2 === round - 1)
      const rows = half.map((text) => ({ text, note: `${round} ${text}` }))
      const results = await upsertByText(manager, Colliding, rows)
      expect(results.map((result) => rowOf(result).entity)).toMatchObject(rows)
    }
    const stored = await manager.find(Colliding)
    expect(stored).toHaveLength(texts.length)
    for (const { text, note } of stored) expect(note).toBe(`3 ${text}`)
  })
})

describe('a row that is refused', () => {
  test('for another unique index fails alone, created or updated', async () => {
    await upsertByText(manager, Coded, [
      { text: 'a', code: 1 },
      { text: 'b', code: 2 },
    ])
    const results = await upsertByText(manager, Coded, [
      { text: 'a', code: 2 },
      { text: 'c', code: 1 },
      { text: 'd', code: 4 },
      { text: 'b', code: 5 },
    ])
    expect(results.map(errorOf)).toMatchObject([{ code: '23505' }, { code: '23505' }, undefined, undefined])
    expect(await manager.find(Coded, { select: { text: true, code: true }, order: { text: 'asc' } })).toEqual([
      { text: 'a', code: 1 },
      { text: 'b', code: 5 },
      { text: 'd', code: 4 },
    ])
  })

  test('for another text that is immutable, or taken, fails alone too', async () => {
    const members = ['a', 'b', 'c'].map((handle) => ({ handle, email: `${handle}@x`, note: 'old' }))
    const created = await upsertByText(manager, Member, members, { by: 'handle' })
    const changed = [
      { handle: 'a', email: 'new@x', note: 'new' },
      { handle: 'b', email: 'b@x', note: 'new' },
      { handle: 'd', email: 'c@x', note: 'new' },
    ]
    const results = await upsertByText(manager, Member, changed, { by: 'handle' })
    expect(errorOf(results[0])).toMatchObject({ code: 'IMMUTABLE_TEXT', property: 'email' })
    expect(errorOf(results[1])).toBeUndefined()
    expect(errorOf(results[2])).toMatchObject({
      code: 'TEXT_TAKEN',
      taken: [{ property: 'email', id: { id: rowOf(created[2]).entity.id } }],
    })
    const one = upsertByText(manager, Member, changed[0] ?? {}, { by: 'handle' })
    expect(await rejection(one)).toMatchObject({ code: 'IMMUTABLE_TEXT', property: 'email' })
    const stored = await manager.find(Member, { order: { handle: 'asc' } })
    expect(stored.map(({ note }) => note)).toEqual(['old', 'new', 'old'])
  })

  test("leaves the caller's transaction usable, alone and among others", async () => {
    await dataSource.transaction(async (manager) => {
      await upsertByText(manager, Coded, [
        { text: 'a', code: 1 },
        { text: 'b', code: 2 },
      ])
      const taken = { text: 'a', code: 2 }
      expect(await rejection(upsertByText(manager, Coded, taken))).toMatchObject({ code: '23505' })
      const results = await upsertByText(manager, Coded, [taken, { text: 'c', code: 3 }])
      expect(errorOf(results[0])).toMatchObject({ code: '23505' })
      expect(await manager.count(Coded)).toBe(3)
    })
    expect(await manager.count(Coded)).toBe(3)
  })
})

test('a row of another class is not changed', async () => {
  await upsertByText(manager, Cat, { name: 'Tom', food: 'fish' })
  const one = upsertByText(manager, Dog, { name: 'Tom', food: 'bones' })
  expect(await rejection(one)).toMatchObject({ message: expect.stringContaining('No row of Dog can hold it too') })
  const many = await upsertByText(manager, Dog, [
    { name: 'Tom', food: 'bones' },
    { name: 'Rex', food: 'bones' },
  ])
  expect(errorOf(many[0])).toBeInstanceOf(TextTakenError)
  expect(rowOf(many[1]).entity).toBeInstanceOf(Dog)
  expect(await upsertByText(manager, Animal, { name: 'Rex', food: 'meat' })).toMatchObject({ created: false })
  expect(await manager.find(Animal, { order: { id: 'asc' } })).toMatchObject([{ food: 'fish' }, { food: 'meat' }])
})

test('a row of a child class is changed, and so is one of a class that is not known, through the root', async () => {
  await upsertByText(manager, Lion, { name: 'Leo', food: 'fish' })
  await dataSource.query(`insert into animal (kind, name, food) values ('Bird', 'Tweety', 'seed')`)
  for (const food of ['meat', 'more']) {
    const rows = food === 'meat' ? [{ name: 'Leo', food }] : { name: 'Leo', food }
    const [lion] = [await upsertByText(manager, Cat, rows as never)].flat()
    expect(lion).toMatchObject({ created: false, entity: { food } })
    const birds = food === 'meat' ? [{ name: 'Tweety', food }] : { name: 'Tweety', food }
    expect([await upsertByText(manager, Animal, birds as never)].flat()).toMatchObject([{ entity: { food } }])
  }
  expect(await manager.find(Lion)).toMatchObject([{ food: 'more' }])
})

test('a trigger that keeps a row from being updated is respected', async () => {
  await upsertByText(manager, Coded, { text: 'a', code: 1 })
  await dataSource.query(
    `create trigger same before update on coded for each row execute function suppress_redundant_updates_trigger()`,
  )
  try {
    for (const rows of [{ text: 'a', code: 1 }, [{ text: 'a', code: 1 }]]) {
      const result = [await upsertByText(manager, Coded, rows as never)].flat()
      expect(result).toMatchObject([{ created: false, attempts: 1, entity: { id: 1, code: 1 } }])
    }
  } finally {
    await dataSource.query('drop trigger same on coded')
  }
})
