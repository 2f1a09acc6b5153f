import type { Client } from 'pg'
import { Column, type DataSource, Entity, type EntityManager, PrimaryGeneratedColumn, QueryFailedError } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, TransactionAbortedError, UniqueText, upsertByText } from '../../../src'
import { openSession } from '../../../src/connection/open-session'
import { planLife } from '../../../src/connection/wire'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { rejection } from '../../support/ledger'
import { type ConnectionFault, startProxy } from '../../support/proxy'

const db = useDatabase()

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @Column({ type: 'enum', enum: ['a', 'b', 'c'], nullable: true }) kind!: string | null
  @Column({ type: 'integer', nullable: true, select: false }) rank!: number | null
}

const Wide = entity('Wide', {
  url: text(),
  p0: column('integer', { nullable: true }),
  p1: column('integer', { nullable: true }),
  p2: column('integer', { nullable: true }),
  p3: column('integer', { nullable: true }),
  p4: column('integer', { nullable: true }),
  p5: column('integer', { nullable: true }),
  p6: column('integer', { nullable: true }),
  p7: column('integer', { nullable: true }),
})

/** A pool of one connection, and another connection to look at the database with. */
async function open(entity: new () => object = Page): Promise<{ dataSource: DataSource; observer: Client }> {
  const dataSource = await db.dataSource([entity], { dropSchema: true, extra: { max: 1 } })
  const observer = await db.client()
  await observer.query('ALTER TABLE IF EXISTS page SET (autovacuum_enabled = false)')
  return { dataSource, observer }
}

/**
 * Rows without statistics, as a bulk load leaves them.
 *
 * @param title makes a row longer
 */
async function fill(observer: Client, rows: number, title: string | null = null): Promise<void> {
  await observer.query(
    `INSERT INTO page (url, "urlHash", title) SELECT url, md5(url)::uuid, $2
     FROM generate_series(1, $1) AS n, LATERAL (SELECT 'http://example.com/' || n AS url) AS made
     ON CONFLICT DO NOTHING`,
    [rows, title],
  )
}

/** What is sent while `work` runs. */
async function sentBy(
  dataSource: DataSource,
  work: () => Promise<unknown>,
): Promise<{ sql: string; values: unknown[] }[]> {
  const sent: { sql: string; values: unknown[] }[] = []
  const { logger } = dataSource
  const spy = loggerOf({
    logQuery: (sql, values) => void sent.push({ sql, values: values as unknown[] }),
  })
  Object.assign(dataSource, { logger: spy })
  await work()
  Object.assign(dataSource, { logger })
  return sent
}

describe('the plan of a table that was never analyzed', () => {
  // The planner takes the second one, whose rows are long, for ten times as many rows of usual length.
  test.each([
    [20_000, 0],
    [40_000, 1_000],
  ])('of %i rows, each with %i more bytes, costs a batch too little for JIT', async (rows, more) => {
    const { dataSource, observer } = await open()
    await fill(observer, rows, 'x'.repeat(more))
    const batch = Array.from({ length: 1_000 }, (_, index) => ({ url: `new ${index}` }))
    const sent = await sentBy(dataSource, async () => await findOrCreateMany(dataSource.manager, Page, batch))
    const { sql, values } = sent.find((one) => one.sql.startsWith('WITH input')) ?? { sql: '', values: [] }
    const explained = await observer.query<{ 'QUERY PLAN': [{ Plan: { 'Total Cost': number } }] }>(
      `EXPLAIN (FORMAT JSON) ${sql}`,
      values,
    )
    // Of `jit_above_cost`, 100,000 by default; a batch of a stream has three times as many rows.
    expect(explained.rows[0]?.['QUERY PLAN'][0].Plan['Total Cost']).toBeLessThan(20_000)
  })
})

/** Names on the pool's only connection, without asking by one. */
async function preparedNames(dataSource: DataSource): Promise<string[]> {
  const rows: { name: string }[] = await dataSource.query(
    `SELECT name FROM pg_prepared_statements WHERE name LIKE 'unique_text_%' ORDER BY prepare_time`,
  )
  return rows.map(({ name }) => name)
}

test.each([true, false])('with prepare: %s, a call prepares its statement as often', async (prepare) => {
  await open()
  const dataSource = await db.dataSource([Page], { synchronize: false, extra: { max: 1 } }, { prepare })
  await findOrCreate(dataSource.manager, Page, { url: 'a' })
  await dataSource.transaction(async (manager) => await findOrCreate(manager, Page, { url: 'a' }))
  expect(await preparedNames(dataSource)).toHaveLength(prepare ? 1 : 0)
})

