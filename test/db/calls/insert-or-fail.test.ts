import type { AfterQueryEvent, BeforeQueryEvent, EntityManager, EntitySubscriberInterface } from 'typeorm'
import {
  AfterInsert,
  BeforeInsert,
  Column,
  Entity,
  EventSubscriber,
  PrimaryGeneratedColumn,
  QueryFailedError,
} from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  ChainLimitError,
  DeclarationError,
  insertOrFail,
  insertOrNull,
  TextRejectedError,
  UniqueText,
} from '../../../src'
import { lowerCase, url } from '../../../src/text'
import { meet, untilBlocked } from '../../support/blocked'
import { takenBy } from '../../support/results'
import { useDatabase } from '../../support/database'
import { bigintKey, column, entity, key, plain, text, toOne } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { oneHash } from '../../support/digests'
import { rejection } from '../../support/ledger'

const Site = entity('Site', { id: bigintKey(), host: text() })
type Site = InstanceType<typeof Site>

const Page = entity('Page', {
  url: text({ normalize: url() }),
  title: plain(),
  seen: column('timestamptz', { nullable: true }),
  rank: column('integer', { unique: true, nullable: true }),
  weight: column('integer', { default: 7 }),
  site: toOne(() => Site),
})
const Account = entity('Account', {
  tenant: key('text'),
  number: key('integer'),
  handle: text({ scope: ['tenant'] }),
  email: text({ normalize: lowerCase(), nullable: true }),
})
const Crowded = entity('Crowded', { text: text({ digest: oneHash, maxChainLength: 3 }) })

/** Has no unique text. */
const Note = entity('Note', { body: column('text') })

@Entity()
class Heard {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() text!: string
  @Column({ type: 'text' }) filled!: string

  @BeforeInsert() fill(): void {
    this.filled = `before ${this.text}`
    heard.push(this.filled)
  }
  @AfterInsert() hear(): void {
    heard.push(`after ${this.text} ${this.id}`)
  }
}

const beforeQuery: { hook: (query: string) => Promise<void> } = { hook: async () => {} }

@EventSubscriber()
class QueryListener implements EntitySubscriberInterface {
  async beforeQuery({ query }: BeforeQueryEvent): Promise<void> {
    told.push(['before', query])
    await beforeQuery.hook(query)
  }
  afterQuery({ query, success }: AfterQueryEvent): void {
    told.push([success ? 'after' : 'failed', query])
  }
}

const told: (readonly [string, string])[] = []
const heard: string[] = []
const statements: string[] = []
const db = useDatabase()

const logger = loggerOf({ logQuery: (sql: string) => void statements.push(sql) })

const dataSource = db.useDataSource([Site, Page, Account, Crowded, Note, Heard], {
  logger,
  subscribers: [QueryListener],
})
const { manager } = dataSource
const client = db.useClient()
const sessions = { other: client, observer: db.useClient() }

beforeEach(() => {
  heard.length = 0
  beforeQuery.hook = async () => {}
})

const REPEATABLE_READ = '-c default_transaction_isolation=repeatable\\ read'

/** Into two tables, of which one has a unique text. */
const noteAndSite = (own: EntityManager, body = 'b', host = 'a'): Promise<unknown> =>
  insertOrFail(own, [
    [Note, { body }],
    [Site, { host }],
  ])

