/**
 * npx tsx bench/growth.ts                               what a new row costs in tables of 100,000 to 5 million rows
 * npx tsx bench/growth.ts --sizes 100000,1000000 --windows 1000,50000
 *
 * Needs the built package, ten minutes and 5 GB. Between the sizes the table is filled by raw SQL, in chunks sorted by
 * hash. Each measurement begins with a checkpoint, so that every page of the index that it meets goes to the log whole
 * the first time, as it does when checkpoints come by the amount of log.
 */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type Bench, md5, milliseconds, Page, startBench } from './support'

const load = createRequire(__filename)
const { findOrCreateStream } = load(path.resolve(__dirname, '../dist/stream')) as typeof import('../src/stream')

const BATCH_ROWS = 1_000
const FILL_ROWS = 250_000
/** Rows of a measurement, unless its window is larger. */
const SLICE = 100_000
/** What the stream chooses at most. */
const MAX_WINDOW = 250_000
/** What the server holds back of its statistics, at most. */
const STATISTICS_DELAY_MILLISECONDS = 1_100

const { values: options } = parseArgs({
  options: {
    sizes: { type: 'string', default: '100000,500000,1000000,2000000,5000000' },
    /** 0: what the stream chooses by the size of the index. */
    windows: { type: 'string', default: '1000,0,50000' },
  },
})
const numbers = (list: string): number[] => list.split(',').map(Number)

let texts = 0
const freshText = (): string => `https://example.com/some/longer/path/${(texts += 1)}/and/more?page=${texts}&of=many`

/** Rows of a window are sorted by hash together, and sent in batches. */
type Insert = (bench: Bench, rows: number, window: number) => Promise<unknown>

function* fresh(rows: number): Generator<{ url: string }> {
  for (let row = 0; row < rows; row += 1) yield { url: freshText() }
}

const ours: Insert = async ({ dataSource }, rows, window) => {
  const chosen = window === 0 ? {} : { window }
  for await (const result of findOrCreateStream(dataSource, Page, fresh(rows), chosen)) {
    if (!('created' in result) || !result.created) throw new Error('A new text was not created.')
  }
}

const RAW = `INSERT INTO page (url, "urlHash") SELECT * FROM unnest($1::text[], $2::uuid[]) ON CONFLICT DO NOTHING RETURNING id`

/** On one connection, and without asking for what is there already. */
const raw: Insert = async ({ pool }, rows, window) => {
  for (let done = 0; done < rows; done += window) {
    const sorted = [...fresh(Math.min(window, rows - done))]
      .map(({ url }) => [md5(url), url] as const)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
    for (let start = 0; start < sorted.length; start += BATCH_ROWS) {
      const batch = sorted.slice(start, start + BATCH_ROWS)
      await pool.query({ name: 'raw', text: RAW, values: [batch.map(([, url]) => url), batch.map(([hash]) => hash)] })
    }
  }
}

async function fillTo({ pool }: Bench, size: number): Promise<void> {
  const { rows } = await pool.query<{ count: number }>('SELECT count(*)::integer AS count FROM page')
  for (let left = size - (rows[0]?.count ?? 0); left > 0; left -= FILL_ROWS) {
    const chunk = Array.from({ length: Math.min(left, FILL_ROWS) }, freshText)
    await pool.query(
      `INSERT INTO page (url, "urlHash") SELECT u, md5(u)::uuid FROM unnest($1::text[]) AS u ORDER BY 2`,
      [chunk],
    )
  }
}

/** So far; blocks that the server asked the system for may have come from the system's own cache. */
interface Counters {
  /** Of each backend, by its process id. The pool's own may come and go. */
  readonly cpu: ReadonlyMap<number, number>
  readonly walBytes: number
  readonly indexReads: number
}

async function counters({ pool }: Bench): Promise<Counters> {
  const { rows: backends } = await pool.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'`,
  )
  const times = await Promise.all(
    backends.map(async ({ pid }) => [pid, await readFile(`/proc/${pid}/schedstat`, 'utf8').catch(() => '0')] as const),
  )
  await sleep(STATISTICS_DELAY_MILLISECONDS)
  const { rows } = await pool.query<{ wal: string; reads: string }>(
    `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS wal,
            (SELECT sum(idx_blks_read) FROM pg_statio_user_indexes WHERE relname = 'page') AS reads`,
  )
  return {
    cpu: new Map(times.map(([pid, time]) => [pid, Number(time.split(' ')[0]) / 1_000])),
    walBytes: Number(rows[0]?.wal),
    indexReads: Number(rows[0]?.reads),
  }
}

interface Cost {
  readonly side: string
  readonly window: number
  readonly rows: number
  readonly indexMegabytes: number
  readonly rowsPerSecond: number
  /** Of the server's backends, a row. */
  readonly cpuMicroseconds: number
  readonly walBytes: number
  readonly indexReads: number
}

interface Turn {
  readonly side: string
  readonly insert: Insert
  readonly window: number
  readonly rows: number
}

async function measure(bench: Bench, { side, insert, window, rows }: Turn): Promise<Cost> {
  await bench.pool.query('CHECKPOINT')
  const before = await counters(bench)
  const took = await milliseconds(async () => await insert(bench, rows, window))
  const after = await counters(bench)
  const { rows: sizes } = await bench.pool.query<{ megabytes: string }>(
    `SELECT pg_relation_size(indexrelid) / 1e6 AS megabytes FROM pg_index
      WHERE indrelid = 'page'::regclass AND NOT indisprimary`,
  )
  const cpu = [...after.cpu].reduce((sum, [pid, time]) => sum + time - (before.cpu.get(pid) ?? 0), 0)
  return {
    side,
    window,
    rows,
    indexMegabytes: Number(sizes[0]?.megabytes),
    rowsPerSecond: (rows / took) * 1_000,
    cpuMicroseconds: cpu / rows,
    walBytes: (after.walBytes - before.walBytes) / rows,
    indexReads: (after.indexReads - before.indexReads) / rows,
  }
}

async function main(): Promise<void> {
  const bench = await startBench()
  try {
    for (const size of numbers(options.sizes)) {
      await fillTo(bench, size)
      const turns = numbers(options.windows).flatMap((window) => {
        const rows = Math.min(window === 0 ? MAX_WINDOW : Math.max(window, SLICE), size / 2)
        const both = [
          { side: 'ours', insert: ours, window, rows },
          { side: 'raw', insert: raw, window, rows },
        ]
        return both.slice(0, window === 0 ? 1 : 2).filter(() => window <= rows)
      })
      for (const turn of turns) {
        const cost = await measure(bench, turn)
        const rounded = Object.entries(cost).map(([key, value]) => [
          key,
          typeof value === 'number' ? Number(value.toPrecision(3)) : value,
        ])
        console.log(JSON.stringify({ size, ...Object.fromEntries(rounded) }))
      }
    }
  } finally {
    await bench.stop()
  }
}

void main()
