import { execFile } from 'node:child_process'
import { mkdtemp, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Client } from 'pg'
import { afterAll, beforeAll } from 'vitest'
import { clusterScript } from './citus'

if (clusterScript === undefined)
  console.log('Citus: no servers to kill without PostgreSQL 15 and ../shared/citus, so these tests are skipped')

/** Of the coordinator; those of the workers follow. */
const firstPort = 16_000 + (process.pid % 1_000) * 3

/** The servers of a cluster of one test file's own. */
interface CitusServers {
  /** The coordinator's, then those of the workers. */
  readonly urls: () => readonly string[]
  /** Connects once more after a kill. */
  query<Row extends object>(node: number, sql: string): Promise<Row[]>
  /** The server ends at once, with all of its sessions, and leaves recovery to its next start. */
  kill(node: number): Promise<void>
  /** Every server that was killed runs again. */
  start(): Promise<void>
}

/** Between two looks at a server that ends. */
const LOOK_MILLISECONDS = 10

const NAMES = ['coordinator', 'worker1', 'worker2']

export function useServers(): CitusServers {
  let folder = ''
  let urls: string[] = []
  const run = async (action: string): Promise<string> => {
    const env = { ...process.env, PORT: String(firstPort) }
    return (await promisify(execFile)(clusterScript ?? '', [action, folder], { env })).stdout
  }
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'citus-'))
    const told = await run('start')
    urls = NAMES.map((name) => new RegExp(`^${name} (postgres:\\S+)$`, 'm').exec(told)?.[1] ?? '')
  }, 240_000)
  afterAll(async () => await run('remove'), 60_000)

  return {
    urls: () => urls,
    query: async <Row extends object>(node: number, sql: string): Promise<Row[]> => {
      const client = new Client({ connectionString: urls[node] ?? '' })
      client.on('error', () => {})
      await client.connect()
      try {
        return (await client.query<Row>(sql)).rows
      } finally {
        await client.end()
      }
    },
    kill: async (node) => {
      const file = path.join(folder, NAMES[node] ?? '', 'postmaster.pid')
      const pid = Number((await readFile(file, 'utf8')).split('\n')[0])
      process.kill(pid, 'SIGQUIT')
      while (isRunning(pid)) await setTimeout(LOOK_MILLISECONDS)
    },
    start: async () => {
      await run('start')
    },
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
