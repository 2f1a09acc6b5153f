import { AsyncLocalStorage } from 'node:async_hooks'
import { type Client, types } from 'pg'
import type { DataSource, QueryRunner } from 'typeorm'
import {
  AfterInsert,
  AfterLoad,
  BeforeInsert,
  ChildEntity,
  Entity,
  PrimaryGeneratedColumn,
  QueryFailedError,
  TableInheritance,
} from 'typeorm'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  UniqueText,
  type UniqueTextDataSourceOptions,
  upsertByText,
} from '../../../src'
import { literal } from '../../../src/sql/identifier'
import { md5 } from '../../../src/text/digest'
import { untilBlocked } from '../../support/blocked'
import { whileBusy } from '../../support/busy'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { column, createDate, deleteDate, entity, text, toOne } from '../../support/entity'
import { queriesOf } from '../../support/queries'

const Site = entity('Site', { name: text() })
type Site = InstanceType<typeof Site>
const Page = entity('Page', {
  url: text(),
  title: column('varchar', { length: 5, nullable: true }),
  code: column('integer', { nullable: true, unique: true }),
  other: column('integer', { nullable: true }),
  createdAt: createDate(),
  deletedAt: deleteDate(),
  site: toOne(() => Site, { cascade: true }),
})
type Page = InstanceType<typeof Page>

const Parcel = entity('Parcel', { url: text(), data: column('jsonb', { default: {} }) })
type Parcel = InstanceType<typeof Parcel>

const VARCHAR: number = types.builtins.VARCHAR

/** One chain holds everything. */
const Colliding = entity('Colliding', { url: text({ digest: fewHashes(1) }) })
const Scoped = entity('Scoped', { url: text({ scope: ['tenant'] }), tenant: column('integer', { default: 1 }) })