describe('what is free is inserted', () => {
  test('one row: the entity holds what the database holds', async () => {
    const site = await insertOrFail(manager, Site, { host: 'a.example' })
    const seen = new Date(0)
    const page = await insertOrFail(manager, Page, { url: 'HTTP://A.example:80/x', title: 'T', seen, site })
    expect(page).toBeInstanceOf(Page)
    expect(page).toMatchObject({ id: 1, url: 'http://a.example/x', title: 'T', seen, rank: null, weight: 7 })
    expect(await manager.findOne(Page, { where: { id: 1 }, relations: { site: true } })).toEqual(page)
    expect(Object.keys(page)).not.toContain('urlHash')
  })

  test('a list: entities in the order asked', async () => {
    const given = Array.from({ length: 1_200 }, (_, index) => ({ host: `${index}.example` }))
    const sites = await insertOrFail(manager, Site, given)
    expect(sites).toMatchObject(given)
    const stored = await manager.find(Site)
    expect(new Map(sites.map(({ id, host }) => [id, host]))).toEqual(new Map(stored.map(({ id, host }) => [id, host])))
    expect(stored).toHaveLength(1_200)
    expect(await insertOrFail(manager, Site, [])).toEqual([])
  })

  test('several tables, one without a unique text: in the shapes given', async () => {
    const [site, pages, note] = await insertOrFail(manager, [
      [Site, { host: 'a.example' }],
      [Page, [{ url: 'http://a.example/1' }, { url: 'http://a.example/2' }]],
      [Note, { body: 'b' }],
    ])
    expect(site.host).toBe('a.example')
    expect(pages.map(({ url: text }) => text)).toEqual(['http://a.example/1', 'http://a.example/2'])
    expect(note).toMatchObject({ id: 1, body: 'b' })
  })

  test('one row outside a transaction takes one statement', async () => {
    await insertOrFail(manager, Site, { host: 'ready.example' })
    statements.length = 0
    await insertOrFail(manager, Site, { host: 'a.example' })
    expect(statements).toHaveLength(1)
  })

  test('entries for one entity that follow each other take one statement, and each gets its own row', async () => {
    await insertOrFail(manager, Site, { host: 'ready.example' })
    statements.length = 0
    const [first, note, second, third] = await insertOrFail(manager, [
      [Site, { host: 'c.example' }],
      [Note, { body: 'b' }],
      [Site, { host: 'a.example' }],
      [Site, [{ host: 'd.example' }, { host: 'b.example' }]],
    ])
    const inserts = statements.filter((sql) => sql.startsWith('INSERT'))
    expect(inserts.map((sql) => /INTO "(\w+)"/.exec(sql)?.[1])).toEqual(['site', 'note', 'site'])
    expect([first.host, note.body, second.host, ...third.map(({ host }) => host)]).toEqual([
      'c.example',
      'b',
      'a.example',
      'd.example',
      'b.example',
    ])
    for (const { id, host } of [first, second, ...third])
      expect(await manager.findOneBy(Site, { id })).toMatchObject({ host })
  })

  test('a relation by its id, and a function as SQL, as insert takes them', async () => {
    const { id } = await insertOrFail(manager, Site, { host: 'a.example' })
    const page = await insertOrFail(manager, Page, {
      url: 'http://a.example/',
      site: { id },
      title: () => "upper('sql')",
    })
    expect(await manager.findOne(Page, { where: { id: page.id }, relations: { site: true } })).toMatchObject({
      title: 'SQL',
      site: { id, host: 'a.example' },
    })
    expect(page.title).toBe('SQL')
  })

  test('a frozen object is left as it is', async () => {
    const given = Object.freeze({ url: 'HTTP://A.example' })
    expect(await insertOrFail(manager, Page, given)).toMatchObject({ url: 'http://a.example/' })
    expect(given.url).toBe('HTTP://A.example')
  })

  test('listeners hear BeforeInsert before the first statement, and AfterInsert when all rows stand', async () => {
    const rows = await insertOrFail(manager, Heard, [{ text: 'a' }, { text: 'b' }])
    expect(heard.slice(0, 2)).toEqual(['before a', 'before b'])
    expect(heard.slice(2)).toEqual(rows.map(({ text, id }) => `after ${text} ${id}`))
    expect(rows[0]).toMatchObject({ filled: 'before a' })
    await takenBy(insertOrFail(manager, Heard, [{ text: 'c' }, { text: 'a' }]))
    expect(heard.slice(4)).toEqual(['before c', 'before a'])
  })
})

