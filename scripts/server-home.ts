import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, lstatSync, mkdirSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

/**
 * Postgres refuses to run as root, so for root it runs as another user, who cannot enter a closed folder such as
 * `/root`. What would lie in one is kept in this home of the server instead: a copy of the binaries, and the data.
 */
const serverHome = path.join(tmpdir(), 'typeorm-unique-text')

const isRoot = (): boolean => process.getuid?.() === 0

/** The user that the server runs as, for `spawn` and `chown`. */
export interface ServerUser {
  readonly uid: number
  readonly gid: number
}

/** The last advice of every error about the embedded server. */
export const OWN_SERVER =
  'Or set DATABASE_URL (for npm start) or TEST_DATABASE_URL (for npm test) to a server of yours.'

/**
 * The user `postgres`, made if there is none, when we are root; undefined when the server can run as ourselves.
 *
 * @throws Error that says what to do if that user can neither be found nor made
 */
export function serverUser(): ServerUser | undefined {
  if (!isRoot()) return undefined
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'postgres'], { stdio: 'pipe' }))
  try {
    return { uid: id('-u'), gid: id('-g') }
  } catch {
    makeUser()
    return { uid: id('-u'), gid: id('-g') }
  }
}

function makeUser(): void {
  const options = ['--system', '--user-group', '--no-create-home', '--shell', '/usr/sbin/nologin']
  try {
    execFileSync('useradd', [...options, 'postgres'], { stdio: 'pipe' })
  } catch (error) {
    throw new Error(
      'Postgres does not run as root, there is no user "postgres", and useradd did not make it. ' +
        `Make that user, or run this as another user than root. ${OWN_SERVER}`,
      { cause: error },
    )
  }
  console.warn('Postgres does not run as root: the system user "postgres" was made, which has no login.')
}

/** The folder itself, or one in the server's home if the server's user could not enter it. */
export function reachableFolder(folder: string): string {
  return isReachable(path.dirname(folder)) ? folder : inServerHome(folder.replaceAll(/[^\w.-]+/g, '_'))
}

/** Whether the server's user may enter every folder down to this one. */
export function isReachable(folder: string): boolean {
  return !isRoot() || enterable(folder)
}

/** A path in the server's home, which is made if there is none. */
export function inServerHome(name: string): string {
  openServerHome()
  return path.join(serverHome, name)
}

/** For a user who owns nothing on the way. */
function enterable(folder: string): boolean {
  const parent = path.dirname(folder)
  const passable = !existsSync(folder) || (statSync(folder).mode & 0o001) !== 0
  return passable && (parent === folder || enterable(parent))
}

/**
 * The temp folder is everyone's, and root will run code from the server's home: so that must be our own.
 *
 * @throws Error with what to do instead
 */
function openServerHome(): void {
  const advice = 'Set DATABASE_URL (or TEST_DATABASE_URL), or move the clone to a folder that every user may enter.'
  if (!isReachable(path.dirname(serverHome))) {
    throw new Error(`Postgres cannot run as root, and no other user may enter ${path.dirname(serverHome)}. ${advice}`)
  }
  if (!existsSync(serverHome)) {
    mkdirSync(serverHome)
    chmodSync(serverHome, 0o755)
  }
  const stat = lstatSync(serverHome)
  if (stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o022) === 0) return
  throw new Error(`${serverHome} belongs to someone else, so nothing is run from it. Remove it. ${advice}`)
}
