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

const IMAGE = 'postgres:18-alpine'

/** For speed, and for tests of prepared transactions. The tests of crashes start a server of their own, with durability on. */
const SETTINGS = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  max_connections: '200',
  max_prepared_transactions: '10',
} as const

export type Source = () => Promise<TestServer | undefined>

export type Sources = Readonly<Record<'environment' | 'container' | 'embedded', Source>>

/** Tried in this order; the first that answers is used. Each takes no argument, so a test can call it alone. */
export const sources: Sources = {
  environment: async () => {
    const url = process.env['TEST_DATABASE_URL']
    return url ? { url, origin: 'TEST_DATABASE_URL', stop: async () => {} } : undefined
  },
  container: async () => {
    if (!(await dockerAnswers())) return undefined
    const { PostgreSqlContainer } = await import('@testcontainers/postgresql')
    const flags = Object.entries(SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const container = await new PostgreSqlContainer(IMAGE).withCommand(['postgres', ...flags]).start()
    return {
      url: container.getConnectionUri(),
      origin: `a container (testcontainers, ${IMAGE})`,
      stop: async () => {
        await container.stop()
      },
    }
  },
  embedded: async () => {
    // glibc overwrites freed memory, so a server that uses it crashes every time.
    process.env['MALLOC_PERTURB_'] ??= '165'
    const server = await startEmbeddedPostgres({ settings: SETTINGS })
    return { url: server.url, origin: `embedded-postgres on port ${server.port}`, stop: server.stop }
  },
}

/**
 * Finds a server. A Docker engine that answers may still be unable to start the image (offline, rate-limited, found only
 * through a context): that is said in one line, and the embedded server is used.
 *
 * @param say takes that line. @default console.warn
 */
export async function findServer(
  tried: Sources = sources,
  say: (line: string) => void = console.warn,
): Promise<TestServer> {
  const given = await tried.environment()
  if (given) return given
  const server = (await tried.container().catch(notStarted(say))) ?? (await tried.embedded())
  if (!server) throw new Error('No Postgres: set TEST_DATABASE_URL, start a Docker engine, or run `npm ci` again.')
  return server
}

function notStarted(say: (line: string) => void): (error: unknown) => undefined {
  return (error) => {
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).split('\n')
    say(`Docker answers, but ${IMAGE} did not start (${reason.trim()}). The embedded Postgres is used.`)
  }
}

async function dockerAnswers(): Promise<boolean> {
  try {
    await promisify(execFile)('docker', ['version', '--format', '{{.Server.Version}}'], { timeout: 5_000 })
    return true
  } catch {
    return false
  }
}
