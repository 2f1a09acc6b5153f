/**
 * npm run build && npx tsx bench/once.ts      `once` against the transaction alone and a replay against a SELECT, as JSON
 *
 * Calls of one client, one after another, as a server meets them; all ways in turn in each round. With a delay, each
 * message of the client takes so many milliseconds longer: round trips show.
 */
import 'reflect-metadata'
import { type ChildProcess, fork } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Pool } from 'pg'
import { Column, DataSource, Entity, type EntityManager, PrimaryGeneratedColumn } from 'typeorm'
import { startEmbeddedPostgres } from '../scripts/embedded-postgres'
import { milliseconds } from './support'

/** The built package: what is measured is what is shipped. */
const load = createRequire(__filename)
const { once, OnceToken } = load(path.resolve(__dirname, '../dist/once')) as typeof import('../src/once')

const ROUNDS = Number(process.env['ROUNDS'] ?? 40)
const CALLS = Number(process.env['CALLS'] ?? 30)
const DELAYS = (process.env['DELAYS'] ?? '0,2').split(',').map(Number)
/** Statements of the work. */
const SIZES = [1, 4] as const

@Entity('payment')
class Payment {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text' }) token!: string
  @Column({ type: 'integer' }) amount!: number
}

const INSERT = 'INSERT INTO payment (token, amount) VALUES ($1, $2) RETURNING id'

type Way = (token: string) => Promise<unknown>

/** What is compared with what: a way, and what takes the time that it is divided by. */
type Ways = Readonly<Record<string, { readonly run: Way; readonly against?: string }>>

function waysOf(dataSource: DataSource, pool: Pool): Ways {
  const { manager } = dataSource
  const byTypeOrm = (size: number) => async (own: EntityManager, token: string) => {
    const ids: number[] = []
    for (let nth = 0; nth < size; nth += 1) {
      const { identifiers } = await own.insert(Payment, { token, amount: nth })
      ids.push((identifiers[0] as { id: number }).id)
    }
    return { ids }
  }
  const bySql =
    (size: number) => async (query: (sql: string, values: unknown[]) => Promise<unknown>, token: string) => {
      for (let nth = 0; nth < size; nth += 1) await query(INSERT, [token, nth])
      return { done: true }
    }
  const ways: Record<string, { readonly run: Way; readonly against?: string }> = {}
  for (const size of SIZES) {
    const [orm, sql] = [byTypeOrm(size), bySql(size)]
    const name = `${size} insert${size === 1 ? '' : 's'}`
    ways[`transaction by TypeORM, ${name}`] = {
      run: async (token) => await dataSource.transaction(async (own) => await orm(own, token)),
    }
    ways[`once by TypeORM, ${name}`] = {
      run: async (token) => await once(manager, token, async (own) => await orm(own, token)),
      against: `transaction by TypeORM, ${name}`,
    }
    ways[`transaction by pg, ${name}`] = { run: async (token) => await transaction(pool, sql, token) }
    ways[`token by hand in pg, ${name}`] = {
      run: async (token) =>
        await transaction(
          pool,
          async (query) => {
            const { rows } = (await query(CLAIM, [token])) as { rows: { id: string }[] }
            const answer = await sql(query, token)
            await query(ANSWER, [rows[0]?.id, JSON.stringify(answer)])
          },
          token,
        ),
      against: `transaction by pg, ${name}`,
    }
    ways[`once by SQL, ${name}`] = {
      run: async (token) =>
        await once(
          manager,
          token,
          async (own) => await sql(async (...args) => (await own.query(...args)) as unknown, token),
        ),
      against: `transaction by pg, ${name}`,
    }
  }
  ways['SELECT by pg'] = {
    run: async () => await pool.query({ name: 'answer', text: SELECT, values: ['known'] }),
  }
  ways['replay'] = { run: async () => await once(manager, 'known', () => 'never'), against: 'SELECT by pg' }
  return ways
}

const SELECT = 'SELECT id, answer FROM once_tokens WHERE token_hash = md5($1)::uuid AND token = $1'

/** What one would write by hand for a token that is new: no expiry, no collisions, no replay. */
const CLAIM = `INSERT INTO once_tokens (token, token_hash) VALUES ($1, md5($1)::uuid) ON CONFLICT DO NOTHING RETURNING id`
const ANSWER = 'UPDATE once_tokens SET answer = $2, answered_at = now() WHERE id = $1'

async function transaction(
  pool: Pool,
  work: (query: (sql: string, values: unknown[]) => Promise<unknown>, token: string) => Promise<unknown>,
  token: string,
): Promise<unknown> {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    const result = await work(async (sql, values) => await client.query(sql, values), token)
    await client.query('COMMIT')
    return result
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  } finally {
    client.release()
  }
}

/** Of a machine that others use as well, the faster rounds tell more. */
const lowerQuartile = (values: readonly number[]): number =>
  values.toSorted((left, right) => left - right)[values.length >> 2] ?? Number.NaN

/** Microseconds a call, by way. */
async function measure(ways: Ways): Promise<Record<string, number>> {
  const rounds: Record<string, number[]> = {}
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [name, { run }] of Object.entries(ways)) {
      const took = await milliseconds(async () => {
        for (let call = 0; call < CALLS; call += 1) await run(randomUUID())
      })
      // The first one is for the caches.
      if (round > 0) (rounds[name] ??= []).push((took / CALLS) * 1_000)
    }
  }
  return Object.fromEntries(Object.entries(rounds).map(([name, costs]) => [name, Math.round(lowerQuartile(costs))]))
}

async function measureAt(url: string): Promise<Record<string, { microseconds: number; ratio?: number }>> {
  const dataSource = await new DataSource({
    type: 'postgres',
    url,
    entities: [Payment, OnceToken],
    synchronize: true,
    poolSize: 2,
  }).initialize()
  const pool = new Pool({ connectionString: url, max: 2 })
  pool.on('error', () => {})
  try {
    const ways = waysOf(dataSource, pool)
    await once(dataSource.manager, 'known', () => ({ id: 1 }))
    const costs = await measure(ways)
    return Object.fromEntries(
      Object.entries(costs).map(([name, microseconds]) => {
        const against = costs[ways[name]?.against ?? '']
        return [name, { microseconds, ...(against && { ratio: Number((microseconds / against).toFixed(2)) }) }]
      }),
    )
  } finally {
    await dataSource.destroy()
    await pool.end()
  }
}

async function delayed(url: string, delay: number): Promise<{ readonly url: string; readonly proxy?: ChildProcess }> {
  if (delay === 0) return { url }
  const proxy = fork(path.join(__dirname, 'delay-proxy.ts'), [url, String(delay)], { execArgv: ['--import', 'tsx'] })
  return { url: await new Promise((resolve) => proxy.once('message', (there) => resolve(there as string))), proxy }
}

async function main(): Promise<void> {
  const server = await startEmbeddedPostgres()
  try {
    const results: Record<string, unknown> = {}
    for (const delay of DELAYS) {
      const { url, proxy } = await delayed(server.url, delay)
      results[`${delay} ms more for each message`] = await measureAt(url)
      proxy?.disconnect()
    }
    console.log(JSON.stringify({ rounds: ROUNDS, calls: CALLS, results }, null, 2))
  } finally {
    await server.stop()
  }
}

void main()
