import { Client } from 'pg'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  DeclarationError,
  DuplicateTextError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  ImmutableTextError,
  SchemaDriftError,
  TextRejectedError,
  UniqueText,
  UnsupportedDatabaseError,
  withUniqueText,
} from '../../../src'
import { Url } from '../../../src/url'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'

const db = useDatabase()

const Page = entity('Page', { url: text(), name: text({ immutable: true, nullable: true }) })

const by = { by: 'url' } as const
const secret = 'a-secret-that-no-message-may-hold'

describe('a declaration that contradicts its entity', () => {
  const initialise = async (declare: (prototype: object) => void) => {
    class Broken {
      id!: number
    }
    PrimaryGeneratedColumn('identity')(Broken.prototype, 'id')
    declare(Broken.prototype)
    Entity()(Broken)
    await db.dataSource([Broken], { synchronize: false })
  }
  const text = Column({ type: 'text' })
  const cases: [string, RegExp, (prototype: object) => void][] = [
    ['an unknown scope property', /scope names "nowhere"/, (p) => UniqueText({ scope: ['nowhere'] })(p, 'text')],
    [
      'a column that is no text',
      /must be of type text or varchar. For citext use text and lowerCase/,
      (p) => {
        UniqueText()(p, 'text')
        Column({ type: 'integer' })(p, 'text')
      },
    ],
    [
      'two declarations on one column',
      /another declaration has the column "text"/,
      (p) => {
        UniqueText()(p, 'text')
        UniqueText({ as: 'both', columns: ['text', 'more'] })(p.constructor)
        text(p, 'more')
      },
    ],
    ['a column that is missing', /no column "gone"/, (p) => UniqueText({ as: 'x', columns: ['gone'] })(p.constructor)],
  ]
  test.each(cases)('%s is refused', async (_, message, declare) => {
    const error = await initialise(declare).catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(DeclarationError)
    expect(error).toMatchObject({ name: 'DeclarationError', code: 'INVALID_DECLARATION' })
    expect(String(error)).toMatch(message)
  })
})

describe('a database that will not do', () => {
  test('another database is refused before it is connected to', () => {
    const cockroach = new DataSource({ type: 'cockroachdb', host: 'nowhere', timeTravelQueries: false })
    expect(() => withUniqueText(cockroach)).toThrow(UnsupportedDatabaseError)
  })

  test('a missing table, index or guard is told before anything is written, and its repair is seen', async () => {
    const dataSource = await db.dataSource([Page], { synchronize: false })
    const { manager } = dataSource
    const first = await findOrCreate(manager, Page, { url: secret }, by).catch((error: unknown) => error)
    expect(first).toBeInstanceOf(SchemaDriftError)
    expect(first).toMatchObject({ findings: [{ kind: 'missing', object: 'table', name: 'page' }] })
    await dataSource.synchronize()
    await dataSource.query('DROP TRIGGER unique_text_page__url_settle_insert ON page')
    await dataSource.query('ALTER TABLE page DISABLE TRIGGER unique_text_page__url_place_insert')
    const second = await findOneByText(manager, Page, { url: secret }, by).catch((error: unknown) => error)
    expect(second).toMatchObject({
      findings: [
        { kind: 'disabled', object: 'guard', name: 'unique_text_page__url_place_insert' },
        { kind: 'missing', object: 'guard', name: 'unique_text_page__url_settle_insert' },
      ],
    })
    expect(String(second)).not.toContain(secret)
    await dataSource.synchronize()
    expect(await findOrCreate(manager, Page, { url: secret }, by)).toMatchObject({ created: true })
    await dataSource.destroy()
  })
})

describe('a text that cannot be kept', () => {
  test.each([
    ['a number', 5, 'expected a string, got number', undefined],
    ['nothing', undefined, 'expected a string, got undefined', undefined],
    ['U+0000', `${secret}\0`, 'U+0000', secret.length],
    ['a lone surrogate', `😀\uD800`, 'lone surrogate', 1],
  ])('%s is refused before any SQL', async (_, text, reason, offset) => {
    const dataSource = await db.dataSource([Page], { dropSchema: true })
    const { manager } = dataSource
    const values = { url: text as string }
    const refused = expect.objectContaining({ code: 'TEXT_REJECTED', property: 'url', offset })
    await expect(findOrCreate(manager, Page, values, by)).rejects.toEqual(refused)
    // What only looks finds nothing, unless it is given no text at all.
    const looked = await findOneByText(manager, Page, values, by).catch((caught: unknown) => caught)
    expect(looked).toEqual(offset === undefined ? refused : null)
    const [result] = await findOrCreateMany(manager, Page, [values], by)
    expect(result).toEqual({ error: refused })
    const error = await findOrCreate(manager, Page, values, by).catch((caught: unknown) => caught)
    expect(String(error)).toContain(reason)
    expect(String(error)).not.toContain(secret)
    expect(error).toBeInstanceOf(TextRejectedError)
  })

  test('save refuses it too', async () => {
    const dataSource = await db.dataSource([Page], { dropSchema: true })
    await expect(dataSource.getRepository(Page).save({ url: 'x\0' })).rejects.toBeInstanceOf(TextRejectedError)
  })
})

test('a changed immutable text is refused by save before any SQL, and by the guard for everyone else', async () => {
  const dataSource = await db.dataSource([Page, Url], { dropSchema: true })
  const pages = dataSource.getRepository(Page)
  const page = await pages.save(pages.create({ url: 'x', name: null }))
  page.name = 'given once'
  await pages.save(page)
  page.name = 'changed'
  await expect(pages.save(page)).rejects.toBeInstanceOf(ImmutableTextError)
  await expect(pages.update({ id: page.id }, { name: 'changed' })).rejects.toMatchObject({
    driverError: { code: 'UT001' },
  })
  expect(await pages.findOneByOrFail({ id: page.id })).toMatchObject({ name: 'given once' })

  const url = await Url.parse('http://example.com/a')
  if (!url) throw new Error('That is a URL.')
  url.host = 'example.org'
  await expect(url.save()).rejects.toBeInstanceOf(ImmutableTextError)
  expect(await Url.find()).toMatchObject([{ host: 'example.com' }])
})

test('two rows with one text, stored while the guard was off, are told with their keys', async () => {
  const dataSource = await db.dataSource([Page], { dropSchema: true })
  const { manager } = dataSource
  await findOrCreate(manager, Page, { url: secret }, by)
  const client: Client = await db.client()
  await client.query(`SET session_replication_role = replica`)
  await client.query(`INSERT INTO page (url, "urlHash", "urlHashNumber") VALUES ($1, md5($1)::uuid, 1)`, [secret])
  const told = expect.objectContaining({ code: 'DUPLICATE_TEXT', ids: [{ id: 1 }, { id: 2 }] })
  await expect(findOneByText(manager, Page, { url: secret }, by)).rejects.toEqual(told)
  await expect(findOrCreate(manager, Page, { url: secret }, by)).rejects.toBeInstanceOf(DuplicateTextError)
  expect(await findOrCreateMany(manager, Page, [{ url: secret }], by)).toEqual([{ error: told }])
})
