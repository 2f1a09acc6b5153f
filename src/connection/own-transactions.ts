import type { DataSource, QueryRunner } from 'typeorm'
import { WaitsForItselfError } from '../errors'
import { cancelWaiting } from '../sql/transaction-commands'
import { type OpenTransaction, openTransaction } from '../registry/open-transactions'
import { orRollBack } from './within-savepoint'
import { hasSpare, isBusy, type PgClient, pgClientOf } from './pg-client'
import { startTimer, stopTimer } from './real-timers'

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
  return transaction ? watched({ dataSource, client, transaction }, send) : send()
}

/** A statement of ours on its way. */
interface Sent {
  readonly dataSource: DataSource
  readonly client: PgClient
  /** The innermost around it. */
  readonly transaction: OpenTransaction
}

async function watched<T>(sent: Sent, send: () => Promise<T>): Promise<T> {
  const since = performance.now()
  let timer: NodeJS.Timeout | undefined
  let looking: Promise<boolean> | undefined
  const look = async (): Promise<void> => {
    looking = tryCancel(sent, since)
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

/** @returns whether the statement was cancelled; false also if there is no connection to ask */
async function tryCancel({ dataSource, client, transaction }: Sent, since: number): Promise<boolean> {
  try {
    const holders = (await Promise.all(quietAround(transaction, since).map(clientOf))).filter(
      (one) => one !== undefined && one !== client && !isBusy(one),
    )
    const [innermost] = holders
    const values = [client.processID, holders.map((one) => one?.processID)]
    if (!innermost || typeof client.processID !== 'number') return false
    // Uses the transaction's own connection only if there is no other and it answers: a failed transaction does not.
    if (hasSpare(dataSource)) return hasRows(await dataSource.query(cancelWaiting.sql, values))
    if (innermost.getTransactionStatus?.() === 'E') return false
    const query = { text: cancelWaiting.sql, values, rowMode: 'array' }
    return hasRows(await orRollBack(innermost, (send) => send(query) as Promise<{ readonly rows: readonly unknown[] }>))
  } catch {
    return false
  }
}

/** Transactions around a call that have sent nothing for a while. */
function quietAround(innermost: OpenTransaction, since: number): readonly OpenTransaction[] {
  const quiet: OpenTransaction[] = []
  for (let one: OpenTransaction | undefined = innermost; one; one = one.outer)
    if (!one.isOver && performance.now() - Math.max(one.heard, since) >= patience.milliseconds) quiet.push(one)
  return quiet
}

async function clientOf({ queryRunner }: OpenTransaction): Promise<PgClient | undefined> {
  const client: unknown = queryRunner.isTransactionActive ? await queryRunner.connect() : undefined
  return pgClientOf(client)
}

/** TypeORM gives the rows, `pg` a result. */
const hasRows = (answer: unknown): boolean =>
  Array.isArray(answer) ? answer.length > 0 : (answer as { readonly rows: readonly unknown[] }).rows.length > 0