describe('logger and subscribers', () => {
  test('are told of every statement of several, and of the transaction around them', async () => {
    await insertOrFail(manager, Site, { host: 'ready' })
    statements.length = 0
    told.length = 0
    await noteAndSite(manager)
    const [note, site] = [expect.stringContaining('INTO "note"'), expect.stringContaining('INTO "site"')] as unknown[]
    expect(statements).toEqual(['START TRANSACTION', note, site, 'COMMIT'])
    expect(told).toEqual([
      ['before', note],
      ['before', site],
      ['after', note],
      ['after', site],
    ])
  })

  test("are told of no transaction within the caller's", async () => {
    await dataSource.transaction(async (inside) => {
      statements.length = 0
      await noteAndSite(inside)
      expect(statements.map((sql) => sql.split(' ')[0])).toEqual(['INSERT', 'INSERT'])
    })
  })

  test('are told which statement failed, and of the look-up', async () => {
    await insertOrFail(manager, Site, { host: 'a' })
    statements.length = 0
    told.length = 0
    const call = insertOrFail(manager, [
      [Note, { body: 'b' }],
      [Site, { host: 'a' }],
      [Heard, { text: 'never sent' }],
    ])
    await takenBy(call)
    const [note, site] = [expect.stringContaining('INTO "note"'), expect.stringContaining('INTO "site"')] as unknown[]
    const lookUp: unknown = expect.stringContaining('WITH i0')
    expect(statements).toEqual(['START TRANSACTION', note, site, 'ROLLBACK', lookUp])
    expect(told.slice(3)).toEqual([
      ['after', note],
      ['failed', site],
      ['before', lookUp],
      ['after', lookUp],
    ])
  })
})

test('insertOrNull gives null where a text is taken, and its transaction goes on; what else is refused, it throws', async () => {
  const url = 'http://null.example/'
  await dataSource.transaction(async (manager) => {
    expect(await insertOrNull(manager, Page, { url, rank: 77 })).toMatchObject({ url, weight: 7 })
    expect(await insertOrNull(manager, Page, { url: 'HTTP://null.example' })).toBeNull()
    expect(await insertOrNull(manager, Page, { url: `${url}other`, rank: 77 })).toBeNull()
  })
  expect(await manager.countBy(Page, { rank: 77 })).toBe(1)
  await expect(insertOrNull(manager, Page, { url: 'ftp://null.example/' })).rejects.toThrow(TextRejectedError)
  await expect(insertOrNull(manager, Note, { body: 'a' })).rejects.toThrow(DeclarationError)
})

