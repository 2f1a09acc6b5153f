/**
 * npx tsx bench/numbers.ts    what a numbered row costs against three other ways to number it, as JSON
 *
 * All ways take turns, so that each meets the same machine.
 */
import { Client } from 'pg'
import { startEmbeddedPostgres } from '../scripts/embedded-postgres'
import type { NumberTable } from '../src/sql/numbers'
import { numberOf } from '../src/numbers/sql/declared'

const CLIENTS = [1, 8, 32]
const SCOPES = [1, 100, 10_000]
const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 3)
const MILLISECONDS = Number(process.env['BENCH_MILLISECONDS'] ?? 700)
const BULK_ROWS = [2_000, 20_000]

/** A way to number rows. */
interface Way {
  readonly table: string
  readonly make: readonly string[]
  /** Stores a row of a scope. */
  readonly insert: (client: Client, scope: number) => Promise<unknown>
  /** Leaves no gap after a rollback. */
  readonly gapless: boolean
  /** For so many rows and scopes, one statement. undefined: it takes several. */
  readonly bulk?: (rows: number, scopes: number) => string
}

const columns =
  'id bigint generated always as identity primary key, scope integer not null, number integer not null, body text'

const tableOf = (name: string, more: readonly string[] = []): string[] => [
  `create table ${name} (${columns})`,
  `create unique index ${name}_number on ${name} (scope, number)`,
  ...more,
]

function numbered(table: string, count: boolean): Way {
  const of: NumberTable = {
    name: 'number',
    schema: undefined,
    table,
    scope: [{ name: 'scope', type: 'integer' }],
    number: 'number',
    type: 'integer',
    index: `${table}_number`,
    count,
    deleted: undefined,
    triggers: `numbers_${table}`,
  }
  return {
    table,
    make: tableOf(table, numberOf(of).create),
    insert: async (client, scope) =>
      await client.query({
        name: table,
        text: `insert into ${table} (scope, body) values ($1, $2)`,
        values: [scope, BODY],
      }),
    gapless: true,
    bulk: (rows, scopes) =>
      `insert into ${table} (scope, body) select 1 + n % ${scopes}, '${BODY}' from generate_series(1, ${rows}) as n`,
  }
}

const BODY = 'a comment of a usual length, which says something about what stands above it'

const WAYS: Readonly<Record<string, Way>> = {
  'a sequence (with gaps)': {
    table: 'by_sequence',
    make: [...tableOf('by_sequence'), 'create sequence by_sequence_numbers'],
    insert: async (client, scope) =>
      await client.query({
        name: 'by_sequence',
        text: `insert into by_sequence (scope, number, body) values ($1, nextval('by_sequence_numbers'), $2)`,
        values: [scope, BODY],
      }),
    gapless: false,
    bulk: (rows, scopes) =>
      `insert into by_sequence (scope, number, body) select 1 + n % ${scopes}, nextval('by_sequence_numbers'), '${BODY}' from generate_series(1, ${rows}) as n`,
  },
  '@NumberWithin': numbered('by_trigger', false),
  '@NumberWithin with count': numbered('by_trigger_counted', true),
  'a counter row, FOR UPDATE': {
    table: 'by_counter',
    make: [
      ...tableOf('by_counter'),
      'create table counter (scope integer primary key, last integer not null)',
      'insert into counter select n, 0 from generate_series(1, 10000) as n',
    ],
    insert: async (client, scope) => {
      await client.query('begin')
      const { rows } = await client.query<{ last: number }>({
        name: 'counter_lock',
        text: 'select last from counter where scope = $1 for update',
        values: [scope],
      })
      const next = (rows[0]?.last ?? 0) + 1
      await client.query({
        name: 'counter_up',
        text: 'update counter set last = $2 where scope = $1',
        values: [scope, next],
      })
      await insertWith(client, 'by_counter', [scope, next])
      await client.query('commit')
    },
    gapless: true,
  },
  'max + 1, advisory lock': {
    table: 'by_lock',
    make: tableOf('by_lock'),
    insert: async (client, scope) => {
      await client.query('begin')
      await client.query({ name: 'advisory', text: 'select pg_advisory_xact_lock(42, $1)', values: [scope] })
      const { rows } = await client.query<{ next: number }>({
        name: 'max',
        text: 'select coalesce(max(number), 0) + 1 as next from by_lock where scope = $1',
        values: [scope],
      })
      await insertWith(client, 'by_lock', [scope, rows[0]?.next ?? 1])
      await client.query('commit')
    },
    gapless: true,
  },
}

