import { AsyncLocalStorage } from 'node:async_hooks'
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises'
import type { DataSource, QueryRunner } from 'typeorm'
import { WaitsForItselfError } from '../errors'
import type { OpenTransaction } from '../registry/open-transactions'
import { cancelWaiting } from '../sql/transaction-commands'
import {
  commandsIn,
  type Exclusive,
  orRollBack,
  queryHolder,
  Savepoints,
  savepointsOf,
  useExclusively,
} from './shared-connection'
import { hasSpare, isBusy, isPgClient, type PgClient, pgClientOf } from './wire'

/**
 * How long a statement waits for a transaction that sends nothing: longer than any lock, shorter than a person's
 * patience. `lookMilliseconds` is the interval between checks. Only tests set other values.
 */
export const patience = { milliseconds: 5_000, lookMilliseconds: 250 }

/**
 * Sends a statement that may wait for rows of a transaction in which the call was made, and which uses another
 * connection. The server detects no deadlock, because the transaction waits in this process.
 *
 * @param innermost the transaction. Several may contain one another
 * @throws WaitsForItselfError if the statement waits for the call itself
 */
export async function orWaitsForItself<T>(
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
    // If no connection is available to ask, nothing is cancelled.
    looking = tryCancel(dataSource, client, quiet).catch(() => false)
    if (!(await looking)) timer = startTimer(() => void look(), patience.lookMilliseconds)
  }
  timer = startTimer(() => void look(), patience.lookMilliseconds)
  try {
    return await send()
  } catch (error) {
    throw (await looking) === true ? new WaitsForItselfError(WITHOUT_MANAGER) : error
  } finally {
    // The answer must arrive before other code sends a statement by the client, or that would be cancelled.
    await looking
    stopTimer(timer)
  }
}

const WITHOUT_MANAGER =
  `A call has waited ${patience.milliseconds / 1_000} seconds for rows that the transaction around it holds. That ` +
  'transaction uses another connection, and seems to wait for the call. Pass the manager that the transaction gives ' +
  'to its callback to every call inside it: findOrCreate(manager, …), once(manager, …), manager.withRepository(repository).'

/**
 * Cancels a client's statement if it waits for one of the transactions.
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
  // Uses the transaction's own connection only if there is no other, and if it is not aborted.
  if (hasSpare(dataSource)) return hasRows(await dataSource.query(cancelWaiting, values))
  if (innermost.getTransactionStatus?.() === 'E') return false
  const query = { text: cancelWaiting, values, rowMode: 'array' }
  return hasRows(await orRollBack(innermost, (send) => send(query) as Promise<{ readonly rows: readonly unknown[] }>))
}

/** TypeORM returns the rows, and `pg` a result. */
const hasRows = (answer: unknown): boolean =>
  Array.isArray(answer) ? answer.length > 0 : (answer as { readonly rows: readonly unknown[] }).rows.length > 0

/** The last lock in the queue of each mutex. A mutex is a query runner or, inside a section, that section. */
const lastLocks = new WeakMap<object, MutexLock>()

/** A lock of the mutex, or a place in its queue. */
class MutexLock {
  private over: Promise<void> | undefined
  private notify: (() => void) | undefined

  constructor(
    private readonly mutex: object,
    /** Resolves when the lock is ours. Undefined if it is ours at once. */
    readonly before: Promise<void> | undefined,
  ) {}

  release(): void {
    if (lastLocks.get(this.mutex) === this) lastLocks.delete(this.mutex)
    this.notify?.()
  }

  /** Nearly always nobody waits. A promise for each lock would slow every statement. */
  untilReleased(): Promise<void> {
    return (this.over ??= new Promise((resolve) => (this.notify = resolve)))
  }
}

/** Several statements that hold the mutex together: a critical section. */
interface Section {
  /** The section that contains this one. */
  readonly outer: Section | undefined
  readonly ended: Promise<void>
  /** When it began, as a count of the savepoints of its connection. */
  began: number
  /** When its last statement was sent or answered, on this process's clock. */
  heard: number
  /** The number of its statements that are not answered yet. */
  unanswered: number
  /** Whether a statement has waited for it in vain since `heard`. */
  stuck: boolean
  client: unknown
}

/** The innermost section that is under way, by query runner. */
const sectionsUnderWay = new WeakMap<QueryRunner, Section>()