describe('what is taken is refused as a whole, with every reason', () => {
  test('every taken text in the order asked, with its property and its holder, in one more round trip', async () => {
    const [one, two] = await insertOrFail(manager, Page, [{ url: 'http://1.example' }, { url: 'http://2.example' }])
    statements.length = 0
    const urls = ['2', 'free', '1', 'also'].map((name) => ({ url: `http://${name}.example` }))
    const error = await takenBy(insertOrFail(manager, Page, urls))
    expect(statements).toHaveLength(2)
    expect(error.taken).toEqual([
      { entity: 'Page', property: 'url', id: { id: two?.id }, row: 0 },
      { entity: 'Page', property: 'url', id: { id: one?.id }, row: 2 },
    ])
    expect(error.cause).toBeInstanceOf(QueryFailedError)
    expect(error.message).not.toContain('example')
    expect(await manager.count(Page)).toBe(2)
  })

  test('several texts of one row, in their scopes, with composite keys', async () => {
    await insertOrFail(manager, Account, [
      { tenant: 't', number: 1, handle: 'a', email: 'a@x' },
      { tenant: 't', number: 2, handle: 'b', email: null },
      { tenant: 'u', number: 1, handle: 'b', email: 'b@x' },
    ])
    const error = await takenBy(insertOrFail(manager, Account, { tenant: 't', number: 9, handle: 'b', email: 'B@X' }))
    expect(error.taken).toEqual([
      { entity: 'Account', property: 'handle', id: { tenant: 't', number: 2 }, row: 0 },
      { entity: 'Account', property: 'email', id: { tenant: 'u', number: 1 }, row: 0 },
    ])
    const free = { tenant: 'u', number: 9, handle: 'a', email: null }
    const refused = await takenBy(insertOrFail(manager, Account, [free, { tenant: 't', number: 8, handle: 'a' }]))
    expect(refused.taken).toMatchObject([{ id: { tenant: 't', number: 1 }, row: 1 }])
    expect(await insertOrFail(manager, Account, free)).toEqual(free)
  })

  test('several tables: keys of every type, positions in the whole call', async () => {
    const site = await insertOrFail(manager, Site, { host: 'a.example' })
    await insertOrFail(manager, Account, { tenant: 't', number: 1, handle: 'a' })
    const call = insertOrFail(manager, [
      [Note, { body: 'is undone' }],
      [Account, [{ tenant: 't', number: 2, handle: 'a' }]],
      [Site, [{ host: 'b.example' }, { host: 'a.example' }]],
    ])
    expect((await takenBy(call)).taken).toEqual([
      { entity: 'Account', property: 'handle', id: { tenant: 't', number: 1 }, row: 1 },
      { entity: 'Site', property: 'host', id: { id: site.id }, row: 3 },
    ])
    expect(await manager.count(Note)).toBe(0)
    expect(await manager.count(Site)).toBe(1)
  })

  test('a unique column or a primary key that the call brings twice: the second is taken, and nobody holds it', async () => {
    const rows = [
      { id: 71, url: 'http://a.example', rank: 7 },
      { id: 72, url: 'http://b.example', rank: 7 },
      { id: 71, url: 'http://c.example', rank: 8 },
    ]
    const { taken: found, message } = await takenBy(insertOrFail(manager, Page, rows))
    expect(found).toEqual([
      { entity: 'Page', property: 'rank', id: undefined, row: 1, repeated: true },
      { entity: 'Page', property: 'id', id: undefined, row: 2, repeated: true },
    ])
    expect(message).not.toContain('held by')
  })

  test('equal texts within the call: the second is taken, and nobody holds it', async () => {
    const rows = ['a', 'b', 'A'].map((name) => ({ url: `http://${name}.example` }))
    const error = await takenBy(insertOrFail(manager, Page, rows))
    expect(error.taken).toEqual([{ entity: 'Page', property: 'url', id: undefined, row: 2, repeated: true }])
    expect(error.message).toBe(
      'Taken: row 2: "url" of Page (the call has it twice). Pass it once in a call, or pass another value.',
    )
    expect(await manager.count(Page)).toBe(0)
  })

  test('never with the row of another text: equal hashes are no reason', async () => {
    await insertOrFail(manager, Crowded, { text: 'a' })
    const b = await insertOrFail(manager, Crowded, { text: 'b' })
    const error = await takenBy(insertOrFail(manager, Crowded, [{ text: 'c' }, { text: 'b' }]))
    expect(error.taken).toEqual([{ entity: 'Crowded', property: 'text', id: { id: b.id }, row: 1 }])
    await insertOrFail(manager, Crowded, { text: 'c' })
    expect(await rejection(insertOrFail(manager, Crowded, { text: 'd' }))).toBeInstanceOf(ChainLimitError)
  })

  test('a constraint that is deferred refuses at the COMMIT, with the QueryFailedError of TypeORM', async () => {
    await client.query(`
      create or replace function refuse() returns trigger language plpgsql as $$
        begin
          raise exception 'refused' using errcode = '23514';
        end $$;
      create constraint trigger late after insert on note deferrable initially deferred
        for each row execute function refuse()`)
    try {
      const call = insertOrFail(manager, [
        [Site, { host: 'a' }],
        [Note, { body: 'b' }],
      ])
      const error = await rejection(call)
      expect(error).toBeInstanceOf(QueryFailedError)
      expect(error).toMatchObject({ query: 'COMMIT', driverError: { code: '23514' } })
      expect(await manager.count(Site)).toBe(0)
    } finally {
      await client.query('drop trigger late on note')
    }
  })
})

