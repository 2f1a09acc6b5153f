import type { DataSource, Repository } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  HashCollisionError,
  insertOrFail,
  TextTakenError,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { adopt, AdoptionError } from '../../../src/adopt'
import { doctor } from '../../../src/doctor'
import { findOrCreateStream } from '../../../src/stream'
import { trim } from '../../../src/text'
import { sha256 } from '../../../src/text/digest'
import { textEquals, uniqueTextPaths } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { column, deleteDate, entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Page = entity('Page', {
  url: text({ digest: 'sha256', guard: false, normalize: trim() }),
  title: plain(),
  deletedAt: deleteDate(),
})
type Page = InstanceType<typeof Page>

const Link = entity('Link', { host: column('text'), path: column('text'), query: plain() })
UniqueText({
  as: 'address',
  columns: ['path', { property: 'query', prefix: '?' }],
  scope: ['host'],
  digest: 'sha256',
  guard: false,
})(Link)

const Account = entity('Account', {
  handle: text({ digest: oneHash, nullable: true }),
  email: text({ digest: 'sha256', guard: false, nullable: true }),
})
const Note = entity('Note', {
  slug: text({ digest: 'sha256', guard: false, ignoreDeleted: true }),
  deletedAt: deleteDate(),
})

const db = useDatabase()
const entities = [Page, Link, Account, Note]
let dataSource: DataSource
let pages: Repository<Page>

/** An engine that has neither triggers nor functions of a user's. */
const WITHOUT_TRIGGERS = `
  CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no %', tg_tag; END $$;
  CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE TRIGGER', 'CREATE FUNCTION')
    EXECUTE FUNCTION refuse()`

beforeAll(async () => {
  const client = await db.client()
  await client.query(WITHOUT_TRIGGERS)
  await db.dataSource([Page, Link, Note])
  await client.query('DROP EVENT TRIGGER refuse')
  dataSource = await db.dataSource(entities)
  pages = dataSource.getRepository(Page)
})

beforeEach(() => dataSource.query('TRUNCATE page, link, account, note'))

test('its tables have no triggers, in a database that refuses them', async () => {
  const rows = await dataSource.query(
    `SELECT FROM pg_trigger WHERE tgrelid = ANY (ARRAY['page', 'link', 'note']::regclass[])`,
  )
  expect(rows).toStrictEqual([])
})

describe('operations', () => {
  test('findOrCreate creates a text once, normalized, and finds it', async () => {
    const first = await findOrCreate(dataSource.manager, Page, { url: ' a ', title: 'one' })
    const second = await findOrCreate(dataSource.manager, Page, { url: 'a' })
    expect([first.created, second.created, second.entity]).toStrictEqual([true, false, first.entity])
  })

  test('findOrCreateMany, streams and nested transactions give each input its own row', async () => {
    const inputs = ['a', 'b', ' a', 'c'].map((url) => ({ url }))
    const results = await findOrCreateMany(dataSource.manager, Page, inputs)
    expect(results.map((one) => 'entity' in one && [one.entity.url, one.created])).toStrictEqual([
      ['a', true],
      ['b', true],
      ['a', false],
      ['c', true],
    ])
    const streamed = []
    for await (const one of findOrCreateStream(dataSource, Page, [{ url: 'c' }, { url: 'd' }]))
      streamed.push('entity' in one && [one.entity.url, one.created])
    expect(streamed).toStrictEqual([
      ['c', false],
      ['d', true],
    ])
  })

  test('upsertByText updates the row that holds the text', async () => {
    await upsertByText(dataSource.manager, Page, { url: 'a', title: 'one' })
    const results = await upsertByText(dataSource.manager, Page, [
      { url: 'a', title: 'two' },
      { url: 'b', title: 'three' },
    ])
    expect(results.map((one) => 'entity' in one && [one.entity.title, one.created])).toStrictEqual([
      ['two', false],
      ['three', true],
    ])
  })

  test('insertOrFail and updateOrFail name the holder', async () => {
    const [a, b] = await insertOrFail(dataSource.manager, Page, [{ url: 'a' }, { url: 'b' }])
    const inserted = await rejection(insertOrFail(dataSource.manager, Page, { url: 'a' }))
    const updated = await rejection(updateOrFail(dataSource.manager, Page, b?.id ?? 0, { url: 'a' }))
    for (const error of [inserted, updated]) {
      expect(error).toBeInstanceOf(TextTakenError)
      expect((error as TextTakenError).taken[0]?.id).toStrictEqual({ id: a?.id })
    }
    expect(await updateOrFail(dataSource.manager, Page, b?.id ?? 0, { url: ' c ' })).toMatchObject({ url: 'c' })
    expect(await findOneByText(dataSource.manager, Page, { url: 'c' })).toMatchObject({ id: b?.id })
  })

  test('a text of several columns is unique in its scope, and so is one that a change of one column makes', async () => {
    const { manager } = dataSource
    const { entity } = await findOrCreate(manager, Link, { host: 'h', path: '/a', query: 'q' }, { by: 'address' })
    await findOrCreate(manager, Link, { host: 'i', path: '/a', query: 'q' }, { by: 'address' })
    await manager.update(Link, { id: entity.id }, { query: null })
    expect(await findOneByText(manager, Link, { host: 'h', path: '/a', query: null })).toMatchObject({ id: entity.id })
    await manager.save(Link, Object.assign(entity, { query: "it's :new" }))
    expect(await findOneByText(manager, Link, { host: 'h', path: '/a', query: "it's :new" })).toMatchObject({
      id: entity.id,
    })
    const taken = updateOrFail(manager, Link, entity.id, { host: 'i', query: 'q' })
    await expect(taken).rejects.toBeInstanceOf(TextTakenError)
  })

  test('beside a text with a guard each keeps to its own', async () => {
    const { manager } = dataSource
    const by = { by: 'handle' } as const
    const rows = ['a', 'b', 'c'].map((name) => ({ handle: name, email: name === 'c' ? null : `${name}@x.example` }))
    const results = await findOrCreateMany(manager, Account, rows, by)
    expect(results.map((one) => 'created' in one && one.created)).toStrictEqual([true, true, true])
    const options = { ...by, update: ['email'] as const }
    const one = await upsertByText(manager, Account, { handle: 'b', email: 'new@x.example' }, options)
    expect(one).toMatchObject({ created: false, entity: { email: 'new@x.example' } })
    await upsertByText(
      manager,
      Account,
      [
        { handle: 'c', email: 'first@x.example' },
        { handle: 'c', email: 'c@x.example' },
      ],
      options,
    )
    const found = await findOneByText(manager, Account, { email: 'c@x.example' }, { by: 'email' })
    expect(found).toMatchObject({ handle: 'c' })
    const taken = await rejection(findOrCreate(manager, Account, { handle: 'd', email: 'a@x.example' }, by))
    expect(taken).toBeInstanceOf(TextTakenError)
    expect((await doctor(dataSource, { entities: [Account] })).healthy).toBe(true)
  })

  test('a row that is deleted softly holds its text, and frees it with ignoreDeleted', async () => {
    const { manager } = dataSource
    const { id } = await insertOrFail(manager, Page, { url: 'a' })
    await pages.softDelete({ url: 'a' })
    expect((await findOrCreate(manager, Page, { url: 'a' })).entity.id).toBe(id)
    const first = await insertOrFail(manager, Note, { slug: 'a' })
    await manager.softDelete(Note, { slug: 'a' })
    const second = await findOrCreate(manager, Note, { slug: 'a' })
    expect(second.created).toBe(true)
    await expect(manager.restore(Note, first.id)).rejects.toBeInstanceOf(TextTakenError)
  })
})

describe("TypeORM's own calls", () => {
  test('save, insert and upsert send the hash, and look-ups go by it', async () => {
    const saved = await pages.save([pages.create({ url: ' a ' }), pages.create({ url: 'b' })])
    await pages.insert([{ url: 'c' }, { url: () => `upper('d')` }])
    await pages.upsert([{ url: 'a', title: 'again' }], uniqueTextPaths(Page))
    await pages.upsert([{ id: saved[1]?.id ?? 0, url: 'B' }], ['id'])
    const rows = await pages.find({ order: { id: 'ASC' } })
    expect(rows.map(({ url, title }) => [url, title])).toStrictEqual([
      ['a', 'again'],
      ['B', null],
      ['c', null],
      ['D', null],
    ])
    for (const { url, id } of rows) {
      expect(await pages.findOneBy({ url: textEquals(url) })).toMatchObject({ id })
      expect(await findOneByText(dataSource.manager, Page, { url })).toMatchObject({ id })
    }
  })

  test('a changed text gets its hash by save, update and a function of SQL', async () => {
    const page = await pages.save({ url: 'a' })
    await pages.save(Object.assign(page, { url: 'b' }))
    expect(await pages.findOneBy({ url: 'b' })).toMatchObject({ id: page.id })
    await pages.update({ url: 'b' }, { url: ' c ' })
    expect(await pages.findOneBy({ url: 'c' })).toMatchObject({ id: page.id })
    await pages.update(page.id, { url: () => `"url" || '!'`, title: 'new' })
    expect(await pages.findOneBy({ url: 'c!' })).toMatchObject({ id: page.id, title: 'new' })
  })

  test('a taken text is told as such', async () => {
    const { id } = await pages.save({ url: 'a' })
    for (const call of [() => pages.save({ url: ' a' }), () => pages.insert({ url: 'a' })]) {
      const error = await rejection(call())
      expect(error).toBeInstanceOf(TextTakenError)
      expect((error as TextTakenError).taken[0]?.id).toStrictEqual({ id })
    }
  })

  test('NULL is no text', async () => {
    const accounts = dataSource.getRepository(Account)
    const first = await accounts.save({ email: null, handle: null })
    await accounts.save([{ email: null }, { handle: null }])
    await accounts.update(first.id, { email: 'a' })
    await accounts.update({ email: 'a' }, { email: null })
    expect(await accounts.count()).toBe(3)
  })
})

describe('raw SQL', () => {
  const sql = `INSERT INTO page (url, "urlHash") VALUES ($1, $2)`

  test('is refused without the hash, with a wrong one, and with another number', async () => {
    const codes = []
    for (const [text, values] of [
      [`INSERT INTO page (url) VALUES ('a')`, []],
      [sql, ['a', sha256.js('b')]],
      [`INSERT INTO page (url, "urlHash", "urlHashNumber") VALUES ($1, $2, 1)`, ['a', sha256.js('a')]],
      [`INSERT INTO account (email) VALUES ('a')`, []],
    ] as const) {
      codes.push(Reflect.get(Object(await rejection(dataSource.query(text, [...values]))), 'code'))
    }
    expect(codes).toStrictEqual(['23502', '23514', '23514', '23514'])
    expect(await pages.count()).toBe(0)
  })

  test('that sends the hash stores a text once, and changes it with its hash only', async () => {
    await dataSource.query(sql, ['a', sha256.js('a')])
    await expect(dataSource.query(sql, ['a', sha256.js('a')])).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
    const change = `UPDATE page SET url = 'b'`
    await expect(dataSource.query(change)).rejects.toMatchObject({ code: '23514' })
    await dataSource.query(`${change}, "urlHash" = sha256(convert_to('b', 'UTF8'))`)
    expect(await findOneByText(dataSource.manager, Page, { url: 'b' })).not.toBeNull()
  })
})

describe('another text of equal hash, as only a forger can store it', () => {
  const forge = async (table: string, columns: Readonly<Record<string, string>>, hash: string): Promise<void> => {
    const names = Object.keys(columns).map((name) => `"${name}"`)
    const values = Object.values(columns)
    const checks: { name: string }[] = await dataSource.query(
      `SELECT conname AS name FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'`,
      [table],
    )
    for (const { name } of checks) await dataSource.query(`ALTER TABLE ${table} DROP CONSTRAINT "${name}"`)
    await dataSource.query(
      `INSERT INTO ${table} (${names.join(', ')}, "${table === 'link' ? 'addressHash' : 'urlHash'}")
       VALUES (${values.map((_, index) => `$${index + 1}`).join(', ')}, $${values.length + 1})`,
      [...values, hash],
    )
  }
  const code = 'HASH_COLLISION'

  beforeAll(async () => {
    // What is looked at once would see that the check is gone.
    await findOrCreate(dataSource.manager, Page, { url: 'x' })
    await findOrCreate(dataSource.manager, Link, { host: 'h', path: 'x' })
  })

  beforeEach(async () => {
    await forge('page', { url: 'forged' }, sha256.js('a'))
    await forge('link', { host: 'h', path: 'forged' }, sha256.js('/a?b'))
  })

  test('is never answered, and refuses the text with an error of its own', async () => {
    const { manager } = dataSource
    const other = await insertOrFail(manager, Page, { url: 'other' })
    expect(await findOneByText(manager, Page, { url: 'a' })).toBeNull()
    for (const call of [
      () => findOrCreate(manager, Page, { url: 'a' }),
      () => upsertByText(manager, Page, { url: 'a', title: 'new' }),
      () => insertOrFail(manager, Page, { url: 'a' }),
      () => insertOrFail(manager, Page, [{ url: 'b' }, { url: 'a' }]),
      () => updateOrFail(manager, Page, other.id, { url: 'a' }),
      () => manager.insert(Page, { url: 'a' }),
      () => manager.update(Page, other.id, { url: 'a' }),
      () => manager.save(Page, { url: 'a' }),
    ]) {
      const error = await rejection(call())
      expect(error).toBeInstanceOf(HashCollisionError)
      expect(error).not.toBeInstanceOf(TextTakenError)
      expect(error).toMatchObject({ name: 'HashCollisionError', code, property: 'url' })
      expect(error).not.toHaveProperty('taken')
      expect((error as Error).message).not.toContain('forged')
    }
    expect(await pages.find({ order: { id: 'ASC' } })).toMatchObject([{ url: 'forged' }, { url: 'other' }])
  })

  test('refuses its row of a list alone', async () => {
    const results = await findOrCreateMany(dataSource.manager, Page, [{ url: 'b' }, { url: 'a' }, { url: 'c' }])
    expect(results).toMatchObject([{ created: true }, { error: { code } }, { created: true }])
    const upserted = await upsertByText(dataSource.manager, Page, [{ url: 'a', title: 'new' }])
    expect(upserted).toMatchObject([{ error: { code } }])
  })

  test('leaves the transaction of the caller usable', async () => {
    await dataSource.transaction(async (manager) => {
      expect(await rejection(findOrCreate(manager, Page, { url: 'a' }))).toMatchObject({ code })
      expect(await rejection(insertOrFail(manager, Page, { url: 'a' }))).toMatchObject({ code })
      await findOrCreate(manager, Page, { url: 'b' })
    })
    expect(await pages.countBy({ url: 'b' })).toBe(1)
  })

  test('is told of several columns too', async () => {
    const row = { host: 'h', path: '/a', query: 'b' }
    const { manager } = dataSource
    const { id } = await insertOrFail(manager, Link, { ...row, host: 'i' })
    await expect(findOrCreate(manager, Link, row)).rejects.toMatchObject({ code })
    await expect(insertOrFail(manager, Link, row)).rejects.toMatchObject({ code })
    await expect(updateOrFail(manager, Link, id, { host: 'h', path: '/a', query: 'b' })).rejects.toMatchObject({ code })
    await expect(manager.insert(Link, row)).rejects.toBeInstanceOf(TextTakenError)
  })

  test('is found by the doctor', async () => {
    const { findings } = await doctor(dataSource, { entities: [Page] })
    expect(findings.map((one) => one.code).toSorted()).toStrictEqual(['check.missing', 'hash.wrong'])
  })
})

test('adopt refuses it before it asks the table', async () => {
  const refused = await rejection(adopt(dataSource, Page))
  expect(refused).toBeInstanceOf(AdoptionError)
  expect(refused).toMatchObject({ reason: 'unsupported', message: expect.stringContaining('guard: false') as string })
})
