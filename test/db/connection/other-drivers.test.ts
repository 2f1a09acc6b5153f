import { callbackify } from 'node:util'
import { Client } from 'pg'
import { DataSource, type DataSourceOptions, type EntityManager, In, QueryFailedError } from 'typeorm'
import { afterAll, describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TransactionAbortedError,
  UnsupportedDatabaseError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { findHolder, findOrCreateHolder, Name, releaseExpired, rename, swapNames } from '../../../src/names'
import { countWithin } from '../../../src/numbers'
import { once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { column, deleteDate, entity, numberWithin, text, uniqueName, version } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { STEVENS } from '../../support/md5-collisions'

const db = useDatabase()

const Page = entity('Page', {
  url: text({ digest: fewHashes(4) }),
  title: column('varchar', { length: 10, nullable: true }),
})

/** Something that is let through once. */
function gate(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open = (): void => {}
  const passed = new Promise<void>((resolve) => (open = resolve))
  return { passed, open }
}

const opened: DataSource[] = []
afterAll(async () => await Promise.all(opened.map(async (dataSource) => await dataSource.destroy())))

/** Connections of a driver that is no `pg` client: it has `query(text, values)` that gives rows as objects. */
class OtherClient {
  static ended = 0
  private readonly client = new Client({ connectionString: db.url })

  async connect(): Promise<this> {
    await this.client.connect()
    return this
  }
  on(): void {}
  removeListener(): void {}
  async query(text: unknown, values?: unknown[]): Promise<object> {
    if (typeof text !== 'string') throw new TypeError('This driver takes text only.')
    const { rows, rowCount, command, fields } = await this.client.query<object>(text, values)
    // An object keeps the last of them only.
    if (fields && new Set(fields.map(({ name }) => name)).size < fields.length) throw new TypeError(`Two of ${text}`)
    return { rows, rowCount, command }
  }
  async end(): Promise<void> {
    OtherClient.ended += 1
    await this.client.end()
  }
}

/** The part of a pool that TypeORM uses. */
class OtherPool {
  private readonly idle: OtherClient[] = []
  private readonly all: OtherClient[] = []

  on(): void {}
  connect(callback: (error: unknown, client?: OtherClient, release?: () => void) => void): void {
    callbackify(async () => await this.take())((error, client) => callback(error, client, () => this.idle.push(client)))
  }
  end(callback: (error?: unknown) => void): void {
    callbackify(async () => await Promise.all(this.all.map(async (client) => await client.end())))(callback)
  }
  private async take(): Promise<OtherClient> {
    const known = this.idle.pop()
    if (known) return known
    const client = await new OtherClient().connect()
    this.all.push(client)
    return client
  }
}

async function openOther(entities: DataSourceOptions['entities'] = [Page]): Promise<DataSource> {
  const driver = { Pool: OtherPool, Client: OtherClient, types: {} }
  const dataSource = new DataSource({
    type: 'postgres',
    url: db.url,
    driver,
    entities,
    synchronize: true,
    dropSchema: true,
  })
  opened.push(dataSource)
  return await dataSource.initialize()
}

describe('a driver that is no pg client', () => {
  test('creates and finds, one by one and in bulk, with equal hashes too', async () => {
    const { manager } = await openOther()
    const texts = Array.from({ length: 30 }, (_, index) => ({ url: `page ${index}` }))
    const first = await findOrCreate(manager, Page, { url: 'page 0', title: 'T' })
    expect(first).toMatchObject({ created: true, attempts: 1, entity: { id: 1, url: 'page 0', title: 'T' } })
    const results = await findOrCreateMany(manager, Page, texts)
    expect(results.map((result) => 'entity' in result && [result.entity.url, result.created])).toEqual(
      texts.map(({ url }, index) => [url, index > 0]),
    )
    expect(await findOneByText(manager, Page, { url: 'page 7' })).toMatchObject({ url: 'page 7' })
  })

  test('updates, one by one and in bulk', async () => {
    const { manager } = await openOther()
    const rows = ['a', 'b', 'a'].map((text, index) => ({ url: text, title: `${index}` }))
    expect(await upsertByText(manager, Page, { url: 'b', title: 'old' })).toMatchObject({ created: true })
    const results = await upsertByText(manager, Page, rows)
    expect(results.map((result) => 'entity' in result && [result.created, result.entity.title])).toEqual([
      [true, '2'],
      [false, '1'],
      [false, '2'],
    ])
    expect(await upsertByText(manager, Page, { url: 'b', title: 'new' })).toMatchObject({ entity: { title: 'new' } })
  })

  test('inserts and changes all or nothing, in a transaction and outside', async () => {
    const dataSource = await openOther()
    const insertions = [
      [Page, { url: 'all 1' }],
      [Page, [{ url: 'all 2' }, { url: 'all 3' }]],
    ] as const
    const [{ id }] = await insertOrFail(dataSource.manager, insertions)
    expect(await updateOrFail(dataSource.manager, Page, id, { title: 'T' })).toEqual({ id, url: 'all 1', title: 'T' })
    const refused = async (manager: EntityManager): Promise<void> => {
      const call = insertOrFail(manager, [
        [Page, { url: 'all 4' }],
        [Page, { url: 'all 1' }],
      ])
      expect(await rejection(call)).toMatchObject({ taken: [{ property: 'url', id: { id }, row: 1 }] })
      const changes = [
        [Page, id, { title: 'U' }],
        [Page, id, { url: 'all 3' }],
      ] as const
      expect(await rejection(updateOrFail(manager, changes))).toMatchObject({ taken: [{ property: 'url', row: 1 }] })
      expect(await manager.findBy(Page, { url: In(['all 1', 'all 4']) })).toMatchObject([{ url: 'all 1', title: 'T' }])
    }
    await refused(dataSource.manager)
    await dataSource.transaction(refused)
    const error = await rejection(dataSource.manager.insert(Page, { url: 'all 1' }))
    expect(error).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ property: 'url' }] })
  })

  test('keeps the transaction usable, and the statements of others out of ours', async () => {
    const dataSource = await openOther()
    await dataSource.transaction(async (manager) => {
      const rows = Array.from({ length: 20 }, (_, index) => ({
        url: `a${index}`,
        title: index === 7 ? 'too long for it' : null,
      }))
      const [results] = await Promise.all([
        findOrCreateMany(manager, Page, rows),
        ...Array.from({ length: 30 }, async (_, index) => await manager.insert(Page, { url: `by hand ${index}` })),
      ])
      expect(results.flatMap((result, index) => ('error' in result ? [index] : []))).toEqual([7])
    })
    expect(await dataSource.manager.count(Page)).toBe(49)
  })

  test('a call goes on behind a savepoint that another call of ours has set since it began', async () => {
    const dataSource = await openOther()
    const [other, observer] = [await db.client(), await db.client()]
    const [asked, goOn] = [gate(), gate()]
    const create = async (): Promise<{ title: string }> => {
      asked.open()
      await goOn.passed
      return { title: 'T' }
    }
    await other.query('BEGIN')
    await other.query('LOCK TABLE page IN SHARE MODE')
    await dataSource.transaction(async (manager) => {
      const call = findOrCreate(manager, Page, { url: 'a' }, { create })
      await asked.passed
      const behindSavepoint = insertOrFail(manager, Page, { url: 'b' })
      await untilBlocked(observer)
      goOn.open()
      await other.query('COMMIT')
      expect(await Promise.all([call, behindSavepoint])).toMatchObject([{ created: true }, { url: 'b' }])
    })
  })

  test('says what the server said, without the text, and ends no connection', async () => {
    const dataSource = await openOther()
    const ended = OtherClient.ended
    const error = await rejection(findOrCreate(dataSource.manager, Page, { url: 'a', title: 'too long for it' }))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toMatchObject({ code: '22001', parameters: undefined })
    await rejection(
      findOrCreate(dataSource.manager, Page, { url: 'b', title: { toPostgres: () => fail() } as unknown as string }),
    )
    expect(OtherClient.ended).toBe(ended)
    expect(await findOrCreate(dataSource.manager, Page, { url: 'a' })).toMatchObject({ created: true })
  })

  test('knows a transaction that was begun by SQL', async () => {
    const dataSource = await openOther()
    const queryRunner = dataSource.createQueryRunner()
    await queryRunner.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await queryRunner.query('SELECT count(*) FROM page')
    await findOrCreate(dataSource.manager, Page, { url: 'raced' })
    const error = await rejection(findOrCreate(queryRunner.manager, Page, { url: 'raced' }))
    expect(error).toBeInstanceOf(TransactionAbortedError)
    await queryRunner.query('ROLLBACK')
    expect(await findOrCreate(queryRunner.manager, Page, { url: 'raced' })).toMatchObject({ created: false })
    await queryRunner.release()
  })
})

