import { Column, type DataSource, DefaultNamingStrategy, Entity, EntitySchema, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreateMany, UniqueText, uniqueTextSchema, upsertByText } from '../../../src'
import { url } from '../../../src/text'
import { uniqueTextPaths } from '../../../src/typeorm-calls'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { deleteDate, entity, plain, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { STEVENS } from '../../support/md5-collisions'
import { Page } from '../../support/normalized-page'

const Site = entity('Site', {})
const Post = entity('Post', {
  site: toOne(() => Site, { nullable: false }),
  slug: text({ scope: ['site'] }),
  previous: text({ name: 'old', hidden: { hash: 'h', number: 'n', chained: 'c' } }),
})

interface Plain {
  id: number
  url: string
}
const PlainSchema = new EntitySchema<Plain>(
  uniqueTextSchema<Plain>(
    { name: 'Plain', columns: { id: { type: Number, primary: true, generated: true } } },
    { url: { normalize: url() } },
  ),
)

@Entity()
class Named {
  @PrimaryGeneratedColumn('identity', { type: 'integer', name: 'named_id' }) id!: number
  @Column({ type: 'text', name: 'the_host' }) host!: string
  @UniqueText({ name: 'the_path', scope: ['host'] }) path!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
}

class UpperCase extends DefaultNamingStrategy {
  override columnName(propertyName: string, customName: string | undefined): string {
    return customName ?? propertyName.toUpperCase()
  }
}

const Draft = entity('Draft', { name: text({ ignoreDeleted: true }), body: plain(), deletedAt: deleteDate() })

/** All texts share one hash. */
const Word = entity('Word', { text: text({ digest: oneHash }), note: plain() })

const db = useDatabase()

test('uniqueTextPaths() takes a scope that is a relation, one of several texts, and an EntitySchema', async () => {
  const dataSource = await db.dataSource([Post, Site, PlainSchema])
  const site = await dataSource.getRepository(Site).save({})
  const posts = dataSource.getRepository(Post)
  await posts.upsert({ site, slug: 'a', previous: 'x' }, uniqueTextPaths(Post, 'slug'))
  await posts.upsert({ site, slug: 'a', previous: 'y' }, uniqueTextPaths(Post, 'slug'))
  await posts.upsert({ site, slug: 'b', previous: 'y' }, uniqueTextPaths(Post, 'previous'))
  expect(await posts.find()).toMatchObject([{ id: 1, slug: 'b', previous: 'y' }])
  const plain = dataSource.getRepository(PlainSchema)
  await plain.upsert([{ url: 'HTTP://A' }], uniqueTextPaths(PlainSchema))
  await plain.upsert([{ url: 'http://a/' }], uniqueTextPaths(PlainSchema))
  expect(await plain.count()).toBe(1)
})

test('upsert() by the text alone says what to pass', async () => {
  const dataSource = await db.dataSource([Site, Page, Post])
  const pages = dataSource.getRepository(Page)
  const hint = /upsert\(\) of Page by "url".*uniqueTextPaths\(Page, 'url'\)/u
  const error = await pages.upsert([{ url: 'http://hint/' }], ['url']).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({
    name: 'DeclarationError',
    driverError: { code: '42P10' },
    message: expect.stringMatching(hint),
  })
  await expect(
    dataSource.query('insert into site default values on conflict (nothing) do nothing'),
  ).rejects.toMatchObject({
    name: 'QueryFailedError',
  })
})

test('uniqueTextPaths() says which texts an entity declares', () => {
  expect(() => uniqueTextPaths(Post)).toThrow('several unique texts. Name one of "slug", "previous".')
  expect(() => uniqueTextPaths(Post, 'title')).toThrow('no unique text "title". Name one of "slug", "previous".')
  expect(() => uniqueTextPaths(Site)).toThrow(DeclarationError)
  expect(() => uniqueTextPaths('Page')).toThrow('Pass a class or an EntitySchema')
})

test('uniqueTextPaths() names properties, whatever the naming strategy makes of them', async () => {
  const dataSource = await db.dataSource([Named], { namingStrategy: new UpperCase() })
  const named = dataSource.getRepository(Named)
  await named.upsert({ host: 'a', path: '/', note: 'old' }, uniqueTextPaths(Named))
  const rows = [
    { host: 'a', path: '/', note: 'new' },
    { host: 'b', path: '/', note: 'b' },
  ]
  await named.upsert(rows, uniqueTextPaths(Named, 'path'))
  expect(await named.find({ order: { host: 'asc' } })).toMatchObject(rows)
})

describe('where texts of equal hash meet', () => {
  let dataSource: DataSource
  beforeEach(async () => {
    dataSource = await db.dataSource([Named, Word], { dropSchema: true })
  })

  /** Another session inserts a text of equal hash while the upsert is under way. */
  async function meet(upsert: () => Promise<unknown>): Promise<unknown> {
    const [other, observer] = [await db.client(), await db.client()]
    await other.query(`BEGIN; INSERT INTO word (text, note) VALUES ('b', 'theirs')`)
    const waiting = upsert().catch((error: unknown) => error)
    await untilBlocked(observer)
    await other.query('COMMIT')
    return await waiting
  }

  test('upsert() updates each text of an MD5 pair in its own row, and gives its id', async () => {
    const named = dataSource.getRepository(Named)
    for (const note of ['old', 'new']) {
      const rows = STEVENS.map((path) => named.create({ host: 'a', path, note: `${note} ${path}` }))
      await named.upsert(rows, uniqueTextPaths(Named))
      for (const { id, path } of rows)
        expect(await named.findOneBy({ id })).toMatchObject({ path, note: `${note} ${path}` })
    }
    expect(await named.count()).toBe(2)
  })

  test('upsert() sets the text too, and so is refused where it would write into the row of another text', async () => {
    const words = dataSource.getRepository(Word)
    const upsert = (): Promise<unknown> => words.upsert({ text: 'a', note: 'ours' }, uniqueTextPaths(Word))
    expect(await meet(upsert)).toMatchObject({ code: '40001' })
    await upsert()
    expect(await words.find({ order: { text: 'asc' } })).toMatchObject([{ note: 'ours' }, { note: 'theirs' }])
  })

  const orUpdate = (columns: string[]): Promise<unknown> =>
    dataSource
      .createQueryBuilder()
      .insert()
      .into(Word)
      .values({ text: 'a', note: 'ours' })
      .orUpdate(columns, ['textHash', 'textHashNumber'])
      .execute()

  test('orUpdate() with the text among its columns is refused there too', async () => {
    expect(await meet(() => orUpdate(['text', 'note']))).toMatchObject({ code: '40001' })
    await orUpdate(['text', 'note'])
    const words = await dataSource.manager.find(Word, { order: { text: 'asc' } })
    expect(words).toMatchObject([{ note: 'ours' }, { note: 'theirs' }])
  })

  test('orUpdate() without the text writes into the row of another text', async () => {
    await meet(() => orUpdate(['note']))
    expect(await dataSource.manager.find(Word)).toMatchObject([{ text: 'b', note: 'ours' }])
  })
})

describe('a trap of TypeORM', () => {
  let dataSource: DataSource
  const texts = ['http://there/', 'http://new/', 'http://also-there/']
  beforeEach(async () => {
    dataSource = await db.dataSource([Page], { dropSchema: true })
    await dataSource.manager.insert(Page, [{ url: 'http://there/' }, { url: 'http://also-there/' }])
  })
  const storedUrls = (pages: readonly { id?: number }[]): Promise<unknown[]> =>
    Promise.all(
      pages.map(async ({ id }) => (id ? (await dataSource.manager.findOneByOrFail(Page, { id })).url : undefined)),
    )

  test('orIgnore() puts the ids of the rows that it inserted on the entities before them', async () => {
    const pages = dataSource.manager.create(
      Page,
      texts.map((text) => ({ url: text })),
    )
    await dataSource.createQueryBuilder().insert().into(Page).values(pages).orIgnore().execute()
    expect(await storedUrls(pages)).toEqual(['http://new/', undefined, undefined])
    const results = await findOrCreateMany(
      dataSource.manager,
      Page,
      texts.map((text) => ({ url: text })),
    )
    expect(await storedUrls(results.map((result) => ('entity' in result ? result.entity : {})))).toEqual(texts)
  })

  test('upsert() with skipUpdateIfNoValuesChanged does so with those that it inserted or changed', async () => {
    const options = { conflictPaths: uniqueTextPaths(Page), skipUpdateIfNoValuesChanged: true }
    const pages = dataSource.manager.create(
      Page,
      texts.map((text) => ({ url: text })),
    )
    await dataSource.manager.upsert(Page, pages, options)
    expect(await storedUrls(pages)).toEqual(['http://new/', undefined, undefined])
    const rows = texts.map((text) => ({ url: text }))
    const results = await upsertByText(dataSource.manager, Page, rows, { skipUpdateIfNoValuesChanged: true })
    expect(await storedUrls(results.map((result) => ('entity' in result ? result.entity : {})))).toEqual(texts)
  })
})

test('upsert() of texts that a deletion frees names the condition of the index', async () => {
  const dataSource = await db.dataSource([Draft])
  const drafts = dataSource.getRepository(Draft)
  const options = { conflictPaths: uniqueTextPaths(Draft), indexPredicate: '"deletedAt" IS NULL' }
  for (const body of ['first', 'second']) {
    await drafts.upsert({ name: 'a', body: 'old' }, options)
    await drafts.upsert({ name: 'a', body }, options)
    await drafts.softDelete({ name: 'a' })
  }
  const stored = await drafts.find({ withDeleted: true, order: { id: 'asc' } })
  expect(stored).toMatchObject([{ body: 'first' }, { body: 'second' }])
  expect(await rejection(drafts.upsert({ name: 'a' }, uniqueTextPaths(Draft)))).toMatchObject({ code: '42P10' })
})
