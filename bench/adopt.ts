/**
 * What adopting a full table costs those who use it meanwhile. Plain: run it, and read what it prints.
 *
 *   tsx bench/adopt.ts [--rows 1000000] [--clients 16] [--floor | --change scope|digest|nullable] [--quiet-seconds 10]
 *
 * BENCH_DATABASE_URL names a server; without it one is started.
 */
import 'reflect-metadata'
import { parseArgs } from 'node:util'
import { Client, Pool } from 'pg'
import { Column, DataSource, Entity, type ObjectLiteral, type ObjectType, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText, type UniqueTextPropertyOptions } from '../src'
import { adopt, type AdoptProgress } from '../src/adopt'
import { replacements } from '../src/adopt/session'
import { url } from '../src/text'
import { startServer } from './server'

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000000' },
    clients: { type: 'string', default: '16' },
    'quiet-seconds': { type: 'string', default: '10' },
    floor: { type: 'boolean', default: false },
    change: { type: 'string' },
  },
})
const ROWS = Number(options.rows)
const CLIENTS = Number(options.clients)

function pageWith(declared: UniqueTextPropertyOptions, site = false): ObjectType<ObjectLiteral> {
  @Entity({ name: 'page' })
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText(declared) url!: string
    @Column({ type: 'text', nullable: true }) title!: string | null
  }
  if (site) Column({ type: 'integer', default: 1 })(Page.prototype, 'site')
  return Page
}

/** What a guard that stands keeps, and what it is to keep then. */
const CHANGES: Readonly<Record<string, readonly [UniqueTextPropertyOptions, UniqueTextPropertyOptions]>> = {
  scope: [{ scope: ['site'] }, {}],
  digest: [{}, { digest: 'sha256' }],
  nullable: [{}, { nullable: true }],
}
const change = options.change === undefined ? undefined : CHANGES[options.change]
const Page = change ? pageWith(change[1], true) : pageWith({ normalize: url() })

/** Longest waits by what the command does at the time, in milliseconds. */
class Waits {
  private readonly longest = new Map<string, { read: number; write: number; reads: number; writes: number }>()
  step = 'before'

  took(kind: 'read' | 'write', milliseconds: number, step: string): void {
    const one = this.longest.get(step) ?? { read: 0, write: 0, reads: 0, writes: 0 }
    one[kind] = Math.max(one[kind], milliseconds)
    one[`${kind}s`] += 1
    this.longest.set(step, one)
  }

  table(): string[] {
    return [...this.longest].map(
      ([step, { read, write, reads, writes }]) =>
        `| ${step} | ${reads + writes} | ${read.toFixed(0)} ms | ${write.toFixed(0)} ms |`,
    )
  }
}

const pick = (): number => 1 + Math.floor(Math.random() * ROWS)

/** Old code: it knows no hash. One statement at a time, half of them reads. */
async function work(pool: Pool, waits: Waits, errors: Map<string, number>, stop: AbortSignal): Promise<void> {
  const writes: readonly (() => [string, unknown[]])[] = [
    () => ['insert into page (url, title) values ($1, $2)', [`https://New.example/${pick()}/${pick()}`, 'new']],
    () => ['update page set title = $2 where id = $1', [pick(), 'changed']],
    () => ['update page set url = $2 where id = $1', [pick(), `https://changed.example/${pick()}/${pick()}`]],
    () => ['delete from page where id = $1', [pick()]],
    () => ['insert into page (url, title) values ($1, $2)', [`https://example.com/path/${pick()}`, 'again']],
  ]
  while (!stop.aborted) {
    const kind = Math.random() < 0.5 ? 'read' : 'write'
    const make = writes[Math.floor(Math.random() * writes.length)]
    const [sql, parameters] =
      kind === 'read' || !make ? (['select id, title from page where id = $1', [pick()]] as const) : make()
    const [started, step] = [performance.now(), waits.step]
    try {
      await pool.query(sql, [...parameters])
    } catch (error) {
      const code = `${step} ${String((error as { code?: unknown }).code)}`
      errors.set(code, (errors.get(code) ?? 0) + 1)
    }
    waits.took(kind, performance.now() - started, step)
    // So that the clients do not take all of the machine.
    await new Promise((resolve) => setTimeout(resolve, 10 * Math.random()))
  }
}

/** Under the guard of the declaration before; in a scope, 1 % of the texts stand twice in the table. */
async function fillGuarded(admin: Client, serverUrl: string, before: UniqueTextPropertyOptions): Promise<void> {
  await admin.query('drop table if exists page, unique_text_adoptions cascade')
  const entities = [pageWith(before, true)]
  const dataSource = new DataSource({ type: 'postgres', url: serverUrl, entities, synchronize: true })
  await (await dataSource.initialize()).destroy()
  const again = before.scope === undefined ? 'false' : 'i % 100 = 0'
  await admin.query(
    `insert into page (site, url, title, "urlHash")
     select i % 2, t.url, 'title ' || i, md5(t.url)::uuid from generate_series(1, ${ROWS}) as i,
       lateral (select case when ${again} then i - 1 else i end as n) as o,
       lateral (select 'https://example.com/path/' || n || '/' || md5(n::text) as url) as t`,
  )
  await admin.query('vacuum analyze page')
}

