import { AsyncLocalStorage } from 'node:async_hooks'
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises'
import type { DataSource, QueryRunner } from 'typeorm'
import { WaitsForItselfError } from '../errors'
import { type OpenTransaction, openTransaction } from '../registry/registry'
import { cancelWaiting } from '../sql/transaction-commands'
import {
  type ClientQuery,
  commandsIn,
  type Exclusive,
  orRollBack,
  Savepoints,
  savepointsOf,
  useExclusively,
} from './shared-connection'
import { hasSpare, isBusy, isPgClient, type PgClient, pgClientOf } from './wire'

/**
 * How long a statement waits for a transaction that sends nothing: longer than any lock, shorter than a person's
 * patience. And how often it looks meanwhile. Only tests set another limit.
 */
export const patience = { milliseconds: 5_000, lookMilliseconds: 250 }

/**
 * Whether a statement may wait for a transaction that the call was made in, and that goes by another connection.
 *
 * @param queryRunner whose connection it goes by. @default one from the pool
 */
export function mayWaitForItself(queryRunner?: QueryRunner): boolean {
  const around = openTransaction()
  return around !== undefined && (around.queryRunner !== queryRunner || around.outer !== undefined)
}

/**
 * Sends a statement that may wait for rows of a transaction in which the call was made, and which goes by another
 * connection: the server knows of no deadlock, for the transaction waits in this process. It costs nothing where there is
 * no such transaction.
 *
 * @throws WaitsForItselfError if the statement waits for the call itself
 */
export function orWaitsForItself<T>(dataSource: DataSource, client: PgClient, send: () => Promise<T>): Promise<T> {
  const transaction = openTransaction()
  return transaction ? sendWatching(dataSource, client, transaction, send) : send()
}

async function sendWatching<T>(
  dataSource: DataSource,
  client: PgClient,
  innermost: OpenTransaction,
  send: () => Promise<T>,
): Promise<T> {
  const since = performance.now()
  let timer: NodeJS.Timeout | undefined
  let looking: Promise<boolean> | undefined
  const look = async (): Promise<void> => {
    // Transactions around the call that have sent nothing for a while.
    const quiet: OpenTransaction[] = []
    for (let one: OpenTransaction | undefined = innermost; one; one = one.outer)
      if (!one.isOver && performance.now() - Math.max(one.heard, since) >= patience.milliseconds) quiet.push(one)
    // Not cancelled also if there is no connection to ask.
    looking = tryCancel(dataSource, client, quiet).catch(() => false)
    if (!(await looking)) timer = startTimer(() => void look(), patience.lookMilliseconds)
  }
  timer = startTimer(() => void look(), patience.lookMilliseconds)
  try {
    return await send()
  } catch (error) {
    throw (await looking) === true ? new WaitsForItselfError(WITHOUT_MANAGER) : error
  } finally {
    // The answer must come before anybody else sends something by the client: otherwise that would be cancelled.
    await looking
    stopTimer(timer)
  }
}

const WITHOUT_MANAGER =
  `A call has waited ${patience.milliseconds / 1_000} seconds for rows that the transaction around it holds. That ` +
  'transaction uses another connection, and seems to wait for the call. Pass the manager that the transaction gives ' +
  'to its callback to every call inside it: findOrCreate(manager, …), once(manager, …), manager.withRepository(repository).'

/**
 * Cancels the statement of a client if it waits for one of the transactions.
 *
 * @returns whether it was cancelled
 */
async function tryCancel(
  dataSource: DataSource,
  client: PgClient,
  transactions: readonly OpenTransaction[],
): Promise<boolean> {
  const clients = await Promise.all(
    transactions.map(async ({ queryRunner }) =>
      pgClientOf(queryRunner.isTransactionActive ? await queryRunner.connect() : undefined),
    ),
  )
  const holders = clients.filter((one) => one !== undefined && one !== client && !isBusy(one))
  const [innermost] = holders
  const values = [client.processID, holders.map((one) => one?.processID)]
  if (!innermost || typeof client.processID !== 'number') return false
  // Uses the transaction's own connection only if there is no other and it answers: a failed transaction does not.
  if (hasSpare(dataSource)) return hasRows(await dataSource.query(cancelWaiting, values))
  if (innermost.getTransactionStatus?.() === 'E') return false
  const query = { text: cancelWaiting, values, rowMode: 'array' }
  return hasRows(await orRollBack(innermost, (send) => send(query) as Promise<{ readonly rows: readonly unknown[] }>))
}