describe('what was prepared and does not fit any more', () => {
  const changes = {
    'a column has another type (0A000)': `ALTER TABLE page ALTER title TYPE varchar(50)`,
    'DISCARD ALL has forgotten it (26000)': `DISCARD ALL`,
    'DEALLOCATE ALL has forgotten it (26000)': `DEALLOCATE ALL`,
    'an enum was made anew, as migrations do (XX000)': `
      CREATE TYPE new_kind AS ENUM ('a', 'b', 'c');
      ALTER TABLE page ALTER kind DROP DEFAULT, ALTER kind TYPE new_kind USING kind::text::new_kind;
      DROP TYPE page_kind_enum;
      ALTER TYPE new_kind RENAME TO page_kind_enum`,
    'a parameter has a smaller type than its column (22003)': `ALTER TABLE page ALTER rank TYPE integer`,
  }
  test.each(Object.entries(changes))('is prepared again: %s', async (_, change) => {
    const { dataSource, observer } = await open()
    await observer.query('ALTER TABLE page ALTER rank TYPE smallint')
    await findOrCreate(dataSource.manager, Page, { url: 'first', kind: 'a', rank: 1 })
    const before = await preparedNames(dataSource)
    await dataSource.query(change)
    const rank = change.includes('rank') ? 100_000 : 2
    const { entity, attempts } = await findOrCreate(dataSource.manager, Page, { url: 'new', kind: 'b', rank })
    expect(entity).toMatchObject({ url: 'new', kind: 'b' })
    expect(attempts).toBe(1)
    await findOrCreate(dataSource.manager, Page, { url: 'new', kind: 'b', rank: 1 })
    const after = await preparedNames(dataSource)
    expect(after).toHaveLength(1)
    expect(after).not.toEqual(before)
  })

  test('costs a transaction once: it says so, and the next try succeeds', async () => {
    const { dataSource, observer } = await open()
    const work = async () =>
      await dataSource.transaction(async (manager) => await findOrCreate(manager, Page, { url: 'a' }))
    await work()
    await observer.query('ALTER TABLE page ALTER title TYPE varchar(50)')
    const error = await rejection(work())
    expect(error).toBeInstanceOf(TransactionAbortedError)
    expect(error).toMatchObject({ cause: { code: '0A000' }, message: expect.stringContaining('prepare: false') })
    expect(await work()).toMatchObject({ created: false })
  })

  test('an internal error in a transaction is told as it is (XX000), and the next try has a new name', async () => {
    const { dataSource } = await open()
    const work = async () =>
      await dataSource.transaction(async (manager) => await findOrCreate(manager, Page, { url: 'a', kind: 'a' }))
    await work()
    await dataSource.query(changes['an enum was made anew, as migrations do (XX000)'])
    const error = await rejection(work())
    expect(error).not.toBeInstanceOf(TransactionAbortedError)
    expect(error).toMatchObject({ code: 'XX000' })
    expect(await work()).toMatchObject({ created: false })
  })

  test('costs a transaction nothing behind a savepoint', async () => {
    const { dataSource } = await open()
    const work = async () =>
      await dataSource.transaction(async (manager) => {
        await manager.query('INSERT INTO page (url, title) VALUES ($1, NULL)', [`by hand ${Math.random()}`])
        const session = (await openSession(manager)).withSavepoints()
        return await session.rows({ name: 'unique_text_test', sql: 'SELECT title FROM page', parse: (row) => row }, [])
      })
    await work()
    await dataSource.query('ALTER TABLE page ALTER title TYPE varchar(50)')
    expect(await work()).toHaveLength(2)
  })

  test('is a name that another client of a pooler has taken (42P05)', async () => {
    const { dataSource } = await open()
    await findOrCreate(dataSource.manager, Page, { url: 'a' })
    const [name] = await preparedNames(dataSource)
    const other = await db.dataSource([Page], { extra: { max: 1 } })
    await other.query(`PREPARE "${name}" AS SELECT 1`)
    expect(await findOrCreate(other.manager, Page, { url: 'a' })).toMatchObject({ created: false })
  })

  test('is not prepared a fourth time: where nothing stays prepared, nothing is', async () => {
    const { dataSource } = await open()
    for (let round = 0; round < 3; round += 1) {
      await findOrCreate(dataSource.manager, Page, { url: 'a' })
      await dataSource.query('DISCARD ALL')
      await findOrCreate(dataSource.manager, Page, { url: 'a' })
    }
    await findOrCreate(dataSource.manager, Page, { url: 'a' })
    expect(await preparedNames(dataSource)).toEqual([])
  })

  test('a bad value is refused as ever, and nothing is prepared again for it', async () => {
    const { dataSource } = await open()
    await findOrCreate(dataSource.manager, Page, { url: 'first', rank: 1 })
    const before = await preparedNames(dataSource)
    expect(await rejection(findOrCreate(dataSource.manager, Page, { url: 'bad', rank: 2 ** 40 }))).toMatchObject({
      code: '22003',
    })
    expect(await preparedNames(dataSource)).toEqual(before)
  })

  test('tenants by search_path each get their own rows, also where a type of theirs has the same name', async () => {
    const { dataSource } = await open()
    const other = await db.dataSource([Page], { schema: 'other', synchronize: false })
    await dataSource.query('CREATE SCHEMA other')
    await other.synchronize()
    for (const [round, schema] of ['public', 'other', 'public', 'other', 'public', 'other'].entries()) {
      await dataSource.query(`SET search_path TO ${schema}`)
      await findOrCreate(dataSource.manager, Page, { url: `${schema} ${round}`, kind: 'b' })
    }
    await dataSource.query('RESET search_path')
    const urls = async (schema: string) =>
      (await dataSource.query(`SELECT url FROM ${schema}.page ORDER BY url`)).map(({ url }: { url: string }) => url)
    expect(await urls('public')).toEqual(['public 0', 'public 2', 'public 4'])
    expect(await urls('other')).toEqual(['other 1', 'other 3', 'other 5'])
  })
})

