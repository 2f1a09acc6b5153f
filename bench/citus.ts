/**
 * CITUS_URL=… npx tsx bench/citus.ts [--only upserts] [--rows 400000]   a distributed table of ours beside a plain one, as JSON
 *
 * The plain table is distributed alike, has a unique index on scope and hash, and a client of its own SQL, prepared by name,
 * which looks, inserts, and looks again. Both take turns; a figure is the median of the rounds, a ratio that of the rounds' ratios.
 * With --rows, each table has as many other rows before.
 */
import 'reflect-metadata'
import { createHash, randomUUID } from 'node:crypto'
import { parseArgs } from 'node:util'
import { Pool } from 'pg'
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText, withUniqueText } from '../src'

@Entity({ name: 'ours_by_scope' })
class ByScope {
  @PrimaryColumn('uuid') id!: string
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'] }) url!: string
  @Column('int', { default: 0 }) price!: number
}

@Entity({ name: 'ours_by_hash' })
class ByHash {
  @PrimaryColumn('uuid') id!: string
  @Column('int') shop!: number
  @UniqueText({ scope: ['shop'], spread: 'citus' }) url!: string
  @Column('int', { default: 0 }) price!: number
}

interface Row {
  readonly id: string
  readonly shop: number
  readonly url: string
}

interface Side {
  readonly one: (row: Row) => Promise<unknown>
  readonly many: (rows: readonly Row[]) => Promise<unknown>
  readonly list: (rows: readonly Row[]) => Promise<unknown>
  readonly upsert: (rows: readonly Row[]) => Promise<unknown>
}

const SHOPS = 100
const CALLERS = 4
/** Another one for each row of an upsert, so that it has something to change. */
let price = 0
const HASH_OF = (text: string): string => createHash('md5').update(text).digest('hex')

function ours(dataSource: DataSource, entity: typeof ByScope | typeof ByHash): Side {
  const { manager } = dataSource
  return {
    one: async (row) => await findOrCreate(manager, entity, row),
    many: async (rows) => await findOrCreateMany(manager, entity, rows),
    list: async (rows) => await insertOrFail(manager, entity, rows),
    upsert: async (rows) =>
      await upsertByText(
        manager,
        entity,
        rows.map((row) => ({ ...row, price: price++ })),
        { update: ['price'] },
      ),
  }
}

function plain(pool: Pool, table: string): Side {
  const named = (sql: string, values: unknown[]): { name: string; text: string; values: unknown[] } => ({
    name: HASH_OF(sql),
    text: sql,
    values,
  })
  const find = `SELECT id, shop, url, price FROM ${table} WHERE shop = $1 AND hash = $2`
  const insert = async (rows: readonly Row[], end: string): Promise<number> => {
    const values = rows.map((_, at) => `($${at * 4 + 1}, $${at * 4 + 2}, $${at * 4 + 3}, $${at * 4 + 4})`)
    const sql = `INSERT INTO ${table} (id, shop, url, hash) VALUES ${values.join(', ')} ${end}`
    const given = rows.flatMap(({ id, shop, url }) => [id, shop, url, HASH_OF(url)])
    return (await pool.query(rows.length === 1 ? named(sql, given) : { text: sql, values: given })).rows.length
  }
  const sorted = (rows: readonly Row[]): readonly Row[] =>
    rows.toSorted((one, other) => (HASH_OF(one.url) < HASH_OF(other.url) ? -1 : 1))
  const conflict = 'ON CONFLICT DO NOTHING RETURNING id, shop, url, price'
  return {
    one: async (row) => {
      const key = [row.shop, HASH_OF(row.url)]
      if ((await pool.query(named(find, key))).rows.length > 0) return
      if ((await insert([row], conflict)) === 0) await pool.query(named(find, key))
    },
    many: async (rows) => {
      const found = await pool.query<Row>(
        `SELECT id, shop, url, price FROM ${table} WHERE shop = ANY ($1::int[]) AND hash = ANY ($2::uuid[])`,
        [rows.map(({ shop }) => shop), rows.map(({ url }) => HASH_OF(url))],
      )
      const known = new Set(found.rows.map(({ shop, url }) => `${shop} ${url}`))
      const missing = rows.filter(({ shop, url }) => !known.has(`${shop} ${url}`))
      if (missing.length > 0) await insert(sorted(missing), conflict)
    },
    list: async (rows) => await insert(sorted(rows), 'RETURNING id, shop, url, price'),
    upsert: async (rows) => {
      const values = rows.map((_, at) => `($${[1, 2, 3, 4, 5].map((nth) => at * 5 + nth).join(', $')})`)
      const sql = `INSERT INTO ${table} (id, shop, url, hash, price) VALUES ${values.join(', ')}
        ON CONFLICT (shop, hash) DO UPDATE SET price = excluded.price RETURNING id, shop, url, price`
      await pool.query(
        sql,
        sorted(rows).flatMap(({ id, shop, url }) => [id, shop, url, HASH_OF(url), price++]),
      )
    },
  }
}

const median = (values: readonly number[]): number =>
  values.toSorted((one, other) => one - other)[values.length >> 1] ?? 0

let next = 0
const fresh = (): Row => ({
  id: randomUUID(),
  shop: next % SHOPS,
  url: `https://example.com/a/path/of/usual/length?and=a&query=${process.pid}-${next++}`,
})
const freshRows = (count: number): Row[] => Array.from({ length: count }, fresh)

