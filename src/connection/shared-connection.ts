import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks'
import type { QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { type Brackets, insideTransaction, ownTransaction, savepoint } from '../sql/statements'
import { registry } from '../typeorm/registry'
import { isPgClient, type PgClient } from './pg-client'

/** By query runner, or by what stands for it inside a turn that is a whole call's. */
const turns = new WeakMap<object, Promise<void>>()

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
 * Waits until the calls that came before on this query runner have had their turn; what it returns ends ours. Calls in
 * parallel in one transaction share one connection: without turns, the statement of one could fall between another's
 * failed statement and its rollback to the savepoint.
 */
export async function takeTurn(queryRunner: QueryRunner): Promise<() => void> {
  const key = wholeAround(queryRunner) ?? queryRunner
  const before = turns.get(key)
  let end = (): void => {}
  turns.set(key, new Promise((resolve) => (end = resolve)))
  await before
  return end
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
  const endTurn = await takeTurn(queryRunner)
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
    endTurn()
  }
}

/** Waits for the end of a transaction that another call of ours has begun: it must not be taken for the caller's. */
export async function untilOwnEnded(queryRunner: QueryRunner): Promise<void> {
  for (;;) {
    const own = ownTransactions.get(queryRunner)
    if (!own || isInside(own, queryRunner)) return
    await own.ended
  }
}

type Query = (...args: readonly unknown[]) => unknown

/**
 * Runs statements of which an error leaves the caller's transaction as it was before.
 *
 * @param client what others may send statements by meanwhile; they wait
 * @param run sends them by the function that it is given
 */
export async function orRollBack<T>(client: PgClient, run: (query: Query) => Promise<T>): Promise<T> {
  const hold = holdOthers(client as unknown as { query: Query })
  try {
    return await inBrackets(hold.query, savepoint, async () => await run(hold.query))
  } finally {
    hold.end()
  }
}

/** Sends `brackets` around statements, and keeps nobody from sending others. */
export async function inBrackets<T>(
  query: (sql: string) => unknown,
  brackets: Brackets,
  run: () => Promise<T>,
): Promise<T> {
  // One that may not have been set is not rolled back to: that would abort the transaction, or meet another one.
  await query(brackets.set)
  let done = false
  try {
    const result = await run()
    done = true
    await query(brackets.release)
    return result
  } catch (error) {
    // After 40001 and 40P01 too a savepoint can be rolled back to, but the snapshot is the same: the caller must retry.
    // On a connection that is gone the rollback fails as well; the first error says more. What is not released because
    // a listener has caught an error of the server is still there.
    if (!done || serverError(error)) await rollBack(query, brackets).catch(() => {})
    throw error
  }
}

/** Two statements for a savepoint, since not every driver takes two at once. */
async function rollBack(query: (sql: string) => unknown, { rollBack: back, release }: Brackets): Promise<void> {
  await query(back)
  if (release !== ownTransaction.release) await query(release)
}

/** Answers nobody but us. */
interface Hold {
  readonly query: Query
  /** Sends what others have asked meanwhile, in their order. */
  readonly end: () => void
}

/**
 * Keeps every statement but ours from the connection: one of the caller's own between our savepoint and a rollback to
 * it would be undone, although the caller was told that it was done.
 *
 * @param passes whether the code that sends a statement may. @default nobody's
 */
function holdOthers(holder: { query: Query }, passes: () => boolean = () => false): Hold {
  const { query } = holder
  const own = Object.hasOwn(holder, 'query')
  const waiting: (() => void)[] = []
  let ended = false
  const held: Query = (...args) => {
    const now = (): unknown => query.apply(holder, [...args])
    const [first] = args
    // What it refuses, it refuses at once.
    if (ended || first === null || first === undefined || passes()) return now()
    const submittable = typeof first === 'object' && 'submit' in first
    if (!submittable && !args.some(isCallback)) {
      return new Promise((resolve, reject) => {
        const send = (): void => {
          try {
            resolve(now())
          } catch (error) {
            reject(error)
          }
        }
        // As whoever sent it: it may have to wait for the end of a turn around ours.
        waiting.push(AsyncResource.bind(send))
      })
    }
    waiting.push(AsyncResource.bind(() => void now()))
    return submittable ? first : undefined
  }
  holder.query = held
  return {
    query: query.bind(holder),
    end: () => {
      ended = true
      // Somebody may have put another in front of ours meanwhile, which stays and calls it.
      if (holder.query === held && own) holder.query = query
      else if (holder.query === held) Reflect.deleteProperty(holder, 'query')
      for (const send of waiting) send()
    },
  }
}

const isCallback = (argument: unknown): boolean =>
  typeof argument === 'function' ||
  (typeof argument === 'object' &&
    argument !== null &&
    'callback' in argument &&
    typeof argument.callback === 'function')

const watched = new WeakMap<QueryRunner, object>()
const losses = new WeakMap<object, { error?: Error }>()

/** TypeORM releases a query runner whose connection is lost, and forgets why; the caller should hear it (25P03, 57P01). */
export function watchForLoss(queryRunner: QueryRunner, client: PgClient): void {
  watched.set(queryRunner, client)
  if (losses.has(client)) return
  const loss: { error?: Error } = {}
  losses.set(client, loss)
  client.once('error', (error) => (loss.error = error))
}

export function lossOf(queryRunner: QueryRunner): Error | undefined {
  const client = watched.get(queryRunner)
  return client && losses.get(client)?.error
}

/** A transaction that the caller began by SQL, which TypeORM does not count. */
export async function isInRawTransaction(queryRunner: QueryRunner): Promise<boolean> {
  if (queryRunner.isReleased) return false
  const client: unknown = await queryRunner.connect()
  const status = isPgClient(client) ? client.getTransactionStatus?.() : undefined
  if (status) return status !== 'I'
  // `pg` before 8.17, and other drivers.
  try {
    const rows = (await queryRunner.query(insideTransaction)) as readonly unknown[]
    return rows.length > 0
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.failedTransaction) return true
    throw error
  }
}

export const rollbacksOn = (queryRunner: QueryRunner): number => registry.rollbacks.get(queryRunner) ?? 0

/** @throws TransactionAbortedError if it is not the one any more that began after so many rollbacks */
export function requireTransaction(queryRunner: QueryRunner, rollbacks: number): void {
  if (rollbacksOn(queryRunner) !== rollbacks) throw new TransactionAbortedError(undefined, ROLLED_BACK)
}

const ROLLED_BACK = 'it was rolled back while this call was under way: await every call before you end a transaction'
