import type { Client } from 'pg'
import { DataSource, QueryFailedError, TableColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  ChainLimitError,
  findOrCreate,
  ImmutableTextError,
  insertOrFail,
  TextTakenError,
  UniqueTextError,
} from '../../../src'
import { url } from '../../../src/text'
import { toTextTakenError } from '../../../src/typeorm-calls'
import { Url } from '../../../src/url'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { column, entity, key, plain, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'

const Page = entity('Page', {
  url: text({ normalize: url() }),
  title: plain(),
  rank: column('integer', { unique: true, nullable: true }),
})
type Page = InstanceType<typeof Page>
const Owner = entity('Owner', { name: key('text') })
const Account = entity('Account', {
  tenant: key('text'),
  number: key('bigint'),
  owner: toOne(() => Owner, { nullable: false, cascade: true }),
  active: column('boolean'),
  handle: text({ scope: ['owner', 'active'], digest: 'sha256' }),
})
const Crowded = entity('Crowded', { text: text({ digest: oneHash, maxChainLength: 3 }) })
const Fixed = entity('Fixed', { text: text({ immutable: true }) })

const db = useDatabase()
const entities = [Page, Owner, Account, Crowded, Fixed, Url]
// One connection: whoever asks for a second one while it is held would wait for ever.
const dataSource = db.useDataSource(entities, { extra: { max: 1 } })
const { manager } = dataSource
const client = db.useClient()

/** Not `takenBy`: its frame would be the one more that pushes this file out of a stack of ten. */
async function taken(call: Promise<unknown>): Promise<TextTakenError & QueryFailedError> {
  const error = await rejection(call)
  expect(error).toBeInstanceOf(TextTakenError)
  return error as TextTakenError & QueryFailedError
}

const page = { entity: 'Page', property: 'url', row: 0 }

describe("a text that is taken, in TypeORM's own calls", () => {
  const ways: Readonly<Record<string, () => Promise<unknown>>> = {
    'save of a new row': () => manager.save(Page, { url: 'HTTP://1.example' }),
    'save of several rows': () => manager.save(Page, [{ url: 'http://9.example' }, { url: 'http://1.example' }]),
    'save of a changed row': async () => await manager.save(Page, { id: 2, url: 'http://1.example' }),
    insert: () => manager.insert(Page, { url: 'http://1.example' }),
    'insert of several rows': () => manager.insert(Page, [{ url: 'http://9.example' }, { url: 'http://1.example' }]),
    update: () => manager.update(Page, 2, { url: 'http://1.example' }),
    upsert: () => manager.upsert(Page, [{ id: 7, url: 'http://1.example' }], ['id']),
    'a query builder': () =>
      manager.createQueryBuilder().update(Page).set({ url: 'http://1.example' }).where({ id: 2 }).execute(),
    'SQL with parameters': () => dataSource.query('insert into page (url) values ($1)', ['http://1.example/']),
    'SQL with a list': () =>
      dataSource.query('insert into page (url) select unnest($1::text[])', [
        ['http://9.example/', 'http://1.example/'],
      ]),
    'a transaction': () => dataSource.transaction(async (one) => await one.save(Page, { url: 'http://1.example' })),
    'a transaction in a transaction': () =>
      dataSource.transaction(async (outer) => {
        await outer.transaction(async (inner) => await inner.insert(Page, { url: 'http://1.example' }))
      }),
  }

  test.each(Object.entries(ways))('%s: its property, and its holder', async (_, call) => {
    await manager.insert(Page, [{ url: 'http://1.example' }, { url: 'http://2.example' }])
    const error = await taken(call())
    expect(error.taken).toEqual([{ ...page, id: { id: 1 } }])
    expect(error.message).toContain('(held by another row)')
    expect(error.message).not.toContain('example')
    expect(error.stack).toContain('(held by another row)')
    expect(error.stack).toContain('explained-errors.test.ts')
  })

  test('the error is the QueryFailedError that filters look for, and one of ours', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const error = await taken(manager.save(Page, { url: 'http://1.example' }))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toBeInstanceOf(UniqueTextError)
    expect(error).toBeInstanceOf(Error)
    expect(error).not.toBeInstanceOf(ImmutableTextError)
    expect(error).toMatchObject({ name: 'TextTakenError', code: 'TEXT_TAKEN', table: 'page' })
    expect(error.driverError).toMatchObject({ code: '23505' })
    expect(error.query).toContain('INSERT INTO "page"')
    expect(error.cause).toBeInstanceOf(QueryFailedError)
    expect(error.cause).not.toBeInstanceOf(TextTakenError)
  })

  test('a scope of several columns, with a composite key', async () => {
    await manager.save(Account, { tenant: 't', number: '1', owner: { name: 'a (b)=(c' }, active: true, handle: 'h' })
    const again = { tenant: 't', number: '2', owner: { name: 'a (b)=(c' }, active: true, handle: 'h' }
    const error = await taken(manager.save(Account, again))
    expect(error.taken).toEqual([{ entity: 'Account', property: 'handle', id: { tenant: 't', number: '1' }, row: 0 }])
    await manager.save(Account, { ...again, active: false })
  })

  test('a scope whose one value looks like two', async () => {
    const Shelf = entity('Shelf', { place: column('text'), text: text({ scope: ['place'] }) })
    const shelves = (await db.dataSource([Shelf])).manager
    await shelves.insert(Shelf, { place: 'left, top', text: 'a' })
    expect((await taken(shelves.insert(Shelf, { place: 'left, top', text: 'a' }))).taken).toMatchObject([
      { id: { id: 1 } },
    ])
  })

  test('a text that is given twice has its holder, and one of two with equal hashes has none that could be wrong', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const twice = manager.insert(Page, [{ url: 'http://1.example' }, { url: 'http://1.example' }])
    expect((await taken(twice)).taken).toEqual([{ ...page, id: { id: 1 } }])
    await manager.insert(Crowded, { text: 'a' })
    const either = await taken(manager.insert(Crowded, [{ text: 'c' }, { text: 'a' }]))
    expect(either.taken).toMatchObject([{ entity: 'Crowded', id: undefined }])
  })

  test('a holder is not named where two values of the scope cannot be told apart', async () => {
    const account = { tenant: 't', owner: { name: 'a, true' }, active: true, handle: 'h' }
    await manager.save(Account, { ...account, number: '1' })
    expect((await taken(manager.save(Account, { ...account, number: '2' }))).taken).toMatchObject([{ id: undefined }])
  })

  test('a cascade', async () => {
    const Link = entity('Link', { page: toOne(() => Page, { cascade: true }) })
    const other = await db.dataSource([...entities, Link])
    await manager.insert(Page, { url: 'http://1.example' })
    const error = await taken(other.manager.save(Link, { page: { url: 'http://1.example' } }))
    expect(error.taken).toEqual([{ ...page, id: { id: 1 } }])
  })

  test('a text in the SQL itself, or of several columns: the property, and no holder', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const literal = await taken(dataSource.query(`insert into page (url) values ('http://1.example/')`))
    expect(literal.taken).toEqual([{ ...page, id: undefined }])
    const one = await Url.parse('http://1.example/?q', manager)
    const composed = await taken(manager.save(Url, Object.assign(manager.create(Url), one, { id: undefined })))
    expect(composed.taken).toMatchObject([{ entity: 'Url', id: undefined }])
  })

  test('in a transaction that goes on, the holder is named once it is rolled back to a savepoint', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    await dataSource.transaction(async (one) => {
      await one.query('savepoint mine')
      const error = await taken(one.insert(Page, { url: 'http://1.example' }))
      expect(error.taken).toEqual([{ ...page, id: undefined }])
      await one.query('rollback to savepoint mine')
      expect(error.taken).toEqual([{ ...page, id: { id: 1 } }])
      expect(await one.count(Page)).toBe(1)
    })
  })

  test('nothing is asked while the transaction takes no query, and the holder once', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    let isTold = false
    const sent = await queriesOf(dataSource, async () => {
      const runner = dataSource.createQueryRunner()
      try {
        // The oldest supported `pg` does not tell of a transaction that was begun by SQL: there the server refuses to answer.
        isTold = 'getTransactionStatus' in ((await runner.connect()) as object)
        await runner.query('begin')
        await taken(runner.manager.insert(Page, { url: 'http://1.example' }))
        await runner.query('rollback')
        await runner.query('begin')
        await runner.query('rollback')
      } finally {
        await runner.release()
      }
    })
    const asked = isTold ? [] : ['SELECT']
    const words = sent.map((sql) => sql.split(' ')[0])
    expect(words).toEqual(['begin', 'INSERT', ...asked, 'rollback', 'SELECT', 'begin', 'rollback'])
  })

  test('a table of another schema has its own property and its own holders', async () => {
    const twin = text({ name: 'text', immutable: true, indexName: 'twin_text' })
    const Left = entity('Left', { left: twin }, { name: 'twin', schema: 'left' })
    const Right = entity('Right', { right: twin }, { name: 'twin', schema: 'right' })
    const Twin = entity('Twin', { own: twin })
    await client.query('create schema "left"; create schema "right"')
    const twins = await db.dataSource([Left, Twin, Right])
    await twins.manager.insert(Left, [{ left: 'a' }, { left: 'x' }])
    await twins.manager.insert(Right, [{ right: 'x' }, { right: 'b' }])
    expect((await taken(twins.manager.insert(Left, { left: 'x' }))).taken).toEqual([
      { entity: 'Left', property: 'left', id: { id: 2 }, row: 0 },
    ])
    expect((await taken(twins.manager.insert(Right, { right: 'x' }))).taken).toEqual([
      { entity: 'Right', property: 'right', id: { id: 1 }, row: 0 },
    ])
    await twins.manager.insert(Twin, { own: 'x' })
    expect((await taken(twins.manager.insert(Twin, { own: 'x' }))).taken).toMatchObject([{ entity: 'Twin' }])
    expect(await rejection(twins.manager.update(Twin, 1, { own: 'c' }))).toMatchObject({ property: 'own' })
    expect(await rejection(twins.manager.update(Left, 1, { left: 'c' }))).toMatchObject({ property: 'left' })
    expect(await rejection(twins.manager.update(Right, 1, { right: 'c' }))).toMatchObject({ property: 'right' })
  })

  test('a row of the same transaction holds it no longer when that is rolled back', async () => {
    const error = await taken(manager.save(Page, [{ url: 'http://1.example' }, { url: 'http://1.example' }]))
    expect(error.taken).toEqual([{ ...page, id: undefined }])
  })

  test('another text of equal hash that was faster is not its holder: the plain error, and a second try succeeds', async () => {
    const sessions = { other: client, observer: await db.client() }
    const insert = (): Promise<unknown> => manager.insert(Crowded, { text: 'b' })
    const error = await rejection(meet(sessions, `insert into crowded (text) values ('a')`, insert))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).not.toBeInstanceOf(UniqueTextError)
    expect(await toTextTakenError(error, dataSource)).toBeUndefined()
    await manager.insert(Crowded, { text: 'b' })
    expect((await taken(manager.insert(Crowded, { text: 'b' }))).taken).toMatchObject([{ id: { id: 3 } }])
  })
})

