/**
 * A process that uses the package while its backends are terminated: `node --import tsx storm-client.ts URL CALLS`. It
 * has no listener of its own for anything. Prints READY once its backends may be terminated: a DataSource that initializes
 * has a client without a listener, by TypeORM itself. Then prints as JSON how its calls ended.
 */
import 'reflect-metadata'
import { DataSource, type EntityManager } from 'typeorm'
import { findOrCreateStream } from '../../src/stream'
import { ALL_CALLS, ENTITIES, Page } from './all-calls'

export const APPLICATION = 'unique-text-storm'
export const READY = 'ready'

type Call = (dataSource: DataSource, text: string) => Promise<unknown>

/** Each by itself, one after another in a transaction, and at once in one. */
const inEveryWay = (call: (manager: EntityManager, text: string) => Promise<unknown>): Call[] => [
  async ({ manager }, text) => await call(manager, text),
  async (dataSource, text) =>
    await dataSource.transaction(async (manager) => {
      await call(manager, `${text} a`)
      await call(manager, `${text} b`)
    }),
  async (dataSource, text) =>
    await dataSource.transaction(
      async (manager) => await Promise.all([call(manager, `${text} c`), call(manager, `${text} d`)]),
    ),
]

const CALLS: readonly Call[] = [
  ...Object.values(ALL_CALLS).flatMap(inEveryWay),
  async (dataSource, text) => {
    const inputs = Array.from({ length: 50 }, (_, index) => ({ url: `${text} ${index}` }))
    for await (const result of findOrCreateStream(dataSource, Page, inputs)) if ('error' in result) throw result.error
  },
]

/** So many at once, of a pool that is smaller. */
const CLIENTS = 24
const POOL_SIZE = 8

async function storm(url: string, calls: number): Promise<void> {
  const dataSource = new DataSource({
    type: 'postgres',
    url,
    applicationName: APPLICATION,
    entities: ENTITIES,
    poolSize: POOL_SIZE,
  })
  await dataSource.initialize()
  console.log(READY)
  const ended: Record<string, number> = {}
  let next = 0
  const client = async (): Promise<void> => {
    for (let number = next++; number < calls; number = next++) {
      const call = CALLS[number % CALLS.length]
      const how = await call?.(dataSource, `text ${number}`).then(
        () => 'done',
        (error: unknown) => (error instanceof Error ? error.constructor.name : String(error)),
      )
      ended[how ?? ''] = (ended[how ?? ''] ?? 0) + 1
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
  await dataSource.destroy()
  console.log(JSON.stringify(ended))
}

const [url, calls] = process.argv.slice(2)
if (url !== undefined) void storm(url, Number(calls))
