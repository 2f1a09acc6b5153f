import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { startEmbeddedPostgres } from '../../scripts/embedded-postgres'

/** A server the tests may fill with databases. */
export interface TestServer {
  readonly url: string
  /** Said in one line before the first test. */
  readonly origin: string
  stop(): Promise<void>
}

/** Speed only: the tests of crashes start a server of their own, with durability on. */
const SETTINGS = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', max_connections: '200' } as const

type Source = () => Promise<TestServer | undefined>

/** Tried in this order; the first that answers is used. Each takes no argument, so a test can call it alone. */
export const sources: Readonly<Record<'environment' | 'container' | 'embedded', Source>> = {
  environment: async () => {
    const url = process.env['TEST_DATABASE_URL']
    return url ? { url, origin: 'TEST_DATABASE_URL', stop: async () => {} } : undefined
  },
  container: async () => {
    if (!(await dockerAnswers())) return undefined
    const { PostgreSqlContainer } = await import('@testcontainers/postgresql')
    const flags = Object.entries(SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const container = await new PostgreSqlContainer('postgres:18-alpine').withCommand(['postgres', ...flags]).start()
    return {
      url: container.getConnectionUri(),
      origin: 'a container (testcontainers, postgres:18-alpine)',
      stop: async () => {
        await container.stop()
      },
    }
  },
  embedded: async () => {
    const server = await startEmbeddedPostgres({ settings: SETTINGS })
    return { url: server.url, origin: `embedded-postgres on port ${server.port}`, stop: server.stop }
  },
}

export async function findServer(): Promise<TestServer> {
  const server = (await sources.environment()) ?? (await sources.container()) ?? (await sources.embedded())
  if (!server) throw new Error('No Postgres: set TEST_DATABASE_URL, start a Docker engine, or run `npm ci` again.')
  return server
}

async function dockerAnswers(): Promise<boolean> {
  try {
    await promisify(execFile)('docker', ['version', '--format', '{{.Server.Version}}'], { timeout: 5_000 })
    return true
  } catch {
    return false
  }
}
