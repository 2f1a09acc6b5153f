import { execFile, execFileSync } from 'node:child_process'
import { accessSync, constants, existsSync, readdirSync } from 'node:fs'
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

/** Where Debian and its kin put the programs of each major version. */
const VERSIONS = '/usr/lib/postgresql'

/** The folder of a whole installation of Postgres, which the one from npm is not: it has no `pg_basebackup`. */
export function wholePostgres(): string | undefined {
  const folders = existsSync(VERSIONS) ? readdirSync(VERSIONS).map((name) => path.join(VERSIONS, name, 'bin')) : []
  return folders.findLast((folder) => existsSync(path.join(folder, 'pg_basebackup')))
}

/** The path of a program, if it is installed. */
export const programPath = (name: string): string | undefined =>
  [...(process.env['PATH'] ?? '').split(path.delimiter), '/usr/sbin']
    .map((folder) => path.join(folder, name))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK)
        return true
      } catch {
        return false
      }
    })

/** Whom servers run as: they refuse to run as root. */
export function serverIdentity(): { readonly uid?: number; readonly gid?: number } {
  if (process.getuid?.() !== 0) return {}
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}

/** A new folder that belongs to the servers' user. */
export async function serverFolder(name: string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), name))
  const { uid, gid } = serverIdentity()
  await chmod(folder, 0o755)
  if (uid !== undefined && gid !== undefined) await chown(folder, uid, gid)
  return folder
}

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Two servers of which the second follows the first, and has what the first has acknowledged. */
export interface Pair {
  readonly primaryUrl: string
  readonly standbyUrl: string
  /** `immediate` stop of the first: what it had not yet sent is lost with it. */
  stopPrimary(): Promise<void>
  /** Resolves when the second takes writes. */
  promote(): Promise<void>
  remove(): Promise<void>
}

/** @param bin the folder of a whole installation */
export async function startPair(bin: string): Promise<Pair> {
  const folder = await serverFolder('unique-text-pair-')
  const run = async (program: string, args: readonly string[]): Promise<void> => {
    // pg_ctl leaves the server its output, which must not keep us from ending.
    const options = { ...serverIdentity(), cwd: folder }
    await promisify(execFile)(
      'sh',
      ['-c', `exec "$0" "$@" > /dev/null 2>> log`, path.join(bin, program), ...args],
      options,
    )
  }
  const places = [
    { data: path.join(folder, 'primary'), port: await freePort() },
    { data: path.join(folder, 'standby'), port: await freePort() },
  ] as const
  const [primary, standby] = places
  const start = async ({ data, port }: (typeof places)[number], settings = ''): Promise<void> => {
    const flags = `-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' ${settings}`
    await run('pg_ctl', ['-D', data, '-w', '-o', flags, 'start'])
  }
  const url = ({ port }: { readonly port: number }): string =>
    `postgres://postgres@127.0.0.1:${port}/postgres?sslmode=disable`
  await run('initdb', ['-D', primary.data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C'])
  // Nothing is acknowledged that the standby has not got: without this setting the last rows may be lost.
  await start(primary, `-c synchronous_standby_names=*`)
  await run('pg_basebackup', ['-d', url(primary), '-D', standby.data, '-R', '-X', 'stream'])
  await start(standby)
  return {
    primaryUrl: url(primary),
    standbyUrl: url(standby),
    stopPrimary: async () => await run('pg_ctl', ['-D', primary.data, '-w', '-m', 'immediate', 'stop']),
    promote: async () => await run('pg_ctl', ['-D', standby.data, '-w', 'promote']),
    remove: async () => {
      for (const { data } of places) await run('pg_ctl', ['-D', data, '-m', 'immediate', 'stop']).catch(() => {})
      await rm(folder, { recursive: true })
    },
  }
}

/** A server of its own, beside the programs of its version. */
export async function startServer(bin: string): Promise<{ readonly url: string; remove(): Promise<void> }> {
  const folder = await serverFolder('unique-text-server-')
  const [data, port] = [path.join(folder, 'data'), await freePort()]
  const run = async (line: string): Promise<unknown> =>
    await promisify(execFile)('sh', ['-c', `PATH="${bin}:$PATH"; ${line} >> log 2>&1`], {
      ...serverIdentity(),
      cwd: folder,
    })
  await run(`initdb -D ${data} -U postgres -A trust -E UTF8 --locale=C`)
  await run(
    `pg_ctl -D ${data} -w -o "-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c wal_level=logical" start`,
  )
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    remove: async () => {
      await run(`pg_ctl -D ${data} -m immediate stop`).catch(() => {})
      await rm(folder, { recursive: true })
    },
  }
}
