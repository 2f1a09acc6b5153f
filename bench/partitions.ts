/**
 * npx tsx bench/partitions.ts   what a list costs over 16 and 256 partitions by the hash, against one table, as JSON
 *
 * Each line has the milliseconds of a list in one table, and the ratios of both partitioned tables to it. `by hand` is a
 * prepared statement by `pg` with the same columns and unique index.
 *
 * BENCH_DATABASE_URL, or a server of its own with the settings that Postgres ships.
 */
import 'reflect-metadata'
import { createHash, randomUUID } from 'node:crypto'
import { Client } from 'pg'
import { Column, DataSource, Entity, type EntityTarget, PrimaryGeneratedColumn } from 'typeorm'
import { startEmbeddedPostgres } from '../scripts/embedded-postgres'
import { findOrCreateMany, UniqueText, upsertByText } from '../src'
import { partitionedByHash } from '../test/support/partitions'

const ROWS = 20_000
const ROUNDS = 9
const SIZES = [5, 100, 500]
/** Calls of a list of few rows in each round. */
const CALLS = 10
const TABLES = { one: 0, parts16: 16, parts256: 256 } as const

interface Page {
  id: string
  url: string
  title: string | null
}

function pageOf(partitions: number, name: string): EntityTarget<Page> {
  @Entity(name)
  class Stored implements Page {
    @PrimaryGeneratedColumn('uuid') id!: string
    @UniqueText(partitions === 0 ? {} : { spread: 'hash' }) url!: string
    @Column({ type: 'text', nullable: true }) title!: string | null
  }
  return Stored
}

const entities = new Map(Object.entries(TABLES).map(([name, partitions]) => [name, pageOf(partitions, name)]))

const byHand = (table: string): string => `hand_${table}`

function tableByHand(table: string, partitions: number): string {
  const name = byHand(table)
  const parts = Array.from(
    { length: partitions },
    (_, part) => `CREATE TABLE ${name}_${part} PARTITION OF ${name}
      FOR VALUES WITH (MODULUS ${partitions}, REMAINDER ${part});`,
  )
  return `CREATE TABLE ${name} (id uuid NOT NULL DEFAULT gen_random_uuid(), url text NOT NULL, hash uuid NOT NULL,
      number integer NOT NULL DEFAULT 0, title text)${partitions === 0 ? '' : ' PARTITION BY HASH (hash)'};
    ${parts.join('\n')}
    ALTER TABLE ${name} ADD PRIMARY KEY (id, hash);
    CREATE UNIQUE INDEX ON ${name} (hash, number);
    INSERT INTO ${name} (url, hash) SELECT '${HOST}' || i, md5('${HOST}' || i)::uuid FROM generate_series(0, ${ROWS - 1}) AS i;`
}

const HOST = 'https://example.com/some/path/'

type Row = Pick<Page, 'url' | 'title'>

function known(rows: number): Row[] {
  const first = Math.floor(Math.random() * (ROWS - rows))
  return Array.from({ length: rows }, (_, index) => ({ url: `${HOST}${first + index}`, title: randomUUID() }))
}

const fresh = (rows: number): Row[] =>
  Array.from({ length: rows }, () => ({ url: `${HOST}${randomUUID()}`, title: randomUUID() }))

interface Bench {
  readonly dataSource: DataSource
  readonly client: Client
}

type Work = (bench: Bench, table: string, rows: Row[]) => Promise<unknown>

const find: Work = async ({ dataSource }, table, rows) =>
  await findOrCreateMany(dataSource.manager, entities.get(table) ?? table, rows)

const upsert: Work = async ({ dataSource }, table, rows) =>
  await upsertByText(dataSource.manager, entities.get(table) ?? table, rows, { update: ['title'] })

const insertByHand =
  (onConflict: string): Work =>
  async ({ client }, table, rows) => {
    const hashed = rows.map((row) => ({ ...row, hash: createHash('md5').update(row.url).digest('hex') }))
    const sorted = hashed.toSorted((left, right) => (left.hash < right.hash ? -1 : 1))
    await client.query({
      name: `${onConflict} ${table}`,
      text: `INSERT INTO ${byHand(table)} AS t (url, hash, title)
        SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[]) ON CONFLICT (hash, number) ${onConflict} RETURNING *`,
      values: [sorted.map(({ url }) => url), sorted.map(({ hash }) => hash), sorted.map(({ title }) => title)],
    })
  }

const nothing = insertByHand('DO NOTHING')
const update = insertByHand('DO UPDATE SET title = excluded.title')

const works: [string, Work, (rows: number) => Row[]][] = [
  ['find or create, known', find, known],
  ['find or create, new', find, fresh],
  ['upsert, known', upsert, known],
  ['upsert, new', upsert, fresh],
  ['DO NOTHING by hand, known', nothing, known],
  ['DO NOTHING by hand, new', nothing, fresh],
  ['DO UPDATE by hand, known', update, known],
  ['DO UPDATE by hand, new', update, fresh],
]

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0

async function measure(bench: Bench, size: number, work: Work, rowsOf: (rows: number) => Row[]): Promise<number[]> {
  const tables = Object.keys(TABLES)
  const times = new Map<string, number[]>(tables.map((table) => [table, []]))
  const calls = size < 50 ? CALLS : 1
  for (let round = -2; round < ROUNDS; round += 1) {
    for (const table of tables) {
      const lists = Array.from({ length: calls }, () => rowsOf(size))
      const started = performance.now()
      for (const rows of lists) await work(bench, table, rows)
      if (round >= 0) times.get(table)?.push((performance.now() - started) / calls)
    }
  }
  return tables.map((table) => median(times.get(table) ?? []))
}

async function main(): Promise<void> {
  const given = process.env['BENCH_DATABASE_URL']
  const own = given === undefined ? await startEmbeddedPostgres() : undefined
  const url = given ?? own?.url ?? ''
  const client = new Client({ connectionString: url })
  await client.connect()
  const dataSource = new DataSource({ type: 'postgres', url, entities: [...entities.values()] as never, poolSize: 1 })
  await dataSource.initialize()
  for (const [table, partitions] of Object.entries(TABLES)) {
    if (partitions > 0) await client.query(partitionedByHash(table, partitions))
    await client.query(tableByHand(table, partitions))
  }
  await dataSource.synchronize()
  const bench = { dataSource, client }
  const all = Array.from({ length: ROWS }, (_, index) => ({ url: `${HOST}${index}`, title: null }))
  for (const table of Object.keys(TABLES)) await find(bench, table, all)
  await client.query('ANALYZE')
  for (const size of SIZES) {
    for (const [work, run, rowsOf] of works) {
      const [one = 0, ...parts] = await measure(bench, size, run, rowsOf)
      const ratios = parts.map((time) => Number((time / one).toFixed(2)))
      console.log(JSON.stringify({ rows: size, work, ms: Number(one.toFixed(2)), ratios }))
    }
  }
  await dataSource.destroy()
  await client.end()
  await own?.stop()
}

void main()