describe('other errors of the server', () => {
  test('a violation of another unique index stays as it is', async () => {
    await manager.insert(Page, { url: 'http://1.example', rank: 1 })
    const error = await rejection(manager.save(Page, { url: 'http://2.example', rank: 1 }))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).not.toBeInstanceOf(UniqueTextError)
    expect(error).toMatchObject({ code: '23505' })
    expect(await toTextTakenError(error, dataSource)).toBeUndefined()
  })

  test('UT001: ImmutableTextError, from update, a query builder and SQL', async () => {
    await manager.insert(Fixed, { text: 'a' })
    const calls = [
      () => manager.update(Fixed, 1, { text: 'b' }),
      () => manager.createQueryBuilder().update(Fixed).set({ text: 'b' }).execute(),
      () => dataSource.query(`update fixed set text = 'b'`),
    ]
    for (const call of calls) {
      const error = await rejection(call())
      expect(error).toBeInstanceOf(ImmutableTextError)
      expect(error).toBeInstanceOf(QueryFailedError)
      expect(error).toMatchObject({ code: 'IMMUTABLE_TEXT', property: 'text', driverError: { code: 'UT001' } })
    }
  })

  test('UT002: ChainLimitError, from save and SQL', async () => {
    await manager.insert(Crowded, [{ text: 'a' }, { text: 'b' }, { text: 'c' }])
    const calls = [
      () => manager.save(Crowded, { text: 'd' }),
      () => dataSource.query(`insert into crowded (text) values ('d')`),
    ]
    for (const call of calls) {
      const error = await rejection(call())
      expect(error).toBeInstanceOf(ChainLimitError)
      expect(error).toBeInstanceOf(QueryFailedError)
      expect(error).toMatchObject({ code: 'CHAIN_LIMIT', property: 'text', cause: { driverError: { code: 'UT002' } } })
    }
  })

  test('a DataSource without unique texts is left alone', async () => {
    const plain = new DataSource({ type: 'postgres', url: db.url, entities: [Owner] })
    await plain.initialize()
    await manager.insert(Page, { url: 'http://1.example' })
    const error = await rejection(plain.query('insert into page (url) values ($1)', ['http://1.example/']))
    expect(error).not.toBeInstanceOf(UniqueTextError)
    expect((await toTextTakenError(error, dataSource))?.taken).toEqual([{ ...page, id: { id: 1 } }])
    await plain.destroy()
  })
})