async function fill(admin: Client): Promise<void> {
  await admin.query('drop table if exists page, position, unique_text_adoptions cascade')
  await admin.query(
    `create table page (id integer generated by default as identity, url text not null, title text,
       constraint "PK_742f4117e065c5b6ad21b37ba1f" primary key (id))`,
  )
  // 1 % twice as they are, 3 % once they are normalized; the length of real ones.
  await admin.query(
    `insert into page (url, title)
     select case when i % 100 = 0 then 'https://example.com/path/' || i - 1 || '/' || md5((i - 1)::text)
                 when i % 50 = 1 then 'HTTPS://EXAMPLE.com/path/' || i - 2 || '/' || md5((i - 2)::text)
                 else 'https://example.com/path/' || i || '/' || md5(i::text) end, 'title ' || i
       from generate_series(1, ${ROWS}) as i`,
  )
  await admin.query('vacuum analyze page')
}

async function sizes(admin: Client): Promise<string> {
  const { rows } = await admin.query<{ text: string }>(
    `select pg_size_pretty(pg_relation_size('page')) || ' heap, ' || pg_size_pretty(pg_indexes_size('page')) || ' indexes' as text`,
  )
  return rows[0]?.text ?? ''
}

async function walPosition(admin: Client): Promise<number> {
  const { rows } = await admin.query<{ at: string }>(`select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::text as at`)
  return Number(rows[0]?.at ?? 0)
}

/** What raw SQL would do: batches of the same time, SKIP LOCKED, a stored position, then the index. */
async function floor(admin: Client): Promise<number> {
  const started = performance.now()
  await admin.query(
    'alter table page add hash uuid; create table position (page integer); insert into position values (0)',
  )
  const { rows } = await admin.query<{ pages: number }>(`select (pg_relation_size('page') / 8192)::integer as pages`)
  let size = 16
  for (let page = 0; page < (rows[0]?.pages ?? 0);) {
    const batch = performance.now()
    await admin.query(
      `with held as materialized (
         select ctid as spot from page where ctid >= '(${page},0)' and ctid < '(${page + size},0)' and hash is null for no key update skip locked),
       stored as (update position set page = ${page + size})
       update page as t set hash = md5(t.url)::uuid from held where t.ctid = held.spot and t.ctid >= '(${page},0)' and t.ctid < '(${page + size},0)'`,
    )
    page += size
    size = Math.max(16, Math.min(size * 2, Math.round((size * 50) / (performance.now() - batch))))
  }
  await admin.query('create index concurrently on page (hash)')
  return performance.now() - started
}

async function main(): Promise<void> {
  const server = await startServer()
  const admin = new Client({ connectionString: server.url })
  await admin.connect()
  await (change ? fillGuarded(admin, server.url, change[0]) : fill(admin))
  console.log(`${server.version}, ${ROWS.toLocaleString('en-US')} rows, ${CLIENTS} clients`)
  console.log(`before: ${await sizes(admin)}`)
  const pool = new Pool({ connectionString: server.url, max: CLIENTS })
  // The server may stop before its last connection is closed.
  pool.on('error', () => {})
  const [waits, errors, stop] = [new Waits(), new Map<string, number>(), new AbortController()]
  const clients = Array.from({ length: CLIENTS }, async () => await work(pool, waits, errors, stop.signal))
  await new Promise((resolve) => setTimeout(resolve, Number(options['quiet-seconds']) * 1_000))
  const wal = await walPosition(admin)
  const started = performance.now()
  let memory = 0
  let working = 'begin'
  const steps: [string, number][] = []
  let locked = false
  if (options.floor) {
    waits.step = 'floor'
    await floor(admin)
  } else {
    const dataSource = await new DataSource({ type: 'postgres', url: server.url, entities: [Page] }).initialize()
    const beforeStatement = (sql: string): void => {
      if (sql.includes('LOCK TABLE')) [working, waits.step] = [waits.step, 'a lock']
      else if (waits.step === 'a lock' && !/^(?:COMMIT|ROLLBACK)/.test(sql) && !locked) waits.step = working
      locked = sql.includes('LOCK TABLE') || (locked && !/^(?:COMMIT|ROLLBACK)/.test(sql))
    }
    const onProgress = ({ step }: AdoptProgress): void => {
      if (steps.at(-1)?.[0] !== step) steps.push([step, performance.now()])
      waits.step = step
      memory = Math.max(memory, process.memoryUsage().rss)
    }
    const onNotice = (notice: string): void => console.log(notice)
    const report = await replacements.run(
      { beforeStatement },
      async () => await adopt(dataSource, Page, { onProgress, onNotice }),
    )
    for (const { step, mode, attempts, waitedMilliseconds, heldMilliseconds } of report.locks) {
      console.log(
        `| ${step} | ${mode} | ${attempts} | ${waitedMilliseconds.toFixed(1)} ms | ${heldMilliseconds.toFixed(1)} ms |`,
      )
    }
    console.log(JSON.stringify({ ...report.counts, duplicates: report.duplicates?.groups }))
    const ends = [...steps.slice(1).map(([, at]) => at), performance.now()]
    console.log(
      steps.map(([step, at], index) => `${step} ${(((ends[index] ?? at) - at) / 1_000).toFixed(1)} s`).join(', '),
    )
    await dataSource.destroy()
  }
  const seconds = (performance.now() - started) / 1_000
  const after = await walPosition(admin)
  waits.step = 'after'
  await new Promise((resolve) => setTimeout(resolve, Number(options['quiet-seconds']) * 1_000))
  stop.abort()
  await Promise.all(clients)
  console.log(
    `${seconds.toFixed(1)} s, ${Math.round(ROWS / seconds).toLocaleString('en-US')} rows/s, WAL ${Math.round((after - wal) / 1e6)} MB`,
  )
  console.log(`after: ${await sizes(admin)}; Node ${Math.round(memory / 1e6)} MB with its clients`)
  for (const line of waits.table()) console.log(line)
  console.log('errors', Object.fromEntries(errors))
  await pool.end()
  await admin.end()
  await server.stop()
}

void main()
