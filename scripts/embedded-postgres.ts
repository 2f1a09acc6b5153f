import { chmodSync, existsSync, rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { constants, tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import {
  makeDataFolder,
  runningServer,
  type ServerProcess,
  startServer,
  stopServer,
  stopServerNow,
  urlOf,
} from './server-process'
import { inServerHome, isReachable, reachableFolder } from './server-home'
import { ServerUsers } from './server-users'

/** A server of our own: real Postgres binaries that npm installed, listening on loopback. */
export interface EmbeddedServer extends ServerProcess {
  /** Connection string of the database `postgres`; its user is a superuser. The password is this data folder's own. */
  readonly url: string
  readonly dataFolder: string
  /** It ran already, for another command. */
  readonly shared: boolean
  /** Ends what clients are doing, unless other commands use the server. It may have ended by itself. */
  readonly stop: () => Promise<void>
}

export interface EmbeddedServerOptions {
  /**
   * Made on first use and kept; commands that use it at once share one server. A folder that the server's user cannot
   * reach is replaced by one below the temp folder. @default a temporary one, removed when the server stops
   */
  readonly dataFolder?: string
  /** `-c` settings of the server. @default {} */
  readonly settings?: Readonly<Record<string, string>>
  /** The caller stops the server on SIGINT. @default false: the process ends */
  readonly handlesSigint?: boolean
}

/**
 * Starts a server: as another user when we are root, for Postgres refuses to run as root. However this process ends, but
 * for SIGKILL, the server is stopped. From now on this process has none of the variables of libpq.
 *
 * @throws Error that says what to do if there are no binaries, or nothing can be written
 */
export async function startEmbeddedPostgres(options: EmbeddedServerOptions = {}): Promise<EmbeddedServer> {
  const { dataFolder, settings = {}, handlesSigint = false } = options
  forgetOtherServers()
  requireTempFolder()
  const { stopNow, ...server } =
    dataFolder === undefined
      ? await startTemporary(settings)
      : await joinServer(reachableFolder(path.resolve(dataFolder)), settings)
  const forget = atExit(stopNow, handlesSigint)
  return {
    ...server,
    stop: async () => {
      await server.stop()
      forget()
    },
  }
}

/**
 * Takes the variables of libpq (PGHOST, PGSSLMODE, PGOPTIONS and the others) out of this process's environment, and so
 * out of that of the processes it starts. They are about another server, and `pg` obeys them on every connection.
 */
function forgetOtherServers(): void {
  for (const name of Object.keys(process.env)) if (/^PG[A-Z]+$/u.test(name)) delete process.env[name]
}

function requireTempFolder(): void {
  if (!existsSync(tmpdir())) throw new Error(`${tmpdir()} is not there. Make it, or set TMPDIR to a folder that is.`)
}

interface StartedServer extends EmbeddedServer {
  /** For a process that exits and can wait for nothing. */
  readonly stopNow: () => void
}

async function startTemporary(settings: Readonly<Record<string, string>>): Promise<StartedServer> {
  const temp = tmpdir()
  const parent = await mkdtemp(isReachable(temp) ? path.join(temp, 'unique-text-postgres-') : inServerHome('data-'))
  chmodSync(parent, 0o755)
  const dataFolder = path.join(parent, 'data')
  try {
    await makeDataFolder(dataFolder)
    const server = await startServer(dataFolder, settings)
    if (!server) throw new Error(`Another server runs on ${dataFolder}.`)
    return {
      ...server,
      url: await urlOf(dataFolder, server.port),
      dataFolder,
      shared: false,
      stop: async () => {
        await stopServer(dataFolder, server)
        await rm(parent, { recursive: true, force: true })
      },
      stopNow: () => {
        stopServerNow(dataFolder, server)
        rmSync(parent, { recursive: true, force: true })
      },
    }
  } catch (error) {
    await rm(parent, { recursive: true, force: true })
    throw error
  }
}

async function joinServer(dataFolder: string, settings: Readonly<Record<string, string>>): Promise<StartedServer> {
  const users = new ServerUsers(dataFolder)
  try {
    await makeDataFolder(dataFolder)
    await users.join()
  } catch (error) {
    throw explained(error, path.dirname(dataFolder))
  }
  try {
    const { server, shared } = await findOrStart(dataFolder, settings)
    return {
      ...server,
      url: await urlOf(dataFolder, server.port),
      dataFolder,
      shared,
      stop: async () => {
        const end = users.leave()
        if (end) await stopServer(dataFolder, server).finally(end)
      },
      stopNow: () => {
        const end = users.leave()
        if (end) stopServerNow(dataFolder, server)
        end?.()
      },
    }
  } catch (error) {
    users.leave()?.()
    throw error
  }
}

const UNWRITABLE: ReadonlySet<unknown> = new Set(['EROFS', 'EACCES', 'EPERM', 'EEXIST', 'ENOTDIR', 'ENOSPC'])

function explained(error: unknown, folder: string): unknown {
  const { code } = error as NodeJS.ErrnoException
  if (!UNWRITABLE.has(code)) return error
  return new Error(
    `Cannot write to ${folder} (${code}), where the embedded Postgres keeps its data. ` +
      'Set DATABASE_URL, or move the clone to a folder that you may write to.',
    { cause: error },
  )
}

const ANSWER_SECONDS = 60

async function findOrStart(
  dataFolder: string,
  settings: Readonly<Record<string, string>>,
): Promise<{ server: ServerProcess; shared: boolean }> {
  for (let waited = 0; waited < ANSWER_SECONDS * 10; waited += 1) {
    const running = runningServer(dataFolder)
    if (running?.ready && (await answers(dataFolder, running))) return { server: running, shared: true }
    const started = running ? undefined : await startServer(dataFolder, settings)
    if (started) return { server: started, shared: false }
    // Another command's server starts or stops.
    await sleep(100)
  }
  throw new Error(
    `A process holds ${dataFolder} and does not answer. End it, or remove the folder, or set DATABASE_URL.`,
  )
}

/** A lock file that a killed server left behind may name another process by now. */
async function answers(dataFolder: string, { port }: ServerProcess): Promise<boolean> {
  const client = new Client({ connectionString: await urlOf(dataFolder, port), connectionTimeoutMillis: 5_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ folder: string }>(`select current_setting('data_directory') as folder`)
    return rows[0]?.folder === dataFolder
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

/** Runs `stop` when the process exits, by a signal too. */
function atExit(stop: () => void, handlesSigint: boolean): () => void {
  const signals = (['SIGHUP', 'SIGTERM', 'SIGINT'] as const).slice(0, handlesSigint ? 2 : 3)
  const exit = (name: (typeof signals)[number]): never => process.exit(128 + constants.signals[name])
  process.once('exit', stop)
  for (const name of signals) process.once(name, exit)
  return () => {
    process.removeListener('exit', stop)
    for (const name of signals) process.removeListener(name, exit)
  }
}