const User = entity('User', { handle: uniqueName({ namespace: 'handle', former: 'redirect' }), version: version() })
const Comment = entity('Comment', { page: column('text'), number: numberWithin({ scope: ['page'], count: true }) })
const Deletable = entity('Deletable', { url: text(), deletedAt: deleteDate() })

describe('with a driver that gives rows as objects', () => {
  test('names are given, found, changed and swapped', async () => {
    const { manager } = await openOther([User, Name])
    const [ada, bob] = await manager.save(User, [{ handle: 'ada' }, { handle: 'bob' }])
    expect(await swapNames(manager, User, ada?.id ?? 0, bob?.id ?? 0)).toEqual([
      { id: 1, handle: 'bob', version: 2 },
      { id: 2, handle: 'ada', version: 2 },
    ])
    expect(await rename(manager, User, 1, { handle: 'eve' })).toEqual({ id: 1, handle: 'eve', version: 3 })
    const found = await findHolder(manager, 'handle', 'bob', { former: true })
    expect(found).toMatchObject({ entityName: 'User', id: { id: 1 }, name: 'eve', former: true })
    expect(await findOrCreateHolder(manager, User, { handle: 'ada' })).toMatchObject({
      created: false,
      entity: { id: 2, handle: 'ada' },
    })
    const error = await rejection(insertOrFail(manager, User, { handle: 'eve' }))
    expect(error).toMatchObject({ taken: [{ property: 'handle', id: { id: 1 } }] })
    await rename(manager, User, 2, { handle: 'kay' })
    await manager.query(`UPDATE names SET until = '2000-01-01' WHERE state = 'redirect'`)
    expect(await releaseExpired(manager)).toBe(2)
  })

  test('numbers and counts are the next ones', async () => {
    const { manager } = await openOther([Comment])
    const comments = await manager.save(Comment, [{ page: 'a' }, { page: 'b' }, { page: 'a' }])
    expect(comments.map(({ number }) => number)).toEqual([1, 1, 2])
    await manager.delete(Comment, 1)
    expect(await countWithin(manager, Comment, { page: 'a' })).toBe(1)
    expect(await manager.save(Comment, { page: 'a' })).toMatchObject({ number: 3 })
    expect(await manager.transaction(async (inner) => await countWithin(inner, Comment, { page: 'a' }))).toBe(2)
  })

  test('a deleted row is restored by whoever looks for its text', async () => {
    const { manager } = await openOther([Deletable])
    await insertOrFail(manager, Deletable, [{ url: 'a' }, { url: 'b' }])
    await manager.softDelete(Deletable, [1, 2])
    const options = { deleted: 'restore' } as const
    const restored = { created: false, entity: { id: 1, url: 'a', deletedAt: null } }
    expect(await findOrCreate(manager, Deletable, { url: 'a' }, options)).toMatchObject(restored)
    const inner = await manager.transaction(
      async (within) => await findOrCreate(within, Deletable, { url: 'b' }, options),
    )
    expect(inner).toMatchObject({ created: false, entity: { id: 2, deletedAt: null } })
  })

  test('once runs its work once, for tokens of equal hash too', async () => {
    const dataSource = await openOther([Page, OnceToken])
    const work = async (manager: EntityManager): Promise<number> =>
      (await insertOrFail(manager, Page, { url: 'by once' })).id
    for (const [index, token] of STEVENS.entries()) {
      const answer = index === 0 ? 1 : 'other'
      const first = async (): Promise<unknown> =>
        await once<unknown>(dataSource.manager, token, index === 0 ? work : () => answer, { expires: '1 hour' })
      expect(await first()).toEqual({ answer, replayed: false })
      expect(await first()).toEqual({ answer, replayed: true })
    }
    await dataSource.query(`UPDATE once_tokens SET expires_at = '2000-01-01'`)
    expect(await removeExpiredTokens(dataSource.manager)).toBe(2)
  })
})