describe('toTextTakenError', () => {
  /** As another copy of TypeORM, or a library, gives it. */
  async function failure(sql: string, parameters: unknown[] = []): Promise<Error> {
    const driverError = (await rejection(client.query(sql, parameters))) as Error
    return Object.assign(new Error('another copy'), { query: sql, parameters, driverError })
  }

  test('finds the error within others', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const error = await failure('insert into page (url) values ($1)', ['http://1.example/'])
    const wrapped = [
      new Error('outer', { cause: error }),
      new AggregateError([new Error('else'), error]),
      { error },
      Object.assign(new Error('round'), { cause: new Error('and round', { cause: new AggregateError([error]) }) }),
    ]
    for (const one of wrapped) {
      const found = await toTextTakenError(one, dataSource)
      expect(found).toMatchObject({ taken: [{ ...page, id: { id: 1 } }], cause: error })
    }
    const round = new Error('round')
    round.cause = round
    expect(await toTextTakenError(round, dataSource)).toBeUndefined()
    for (const other of [undefined, null, 'text', new Error('else')]) {
      expect(await toTextTakenError(other, dataSource)).toBeUndefined()
    }
  })

  test('gives what is explained already back', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const mine = await taken(insertOrFail(manager, Page, { url: 'http://1.example' }))
    expect(await toTextTakenError(mine, dataSource)).toBe(mine)
    const theirs = await taken(manager.insert(Page, { url: 'http://1.example' }))
    expect(await toTextTakenError(new Error('outer', { cause: theirs }), dataSource)).toBe(theirs)
  })

  test('names the holder that could not be named in a transaction', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const runner = dataSource.createQueryRunner()
    await runner.query('begin')
    const error = await taken(runner.manager.insert(Page, { url: 'http://1.example' }))
    expect(error.taken).toMatchObject([{ id: undefined }])
    const client1 = (await runner.connect()) as Client
    await client1.query('rollback')
    await runner.release()
    expect((await toTextTakenError(error, dataSource))?.taken).toEqual([{ ...page, id: { id: 1 } }])
  })

  test('knows an index that was renamed', async () => {
    await manager.insert(Page, { url: 'http://1.example' })
    const { rows } = await client.query<{ name: string }>(
      `select indexname as name from pg_indexes where tablename = 'page' and indexdef like '%urlHashNumber%'`,
    )
    await client.query(`alter index "${rows[0]?.name}" rename to "another name"`)
    try {
      const error = await taken(manager.insert(Page, { url: 'http://1.example' }))
      expect(error.taken).toEqual([{ ...page, id: { id: 1 } }])
    } finally {
      await client.query(`alter index "another name" rename to "${rows[0]?.name}"`)
    }
  })

  test('knows a partition by the table that it belongs to', async () => {
    const Parted = entity('Parted', {
      part: key('integer'),
      number: column('integer'),
      text: text({ scope: ['part'] }),
    })
    const first = await db.dataSource([...entities, Parted])
    const { rows } = await client.query<{ definition: string; name: string }>(
      `select indexdef as definition, indexname as name from pg_indexes where tablename = 'parted' and indexdef like '%textHash%'`,
    )
    await client.query(`
      create table replaced (like parted including defaults including constraints) partition by list (part);
      drop table parted;
      alter table replaced rename to parted;
      create table parted_1 partition of parted for values in (1);
      ${rows[0]?.definition}`)
    await first.query(
      `insert into parted (part, number, text, "textHash", "textHashNumber") values (1, 1, 'a', md5('a')::uuid, 0)`,
    )
    const sql = `insert into parted (part, number, text, "textHash", "textHashNumber") values (1, 2, $1, md5('a')::uuid, 0)`
    const error = await rejection(first.query(sql, ['a']))
    const found = await toTextTakenError(error, first)
    expect(found?.taken).toEqual([{ entity: 'Parted', property: 'text', id: { part: 1 }, row: 0 }])
  })
})

