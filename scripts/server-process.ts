import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { chmod, chown, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findBinaries } from './server-binaries'
import { OWN_SERVER, serverUser } from './server-home'

/** A server on a data folder; not necessarily one of ours. */
export interface ServerProcess {
  readonly pid: number
  readonly port: number
}

const POLL_MILLISECONDS = 20
const START_SECONDS = 60
const STOP_SECONDS = 5
const LOG_CHARACTERS_SHOWN = 2_000
const PORTS_TRIED = 3

/**
 * Makes a data folder, unless there is one. Several processes may do so at once: the first one's stays.
 *
 * @throws the system's error if its place cannot be written to
 */
export async function makeDataFolder(dataFolder: string): Promise<void> {
  if (isDataFolder(dataFolder)) {
    if (existsSync(passwordFile(dataFolder))) return
    throw new Error(`${dataFolder} was made by an older version of this repository. Remove it and start again.`)
  }
  const making = `${dataFolder}.${process.pid}.${randomBytes(4).toString('hex')}`
  try {
    await makeOwn(making)
    await initialise(making)
    await rename(making, dataFolder)
  } catch (error) {
    if (!isDataFolder(dataFolder)) throw error
  } finally {
    await rm(making, { recursive: true, force: true }).catch(() => {})
  }
}

const isDataFolder = (folder: string): boolean => existsSync(path.join(folder, 'PG_VERSION'))

async function makeOwn(folder: string): Promise<void> {
  const parent = path.dirname(folder)
  // The server's user must enter it, whatever the umask of root is.
  if (await mkdir(parent, { recursive: true })) await chmod(parent, 0o755)
  await mkdir(folder)
  const user = serverUser()
  if (!user) return
  await chown(folder, user.uid, user.gid).catch((error: unknown) => {
    throw explainStart(error, 'Postgres')
  })
}

/** Its password is in the folder itself, so that each has its own, and both appear at once. */
async function initialise(folder: string): Promise<void> {
  const { initdb } = await findBinaries()
  const user = serverUser()
  const file = `${folder}.password`
  await writeFile(file, randomBytes(24).toString('base64url'), { mode: 0o600, flag: 'wx' })
  try {
    if (user) await chown(file, user.uid, user.gid)
    const cluster = [`--pgdata=${folder}`, '--username=postgres', `--pwfile=${file}`, '--auth=scram-sha-256']
    // Without LANG initdb would choose SQL_ASCII, whose md5() sees other bytes than ours.
    const all = [...cluster, '--encoding=UTF8', '--locale=C']
    await promisify(execFile)(initdb, all, { ...user }).catch((error: unknown) => {
      throw explainStart(error, initdb)
    })
    await rename(file, passwordFile(folder))
  } finally {
    await rm(file, { force: true })
  }
}

/** Why the system did not start a program that is there, where its error does not say it. */
const NOT_STARTED: Readonly<Record<string, string>> = {
  ENOENT: 'this system has not what it is linked with: the binaries from npm are for glibc, and Alpine has musl',
  EACCES: 'no program may be run from its folder, which may be mounted noexec; TMPDIR can name another',
  EINVAL: 'the user "postgres" is not known in this user namespace, and Postgres does not run as root',
  EPERM: 'this process may not become the user "postgres", and Postgres does not run as root',
}

/** @returns the error itself, where the program ran */
export function explainStart(error: unknown, program: string): unknown {
  const { code = '', syscall = '' } = error as NodeJS.ErrnoException
  const reason = NOT_STARTED[code]
  if (reason === undefined || !/^(?:spawn|chown)/.test(syscall)) return error
  return new Error(`Cannot run ${program} (${code}): ${reason}. ${OWN_SERVER}`, { cause: error })
}

const passwordFile = (dataFolder: string): string => path.join(dataFolder, 'unique-text-password')

