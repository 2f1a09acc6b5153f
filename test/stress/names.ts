import { Client } from 'pg'
import type { HolderTable } from '../../src/names/sql/fragments'
import { serverError } from '../../src/sql/sqlstate'
import { type NameMutation, nameMutations } from '../db/names/mutations'
import { firstLetter } from '../support/guarded-table'
import { createHolder, createNames, FREE, holderTable, namesTable, nameViolations } from '../support/names-table'
import { LEVELS } from '../support/sessions'
import { type Random, seededRandom } from './random'

const of = namesTable(firstLetter)
const users = holderTable('users', of, {
  names: ['handle', 'nick'].map((column) => ({ column, namespace: 'handle', former: FREE })),
})
const orgs = holderTable('orgs', of, {
  names: [{ column: 'handle', namespace: 'handle', former: { state: 'reserved', interval: '100 milliseconds' } }],
})
const holders: readonly HolderTable[] = [users, orgs]

/** Ten names of five hashes. */
const NAMES = ['a', 'b', 'c', 'd', 'e'].flatMap((letter) => [`${letter}1`, `${letter}2`])
const IDS = 16

/** What a client may hear: a taken name or key, or that it lost against others. */
const USUAL = new Set(['23505', '40001', '40P01'])

/** Without these there are more deadlocks and refusals, which are no fault: interleavings find them. */
const ONLY_FORCED = new Set([
  'claims are taken in another order',
  'what is given up is not locked in the pass',
  'a delete locks in the order of its rows',
  'what is in the way is not locked',
  'one row locks its names in another order',
  'rows of a statement lock one after the other',
  'a name in a chain is given up without a lock of the anchor',
  'names go along with a key for each row',
  'rows are taken for what the statement made them',
  'TRUNCATE is allowed where a snapshot is old',
])

/** Parts of the triggers without which these writes go wrong. */
export const FOUND_BY_STRESS: readonly string[] = nameMutations
  .map(({ name }) => name)
  .filter((name) => !ONLY_FORCED.has(name))

export interface NameStressOptions {
  readonly url: string
  readonly seconds: number
  readonly clients: number
  readonly seed: number
  readonly mutation?: string | undefined
}

export interface NameStressResult {
  /** By the kind of write and what came of it. */
  readonly counts: ReadonlyMap<string, number>
  readonly looks: number
  readonly operations: number
  readonly violations: readonly string[]
}

const literalOf = (name: string | undefined): string => (name === undefined ? 'null' : `'${name}'`)

/** A write of one statement, by its kind; `;` in it makes a transaction of several. */
type Write = (random: Random) => string

const table = (random: Random): string => random.pick(['users', 'orgs'])
const nameOrNull = (random: Random): string => literalOf(random.chance(0.15) ? undefined : random.pick(NAMES))
const id = (random: Random): number => 1 + random.int(IDS)
const ids = (random: Random, count: number): string =>
  random
    .sample(
      Array.from({ length: IDS }, (_, index) => index + 1),
      count,
    )
    .join(', ')

function insertMany(random: Random): string {
  const chosen = random.sample(NAMES, 1 + random.int(4))
  const rows = chosen.map((name) => `(${id(random) + IDS * (1 + random.int(50))}, ${literalOf(name)})`)
  return `insert into ${table(random)} (id, handle) values ${rows.join(', ')}`
}

const WRITES: Readonly<Record<string, Write>> = {
  rename: (random) => `update ${table(random)} set handle = ${nameOrNull(random)} where id = ${id(random)}`,
  'rename both': (random) =>
    `update users set handle = ${nameOrNull(random)}, nick = ${nameOrNull(random)} where id = ${id(random)}`,
  'exchange columns': (random) => `update users set handle = nick, nick = handle where id = ${id(random)}`,
  'exchange rows': (random) => {
    const [one, other] = random.sample(
      Array.from({ length: IDS }, (_, index) => index + 1),
      2,
    )
    const from = table(random)
    return `update ${from} as t set handle = o.handle from ${from} as o
      where t.id in (${one}, ${other}) and o.id in (${one}, ${other}) and o.id <> t.id`
  },
  'rename many': (random) =>
    `update ${table(random)} set handle = substr(handle, 1, 1) || (3 - substr(handle, 2)::int) where id in (${ids(random, 4)})`,
  insert: (random) =>
    `insert into ${table(random)} (id, handle) values (${id(random)}, ${nameOrNull(random)})
     on conflict (id) do update set handle = excluded.handle`,
  'insert many': insertMany,
  delete: (random) => `delete from ${table(random)} where id = ${id(random)}`,
  'delete many': (random) => `delete from ${table(random)} where id in (${ids(random, 3)}) or id > ${IDS}`,
  'change key': (random) => `update ${table(random)} set id = ${id(random)} where id = ${id(random)}`,
  'remove expired': () =>
    `delete from names where id in (select id from names where until < now() for update skip locked)`,
  transaction: (random) =>
    `begin; ${WRITES['rename']?.(random)}; ${WRITES['delete']?.(random)}; ${random.chance(0.3) ? 'rollback' : 'commit'}`,
}

