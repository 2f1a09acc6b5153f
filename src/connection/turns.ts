import { AsyncLocalStorage } from 'node:async_hooks'
import type { QueryRunner } from 'typeorm'
import { WaitsForItselfError } from '../errors'
import { type Hold, holdOthers, type HoldRules, type Query } from './hold'
import { patience } from './own-transactions'
import { isBusy, isPgClient } from './pg-client'
import { startTimer, stopTimer } from './real-timers'
import { commandsIn, Savepoints } from './savepoints'
import { savepointsOf } from './shared-connection'

/** By query runner, or by what stands for it inside a turn that is a whole call's: the last in the line. */
const turns = new WeakMap<object, Turn>()

/** A place in the line. */
export class Turn {
  private over: Promise<void> | undefined
  private tell: (() => void) | undefined

  constructor(
    private readonly line: object,
    /** Ends when it is ours; undefined where it is at once. */
    readonly before: Promise<void> | undefined,
  ) {}

  end(): void {
    if (turns.get(this.line) === this) turns.delete(this.line)
    this.tell?.()
  }

  /** Nearly always nobody waits, and a promise would cost every statement. */
  untilEnd(): Promise<void> {
    return (this.over ??= new Promise((resolve) => (this.tell = resolve)))
  }
}

/** A turn of several statements. */
interface WholeTurn {
  /** The turn that it is a part of. */
  readonly outer: WholeTurn | undefined
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
const underWay = new WeakMap<QueryRunner, WholeTurn>()

const insideWhole = new AsyncLocalStorage<ReadonlyMap<QueryRunner, WholeTurn>>()

const wholeAround = (queryRunner: QueryRunner): WholeTurn | undefined => insideWhole.getStore()?.get(queryRunner)

/** The code that asks was called in the turn, as a listener is. */
function isInside(turn: WholeTurn, queryRunner: QueryRunner): boolean {
  let around = wholeAround(queryRunner)
  while (around && around !== turn) around = around.outer
  return around !== undefined
}

/**
 * Stands in line behind the calls that came before on this query runner. Calls in parallel in one transaction share one
 * connection: without turns, the statement of one could fall between another's failed statement and its rollback to the
 * savepoint.
 */
export function takeTurn(queryRunner: QueryRunner): Turn {
  const line = wholeAround(queryRunner) ?? queryRunner
  const turn = new Turn(line, turns.get(line)?.untilEnd())
  turns.set(line, turn)
  return turn
}

/** The innermost turn under way that the code that asks was not called in; the turns around it are no better. */
function turnOfOthers(queryRunner: QueryRunner): WholeTurn | undefined {
  const turn = underWay.get(queryRunner)
  return turn && !isInside(turn, queryRunner) ? turn : undefined
}

/** By the savepoints of the connection: when the outermost turn began that the code that asks waits for the end of. */
export function beganOutside(queryRunner: QueryRunner): number | undefined {
  let began: number | undefined
  for (let turn = turnOfOthers(queryRunner); turn && !isInside(turn, queryRunner); turn = turn.outer) began = turn.began
  return began
}

/** A turn whose own code waits for what waits for the turn's end would never end. */
function isStuck(queryRunner: QueryRunner, since: number): boolean {
  const turn = underWay.get(queryRunner)
  if (!turn || turn.unanswered > 0 || isBusy(turn.client)) return false
  // Who comes when one has waited in vain already need not do so again.
  turn.stuck ||= performance.now() - Math.max(turn.heard, since) >= patience.milliseconds
  return turn.stuck
}

/** Calls `fail` once what waits does so in vain. @returns what ends the watch */
function watchWaiting(queryRunner: QueryRunner, fail: (error: Error) => void): () => void {
  const since = performance.now()
  let timer: NodeJS.Timeout
  const look = (): void => {
    if (isStuck(queryRunner, since)) fail(new WaitsForItselfError(BEHIND_TURN))
    else timer = startTimer(look, patience.lookMilliseconds)
  }
  timer = startTimer(look, patience.lookMilliseconds)
  return () => {
    stopTimer(timer)
  }
}

const BEHIND_TURN =
  `A statement has waited ${patience.milliseconds / 1_000} seconds for the end of a call that has the connection of its ` +
  'transaction to itself. The code that this call runs has sent nothing meanwhile: it seems to wait for the statement. ' +
  'Await the call before you send anything else, or send it from the code that the call runs. ' +
  'Code that is called through a queue, a mutex or an emitter needs AsyncResource.bind() there.'

/**
 * Waits for the end of a turn.
 *
 * @throws WaitsForItselfError where that never comes
 */
export async function inTime(queryRunner: QueryRunner, end: Promise<void>): Promise<void> {
  let stop = (): void => {}
  const inVain = new Promise<never>((_, reject) => (stop = watchWaiting(queryRunner, reject)))
  try {
    await Promise.race([end, inVain])
  } finally {
    stop()
  }
}

/** What a turn of several statements needs. */
interface WholeOptions {
  /** Gives the driver's client; throws where the connection is not ours to use any more. */
  readonly connect: () => Promise<unknown>
  /** The statements are a transaction of ours. */
  readonly ownTransaction: boolean
}

/** By query runner: our own transaction on it, which is not its caller's. */
const ownTransactions = new WeakMap<QueryRunner, WholeTurn>()

/**
 * Runs several statements in one turn: if they are rolled back together, the call or the statement of another between
 * them would be undone as well. Inside, also in listeners and subscribers, there are turns of their own.
 */
export async function inWholeTurn<T>(
  queryRunner: QueryRunner,
  { connect, ownTransaction: isOwn }: WholeOptions,
  run: () => Promise<T>,
): Promise<T> {
  const place = takeTurn(queryRunner)
  let end = (): void => {}
  const ended = new Promise<void>((resolve) => (end = resolve))
  const outer = wholeAround(queryRunner)
  const turn: WholeTurn = { outer, ended, began: 0, heard: 0, unanswered: 0, stuck: false, client: undefined }
  let hold: Hold | undefined
  try {
    if (place.before) await inTime(queryRunner, place.before)
    turn.client = await connect()
    turn.began = isOwn ? 0 : savepointsOf(queryRunner).now
    turn.heard = performance.now()
    const holder = isPgClient(turn.client) ? turn.client : queryRunner
    hold = holdOthers(holder as unknown as { query: Query }, rulesOf(turn, queryRunner, holder))
    await connect()
    underWay.set(queryRunner, turn)
    if (isOwn) ownTransactions.set(queryRunner, turn)
    return await insideWhole.run(new Map([...(insideWhole.getStore() ?? []), [queryRunner, turn]]), run)
  } finally {
    if (isOwn) ownTransactions.delete(queryRunner)
    if (outer && underWay.get(queryRunner) === turn) underWay.set(queryRunner, outer)
    else if (underWay.get(queryRunner) === turn) underWay.delete(queryRunner)
    hold?.end()
    end()
    place.end()
  }
}

function rulesOf(turn: WholeTurn, queryRunner: QueryRunner, holder: object): HoldRules {
  return {
    passes: () => isInside(turn, queryRunner),
    sends: () => {
      turn.unanswered += 1
      turn.stuck = false
      return () => {
        turn.unanswered -= 1
        turn.heard = performance.now()
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
