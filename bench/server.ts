import { readFile } from 'node:fs/promises'
import { Pool } from 'pg'
import { startEmbeddedPostgres } from '../scripts/embedded-postgres'

/** The server that all peers share. */
export interface BenchServer {
  readonly url: string
  readonly version: string
  /** For what is not measured. */
  readonly admin: Pool
  /** CPU time of the server's processes so far, by their ids, in microseconds. Empty where it cannot be read. */
  readonly cpu: () => Promise<ReadonlyMap<number, number>>
  stop(): Promise<void>
}

/** Each peer keeps its connections open, so that none of them connects while it is measured. */
const SETTINGS = { max_connections: '600' }

/** BENCH_DATABASE_URL, or a server of our own with the settings that Postgres ships, but for the connections. */
export async function startServer(): Promise<BenchServer> {
  const given = process.env['BENCH_DATABASE_URL']
  const own = given ? undefined : await startEmbeddedPostgres({ settings: SETTINGS })
  const url = given ?? own?.url ?? ''
  const admin = new Pool({ connectionString: url, max: 1, idleTimeoutMillis: 0 })
  // The server of our own is stopped while the pool still closes.
  admin.on('error', () => {})
  const { rows } = await admin.query<{ version: string }>(`SELECT split_part(version(), ' on ', 1) AS version`)
  return {
    url,
    version: rows[0]?.version ?? '',
    admin,
    // A server on another machine has processes of the same numbers there.
    cpu: async () => (own ? await cpuOfProcesses(admin) : new Map()),
    stop: async () => {
      await admin.end()
      await own?.stop()
    },
  }
}

async function cpuOfProcesses(admin: Pool): Promise<ReadonlyMap<number, number>> {
  const { rows } = await admin.query<{ pid: number }>('SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()')
  const times = await Promise.all(rows.map(async ({ pid }) => [pid, await cpuMicroseconds(pid)] as const))
  return new Map(times.flatMap(([pid, time]) => (time === undefined ? [] : [[pid, time] as const])))
}

/** Linux only. It counts nanoseconds, where `stat` counts hundredths of a second. */
async function cpuMicroseconds(pid: number): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/schedstat`, 'utf8').catch(() => undefined)
  return text === undefined ? undefined : Number(text.split(' ')[0]) / 1_000
}

/** Microseconds between two readings; undefined where nothing could be read. */
export function cpuBetween(
  before: ReadonlyMap<number, number>,
  after: ReadonlyMap<number, number>,
): number | undefined {
  if (after.size === 0) return undefined
  let total = 0
  for (const [pid, time] of after) total += time - (before.get(pid) ?? 0)
  return total
}