/** Clients rename, exchange, insert and delete holders of ten names, at mixed levels; one more looks at what stands. */
export async function runNameStress(options: NameStressOptions): Promise<NameStressResult> {
  const { url, seconds, clients: count, seed } = options
  const clients = await Promise.all(Array.from({ length: count + 1 }, async () => await connect(url)))
  const [observer, ...writers] = clients
  if (!observer) throw new TypeError('There is an observer.')
  const run = new Run(performance.now() + seconds * 1_000, options.mutation !== undefined)
  try {
    await create(
      observer,
      nameMutations.find(({ name }) => name === options.mutation),
    )
    await Promise.all([
      watch(observer, run),
      ...writers.map(async (client, index) => await write(client, run, { random: seededRandom(seed + index), index })),
    ])
    if (run.violations.length === 0) {
      await atTheEnd(observer, run).catch((error: unknown) => run.violate(`at the end: ${String(error)}`))
    }
    return run
  } finally {
    await Promise.all(clients.map(async (client) => await client.end()))
  }
}

class Run implements NameStressResult {
  readonly counts = new Map<string, number>()
  readonly violations: string[] = []
  looks = 0
  operations = 0

  constructor(
    private readonly end: number,
    private readonly untilFound: boolean,
  ) {}

  get running(): boolean {
    return performance.now() < this.end && !(this.untilFound && this.violations.length > 0)
  }

  count(kind: string, outcome: string): void {
    this.operations++
    this.counts.set(`${kind}: ${outcome}`, (this.counts.get(`${kind}: ${outcome}`) ?? 0) + 1)
  }

  violate(...found: readonly string[]): void {
    // Enough to see what it is.
    if (this.violations.length < 20) this.violations.push(...found)
  }
}

async function connect(url: string): Promise<Client> {
  const client = new Client({ connectionString: url })
  await client.connect()
  return client
}

async function create(client: Client, mutation: NameMutation | undefined): Promise<void> {
  await client.query('drop schema public cascade; create schema public')
  for (const statement of createNames(of)) await client.query(statement)
  for (const holder of holders) {
    for (const statement of createHolder(holder, mutation?.triggers(holder))) await client.query(statement)
  }
  await client.query(
    `insert into users (id) select generate_series(1, ${IDS}); insert into orgs (id) select generate_series(1, ${IDS})`,
  )
}

async function write(
  client: Client,
  run: Run,
  { random, index }: { readonly random: Random; readonly index: number },
): Promise<void> {
  await client.query(`set default_transaction_isolation to '${(LEVELS[index % LEVELS.length] ?? '').toLowerCase()}'`)
  const kinds = Object.entries(WRITES)
  while (run.running) {
    const [kind, make] = random.pick(kinds)
    const sql = make(random)
    const outcome = await client.query(sql).then(
      () => 'ok',
      (error: unknown) => serverError(error)?.code ?? String(error),
    )
    if (sql.startsWith('begin')) await client.query('rollback')
    run.count(kind, outcome)
    if (outcome !== 'ok' && !USUAL.has(outcome)) run.violate(`${kind}: ${outcome}`)
  }
}

/** One statement sees rows and names in one snapshot. */
async function watch(client: Client, run: Run): Promise<void> {
  while (run.running) {
    run.looks++
    run.violate(...(await nameViolations(client, holders)))
  }
}

/** Whatever nobody holds can be had, and with the holders go all names. */
async function atTheEnd(client: Client, run: Run): Promise<void> {
  run.violate(...(await nameViolations(client, holders)))
  await client.query('delete from orgs; truncate users')
  const { rows } = await client.query<{ text: string }>('select text from names')
  run.violate(...rows.map(({ text }) => `a name without holders: ${text}`))
  const all = NAMES.map((name, index) => `(${index}, '${name}')`).join(', ')
  await client.query(`insert into users (id, handle) values ${all}`)
  await client.query(`update users set handle = case id when 0 then '${NAMES[1]}' else '${NAMES[0]}' end where id < 2`)
  // What a lone client may do, it can.
  await client.query(`update users set handle = null; insert into orgs (id, handle) values (1, 'a1');
    update orgs set handle = 'b1'; update orgs set id = 2; update orgs set handle = 'a1'`)
  await client.query(`update names set until = now() - interval '1 second' where state = 'reserved'`)
  await client.query(`update users set handle = 'b1' where id = 1; update orgs set handle = 'c1'; delete from orgs`)
  const { rows: left } = await client.query<{ text: string }>(`select text from names where holder = 'orgs'`)
  run.violate(...left.map(({ text }) => `a name of a row that is gone: ${text}`))
  run.violate(...(await nameViolations(client, holders)))
}

/** The counts, for a person. */
export function namesTold({ counts, looks, operations, violations }: NameStressResult): string {
  const lines = [...counts].toSorted(([left], [right]) => (left < right ? -1 : 1))
  return [
    ...lines.map(([what, count]) => `${count.toLocaleString('en').padStart(9)}  ${what}`),
    `${operations.toLocaleString('en')} operations, ${looks.toLocaleString('en')} looks, ${violations.length} violations`,
    ...violations,
  ].join('\n')
}
