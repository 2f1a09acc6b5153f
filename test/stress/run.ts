import type { DataSource } from 'typeorm'
import { doctor } from '../../src/doctor'
import { check, watch } from './checker'
import { createOnly } from './create-only'
import { openDataSources } from './data-sources'
import { Journal } from './journal'
import { actionsToFind, install } from './mutations'
import { seededRandom, weighted } from './random'
import { type Level, LEVELS } from '../support/sessions'
import type { Action, RawClient } from './action'
import { type Subject, subjectsOf } from './subject'
import { installTriggers, makeTrouble, type Trouble } from './trouble'
import { type Client, takeTurn } from './turn'

export interface StressOptions {
  /** Connection string of an empty database. */
  readonly url: string
  /** Of the whole run, both phases. */
  readonly seconds: number
  /** It goes on until so many operations are done, however long that takes. @default 0 */
  readonly leastOperations?: number
  /** @default 20 */
  readonly clients?: number
  /** @default all three, mixed */
  readonly isolation?: Level | 'mixed'
  /** Texts in play, of four hashes. @default 30 */
  readonly texts?: number
  /** What the clients choose; how they meet, the server decides. @default random */
  readonly seed?: number
  /** What else happens in the first phase. @default none */
  readonly troubles?: readonly Trouble[]
  /** Takes a part out of the guard, and ends with the first violation. */
  readonly mutation?: string
  /** Called every few seconds. */
  readonly onProgress?: (journal: Journal) => void
}

export interface StressResult {
  readonly seed: number
  readonly clients: number
  readonly seconds: number
  readonly journal: Journal
}

/** Of the time, what the first phase takes, in which everybody writes in every way. */
const MIXED_SHARE = 0.85
const PROGRESS_MILLISECONDS = 10_000

/** Runs until the time is over or something is found, and never longer than a statement may take. */
export async function runStress(options: StressOptions): Promise<StressResult> {
  const { seconds, clients: count = 20, seed = Math.floor(Math.random() * 2 ** 32), mutation } = options
  // A call in parallel takes up to four connections of the pool beside the client's own.
  const dataSources = await openDataSources(options.url, count * 2 + 2)
  const watched = dataSources['READ COMMITTED']
  const subjects = subjectsOf(watched, options.texts ?? 30)
  let takeBack = (): void => {}
  try {
    if (mutation) takeBack = await install(watched, subjects, mutation)
    const journal = new Journal(
      seconds * 1_000 * (mutation || options.troubles?.length ? 1 : MIXED_SHARE),
      options.leastOperations,
      mutation !== undefined,
    )
    const progress = setInterval(() => options.onProgress?.(journal), PROGRESS_MILLISECONDS)
    try {
      await runPhases({ ...options, clients: count, seed }, { dataSources, subjects, journal })
    } finally {
      clearInterval(progress)
    }
    return { seed, clients: count, seconds: journal.elapsed / 1_000, journal }
  } finally {
    takeBack()
    await Promise.all(Object.values(dataSources).map(async (dataSource) => await dataSource.destroy()))
  }
}

interface Stage {
  readonly dataSources: Readonly<Record<Level, DataSource>>
  readonly subjects: readonly Subject[]
  readonly journal: Journal
}

async function runPhases(
  {
    url,
    seconds,
    isolation = 'mixed',
    clients: count,
    seed,
    mutation,
    troubles = [],
  }: StressOptions & { clients: number; seed: number },
  stage: Stage,
): Promise<void> {
  const { journal, subjects, dataSources } = stage
  const watched = dataSources['READ COMMITTED']
  const levels = isolation === 'mixed' ? LEVELS : [isolation]
  const clients = await openClients(stage, { count, seed, levels, actions: actionsToFind(mutation) })
  try {
    await installTriggers(url, subjects, troubles)
    journal.troubled = troubles.length > 0
    journal.derived = troubles.includes('derived')
    journal.renamed = troubles.includes('renames')
    const trouble = makeTrouble(url, troubles, { subjects, journal, random: seededRandom(seed - 1) })
    const writers = clients.map(async (_, index) => await write(clients, index))
    await together([...writers, watch(watched, subjects, journal), trouble], journal)
    await checkOnce(watched, subjects, journal)
    if (!mutation) await consult(watched, journal)
    // What the triggers of a user undo, find-or-create cannot promise.
    if (mutation || journal.violations.length > 0 || journal.troubled) return
    journal.until(seconds * 1_000)
    await together([createOnly(clients), watch(watched, subjects, journal)], journal)
    await checkOnce(watched, subjects, journal)
    await consult(watched, journal)
  } finally {
    await Promise.all(clients.map(async ({ queryRunner }) => await queryRunner.release()))
  }
}

async function write(clients: Client[], index: number): Promise<void> {
  for (let client = clients[index]; client?.journal.running === true; client = clients[index]) {
    try {
      await takeTurn(client)
      if (client.journal.troubled) await client.raw.query('SELECT')
    } catch (error) {
      if (!client.journal.troubled) throw error
      clients[index] = await connectAgain(client)
    }
  }
}

/** After its backend was terminated. */
async function connectAgain(client: Client): Promise<Client> {
  if (!client.queryRunner.isReleased) await client.queryRunner.release()
  const queryRunner = client.dataSource.createQueryRunner()
  client.journal.add('connections made again')
  return { ...client, queryRunner, raw: (await queryRunner.connect()) as RawClient }
}

/** Awaits all; a fault of one ends the others, and is a violation. */
async function together(parts: readonly Promise<void>[], journal: Journal): Promise<void> {
  await Promise.all(
    parts.map(async (part) => {
      try {
        await part
      } catch (error) {
        journal.violate(`the harness failed: ${error instanceof Error ? error.stack : String(error)}`)
      }
    }),
  )
}

async function checkOnce(dataSource: DataSource, subjects: readonly Subject[], journal: Journal): Promise<void> {
  const queryRunner = dataSource.createQueryRunner()
  try {
    await check((await queryRunner.connect()) as RawClient, subjects, journal)
  } finally {
    await queryRunner.release()
  }
}

/** Asks the doctor what is left: every error that it finds is a violation. */
async function consult(dataSource: DataSource, journal: Journal): Promise<void> {
  const { findings } = await doctor(dataSource)
  for (const { severity, code, entity, count, keys, detail } of findings) {
    if (severity !== 'error') continue
    journal.violate(`doctor: ${entity} ${code} ${count} ${detail ?? ''} ${JSON.stringify(keys)}`)
  }
  journal.add('looks of the doctor')
}

interface Crew {
  readonly count: number
  readonly seed: number
  readonly levels: readonly Level[]
  readonly actions: readonly Action[]
}

async function openClients(
  { dataSources, subjects, journal }: Stage,
  { count, seed, levels, actions }: Crew,
): Promise<Client[]> {
  const [{ version } = { version: 0 }] = await dataSources['READ COMMITTED'].query<{ version: number }[]>(
    `SELECT current_setting('server_version_num')::integer AS version`,
  )
  const choose = weighted(actions.filter(({ since = 0 }) => since <= version))
  return await Promise.all(
    Array.from({ length: count }, async (_, number) => {
      const level = levels[number % levels.length] ?? 'READ COMMITTED'
      const dataSource = dataSources[level]
      const queryRunner = dataSource.createQueryRunner()
      const raw = (await queryRunner.connect()) as RawClient
      const random = seededRandom(seed + number)
      return { number, dataSource, queryRunner, raw, random, journal, subjects, levels, level, choose }
    }),
  )
}