async function insertWith(client: Client, table: string, [scope, number]: readonly [number, number]): Promise<void> {
  await client.query({
    name: `${table}_insert`,
    text: `insert into ${table} (scope, number, body) values ($1, $2, $3)`,
    values: [scope, number, BODY],
  })
}

interface Measured {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly longest: number
}

async function measure(way: Way, clients: readonly Client[], scopes: number): Promise<Measured> {
  const took: number[] = []
  const started = performance.now()
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() - started < MILLISECONDS) {
        const from = performance.now()
        await way.insert(client, 1 + Math.floor(Math.random() * scopes))
        took.push(performance.now() - from)
      }
    }),
  )
  const seconds = (performance.now() - started) / 1_000
  took.sort((left, right) => left - right)
  const at = (share: number): number => round(took[Math.min(took.length - 1, Math.floor(took.length * share))] ?? NaN)
  return { perSecond: Math.round(took.length / seconds), p50: at(0.5), p99: at(0.99), longest: at(1) }
}

const round = (value: number): number => Math.round(value * 100) / 100

/** Of the rounds, the middle one by its rate. */
const median = (rounds: readonly Measured[]): Measured | undefined =>
  rounds.toSorted((left, right) => left.perSecond - right.perSecond)[Math.floor(rounds.length / 2)]

async function bulk(admin: Client): Promise<Record<string, number>> {
  const result: Record<string, number> = {}
  for (const [name, { table, bulk: statement }] of Object.entries(WAYS)) {
    if (!statement) continue
    for (const rows of BULK_ROWS) {
      for (const scopes of [1, 100, rows]) {
        const rounds: number[] = []
        for (let nth = 0; nth < ROUNDS; nth++) {
          await admin.query(`truncate ${table}`)
          const from = performance.now()
          await admin.query(statement(rows, scopes))
          rounds.push(((performance.now() - from) * 1_000) / rows)
        }
        rounds.sort((left, right) => left - right)
        result[`${name}, ${rows} rows, ${scopes} scopes`] = round(rounds[Math.floor(ROUNDS / 2)] ?? NaN)
      }
    }
  }
  return result
}

async function contended(clients: readonly Client[]): Promise<Record<string, Measured | undefined>> {
  const result: Record<string, Measured | undefined> = {}
  for (const count of CLIENTS) {
    for (const scopes of SCOPES) {
      const measured = new Map<string, Measured[]>(Object.keys(WAYS).map((name) => [name, []]))
      for (let nth = 0; nth < ROUNDS; nth++) {
        for (const [name, way] of Object.entries(WAYS)) {
          measured.get(name)?.push(await measure(way, clients.slice(0, count), scopes))
        }
      }
      for (const [name, rounds] of measured) result[`${count} clients, ${scopes} scopes, ${name}`] = median(rounds)
    }
  }
  return result
}

async function refuseGaps(admin: Client): Promise<void> {
  for (const [name, { table, gapless }] of Object.entries(WAYS)) {
    const gaps = await admin.query(`select 1 from ${table} group by scope having max(number) <> count(*) limit 1`)
    if (gapless && gaps.rows.length > 0) throw new Error(`${name} left a gap.`)
  }
}

async function main(): Promise<void> {
  const server = await startEmbeddedPostgres({ settings: { max_connections: '120' } })
  const open = async (): Promise<Client> => {
    const client = new Client({ connectionString: server.url })
    await client.connect()
    return client
  }
  const clients = await Promise.all(Array.from({ length: Math.max(...CLIENTS) }, open))
  const admin = await open()
  for (const { make } of Object.values(WAYS)) for (const statement of make) await admin.query(statement)
  const { rows } = await admin.query<{ version: string }>(`select split_part(version(), ' on ', 1) as version`)
  const result = await contended(clients)
  await refuseGaps(admin)
  const microsecondsPerRow = await bulk(admin)
  console.log(JSON.stringify({ server: rows[0]?.version, rounds: ROUNDS, result, microsecondsPerRow }, undefined, 1))
  await Promise.all([...clients, admin].map(async (client) => await client.end()))
  await server.stop()
}

void main()
