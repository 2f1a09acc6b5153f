import { type ChildProcess, spawn } from 'node:child_process'
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Client } from 'pg'
import { afterAll, beforeAll } from 'vitest'
import { startEmbeddedPostgres } from '../../scripts/embedded-postgres'

/** A server of a test's own, with durability on, that can be killed and started again on its port. */
export interface FaultServer {
  readonly url: string
  readonly port: number
  readonly dataFolder: string
  /** Whom its processes belong to, for `spawn`; empty where it is who runs the tests. */
  readonly user: { readonly uid?: number; readonly gid?: number }
  /** Of the postmaster; another one after every start. */
  pid(): number
  /** What the server has logged so far. */
  log(): string
  start(settings?: Readonly<Record<string, string>>): Promise<void>
  /** Starts as a hot standby, which `pg_promote()` ends. */
  standBy(): Promise<void>
  /** Backends that serve clients. */
  backends(): Promise<number[]>
  /** All processes of the server but the postmaster. */
  children(): Promise<number[]>
  /** `kill -9` of the postmaster and all its children, none of which can react. */
  kill(): Promise<void>
  /** `fast` rolls back what is open; `immediate` leaves it to recovery. */
  stop(mode?: 'fast' | 'immediate'): Promise<void>
  /** A connected client, closed when the server is removed. */
  client(): Promise<Client>
}

export interface FaultServerOptions {
  /** Where the data folder is made. @default a new folder below the temp folder, removed after the tests */
  readonly parent?: string
  /** `-c` settings of every start. @default {} */
  readonly settings?: Readonly<Record<string, string>>
}

/** An acknowledged commit must have reached the disk: the whole point of these tests. */
const DURABLE = { fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on', restart_after_crash: 'on' } as const

/** Call it in a test file or a `describe`: the server is started before the tests and removed after them. */
export function useFaultServer(options: FaultServerOptions = {}): () => FaultServer {
  let started: Awaited<ReturnType<typeof startFaultServer>> | undefined
  beforeAll(async () => {
    started = await startFaultServer(options)
  })
  afterAll(async () => await started?.remove())
  return () => {
    if (!started) throw new Error('The server is started before the tests, not before that.')
    return started
  }
}

async function startFaultServer(options: FaultServerOptions): Promise<FaultServer & { remove(): Promise<void> }> {
  const parent = options.parent ?? (await openFolder())
  const { url, port, dataFolder, command } = await initialise(parent)
  const { uid, gid } = await stat(dataFolder)
  const user = process.getuid?.() === 0 ? { uid, gid } : {}
  const clients: Client[] = []
  let log = ''
  let server: ChildProcess | undefined
  let ended: Promise<void> = Promise.resolve()

  const running = (): ChildProcess & { pid: number } => {
    if (!server?.pid) throw new Error('The server does not run.')
    return server as ChildProcess & { pid: number }
  }
  const start = async (settings: Readonly<Record<string, string>> = {}): Promise<void> => {
    const all = { ...DURABLE, listen_addresses: '127.0.0.1', unix_socket_directories: '', ...options.settings }
    const flags = Object.entries({ ...all, ...settings }).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const child = spawn(command, ['-D', dataFolder, '-p', String(port), ...flags], {
      ...user,
      env: { ...process.env, LC_MESSAGES: 'C' },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    server = child
    ended = new Promise((resolve) => child.once('close', () => resolve()))
    const from = log.length
    await new Promise<void>((resolve, reject) => {
      child.once('close', () => reject(new Error(`The server ended:\n${log.slice(from)}`)))
      child.stderr.on('data', (data: Buffer) => {
        log += data.toString('utf8')
        if (/ready to accept (?:read-only )?connections/.test(log.slice(from))) resolve()
      })
    })
  }
  const stop = async (mode: 'fast' | 'immediate' = 'fast'): Promise<void> => {
    server?.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT')
    await ended
  }

  await start()
  // Where the run is ended from outside, no hook runs; the server must not outlive it.
  const last = (): void => {
    server?.kill('SIGQUIT')
  }
  process.once('exit', last)
  return {
    remove: async () => {
      await Promise.all(clients.map((client) => client.end()))
      await stop('immediate')
      process.off('exit', last)
      await rm(options.parent === undefined ? parent : dataFolder, { recursive: true, force: true })
    },
    url,
    port,
    dataFolder,
    user,
    pid: () => running().pid,
    log: () => log,
    start,
    stop,
    standBy: async () => {
      await writeFile(path.join(dataFolder, 'standby.signal'), '')
      await start()
    },
    children: async () => await childrenOf(running().pid),
    backends: async () => {
      const children = await childrenOf(running().pid)
      const titles = await Promise.all(children.map(async (child) => await titleOf(child)))
      return children.filter((_, place) => titles[place]?.startsWith('postgres: postgres '))
    },
    kill: async () => {
      // Stopped first, so that it forks nothing between the look at its children and their end.
      const { pid } = running()
      process.kill(pid, 'SIGSTOP')
      for (const child of [...(await childrenOf(pid)), pid]) process.kill(child, 'SIGKILL')
      await ended
    },
    client: async () => {
      const client = new Client({ connectionString: url })
      client.on('error', () => {})
      await client.connect()
      clients.push(client)
      return client
    },
  }
}

/** A temporary folder that the server's user can enter. */
export async function openFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'unique-text-faults-'))
  await chmod(folder, 0o755)
  return folder
}

/** embedded-postgres makes the data folder; it waits for ever for a server that it did not end itself. */
async function initialise(parent: string): Promise<{ url: string; port: number; dataFolder: string; command: string }> {
  const server = await startEmbeddedPostgres({ dataFolder: path.join(parent, 'data') })
  const { url, port, dataFolder } = server
  const started = await readFile(path.join(dataFolder, 'postmaster.opts'), 'utf8')
  await server.stop()
  const command = started.split(' "')[0]?.trim()
  if (!command) throw new Error(`No command in postmaster.opts: ${started}`)
  return { url, port, dataFolder, command }
}

/** From /proc, for a container may have no `ps`. */
async function childrenOf(pid: number): Promise<number[]> {
  const all = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const parents = await Promise.all(all.map(async (one) => await parentOf(one)))
  return all.filter((_, place) => parents[place] === pid)
}

async function parentOf(pid: number): Promise<number | undefined> {
  try {
    // The command in parentheses may hold anything; the parent is the second field after it.
    return Number((await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) . /s, '').split(' ')[0])
  } catch {
    return undefined
  }
}

/** What the process calls itself; '' where it has ended meanwhile. */
async function titleOf(pid: number): Promise<string> {
  return await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
}