/** TypeORM gives the rows, `pg` a result. */
const hasRows = (answer: unknown): boolean =>
  Array.isArray(answer) ? answer.length > 0 : (answer as { readonly rows: readonly unknown[] }).rows.length > 0

/** The last lock in the queue of a mutex, which is a query runner or, inside a section, that section. */
const lastLocks = new WeakMap<object, MutexLock>()

/** A lock of the mutex, or a place in its queue. */
class MutexLock {
  private over: Promise<void> | undefined
  private notify: (() => void) | undefined

  constructor(
    private readonly mutex: object,
    /** Ends when it is ours; undefined where it is at once. */
    readonly before: Promise<void> | undefined,
  ) {}

  release(): void {
    if (lastLocks.get(this.mutex) === this) lastLocks.delete(this.mutex)
    this.notify?.()
  }

  /** Nearly always nobody waits, and a promise would cost every statement. */
  untilReleased(): Promise<void> {
    return (this.over ??= new Promise((resolve) => (this.notify = resolve)))
  }
}

/** Several statements that hold the mutex together: a critical section. */
interface Section {
  /** The section that it is a part of. */
  readonly outer: Section | undefined
  readonly ended: Promise<void>
  /** When it began, by the savepoints of its connection. */
  began: number
  /** When something of it was sent, or answered, by the clock of this process. */
  heard: number
  /** So many statements of it are not answered yet. */
  unanswered: number
  /** Something has waited for it in vain since then. */
  stuck: boolean
  client: unknown
}

/** The innermost section that is under way, by query runner. */
const sectionsUnderWay = new WeakMap<QueryRunner, Section>()

const openSections = new AsyncLocalStorage<ReadonlyMap<QueryRunner, Section>>()

const sectionAround = (queryRunner: QueryRunner): Section | undefined => openSections.getStore()?.get(queryRunner)

/** The calling code runs inside the section, as a listener does. */
function isInside(section: Section, queryRunner: QueryRunner): boolean {
  let around = sectionAround(queryRunner)
  while (around && around !== section) around = around.outer
  return around !== undefined
}

/**
 * Locks the mutex of a query runner, behind the calls that came before. Calls in parallel in one transaction share one
 * connection: without a mutex, the statement of one could fall between another's failed statement and its rollback to
 * the savepoint.
 */
export function lockMutex(queryRunner: QueryRunner): MutexLock {
  const mutex = sectionAround(queryRunner) ?? queryRunner
  const lock = new MutexLock(mutex, lastLocks.get(mutex)?.untilReleased())
  lastLocks.set(mutex, lock)
  return lock
}

/** The calls that are under way in the transaction of a query runner. */
const callsUnderWay = new WeakMap<QueryRunner, Set<object>>()

/** Begins a call in the caller's transaction; savepoints that TypeORM sets later wait for it. @returns what ends it */
export function beginCall(queryRunner: QueryRunner): () => void {
  const known = callsUnderWay.get(queryRunner)
  const calls = known ?? new Set()
  if (!known) {
    callsUnderWay.set(queryRunner, calls)
    const start = queryRunner.startTransaction.bind(queryRunner)
    queryRunner.startTransaction = async (...args) => {
      const begun = queryRunner.isTransactionActive ? [...calls] : []
      // As long as calls that are under way use the connection. Between two statements of theirs they need no more than
      // a turn of the event loop, unless code of the user's runs, which may wait for what waits here.
      for (let isSending = true; isSending && begun.some((call) => calls.has(call));) {
        await loopTurn()
        const lock = lockMutex(queryRunner)
        isSending = lock.before !== undefined
        try {
          if (lock.before) await orStuck(queryRunner, lock.before)
        } finally {
          lock.release()
        }
      }
      await start(...args)
    }
  }
  const call = {}
  calls.add(call)
  return () => void calls.delete(call)
}

/**
 * Returns when the outermost section began whose end the calling code waits for, by the savepoints of the connection.
 * Such sections are open, and the calling code does not run in them.
 */
export function beganOutside(queryRunner: QueryRunner): number | undefined {
  let began: number | undefined
  let section = sectionsUnderWay.get(queryRunner)
  for (; section && !isInside(section, queryRunner); section = section.outer) began = section.began
  return began
}