const openSections = new AsyncLocalStorage<ReadonlyMap<QueryRunner, Section>>()

const sectionAround = (queryRunner: QueryRunner): Section | undefined => openSections.getStore()?.get(queryRunner)

/** Whether the calling code runs inside the section, as a listener does. */
function isInside(section: Section, queryRunner: QueryRunner): boolean {
  let around = sectionAround(queryRunner)
  while (around && around !== section) around = around.outer
  return around !== undefined
}

/**
 * Locks the mutex of a query runner, behind earlier calls. Parallel calls in one transaction share one connection.
 * Without a mutex, a statement of one call could run between another call's failed statement and its rollback to the
 * savepoint.
 */
export function lockMutex(queryRunner: QueryRunner): MutexLock {
  const mutex = sectionAround(queryRunner) ?? queryRunner
  const lock = new MutexLock(mutex, lastLocks.get(mutex)?.untilReleased())
  lastLocks.set(mutex, lock)
  return lock
}

/** The calls that are under way in the transaction of a query runner. */
const callsUnderWay = new WeakMap<QueryRunner, Set<object>>()

/** Begins a call in the caller's transaction. TypeORM's later savepoints wait for it. @returns a function to end it */
export function beginCall(queryRunner: QueryRunner): () => void {
  const known = callsUnderWay.get(queryRunner)
  const calls = known ?? new Set()
  if (!known) {
    callsUnderWay.set(queryRunner, calls)
    const start = queryRunner.startTransaction.bind(queryRunner)
    queryRunner.startTransaction = async (...args) => {
      const begun = queryRunner.isTransactionActive ? [...calls] : []
      // Waits as long as calls under way use the connection. Between two statements, a call needs at most one turn of
      // the event loop, unless the user's code runs. That code may wait for what waits here.
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
 * Returns when the outermost section began whose end the calling code waits for, as a count of the connection's
 * savepoints. Such sections are open, and the calling code does not run in them.
 */
export function beganOutside(queryRunner: QueryRunner): number | undefined {
  let began: number | undefined
  let section = sectionsUnderWay.get(queryRunner)
  for (; section && !isInside(section, queryRunner); section = section.outer) began = section.began
  return began
}

/** Calls `fail` once a statement waits in vain. @returns a function to end the watch */
function watchWaiting(queryRunner: QueryRunner, fail: (error: Error) => void): () => void {
  const since = performance.now()
  let timer: NodeJS.Timeout
  const isStuck = (): boolean => {
    const section = sectionsUnderWay.get(queryRunner)
    if (!section || section.unanswered > 0 || isBusy(section.client)) return false
    // If a statement has already waited in vain, a later one need not wait as long.
    section.stuck ||= performance.now() - Math.max(section.heard, since) >= patience.milliseconds
    return section.stuck
  }
  const look = (): void => {
    // If the section's own code waits for a statement that waits for the section's end, neither would end.
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
 * @throws WaitsForItselfError if that would never happen
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

/** Our own transactions on query runners. They are not the caller's. */
const ownTransactions = new WeakMap<QueryRunner, Section>()

/**
 * Runs several statements in one section. Other code's calls and statements between them would be undone if the section
 * is rolled back. Inside, also in listeners and subscribers, each call has its own section.
 *
 * @param isOwn whether the statements are a transaction of ours
 * @param connect returns the driver's client; throws if the connection is no longer ours to use
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
    exclusive = useExclusively(queryHolder(holder), {
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
 * Returns the end of a transaction that another call of ours has begun. It must not be mistaken for the caller's.
 *
 * @returns undefined if there is none
 */
export function untilOwnEnded(queryRunner: QueryRunner): Promise<void> | undefined {
  const own = ownTransactions.get(queryRunner)
  return own && !isInside(own, queryRunner) ? own.ended : undefined
}

/**
 * The timers of Node.js, as they were when this package was loaded. A user's test may replace the timers with fake
 * timers that fire only on demand. A test that awaits our work would then never end.
 */
export const nextTick: (callback: () => void) => void = process.nextTick.bind(process)
export const sleep: typeof wait = wait
const loopTurn: () => Promise<void> = turn
export const startTimer: typeof setTimeout = setTimeout
export const stopTimer: typeof clearTimeout = clearTimeout