interface Step {
  readonly name: string
  /** Rows a turn. */
  readonly rows: number
  /** Of the rows that are known before. */
  readonly run: (side: Side, known: readonly Row[]) => Promise<unknown>
}

async function callers(rows: readonly Row[], one: (row: Row) => Promise<unknown>): Promise<void> {
  let at = 0
  const caller = async (): Promise<void> => {
    for (let row = rows[at++]; row; row = rows[at++]) await one(row)
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
}

const again = (rows: readonly Row[]): Row[] => rows.map((row) => ({ ...row, id: randomUUID() }))

async function inParts(
  rows: readonly Row[],
  size: number,
  one: (part: readonly Row[]) => Promise<unknown>,
): Promise<void> {
  for (let at = 0; at < rows.length; at += size) await one(rows.slice(at, at + size))
}

const KNOWN = 2_000
const STEPS: readonly Step[] = [
  { name: 'new, single', rows: 300, run: async (side) => await callers(freshRows(300), side.one) },
  { name: 'known, single', rows: 600, run: async (side, known) => await callers(again(known.slice(0, 600)), side.one) },
  { name: 'new, batches of 500', rows: 2_000, run: async (side) => await inParts(freshRows(2_000), 500, side.many) },
  {
    name: 'known, batches of 500',
    rows: KNOWN,
    run: async (side, known) => await inParts(again(known), 500, side.many),
  },
  { name: 'new, upserts of 500', rows: 1_000, run: async (side) => await inParts(freshRows(1_000), 500, side.upsert) },
  {
    name: 'known, upserts of 500',
    rows: 1_000,
    run: async (side, known) => await inParts(again(known.slice(0, 1_000)), 500, side.upsert),
  },
  { name: 'new, lists of 100', rows: 1_000, run: async (side) => await inParts(freshRows(1_000), 100, side.list) },
]

async function measure(sides: readonly Side[], rounds: number, only: string): Promise<Record<string, unknown>> {
  const known = freshRows(KNOWN)
  for (const side of sides) await inParts(known, 500, side.many)
  const figures: Record<string, unknown> = {}
  for (const { name, rows, run } of STEPS.filter((step) => step.name.includes(only))) {
    const times = sides.map((): number[] => [])
    const cpu = sides.map(() => 0)
    for (let round = -1; round < rounds; round += 1) {
      for (const nth of round % 2 === 0 ? [0, 1] : [1, 0]) {
        const start = performance.now()
        const before = process.cpuUsage()
        await run(sides[nth] as Side, known)
        const { user, system } = process.cpuUsage(before)
        if (round < 0) continue
        times[nth]?.push(performance.now() - start)
        cpu[nth] = (cpu[nth] ?? 0) + user + system
      }
    }
    const [mine = [], others = []] = times
    figures[name] = {
      ours: Math.round((rows / median(mine)) * 1_000),
      plain: Math.round((rows / median(others)) * 1_000),
      clientCpu: cpu.map((one) => Math.round(one / rounds / rows)),
      ratio: Number(median(mine.map((time, nth) => (others[nth] ?? 0) / time)).toFixed(2)),
    }
  }
  return figures
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '9' },
      only: { type: 'string', default: '' },
      rows: { type: 'string', default: '0' },
    },
  })
  const url = process.env['CITUS_URL'] ?? ''
  const dataSource = withUniqueText(
    new DataSource({ type: 'postgres', url, entities: [ByScope, ByHash], poolSize: CALLERS }),
  )
  await dataSource.initialize()
  const pool = new Pool({ connectionString: url, max: CALLERS })
  const drop = 'DROP TABLE IF EXISTS ours_by_scope, ours_by_hash, plain_by_scope, plain_by_hash'
  await pool.query(drop)
  await dataSource.synchronize()
  await pool.query(`SELECT create_distributed_table('ours_by_scope', 'shop')`)
  for (const [table, column] of [
    ['plain_by_scope', 'shop'],
    ['plain_by_hash', 'hash'],
  ]) {
    await pool.query(`CREATE TABLE ${table} (id uuid, shop int NOT NULL, url text NOT NULL, hash uuid NOT NULL, price int NOT NULL DEFAULT 0,
      PRIMARY KEY (id, ${column}), UNIQUE (shop, hash))`)
    await pool.query(`SELECT create_distributed_table('${table}', '${column}')`)
  }
  for (const side of ['ours', 'plain']) {
    for (const kind of ['by_scope', 'by_hash']) {
      const hash = side === 'ours' ? '"urlHash"' : 'hash'
      await pool.query(`INSERT INTO ${side}_${kind} (id, shop, url, ${hash})
        SELECT gen_random_uuid(), nth % ${SHOPS}, url, md5(url)::uuid
          FROM generate_series(1, ${Number(values.rows)}) AS nth, LATERAL repeat(nth || ' is a text of usual length ', 3) AS url`)
      if (values.rows !== '0') await pool.query(`ANALYZE ${side}_${kind}`)
    }
  }
  const rounds = Number(values.rounds)
  const figures = {
    byScope: await measure([ours(dataSource, ByScope), plain(pool, 'plain_by_scope')], rounds, values.only),
    byHash: await measure([ours(dataSource, ByHash), plain(pool, 'plain_by_hash')], rounds, values.only),
  }
  console.log(JSON.stringify(figures, undefined, 2))
  await pool.query(drop)
  await pool.end()
  await dataSource.destroy()
}

void main()
