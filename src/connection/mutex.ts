import { AsyncLocalStorage } from 'node:async_hooks'
import type { QueryRunner } from 'typeorm'
import { WaitsForItselfError } from '../errors'
import { type ClientQuery, type Exclusive, type ExclusiveRules, useExclusively } from './exclusive'
import { patience } from './own-transactions'
import { isBusy, isPgClient } from './pg-client'
import { startTimer, stopTimer } from './real-timers'
import { commandsIn, Savepoints, savepointsOf } from './shared-connection'

/** By mutex, which is a query runner or, inside a section, that section: the last lock in its queue. */
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
  /** By the savepoints of its connection. */
  began: number
  /** By the clock of this process: when something of it was sent, or answered. */
  heard: number
  /** So many statements of it are not answered yet. */
  unanswered: number
  /** Something has waited for it in vain since then. */
  stuck: boolean
  client: unknown
}

/** By query runner: the innermost that is under way. */
const underWay = new WeakMap<QueryRunner, Section>()

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

/** The innermost open section that the calling code does not run in; the sections around it are no better. */
function sectionOfOthers(queryRunner: QueryRunner): Section | undefined {
  const section = underWay.get(queryRunner)
  return section && !isInside(section, queryRunner) ? section : undefined
}

/** By the savepoints of the connection: when the outermost section began whose end the calling code waits for. */
export function beganOutside(queryRunner: QueryRunner): number | undefined {
  let began: number | undefined
  for (let section = sectionOfOthers(queryRunner); section && !isInside(section, queryRunner); section = section.outer)
    began = section.began
  return began
}

/** A section whose own code waits for what waits for the section's end would never end. */
function isStuck(queryRunner: QueryRunner, since: number): boolean {
  const section = underWay.get(queryRunner)
  if (!section || section.unanswered > 0 || isBusy(section.client)) return false
  // Who comes when one has waited in vain already need not do so again.
  section.stuck ||= performance.now() - Math.max(section.heard, since) >= patience.milliseconds
  return section.stuck
}

/** Calls `fail` once what waits does so in vain. @returns what ends the watch */
function watchWaiting(queryRunner: QueryRunner, fail: (error: Error) => void): () => void {
  const since = performance.now()
  let timer: NodeJS.Timeout
  const look = (): void => {
    if (isStuck(queryRunner, since)) fail(new WaitsForItselfError(BEHIND_SECTION))
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

/** What a section needs. */
interface SectionOptions {
  /** Gives the driver's client; throws where the connection is not ours to use any more. */
  readonly connect: () => Promise<unknown>
  /** The statements are a transaction of ours. */
  readonly ownTransaction: boolean
}

/** By query runner: our own transaction on it, which is not its caller's. */
const ownTransactions = new WeakMap<QueryRunner, Section>()

/**
 * Runs several statements in one section: if they are rolled back together, the call or the statement of another
 * between them would be undone as well. Inside, also in listeners and subscribers, each has sections of its own.
 */
export async function inSection<T>(
  queryRunner: QueryRunner,
  { connect, ownTransaction: isOwn }: SectionOptions,
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
    exclusive = useExclusively(holder as unknown as { query: ClientQuery }, rulesOf(section, queryRunner, holder))
    await connect()
    underWay.set(queryRunner, section)
    if (isOwn) ownTransactions.set(queryRunner, section)
    return await openSections.run(new Map([...(openSections.getStore() ?? []), [queryRunner, section]]), run)
  } finally {
    if (isOwn) ownTransactions.delete(queryRunner)
    if (outer && underWay.get(queryRunner) === section) underWay.set(queryRunner, outer)
    else if (underWay.get(queryRunner) === section) underWay.delete(queryRunner)
    exclusive?.end()
    end()
    lock.release()
  }
}

function rulesOf(section: Section, queryRunner: QueryRunner, holder: object): ExclusiveRules {
  return {
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