/** Connection string of the database `postgres`, as a superuser. It says what PGSSLMODE would say otherwise. */
export async function urlOf(dataFolder: string, port: number): Promise<string> {
  const password = await readFile(passwordFile(dataFolder), 'utf8')
  return `postgres://postgres:${password}@127.0.0.1:${port}/postgres?sslmode=disable`
}

/**
 * Starts a server. It is detached, for Ctrl-C in a terminal would reach it, and it may be needed by others.
 *
 * @returns undefined if another server holds the data folder
 * @throws Error with the server's own words if it does not start
 */
export async function startServer(
  dataFolder: string,
  settings: Readonly<Record<string, string>>,
): Promise<ServerProcess | undefined> {
  const { postgres } = await findBinaries()
  const logFile = path.join(dataFolder, 'unique-text-server.log')
  for (let tried = 1; ; tried += 1) {
    const port = await freePort()
    const flags = Object.entries({ listen_addresses: '127.0.0.1', unix_socket_directories: '', ...settings, port })
    const log = await open(logFile, 'w')
    const child = spawn(postgres, ['-D', dataFolder, ...flags.flatMap(([name, value]) => ['-c', `${name}=${value}`])], {
      ...serverUser(),
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
    })
    child.on('error', () => {})
    child.unref()
    await log.close()
    if (await becomesReady(child, dataFolder)) return { pid: child.pid ?? 0, port }
    if (runningServer(dataFolder)) return undefined
    // Another process may have taken the port meanwhile.
    if (tried < PORTS_TRIED) continue
    const words = (await readFile(logFile, 'utf8').catch(() => '')).slice(-LOG_CHARACTERS_SHOWN)
    throw new Error(`The embedded Postgres did not start in ${dataFolder}:\n${words}`)
  }
}

async function becomesReady(child: ChildProcess, dataFolder: string): Promise<boolean> {
  for (let waited = 0; waited < START_SECONDS * 1_000; waited += POLL_MILLISECONDS) {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return false
    const running = runningServer(dataFolder)
    if (running?.pid === child.pid && running.ready) return true
    await sleep(POLL_MILLISECONDS)
  }
  child.kill('SIGKILL')
  return false
}

/** The server that the data folder's lock file names, if its process lives. */
export function runningServer(dataFolder: string): (ServerProcess & { readonly ready: boolean }) | undefined {
  let lines: string[]
  try {
    lines = readFileSync(path.join(dataFolder, 'postmaster.pid'), 'utf8').split('\n')
  } catch {
    return undefined
  }
  // https://www.postgresql.org/docs/current/storage-file-layout.html: pid, folder, time, port, …, status.
  const [pid, port] = [Number(lines[0]), Number(lines[3])]
  return pid && isAlive(pid) ? { pid, port, ready: lines[7]?.trim() === 'ready' } : undefined
}

/** Whether a process with this id exists. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Ends what clients are doing, and waits for the end of the server. It may have ended by itself. */
export async function stopServer(dataFolder: string, { pid }: ServerProcess): Promise<void> {
  const holds = (): boolean => runningServer(dataFolder)?.pid === pid
  if (holds()) signal(pid)
  while (holds()) await sleep(POLL_MILLISECONDS)
}

/** The same for a process that is about to exit: it blocks, and not for ever. */
export function stopServerNow(dataFolder: string, { pid }: ServerProcess): void {
  const holds = (): boolean => runningServer(dataFolder)?.pid === pid
  if (holds()) signal(pid)
  const clock = new Int32Array(new SharedArrayBuffer(4))
  for (let waited = 0; holds() && waited < STOP_SECONDS * 1_000; waited += POLL_MILLISECONDS) {
    Atomics.wait(clock, 0, 0, POLL_MILLISECONDS)
  }
}

/** "Fast": rolls back what is open. */
function signal(pid: number): void {
  try {
    process.kill(pid, 'SIGINT')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => (address && typeof address === 'object' ? resolve(address.port) : reject(new Error('no port'))))
    })
  })
}
