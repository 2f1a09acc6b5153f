/**
 * npm run build && npx tsx bench/wire.ts [--rounds 12]     what the messages of our own bring, beside pg's query object
 *
 * This package on two DataSources, which take turns in each round: the clients of the second
 * lack one of the internals of `pg` that the messages need (src/connection/wire.ts), so its calls go the ordinary way.
 */
import 'reflect-metadata'
import { createRequire } from 'node:module'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { Client, type ClientConfig } from 'pg'
import { DataSource } from 'typeorm'
import { startServer } from './server'
import { NormalizedPage as Page } from './support'

/** The built package: what is measured is what is shipped. */
const load = createRequire(__filename)
const { findOneByText, findOrCreate, findOrCreateMany, insertOrFail, upsertByText, withUniqueText } = load(
  path.resolve(__dirname, '../dist'),
) as typeof import('../src')

const { values: options } = parseArgs({ options: { rounds: { type: 'string', default: '12' } } })
const WARM_UP = 2

/** Client CPU and time of one call, in microseconds. */
interface Cost {
  readonly cpu: number
  readonly time: number
}

let serial = 0
const fresh = (): string => `https://example.com/some/longer/path/${(serial += 1)}/and/more?page=${serial}&of=many`

const stored = Array.from({ length: 500 }, fresh)
const known = (): string => stored[(serial += 1) % stored.length] ?? ''

/** Each with its number of calls in a round. */
const WAYS: Readonly<Record<string, readonly [number, (of: DataSource) => Promise<unknown>]>> = {
  hit: [2_000, async ({ manager }) => await findOrCreate(manager, Page, { url: known() })],
  'look-up': [2_000, async ({ manager }) => await findOneByText(manager, Page, { url: known() })],
  miss: [600, async ({ manager }) => await findOrCreate(manager, Page, { url: fresh() })],
  insertOrFail: [400, async ({ manager }) => await insertOrFail(manager, Page, { url: fresh() })],
  'upsert of a known text': [400, async ({ manager }) => await upsertByText(manager, Page, { url: known() })],
  'eight hits at once': [
    250,
    async ({ manager }) =>
      await Promise.all(Array.from({ length: 8 }, async () => await findOrCreate(manager, Page, { url: known() }))),
  ],
  'ten hits in a transaction': [
    100,
    async (of) =>
      await of.transaction(async (manager) => {
        for (let call = 0; call < 10; call += 1) await findOrCreate(manager, Page, { url: known() })
      }),
  ],
  'ten insertOrFail in a transaction': [
    40,
    async (of) =>
      await of.transaction(async (manager) => {
        for (let call = 0; call < 10; call += 1) await insertOrFail(manager, Page, { url: fresh() })
      }),
  ],
  '500 new texts in one call': [
    20,
    async ({ manager }) =>
      await findOrCreateMany(
        manager,
        Page,
        Array.from({ length: 500 }, () => ({ url: fresh() })),
      ),
  ],
}

class PlainClient extends Client {
  constructor(config?: string | ClientConfig) {
    super(config)
    Reflect.set(this, 'getTypeParser', undefined)
  }
}

async function costOf(calls: number, run: () => Promise<unknown>): Promise<Cost> {
  const [cpu, started] = [process.cpuUsage(), performance.now()]
  for (let call = 0; call < calls; call += 1) await run()
  const { user, system } = process.cpuUsage(cpu)
  return { cpu: (user + system) / calls, time: ((performance.now() - started) * 1_000) / calls }
}

const median = (numbers: readonly number[]): number =>
  numbers.toSorted((one, other) => one - other)[numbers.length >> 1] ?? 0

async function main(): Promise<void> {
  const server = await startServer()
  const open = async (extra: object): Promise<DataSource> =>
    await withUniqueText(
      new DataSource({ type: 'postgres', url: server.url, entities: [Page], synchronize: true, extra }),
    ).initialize()
  const sources = [await open({}), await open({ Client: PlainClient })]
  await findOrCreateMany(
    sources[0]?.manager as DataSource['manager'],
    Page,
    stored.map((url) => ({ url })),
  )
  console.log(`${server.version}; client CPU a call in µs, and time: own messages, pg's query object, quotient`)
  for (const [name, [calls, run]] of Object.entries(WAYS)) {
    const costs: Cost[][] = [[], []]
    for (let round = 0; round < Number(options.rounds) + WARM_UP; round += 1) {
      for (const [index, source] of sources.entries()) {
        const cost = await costOf(calls, async () => await run(source))
        if (round >= WARM_UP) costs[index]?.push(cost)
      }
    }
    const [own, pg] = costs.map((all) => [median(all.map(({ cpu }) => cpu)), median(all.map(({ time }) => time))])
    const cells = [0, 1].map((column) => {
      const [a, b] = [own?.[column] ?? 0, pg?.[column] ?? 0]
      return `${a.toFixed(0)} | ${b.toFixed(0)} | ${(a / b).toFixed(2)}`
    })
    console.log(`| ${name} | ${cells.join(' | ')} |`)
  }
  await Promise.all(sources.map(async (source) => await source.destroy()))
  await server.stop()
}

void main()