/** Calls `fail` once what waits does so in vain. @returns what ends the watch */
function watchWaiting(queryRunner: QueryRunner, fail: (error: Error) => void): () => void {
  const since = performance.now()
  let timer: NodeJS.Timeout
  const isStuck = (): boolean => {
    const section = sectionsUnderWay.get(queryRunner)
    if (!section || section.unanswered > 0 || isBusy(section.client)) return false
    // Who comes when one has waited in vain already need not do so again.
    section.stuck ||= performance.now() - Math.max(section.heard, since) >= patience.milliseconds
    return section.stuck
  }
  const look = (): void => {
    // A section whose own code waits for what waits for the section's end would never end.
    if (isStuck()) fail(new WaitsForItselfError(BEHIND_SECTION))
    else timer = startTimer(look, patience.lookMilliseconds)
  }
  timer = startTimer(look, patience.lookMilliseconds)
  return () => {
    stopTimer(timer)
  }
}

const BEHIND_SECTION =
  `A statement has waited ${patience.milliseconds / 1_000} seconds for the end of a call that has the connection of its ` +
  'transaction to itself. The code that this call runs has sent nothing meanwhile: it seems to wait for the statement. ' +
  'Await the call before you send anything else, or send it from the code that the call runs. ' +
  'Code that is called through a queue, a mutex or an emitter needs AsyncResource.bind() there.'

/**
 * Waits for a lock to be released, or for a section to end.
 *
 * @throws WaitsForItselfError where that never comes
 */
export async function orStuck(queryRunner: QueryRunner, end: Promise<void>): Promise<void> {
  let stop = (): void => {}
  const inVain = new Promise<never>((_, reject) => (stop = watchWaiting(queryRunner, reject)))
  try {
    await Promise.race([end, inVain])
  } finally {
    stop()
  }
}

/** Our own transaction on a query runner, which is not its caller's. */
const ownTransactions = new WeakMap<QueryRunner, Section>()

/**
 * Runs several statements in one section: if they are rolled back together, the call or the statement of another
 * between them would be undone as well. Inside, also in listeners and subscribers, each has sections of its own.
 *
 * @param isOwn the statements are a transaction of ours
 * @param connect gives the driver's client; throws where the connection is not ours to use any more
 */
export async function inSection<T>(
  queryRunner: QueryRunner,
  isOwn: boolean,
  connect: () => Promise<unknown>,
  run: () => Promise<T>,
): Promise<T> {
  const lock = lockMutex(queryRunner)
  let end = (): void => {}
  const ended = new Promise<void>((resolve) => (end = resolve))
  const outer = sectionAround(queryRunner)
  const section: Section = { outer, ended, began: 0, heard: 0, unanswered: 0, stuck: false, client: undefined }
  let exclusive: Exclusive | undefined
  try {
    if (lock.before) await orStuck(queryRunner, lock.before)
    section.client = await connect()
    section.began = isOwn ? 0 : savepointsOf(queryRunner).now
    section.heard = performance.now()
    const holder = isPgClient(section.client) ? section.client : queryRunner
    exclusive = useExclusively(holder as unknown as { query: ClientQuery }, {
      passes: () => isInside(section, queryRunner),
      sends: () => {
        section.unanswered += 1
        section.stuck = false
        return () => {
          section.unanswered -= 1
          section.heard = performance.now()
        }
      },
      waits: (statement, fail) => {
        Savepoints.of(holder)?.await(commandsIn(statement))
        return watchWaiting(queryRunner, fail)
      },
    })
    await connect()
    sectionsUnderWay.set(queryRunner, section)
    if (isOwn) ownTransactions.set(queryRunner, section)
    return await openSections.run(new Map([...(openSections.getStore() ?? []), [queryRunner, section]]), run)
  } finally {
    if (isOwn) ownTransactions.delete(queryRunner)
    if (outer && sectionsUnderWay.get(queryRunner) === section) sectionsUnderWay.set(queryRunner, outer)
    else if (sectionsUnderWay.get(queryRunner) === section) sectionsUnderWay.delete(queryRunner)
    exclusive?.end()
    end()
    lock.release()
  }
}

/**
 * The end of a transaction that another call of ours has begun: it must not be taken for the caller's.
 *
 * @returns undefined where there is none
 */
export function untilOwnEnded(queryRunner: QueryRunner): Promise<void> | undefined {
  const own = ownTransactions.get(queryRunner)
  return own && !isInside(own, queryRunner) ? own.ended : undefined
}

/**
 * The timers of Node.js, as they were when this package was loaded. A user's test may replace the timers by fake ones
 * that fire only on demand: what the test awaits of ours would never come.
 */
export const nextTick: (callback: () => void) => void = process.nextTick.bind(process)
export const sleep: typeof wait = wait
const loopTurn: () => Promise<void> = turn
export const startTimer: typeof setTimeout = setTimeout
export const stopTimer: typeof clearTimeout = clearTimeout