function fail(): never {
  throw new TypeError('not the server')
}

describe('pg', () => {
  const wrapped = (value: string): unknown => ({ toString: () => value, valueOf: () => value })
  /** boolean, bigint and integer */
  const parserOf = (type: number): unknown => ([16, 20, 23].includes(type) ? wrapped : String)

  test.each<[string, object]>([
    ['parsers of the user for booleans and integers', { types: { getTypeParser: parserOf } }],
    ['parsers that make everything a string', { types: { getTypeParser: () => String } }],
  ])('with %s tells created from found, and which row is whose', async (_, extra) => {
    await db.dataSource([Page], { dropSchema: true })
    const dataSource = await db.dataSource([Page], { synchronize: false, extra })
    const { manager } = dataSource
    const given = ['b', 'a', 'c'].map((url) => ({ url }))
    await findOrCreate(manager, Page, { url: 'a' })
    const results = await findOrCreateMany(manager, Page, given)
    expect(results.map((result) => 'entity' in result && [result.entity.url, result.created])).toEqual([
      ['b', true],
      ['a', false],
      ['c', true],
    ])
    expect(await findOrCreate(manager, Page, { url: 'c' })).toMatchObject({ created: false })
  })
  test('is refused with the option "binary", which gives 239 for 200', async () => {
    await db.dataSource([Page], { dropSchema: true })
    const { manager } = await db.dataSource([Page], { synchronize: false, extra: { binary: true } })
    expect(await manager.query('SELECT $1::integer AS n', [200])).toEqual([{ n: 239 }])
    await expect(findOrCreate(manager, Page, { url: 'a' })).rejects.toThrow(UnsupportedDatabaseError)
    await expect(findOrCreateMany(manager, Page, [{ url: 'a' }])).rejects.toThrow(UnsupportedDatabaseError)
  })
})