describe('a plan from when the table was tiny', () => {
  /** Of this transaction, which counts at once. */
  const sequentialScans = async (manager: EntityManager): Promise<number> => {
    const [row] = await manager.query(
      `SELECT seq_scan::int FROM pg_stat_xact_user_tables WHERE relid = 'page'::regclass`,
    )
    return row.seq_scan
  }

  test('is not kept while others fill it: hits use the index again', async () => {
    const { dataSource, observer } = await open()
    await fill(observer, 3)
    await observer.query('ANALYZE page')
    await dataSource.transaction(async (manager) => {
      const hits = async (count: number): Promise<void> => {
        for (let hit = 0; hit < count; hit += 1) await findOrCreate(manager, Page, { url: 'http://example.com/1' })
      }
      await hits(10)
      await fill(observer, 20_000)
      const before = await sequentialScans(manager)
      await hits(10)
      expect(await sequentialScans(manager)).toBe(before + 10)
      await hits(980)
      const slow = await sequentialScans(manager)
      await hits(100)
      expect(await sequentialScans(manager)).toBe(slow)
    })
  })

  test('is not kept while one transaction fills it itself', async () => {
    const { dataSource, observer } = await open()
    await observer.query('ANALYZE page')
    await dataSource.transaction(async (manager) => {
      const create = async (from: number, to: number): Promise<void> => {
        for (let index = from; index < to; index += 1) {
          await findOrCreate(manager, Page, { url: `page ${index}` })
          // A long streak of new texts would insert without a look, which no plan makes slow.
          if (index % 50 === 0) await findOrCreate(manager, Page, { url: 'page 0' })
        }
      }
      await create(0, 1_000)
      const slow = await sequentialScans(manager)
      expect(slow).toBeGreaterThan(900)
      await create(1_000, 1_500)
      expect(await sequentialScans(manager)).toBe(slow)
    })
  })

  test.each(['findOrCreateMany', 'upsertByText'] as const)('is not kept while %s fills it by lists', async (call) => {
    const { dataSource, observer } = await open()
    await observer.query('ANALYZE page')
    await dataSource.transaction(async (manager) => {
      const create = async (from: number, to: number): Promise<void> => {
        for (let list = from; list < to; list += 1) {
          const urls = Array.from({ length: 16 }, (_, index) => ({ url: `page ${list} ${index}`, kind: 'b' }))
          await (call === 'upsertByText' ? upsertByText(manager, Page, urls) : findOrCreateMany(manager, Page, urls))
        }
      }
      await create(0, 63)
      const slow = await sequentialScans(manager)
      expect(slow).toBeGreaterThan(800)
      await create(63, 100)
      expect(await sequentialScans(manager)).toBe(slow)
    })
  })
})

test('however many sets of properties there are, a connection keeps 200 statements at most', async () => {
  const { dataSource } = await open(Wide)
  for (let set = 0; set < 2 ** 8; set += 1) {
    const given = Array.from({ length: 8 }, (_, bit) => bit).filter((bit) => set & (2 ** bit))
    const values = Object.fromEntries(given.map((bit) => [`p${bit}`, bit]))
    await findOrCreate(dataSource.manager, Wide, { url: `page ${set}`, ...values })
  }
  const names = await preparedNames(dataSource)
  expect(names.length).toBeGreaterThan(100)
  expect(names.length).toBeLessThanOrEqual(200)
  const queryRunner = dataSource.createQueryRunner()
  const { connection } = (await queryRunner.connect()) as { connection: { parsedStatements: object } }
  expect(Object.keys(connection.parsedStatements).toSorted()).toEqual(names.toSorted())
  await queryRunner.release()
})

test.each<ConnectionFault>(['request lost', 'cut at once', 'answer lost', 'closed to the client'])(
  'a connection that is cut while names are closed (%s) says so, and the next call has another',
  async (fault) => {
    await open()
    const { uses } = planLife
    planLife.uses = 20
    const proxy = await startProxy(db.url)
    const dataSource = await db.dataSource([Page], { url: proxy.url, synchronize: false, extra: { max: 1 } })
    try {
      const hit = async () => await findOrCreate(dataSource.manager, Page, { url: 'a' })
      for (let use = 0; use < planLife.uses; use += 1) await hit()
      const sprung = proxy.once(['unique_text_'], fault)
      expect(await rejection(hit())).toBeInstanceOf(QueryFailedError)
      await sprung
      expect(await hit()).toMatchObject({ created: false })
    } finally {
      planLife.uses = uses
      await dataSource.destroy()
      await proxy.close()
    }
  },
)