test('operations of ours are refused as before', async () => {
  await findOrCreate(manager, Page, { url: 'http://1.example', rank: 1 })
  const error = await rejection(findOrCreate(manager, Page, { url: 'http://2.example', rank: 1 }))
  expect(error).toBeInstanceOf(QueryFailedError)
  expect(error).toMatchObject({ driverError: { code: '23505' } })
})

test("a look-up of the holder that fails leaves the caller's transaction usable", async () => {
  await manager.insert(Page, { url: 'http://1.example' })
  const role = `writer_${process.pid}`
  // It may read the columns of the index, without which the server tells no hash, and not the key of the holder.
  await client.query(`create role ${role}; grant insert, select ("urlHash", "urlHashNumber") on page to ${role}`)
  await dataSource.transaction(async (own) => {
    await own.query(`set local role ${role}`)
    const error = await taken(
      own.transaction(async (inner) => {
        await inner.query('insert into page (url) values ($1)', ['http://1.example/'])
      }),
    )
    expect(error.taken).toEqual([{ ...page, id: undefined }])
    expect(await own.query('select 1 as one')).toEqual([{ one: 1 }])
  })
  // By SQL too, where no savepoint of TypeORM's stands around it.
  await dataSource.transaction(async (own) => {
    await own.query(`set local role ${role}`)
    await own.query('savepoint mine')
    const error = await taken(own.query('insert into page (url) values ($1)', ['http://1.example/']))
    await own.query('rollback to savepoint mine')
    expect(error.taken).toEqual([{ ...page, id: undefined }])
    expect(await own.query('select 1 as one')).toEqual([{ one: 1 }])
  })
  await client.query(`drop owned by ${role}; drop role ${role}`)
})

test.each(['dropColumn', 'changeColumn'] as const)('%s of a text names the way', async (call) => {
  const queryRunner = dataSource.createQueryRunner()
  try {
    await queryRunner.startTransaction()
    const drop = {
      dropColumn: ['page', 'url'],
      changeColumn: ['page', 'url', new TableColumn({ name: 'url', type: 'varchar' })],
    }
    const error = await rejection(Reflect.apply(queryRunner[call], queryRunner, drop[call]) as Promise<unknown>)
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toMatchObject({ code: 'INVALID_DECLARATION', driverError: { code: '2BP01' } })
    expect(String(error)).toMatch(/trigger "unique_text_page__url_\w+".*migration:generate.*unique_text_detach_v1\(\)/i)
  } finally {
    await queryRunner.rollbackTransaction()
    await queryRunner.release()
  }
})

test('the error of DROP FUNCTION names the function that depends on it, and no column', async () => {
  const error = await rejection(dataSource.query('drop function unique_text_clean_v1'))
  expect(error).toMatchObject({ code: '2BP01', message: expect.stringContaining('unique_text_clean_v1') as string })
  expect(error).not.toHaveProperty('cause')
})
