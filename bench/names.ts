/**
 * npx tsx bench/names.ts              what a name costs, against what one would write by hand, as JSON
 * npx tsx bench/names.ts --delay 1    … where each message takes so many milliseconds longer
 *
 * BENCH_DATABASE_URL, or a server of its own with the settings that Postgres ships.
 */
import 'reflect-metadata'
import { fork } from 'node:child_process'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { Client } from 'pg'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { startEmbeddedPostgres } from '../scripts/embedded-postgres'
import { findHolder, Name, rename, UniqueName } from '../src/names'

const ROUNDS = 15
const CALLS = 100
const ROWS = 2_000
const USERS = 20_000

@Entity('holder')
class Holder {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle' }) handle!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

@Entity('nameless')
class Nameless {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) handle!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

/** As one would do it by hand: a table of names with a unique index, and a transaction around each change. */
const BY_HAND = `
  CREATE TABLE hand_user (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, handle text NOT NULL, title text);
  CREATE TABLE hand_name (name text PRIMARY KEY, user_id integer NOT NULL);
  INSERT INTO hand_user (handle) SELECT 'user ' || i FROM generate_series(1, ${USERS}) AS i;
  INSERT INTO hand_name SELECT handle, id FROM hand_user;
  INSERT INTO holder (handle) SELECT 'user ' || i FROM generate_series(1, ${USERS}) AS i;
  INSERT INTO nameless (handle) SELECT 'user ' || i FROM generate_series(1, ${USERS}) AS i;
  ANALYZE;`

interface Bench {
  readonly dataSource: DataSource
  readonly client: Client
}

let counter = 0
const next = (): string => `name ${counter++}`
const anyId = (): number => 1 + Math.floor(Math.random() * USERS)

async function renameByHand({ client }: Bench): Promise<void> {
  const [id, name] = [anyId(), next()]
  await client.query('BEGIN')
  const { rows } = await client.query<{ handle: string }>({
    name: 'lock',
    text: 'SELECT handle FROM hand_user WHERE id = $1 FOR UPDATE',
    values: [id],
  })
  await client.query({ name: 'old', text: 'DELETE FROM hand_name WHERE name = $1', values: [rows[0]?.handle] })
  await client.query({ name: 'new', text: 'INSERT INTO hand_name VALUES ($1, $2)', values: [name, id] })
  await client.query({ name: 'user', text: 'UPDATE hand_user SET handle = $1 WHERE id = $2', values: [name, id] })
  await client.query('COMMIT')
}

const insertInto =
  (table: string) =>
  async ({ client }: Bench): Promise<unknown> =>
    await client.query({ name: table, text: `INSERT INTO ${table} (handle) VALUES ($1)`, values: [next()] })

const insertMany =
  (table: string) =>
  async ({ client }: Bench): Promise<unknown> => {
    const from = counter
    counter += ROWS
    return await client.query(
      `INSERT INTO ${table} (handle) SELECT 'name ' || i FROM generate_series(${from}, ${counter - 1}) AS i`,
    )
  }

async function findByHand({ client }: Bench): Promise<unknown> {
  const text = 'SELECT u.* FROM hand_name AS n JOIN hand_user AS u ON u.id = n.user_id WHERE n.name = $1'
  return await client.query({ name: 'find', text, values: [`user ${anyId()}`] })
}

type Work = (bench: Bench) => Promise<unknown>

/** What is compared, the work that it is compared with first; and how often each is done in a round. */
const COMPARED: Readonly<Record<string, readonly [calls: number, Readonly<Record<string, Work>>]>> = {
  rename: [
    CALLS,
    {
      byHand: renameByHand,
      ours: async ({ dataSource }) => await rename(dataSource.manager, Holder, anyId(), { handle: next() }),
      update: async ({ client }) =>
        await client.query({
          name: 'up',
          text: 'UPDATE holder SET handle = $1 WHERE id = $2',
          values: [next(), anyId()],
        }),
    },
  ],
  insert: [CALLS, { without: insertInto('nameless'), with: insertInto('holder') }],
  [`insert of ${ROWS}`]: [1, { without: insertMany('nameless'), with: insertMany('holder') }],
  findHolder: [
    CALLS,
    {
      byHand: findByHand,
      ours: async ({ dataSource }) => await findHolder(dataSource.manager, 'handle', `user ${anyId()}`),
      withEntity: async ({ dataSource }) =>
        await findHolder(dataSource.manager, 'handle', `user ${anyId()}`, { entity: true }),
    },
  ],
}

const medianOf = (times: readonly number[]): number =>
  times.toSorted((left, right) => left - right)[Math.floor(times.length / 2)] ?? Number.NaN

/** Milliseconds of one call: the median of the rounds, in which the works take turns. */
async function compare(bench: Bench, calls: number, works: Readonly<Record<string, Work>>): Promise<object> {
  const times = new Map<string, number[]>(Object.keys(works).map((name) => [name, []]))
  for (let round = -2; round < ROUNDS; round++) {
    for (const [name, work] of Object.entries(works)) {
      const started = performance.now()
      for (let call = 0; call < calls; call++) await work(bench)
      if (round >= 0) times.get(name)?.push((performance.now() - started) / calls)
    }
  }
  const medians = [...times].map(([name, list]) => [name, medianOf(list)] as const)
  const [[, base] = ['', Number.NaN]] = medians
  return Object.fromEntries(
    medians.map(([name, median]) => [
      name,
      { milliseconds: Number(median.toFixed(3)), ratio: Number((median / base).toFixed(2)) },
    ]),
  )
}

/** The same server, whose every message takes longer. */
async function delayed(url: string, milliseconds: string): Promise<{ url: string; stop: () => void }> {
  const proxy = fork(path.resolve(__dirname, 'delay-proxy.ts'), [url, milliseconds], { execArgv: ['--import', 'tsx'] })
  const through = await new Promise<string>((resolve) => proxy.once('message', (one) => resolve(one as string)))
  return { url: through, stop: () => proxy.disconnect() }
}

async function main(): Promise<void> {
  const { delay } = parseArgs({ options: { delay: { type: 'string' } } }).values
  const given = process.env['BENCH_DATABASE_URL']
  const own = given ? undefined : await startEmbeddedPostgres()
  const server = given ?? own?.url ?? ''
  const proxy = delay === undefined ? undefined : await delayed(server, delay)
  const url = proxy?.url ?? server
  const dataSource = await new DataSource({
    type: 'postgres',
    url,
    entities: [Name, Holder, Nameless],
    synchronize: true,
  }).initialize()
  const client = new Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  try {
    await client.query(BY_HAND)
    const figures: Record<string, object> = {}
    for (const [name, [calls, works]] of Object.entries(COMPARED)) {
      figures[name] = await compare({ dataSource, client }, calls, works)
    }
    console.log(JSON.stringify(figures, undefined, 2))
  } finally {
    await client.end()
    await dataSource.destroy()
    proxy?.stop()
    await own?.stop()
  }
}

void main()