const Media = entity('Media', { url: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind', default: 'Film' } })(Media)
@ChildEntity()
class Photo extends Media {}
@ChildEntity()
class Film extends Media {}

const heard: string[] = []
const caller = new AsyncLocalStorage<string>()

@Entity()
class Loud {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @BeforeInsert() before(): void {
    heard.push(`before ${this.url}`)
  }
  @AfterInsert() after(): void {
    heard.push(`after ${this.url}`)
  }
  @AfterLoad() loaded(): void {
    heard.push(`loaded ${this.url} by ${caller.getStore() ?? 'nobody'}`)
  }
}

const ENTITIES = [Site, Page, Parcel, Colliding, Scoped, Media, Photo, Film, Loud]

const db = useDatabase()
let sessions: { holder: Client; observer: Client }
const dataSource = db.useDataSource(ENTITIES, { emptied: false, poolSize: 16 })
const { manager } = dataSource

beforeAll(async () => {
  sessions = { holder: await db.client(), observer: await db.client() }
  // Readiness is asked for once.
  for (const entity of [Page, Parcel, Colliding, Media, Photo, Film, Loud])
    await findOneByText(manager, entity, { url: 'x' })
  await findOneByText(manager, Scoped, { url: 'x', tenant: 1 })
})

type Busied = new () => { id: number; url: string }

/** Runs while other calls of the entity are busy; gives what it gave, and how many statements of which kind it sent. */
async function crowd<T>(entity: Busied, run: () => Promise<T>): Promise<{ result: T; sent: string[] }> {
  return await whileBusy(dataSource, entity, sessions, async () => {
    let result: { value: T } | undefined
    const queries = await queriesOf(dataSource, async () => {
      result = { value: await run() }
    })
    if (!result) throw new TypeError('It has run.')
    return { result: result.value, sent: queries.map(kindOf) }
  })
}

/** The statements of calls of another DataSource, while it is busy: of which kind they are. */
async function crowdOf(own: DataSource, run: () => Promise<unknown>): Promise<string[]> {
  return await whileBusy(own, Page, sessions, async () => (await queriesOf(own, run)).map(kindOf))
}

/** It has many connections, and has seen nothing yet. */
const another = (settings?: UniqueTextDataSourceOptions): Promise<DataSource> =>
  db.dataSource([Page, Site], { synchronize: false, poolSize: 16 }, settings)

const findAll = (own: DataSource, urls: readonly string[]): Promise<unknown> =>
  all(...urls.map((url) => findOrCreate(own.manager, Page, { url })))

function kindOf(sql: string): string {
  if (sql.includes('unnest(') && sql.includes('urlHash')) return sql.includes('INSERT') ? 'bulk' : 'shared look-up'
  if (sql.includes('INSERT')) return 'find or create'
  return sql.includes('urlHash') ? 'look-up' : 'other'
}

const all = <T>(...calls: readonly Promise<T>[]): Promise<T[]> => Promise.all(calls)

describe('calls beyond those that are busy', () => {
  test('share one statement, and each gets the answer of its own', async () => {
    const { entity: a } = await findOrCreate(manager, Page, { url: 'a' })
    const { entity: b } = await findOrCreate(manager, Page, { url: 'b' })
    const { result, sent } = await crowd(Page, () =>
      Promise.all([
        findOrCreate(manager, Page, { url: 'a', title: 'other' }),
        findOneByText(manager, Page, { url: 'b' }),
        findOneByText(manager, Page, { url: 'none' }),
        findOrCreate(manager, Page, { url: 'b' }),
      ]),
    )
    expect(result).toEqual([
      { entity: a, created: false, attempts: 1 },
      b,
      null,
      { entity: b, created: false, attempts: 1 },
    ])
    expect(sent).toEqual(['shared look-up'])
  })

  test('share no entity, nor what its columns hold, for one text', async () => {
    await findOrCreate(manager, Page, { url: 'dated' })
    await findOrCreate(manager, Parcel, { url: 'with data', data: { list: [1] } })
    const dated = async (): Promise<Page> => (await findOrCreate(manager, Page, { url: 'dated' })).entity
    const ofPage = await crowd(Page, () => all(dated(), dated(), dated(), dated()))
    expect(ofPage.sent).toEqual(['find or create'])
    expect(new Set(ofPage.result.map(({ createdAt }) => createdAt)).size).toBe(4)
    expect(new Set(ofPage.result.map(({ createdAt }) => createdAt.getTime())).size).toBe(1)
    const find = async (): Promise<Parcel> => (await findOrCreate(manager, Parcel, { url: 'with data' })).entity
    const { result, sent } = await crowd(Parcel, () => all(find(), find(), find(), find()))
    expect(sent).toEqual(['find or create', 'shared look-up'])
    for (const parcel of result) expect(parcel.data).toEqual({ list: [1] })
    expect(new Set(result.map(({ data }) => data)).size).toBe(4)
    expect(new Set(result).size).toBe(4)
  })

  test('that only look share one statement, for one text too', async () => {
    await findOrCreate(manager, Page, { url: 'a' })
    const find = (): Promise<Page | null> => findOneByText(manager, Page, { url: 'a' })
    const { result, sent } = await crowd(Page, () => all(find(), find(), find()))
    expect(sent).toEqual(['shared look-up'])
    expect(new Set(result).size).toBe(3)
    expect(new Set(result.map((page) => page?.createdAt)).size).toBe(3)
    await findOrCreate(manager, Parcel, { url: 'looked at', data: { list: [1] } })
    const look = (): Promise<Parcel | null> => findOneByText(manager, Parcel, { url: 'looked at' })
    const parcels = await crowd(Parcel, () => all(look(), look(), look()))
    for (const parcel of parcels.result) expect(parcel?.data).toEqual({ list: [1] })
    expect(new Set(parcels.result.map((parcel) => parcel?.data)).size).toBe(3)
  })

  test('share a statement that the server plans once, however few they are', async () => {
    const texts = ['p1', 'p2', 'p3']
    const look = (url: string): Promise<unknown> => findOneByText(manager, Page, { url })
    const queries = await whileBusy(dataSource, Page, sessions, () =>
      queriesOf(dataSource, () => all(...texts.map(look))),
    )
    const client = await db.client()
    const query = { name: 'shared', text: queries.join(';'), values: [texts, texts.map(md5.js)] }
    // The first five are planned for what they look for.
    for (let run = 0; run < 8; run += 1) await client.query(query)
    const { rows } = await client.query('select generic_plans::int, custom_plans::int from pg_prepared_statements')
    expect(rows).toEqual([{ generic_plans: 3, custom_plans: 5 }])
  })

  test('that are fewer than three go their ordinary way', async () => {
    await findOrCreate(manager, Page, { url: 'a' })
    const find = (url: string): Promise<unknown> => findOrCreate(manager, Page, { url })
    const { sent } = await crowd(Page, () => all(find('a'), find('b')))
    expect(sent).toEqual(['find or create', 'find or create'])
  })

  test('of one new text insert it once, and the first has created it', async () => {
    const create = (): Promise<{ entity: Page; created: boolean; attempts: number }> =>
      findOrCreate(manager, Page, { url: 'new' })
    const { result, sent } = await crowd(Page, () => all(...Array.from({ length: 20 }, create)))
    expect(result.map(({ created }) => created)).toEqual([true, ...Array.from({ length: 19 }, () => false)])
    expect(new Set(result.map(({ entity }) => entity.id)).size).toBe(1)
    expect(new Set(result.map(({ entity }) => entity)).size).toBe(20)
    expect(new Set(result.map(({ attempts }) => attempts))).toEqual(new Set([1]))
    expect(sent).toEqual(['find or create'])
  })

  test('of one new text whose first fails: the error is its own, and the next ones try', async () => {
    const { result } = await crowd(Page, () =>
      Promise.allSettled([
        findOrCreate(manager, Page, { url: 'refused', title: 'far too long' }),
        findOrCreate(manager, Page, { url: 'refused', title: 'good' }),
        findOrCreate(manager, Page, { url: 'refused' }),
      ]),
    )
    const [first, ...others] = result
    expect(first).toMatchObject({ status: 'rejected', reason: { code: '22001' } })
    expect(others.map((one) => one.status)).toEqual(['fulfilled', 'fulfilled'])
    const created = others.filter((one) => one.status === 'fulfilled' && one.value.created)
    expect(created).toHaveLength(1)
  })

  test('of one new text whose first is cancelled wait for no other one of them', async () => {
    const other = await db.client()
    await other.query('begin')
    await other.query(`insert into page (url) values ('cancelled once')`)
    const { rows } = await other.query<{ pid: number }>('select pg_backend_pid() as pid')
    const { result } = await crowd(Page, async () => {
      const call = async (): Promise<boolean> => (await findOrCreate(manager, Page, { url: 'cancelled once' })).created
      const calls = Promise.allSettled(Array.from({ length: 4 }, call))
      // Those who are busy, and the first, which the three follow.
      await untilBlocked(sessions.observer, 8 + 1)
      await sessions.observer.query(
        'select pg_cancel_backend(pid) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))',
        [rows[0]?.pid],
      )
      await untilBlocked(sessions.observer, 8 + 3)
      await other.query('commit')
      return await calls
    })
    const values = result.map((one) => (one.status === 'fulfilled' ? one.value : undefined))
    expect(values).toEqual([undefined, false, false, false])
  })

  test.each([{ code: 2 }, { other: 1 }])('of one new text wait for nobody who brings %j', async (values) => {
    await dataSource.query('delete from page where code is not null or other is not null')
    const own = await db.client()
    await own.query('begin')
    // Holds the first, by another unique index than ours.
    await own.query(`insert into page (url, code) values ('another', 1)`)
    const { result } = await crowd(Page, async () => {
      const first = findOrCreate(manager, Page, { url: 'with a code', code: 1 })
      const second = findOrCreate(manager, Page, { url: 'with a code', ...values })
      const { created } = await second
      await own.query('rollback')
      return [(await first).created, created]
    })
    expect(result).toEqual([false, true])
  })

  test('of several new texts create each of them', async () => {
    const { result, sent } = await crowd(Page, () =>
      all(...['n1', 'n2', 'n1', 'n3', 'n2'].map(async (url) => (await findOrCreate(manager, Page, { url })).created)),
    )
    expect(result).toEqual([true, true, false, true, false])
    expect(sent).toEqual(['shared look-up', 'find or create', 'find or create', 'find or create'])
  })

  test('get the rows of their texts where hashes are equal', async () => {
    const urls = ['c1', 'c2', 'c3', 'c4']
    const rows = new Map<string, number>()
    for (const url of urls) rows.set(url, (await findOrCreate(manager, Colliding, { url })).entity.id)
    // Nobody may wait for the anchor of the one chain: the places are filled by the other entity's calls.
    const find = (url: string): Promise<unknown> => findOrCreate(manager, Colliding, { url })
    const results = await all(...[...urls, ...urls, ...urls, 'c5', 'c5'].map(find))
    expect(results.slice(0, 12)).toMatchObject(
      [...urls, ...urls, ...urls].map((url) => ({ entity: { id: rows.get(url), url }, created: false })),
    )
    expect(results.slice(-2).filter((one) => (one as { created: boolean }).created)).toHaveLength(1)
  })

  test('are told apart by the scope', async () => {
    const { entity } = await findOrCreate(manager, Scoped, { url: 's', tenant: 1 })
    const { result, sent } = await crowd(Scoped, async () => {
      const ofTenant = (tenant: number): Promise<unknown> => findOneByText(manager, Scoped, { url: 's', tenant })
      return await all(ofTenant(1), ofTenant(2), ofTenant(1))
    })
    expect(result).toEqual([entity, null, entity])
    expect(sent).toEqual(['shared look-up'])
  })
})

test('when the crowd has gone, eight go their ordinary way again, and no more than eight', async () => {
  const own = await another()
  const urls = Array.from({ length: 8 }, (_, index) => `place ${index}`)
  const find = (url: string, title?: string): Promise<unknown> =>
    findOrCreate(own.manager, Page, { url, ...(title === undefined ? {} : { title }) })
  for (const url of urls) await find(url)
  await whileBusy(own, Page, sessions, async () => {
    // Shared, followed, refused, and released.
    await all(...urls.map((url) => find(url)))
    await all(...Array.from({ length: 8 }, () => find('place taken together')))
    await Promise.allSettled(['far too long', 'a', 'b'].map((title) => find('place refused', title)))
    await Promise.allSettled([find('place 1'), find('place 2')])
    await all(...[1, 2, 3].map(() => findOneByText(own.manager, Page, { url: 'no place' })))
  })
  const alone = await queriesOf(own, () => all(...urls.map((url) => find(url))))
  expect(alone.map(kindOf)).toEqual(urls.map(() => 'find or create'))
  expect(await crowdOf(own, () => findAll(own, urls.slice(0, 3)))).toEqual(['shared look-up'])
})

describe('nobody waits for another', () => {
  test('whose insert waits for another session', async () => {
    const { holder, observer } = { holder: await db.client(), observer: sessions.observer }
    await findOrCreate(manager, Page, { url: 'stands' })
    await holder.query('begin')
    await holder.query(`insert into page (url) values ('held')`)
    const blocked: Promise<unknown>[] = []
    const { result } = await crowd(Page, async () => {
      // As many as one statement takes.
      for (let index = 0; index < 1_000; index += 1) blocked.push(findOrCreate(manager, Page, { url: 'held' }))
      expect(await findOneByText(manager, Page, { url: 'held' })).toBe(null)
      const results = await all(
        findOrCreate(manager, Page, { url: 'stands' }),
        findOrCreate(manager, Page, { url: 'not held' }),
      )
      // Who only looks does not wait for what is not committed.
      const looks = await all(...[1, 2, 3].map(() => findOneByText(manager, Page, { url: 'held' })))
      expect(looks).toEqual([null, null, null])
      const { rows } = await observer.query<{ n: number }>(`select count(*)::int as n from page where url = 'not held'`)
      expect(rows).toEqual([{ n: 1 }])
      const later = await all(...['stands', 'stands', 'stands'].map((url) => findOrCreate(manager, Page, { url })))
      return [...results, ...later]
    })
    expect(result.map(({ created }) => created)).toEqual([false, true, false, false, false])
    await holder.query('commit')
    const answers = (await Promise.all(blocked)) as { created: boolean }[]
    expect(answers.filter(({ created }) => created)).toEqual([])
  })

  test('who calls code of the user before the insert', async () => {
    let count = 0
    let go = (): void => {}
    const together = new Promise<void>((resolve) => (go = resolve))
    // Each goes on only once all have been called.
    const create = async (): Promise<object> => {
      count += 1
      if (count === 3) go()
      await together
      return { title: 'made' }
    }
    const call = async (): Promise<boolean> =>
      (await findOrCreate(manager, Page, { url: 'created late' }, { create })).created
    const { result } = await crowd(Page, () => all(call(), call(), call()))
    expect(result.filter(Boolean)).toHaveLength(1)
    expect(count).toBe(3)
  })

  test('whose values the server refuses', async () => {
    const { entity } = await findOrCreate(manager, Scoped, { url: 'good', tenant: 1 })
    const { result, sent } = await crowd(Scoped, () =>
      Promise.allSettled([
        findOrCreate(manager, Scoped, { url: 'good', tenant: 1 }),
        findOrCreate(manager, Scoped, { url: 'bad', tenant: 'one' as unknown as number }),
        findOneByText(manager, Scoped, { url: 'good', tenant: 1 }),
      ]),
    )
    const [found, refused, looked] = result
    expect(found).toMatchObject({ value: { entity, created: false } })
    expect(looked).toMatchObject({ value: entity })
    expect(refused).toMatchObject({ status: 'rejected', reason: { code: '22P02' } })
    const { reason } = refused as PromiseRejectedResult
    expect(reason).toBeInstanceOf(QueryFailedError)
    expect((reason as Error).stack).toContain('coalescing.test.ts')
    expect(sent[0]).toBe('shared look-up')
  })

  test('whose row holds a value that a parser of the user refuses', async () => {
    const parsers = {
      getTypeParser: (type: number, format: 'text'): unknown => {
        const parse = types.getTypeParser(type, format) as (text: string) => unknown
        return type === VARCHAR ? (text: string) => (text === 'bad' ? fail() : text) : parse
      },
    }
    const own = await db.dataSource([Page, Site], { synchronize: false, poolSize: 16, extra: { types: parsers } })
    await findOrCreate(manager, Page, { url: 'well', title: 'good' })
    await findOrCreate(manager, Page, { url: 'badly', title: 'bad' })
    await whileBusy(own, Page, sessions, async () => {
      const find = (url: string): Promise<Page | null> => findOneByText(own.manager, Page, { url })
      const results = await Promise.allSettled(['well', 'badly', 'none'].map(find))
      expect(results).toMatchObject([
        { value: { title: 'good' } },
        { reason: { driverError: { message: 'of the user' } } },
        { value: null },
      ])
    })
  })

  test('in a transaction, or with a connection of its own', async () => {
    await findOrCreate(manager, Page, { url: 'inside' })
    const runner = dataSource.createQueryRunner()
    const { sent } = await crowd(Page, async () => {
      await dataSource.transaction((inside) =>
        all(...[1, 2, 3].map(() => findOrCreate(inside, Page, { url: 'inside' }))),
      )
      await all(...[1, 2, 3].map(() => findOneByText(runner.manager, Page, { url: 'inside' })))
    })
    await runner.release()
    const ours = sent.filter((kind) => kind !== 'other')
    expect(ours).toEqual([...Array.from({ length: 3 }, () => 'find or create'), ...[1, 2, 3].map(() => 'look-up')])
  })

  test('with a long text', async () => {
    const long = 'x'.repeat(2 ** 18)
    await findOrCreate(manager, Page, { url: long })
    const call = async (): Promise<boolean> => (await findOrCreate(manager, Page, { url: long })).created
    const { result, sent } = await crowd(Page, () => all(call(), call(), call()))
    expect(result).toEqual([false, false, false])
    expect(sent).toEqual(['find or create', 'find or create', 'find or create'])
  })
})

describe('each call is answered as if it were alone', () => {
  test('where the row is deleted softly', async () => {
    for (const url of ['d1', 'd2', 'd3']) {
      await findOrCreate(manager, Page, { url })
      await manager.softDelete(Page, { url })
    }
    const { result } = await crowd(Page, () =>
      Promise.allSettled([
        findOrCreate(manager, Page, { url: 'd1' }),
        findOrCreate(manager, Page, { url: 'd2' }, { deleted: 'restore' }),
        findOrCreate(manager, Page, { url: 'd3' }, { deleted: 'throw' }),
        findOneByText(manager, Page, { url: 'd1' }),
        findOneByText(manager, Page, { url: 'd1' }, { withDeleted: true }),
      ]),
    )
    expect(result).toMatchObject([
      { value: { entity: { url: 'd1', deletedAt: expect.any(Date) as Date }, created: false } },
      { value: { entity: { url: 'd2', deletedAt: null }, created: false } },
      { reason: { code: 'TEXT_TAKEN' } },
      { value: null },
      { value: { url: 'd1' } },
    ])
  })

  test('where the row is of another class of the table', async () => {
    await findOrCreate(manager, Photo, { url: 'photo' })
    await findOrCreate(manager, Film, { url: 'film' })
    const { result, sent } = await crowd(Film, () =>
      Promise.allSettled([
        findOrCreate(manager, Film, { url: 'film' }),
        findOrCreate(manager, Film, { url: 'photo' }),
        findOneByText(manager, Film, { url: 'photo' }),
      ]),
    )
    expect(result).toMatchObject([
      { value: { entity: { url: 'film' } } },
      { reason: { code: 'TEXT_TAKEN' } },
      { value: null },
    ])
    expect((result[1] as PromiseRejectedResult).reason).toMatchObject({
      stack: expect.stringContaining('coalescing.test.ts') as string,
    })
    expect(sent).toEqual(['shared look-up'])
  })

  test('where several rows hold the text', async () => {
    await sessions.observer.query(`
      create table kept as select indexdef from pg_indexes where tablename = 'page' and indexdef like '%urlHashNumber%';
      alter table page disable trigger user;
      do $$ begin
        execute (select format('drop index %I', indexname) from pg_indexes
                  where tablename = 'page' and indexdef like '%urlHashNumber%');
      end $$;
      insert into page (url, "urlHash", "urlHashNumber") select 'twice', md5('twice')::uuid, n from generate_series(0, 1) as n;
      do $$ begin execute (select indexdef from kept); end $$;
      drop table kept;
      alter table page enable trigger user;
    `)
    await findOrCreate(manager, Page, { url: 'once' })
    const { result } = await crowd(Page, () =>
      Promise.allSettled([
        findOrCreate(manager, Page, { url: 'twice' }),
        findOrCreate(manager, Page, { url: 'once' }),
        findOneByText(manager, Page, { url: 'twice' }),
      ]),
    )
    expect(result).toMatchObject([
      { reason: { code: 'DUPLICATE_TEXT' } },
      { value: { created: false } },
      { reason: { code: 'DUPLICATE_TEXT' } },
    ])
    await sessions.observer.query(`delete from page where url = 'twice'`)
  })

  test('listeners hear of each row, in the context of its caller', async () => {
    await findOrCreate(manager, Loud, { url: 'old' })
    const { sent, result } = await crowd(Loud, async () => {
      heard.length = 0
      await all(
        ...['A', 'B', 'C'].map((name) => caller.run(name, () => findOrCreate(manager, Loud, { url: 'old' }))),
        caller.run('D', () => findOrCreate(manager, Loud, { url: 'young' })),
      )
      return heard.toSorted()
    })
    expect(sent[0]).toBe('shared look-up')
    expect(result).toEqual(['after young', 'before young', 'loaded old by A', 'loaded old by B', 'loaded old by C'])
  })

  test('instrumentation sees one statement, in the context of one call, whose parameters count the texts', async () => {
    const names = ['A', 'B', 'C', 'D']
    for (const name of names) await findOrCreate(manager, Page, { url: `seen ${name}` })
    const seen: { by: string | undefined; texts: unknown }[] = []
    const log = vi.spyOn(dataSource.logger, 'logQuery').mockImplementation((sql, parameters) => {
      if (sql.includes('unnest(')) seen.push({ by: caller.getStore(), texts: Object.values(parameters ?? {})[0] })
    })
    try {
      await whileBusy(dataSource, Page, sessions, async () => {
        const find = (name: string) => findOrCreate(manager, Page, { url: `seen ${name}` })
        await all(...names.map((name) => caller.run(name, () => find(name))))
      })
    } finally {
      log.mockRestore()
    }
    expect(seen).toEqual([{ by: expect.stringMatching(/^[A-D]$/), texts: names.map((name) => `seen ${name}`) }])
  })

  test('relations are loaded for those that ask for them', async () => {
    await findOrCreate(manager, Page, { url: 'of a site', site: { name: 's' } }, { relations: 'findOrCreate' })
    const { result } = await crowd(Page, () =>
      all(
        findOrCreate(manager, Page, { url: 'of a site' }, { relations: { site: true } }),
        findOrCreate(manager, Page, { url: 'of a site' }),
        findOrCreate(manager, Page, { url: 'of a site' }, { relations: ['site'] }),
      ),
    )
    expect(result.map(({ entity }) => (entity.site as Site | undefined)?.name)).toEqual(['s', undefined, 's'])
  })
})

test('nested objects, lists and upserts do not take part', async () => {
  await findOrCreate(manager, Page, { url: 'a' })
  const { sent } = await crowd(Page, () =>
    all<unknown>(
      ...[1, 2, 3].map(() => findOrCreateMany(manager, Page, [{ url: 'a' }])),
      ...[1, 2, 3].map(() => findOrCreate(manager, Page, { url: 'a' }, { relations: 'findOrCreate' })),
      ...[1, 2, 3].map(() => upsertByText(manager, Page, { url: 'a', title: 'same' })),
    ),
  )
  expect(sent).toHaveLength(9)
  expect(sent).not.toContain('shared look-up')
})

test('where nearly all texts are new, nobody looks for them first', async () => {
  const own = await another()
  for (let index = 0; index < 60; index += 1) await findOrCreate(own.manager, Page, { url: `one of many ${index}` })
  const texts = ['another 1', 'another 2', 'another 3', 'another 4']
  const sent = await crowdOf(own, () => findAll(own, texts))
  expect(sent).toEqual(texts.map(() => 'find or create'))
  // Until they are not new any more.
  const again = await crowdOf(own, async () => {
    for (let index = 0; index < 20; index += 1) await findOneByText(own.manager, Page, { url: 'another 1' })
    await findAll(own, texts)
  })
  expect(again.at(-1)).toBe('shared look-up')
})

describe('where each connection is made ready for its caller', () => {
  const tenant = new AsyncLocalStorage<string>()
  const makeReady = async (client: Client): Promise<void> => {
    await client.query(`set role reader_of_site; select set_config('app.tenant', ${literal(tenantNow())}, false)`)
  }
  const tenantNow = (): string => tenant.getStore() ?? ''

  beforeAll(async () => {
    await sessions.observer.query(`
      create role reader_of_site;
      grant select, insert, update on site to reader_of_site;
      create policy own on site using (name = 'of ' || current_setting('app.tenant'));
      insert into site (name) values ('of b')`)
  })
  afterAll(() => sessions.observer.query('drop owned by reader_of_site cascade; drop role reader_of_site'))

  test.each<[string, (driver: Driver) => void]>([
    [
      'by its query runner',
      (driver) => {
        const create = driver.createQueryRunner.bind(driver)
        driver.createQueryRunner = (mode) => {
          const queryRunner = create(mode)
          const connect = queryRunner.connect.bind(queryRunner)
          queryRunner.connect = async () => {
            const client = (await connect()) as Client
            await makeReady(client)
            return client
          }
          return queryRunner
        }
      },
    ],
    [
      'by the driver',
      (driver) => {
        const obtain = driver.obtainMasterConnection.bind(driver)
        driver.obtainMasterConnection = async () => {
          const taken = await obtain()
          await makeReady(taken[0])
          return taken
        }
      },
    ],
  ])('%s, no caller is answered by what another one sees', async (_, prepare) => {
    const own = await db.dataSource([Site], { synchronize: false, poolSize: 32 })
    await findOneByText(own.manager, Site, { name: 'x' })
    const driver: unknown = own.driver
    prepare(driver as Driver)
    // Only now, when the table has been looked at: the policies are one way of many to tell callers apart.
    await sessions.observer.query('alter table site enable row level security')
    // More than go their ordinary way at once.
    const tenants = Array.from({ length: 24 }, (__, index) => (index % 2 === 0 ? 'b' : 'a'))
    const find = (name: string): Promise<Site | null> =>
      tenant.run(name, () => findOneByText(own.manager, Site, { name: 'of b' }))
    const seen = await Promise.all(tenants.map(find))
    await sessions.observer.query('alter table site disable row level security')
    expect(seen.map((site) => site !== null)).toEqual(tenants.map((name) => name === 'b'))
  })
})

interface Driver {
  createQueryRunner(mode: string): QueryRunner
  obtainMasterConnection(): Promise<[Client, () => void]>
}

describe('option coalesce', () => {
  test.each([{ coalesce: false }, { tenantsBySearchPath: true }])('%o: nothing is shared', async (settings) => {
    const own = await another(settings)
    for (const url of ['a', 'b', 'c']) await findOrCreate(own.manager, Page, { url })
    const sent = await crowdOf(own, () => findAll(own, ['a', 'b', 'a', 'c']))
    expect(sent).not.toContain('shared look-up')
    expect(sent.filter((kind) => kind === 'find or create')).toHaveLength(4)
  })

  test('on a table with row security nothing is shared, whatever the option says', async () => {
    const own = await another()
    await own.query('alter table page enable row level security')
    try {
      const sent = await crowdOf(own, () => findAll(own, ['a', 'b', 'a', 'c']))
      expect(sent).toEqual(Array.from({ length: 4 }, () => 'find or create'))
    } finally {
      await own.query('alter table page disable row level security')
    }
  })
})

test('callers that hold connections of a small pool are answered', async () => {
  const own = await db.dataSource([Page, Site], { synchronize: false, poolSize: 4 })
  await findOrCreate(own.manager, Page, { url: 'a' })
  await all(
    ...[1, 2, 3].map((index) =>
      own.transaction(async (inside) => {
        await findOrCreate(inside, Page, { url: `held ${index}` })
        // By the one connection that is left.
        const outside = await all(
          ...Array.from({ length: 16 }, (_, nth) =>
            findOrCreate(own.manager, Page, { url: nth % 2 ? 'a' : `o${nth}` }),
          ),
        )
        expect(outside).toHaveLength(16)
      }),
    ),
  )
})

function fail(): never {
  throw new Error('of the user')
}