describe('bad input is refused before any SQL', () => {
  test.each<[string, () => Promise<unknown>, (new (...args: never[]) => Error)?]>([
    ['a text that the normalizer refuses', () => insertOrFail(manager, Page, { url: 'nonsense' }), TextRejectedError],
    ['no text', () => insertOrFail(manager, Page, { title: 'T' }), TextRejectedError],
    ['no scope', () => insertOrFail(manager, Account, { number: 1, handle: 'a' })],
    ['a new object in a relation', () => insertOrFail(manager, Page, { url: 'http://a', site: { host: 'b' } })],
    ['no list of pairs', () => insertOrFail(manager, [Page, { url: 'http://a' }] as never)],
    ['no object', () => insertOrFail(manager, Page, 'http://a' as never)],
    ['no entity with a unique text', () => insertOrFail(manager, Note, { body: 'b' })],
  ])('%s', async (_, call, type = DeclarationError) => {
    await insertOrFail(manager, Page, { url: 'http://ready.example' })
    statements.length = 0
    expect(await rejection(call())).toBeInstanceOf(type)
    expect(statements).toEqual([])
  })

  test.each([
    ['a text', { url: 'nonsense' }, { row: 2, message: expect.stringContaining('"url" of row 2 is rejected') }],
    ['no text', {}, { row: 2, message: expect.stringContaining('"url" of row 2 is rejected') }],
    ['a misspelt property', { url: 'http://b', tilte: '' }, { message: expect.stringMatching(/^Row 2: .*"tilte"/) }],
    ['a relation', { url: 'http://b', site: { host: 'b' } }, { message: expect.stringMatching(/^Row 2: "site"/) }],
  ])('%s of one row of several says which row', async (_, wrong, expected) => {
    const pages = [{ url: 'http://a' }, wrong]
    const call = insertOrFail(manager, [
      [Note, { body: 'b' }],
      [Page, pages as never],
    ])
    expect(await rejection(call)).toMatchObject(expected)
  })

  test('a single row is the first of its call, which its message need not say', async () => {
    const error = await rejection(insertOrFail(manager, Page, { url: 'nonsense' }))
    expect(error).toMatchObject({ row: 0, message: expect.stringContaining('"url" is rejected') })
  })
})

describe("in the caller's transaction", () => {
  test('a refusal undoes the whole call and nothing else, and the transaction goes on', async () => {
    await dataSource.transaction(async (inside) => {
      await inside.insert(Note, { body: 'mine' })
      await insertOrFail(inside, Site, { host: 'a' })
      const call = insertOrFail(inside, [
        [Note, { body: 'undone' }],
        [Site, [{ host: 'b' }, { host: 'a' }]],
      ])
      expect((await takenBy(call)).taken).toMatchObject([{ id: { id: '1' }, row: 2 }])
      await insertOrFail(inside, Site, { host: 'c' })
    })
    expect((await manager.find(Note)).map(({ body }) => body)).toEqual(['mine'])
    expect((await manager.find(Site)).map(({ host }) => host)).toEqual(['a', 'c'])
  })

  test('calls in parallel on one connection do not undo each other', async () => {
    await dataSource.transaction(async (inside) => {
      await insertOrFail(inside, Site, { host: 'taken' })
      const calls = Array.from({ length: 20 }, (_, index) =>
        noteAndSite(inside, `${index}`, index % 2 ? 'taken' : `${index}`),
      )
      const ends = await Promise.allSettled(calls)
      expect(ends.map(({ status }) => status)).toEqual(
        Array.from({ length: 20 }, (_, index) => (index % 2 ? 'rejected' : 'fulfilled')),
      )
    })
    expect(await manager.count(Note)).toBe(10)
    expect(await manager.count(Site)).toBe(11)
  })

  test('a transaction that began by SQL is one too', async () => {
    const runner = dataSource.createQueryRunner()
    await runner.query('begin')
    await insertOrFail(runner.manager, Site, { host: 'a' })
    await takenBy(noteAndSite(runner.manager))
    await runner.query('rollback')
    await runner.release()
    expect(await manager.count(Site)).toBe(0)
  })
})

