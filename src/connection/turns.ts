import { AsyncLocalStorage } from 'node:async_hooks'
import type { QueryRunner } from 'typeorm'
import { type Hold, holdOthers, type Query } from './hold'
import { isPgClient } from './pg-client'

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
}

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
  await place.before
  let end = (): void => {}
  const ended = new Promise<void>((resolve) => (end = resolve))
  const turn: WholeTurn = { outer: wholeAround(queryRunner), ended }
  let hold: Hold | undefined
  try {
    const client = await connect()
    const holder = isPgClient(client) ? client : queryRunner
    hold = holdOthers(holder as unknown as { query: Query }, () => isInside(turn, queryRunner))
    await connect()
    if (isOwn) ownTransactions.set(queryRunner, turn)
    return await insideWhole.run(new Map([...(insideWhole.getStore() ?? []), [queryRunner, turn]]), run)
  } finally {
    if (isOwn) ownTransactions.delete(queryRunner)
    hold?.end()
    end()
    place.end()
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