describe('races', () => {
  test('a holder that is not committed yet is waited for, and named', async () => {
    const call = (): Promise<unknown> => insertOrFail(manager, Site, [{ host: 'free' }, { host: 'slow' }])
    const { taken } = await takenBy(meet(sessions, `insert into site (host) values ('slow')`, call))
    const { id } = await manager.findOneByOrFail(Site, { host: 'slow' })
    expect(taken).toEqual([{ entity: 'Site', property: 'host', id: { id }, row: 1 }])
  })

  test('a holder that goes back on its insert frees the text', async () => {
    const call = (): Promise<Site> => insertOrFail(manager, Site, { host: 'undone' })
    const site = await meet(sessions, `insert into site (host) values ('undone')`, call, 'ROLLBACK')
    expect(site).toMatchObject({ host: 'undone' })
  })

  test('another text of equal hash that was faster is no reason', async () => {
    const call = (): Promise<unknown> => insertOrFail(manager, Crowded, { text: 'b' })
    expect(await meet(sessions, `insert into crowded (text) values ('a')`, call)).toMatchObject({ text: 'b' })
  })

  test.each([
    ['outside a transaction', {}, false],
    ['outside one whose snapshot would be too old', { extra: { options: REPEATABLE_READ } }, false],
    ['in a transaction', {}, true],
  ])('a holder that is gone when it is asked for, %s', async (_, options, inTransaction) => {
    const own = await db.dataSource([Site], { ...options, synchronize: false, subscribers: [QueryListener] })
    await insertOrFail(manager, Site, { host: 'going' })
    let removed = 0
    beforeQuery.hook = async (query) => {
      if (query.startsWith('WITH i0')) removed += (await client.query('delete from site')).rowCount ?? 0
    }
    const call = (one: EntityManager): Promise<Site> => insertOrFail(one, Site, { host: 'going' })
    expect(await (inTransaction ? own.transaction(call) : call(own.manager))).toMatchObject({ host: 'going' })
    expect(removed).toBe(1)
  })

  test('two calls with crossed texts do not deadlock', async () => {
    const { observer } = sessions
    await client.query(`
      create or replace function stop() returns trigger language plpgsql as $$
        begin
          -- Before the second row of the first call.
          if exists (select from page where title = 'stop') then
            perform pg_advisory_lock_shared(1);
            perform pg_advisory_unlock_shared(1);
          end if;
          return new;
        end $$;
      create trigger a_stop before insert on page for each row when (new.title = 'stop') execute function stop();
      select pg_advisory_lock(1)`)
    try {
      const [left, right] = ['http://1.example', 'http://2.example'] as const
      const inside = (rows: { url: string; title?: string }[]): Promise<unknown> =>
        dataSource.transaction((one) => insertOrFail(one, Page, rows))
      const first = inside([
        { url: left, title: 'stop' },
        { url: right, title: 'stop' },
      ])
      await untilBlocked(observer)
      const second = takenBy(inside([{ url: right }, { url: left }]))
      await untilBlocked(observer, 2)
      await client.query('select pg_advisory_unlock(1)')
      await first
      expect((await second).taken.map(({ row }) => row)).toEqual([0, 1])
    } finally {
      await client.query('select pg_advisory_unlock_all(); drop trigger a_stop on page')
    }
  })
})
