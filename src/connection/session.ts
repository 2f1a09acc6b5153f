import { AbstractLogger, type DataSource, type Logger, type QueryRunner } from 'typeorm'
import type { OpenTransaction } from '../registry/open-transactions'
import type { Statement, WireRow } from '../sql/find'
import { OURS } from '../typeorm/subscriber'

/** Sends one of several statements that succeed or fail together. */
export type Send = (sql: string, values: readonly unknown[]) => Promise<readonly WireRow[]>

/** One connection for the duration of an operation: the caller's, in its transaction, or a connection from the pool. */
export interface Session {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  /** Whether the connection is the caller's. */
  readonly shared: boolean
  /** Whether the connection is the caller's and a transaction is open on it. */
  readonly inTransaction: boolean
  /** The transaction around the call for which its statements may wait, because it uses another connection. */
  readonly around: OpenTransaction | undefined
  /** Whether it is any connection of the pool: no other code replaces the way to it, as some does to choose a tenant. */
  readonly connectsAsMade: boolean

  /** Returns the connection to the pool, unless it is the caller's. @returns undefined if nothing is to be awaited */
  close(): Promise<void> | undefined

  /**
   * Returns the connection to the pool while the user's code runs. That code may need a connection itself, and a small
   * pool would have none left. The next statement takes another one.
   */
  release(): Promise<void>

  /** Returns a session on this connection. If its statements fail, the transaction stays usable. */
  withSavepoints(): Session

  /**
   * Runs a statement and parses its rows.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   * @throws QueryFailedError for every other error of the driver
   */
  rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]>

  /** Does what `rows` does. An error leaves the caller's transaction as it was before. */
  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]>

  /**
   * Runs several statements. An error undoes all of them. They run behind a savepoint in the caller's transaction, and
   * otherwise in their own transaction.
   *
   * @param work sends the statements by the function that it gets, or by TypeORM
   */
  together<T>(work: (send: Send) => Promise<T>): Promise<T>

  /**
   * Runs several statements exclusively. No other statement runs between them, except those of listeners and
   * subscribers that they call.
   */
  exclusively<T>(run: () => Promise<T>): Promise<T>

  /** @throws TransactionAbortedError if the operation's part of the caller's transaction was rolled back meanwhile */
  requireStanding(): void

  /** Whether TypeORM does not notify its logger and subscribers of the statements of `together`. Then we do. */
  bypassesTypeOrm(): Promise<boolean>

  /** Returns a driver error as TypeORM throws it. Throws if the error means that the caller's transaction is lost. */
  failure(sql: string, error: Error): Promise<Error>

  /** Runs SQL through TypeORM and returns its rows as objects. */
  readonly query: (sql: string, values?: unknown[]) => Promise<readonly unknown[]>

  /**
   * Runs queries that TypeORM builds. In the caller's transaction, a failed query leaves the transaction usable.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   */
  byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T>
}

/** A statement that is sent, as TypeORM's logger and subscribers see it. */
export interface SentQuery {
  /** The query runner is read only if somebody listens, because it may have to be created. */
  readonly by: { readonly dataSource: DataSource; readonly queryRunner: QueryRunner }
  readonly sql: string
  readonly values: readonly unknown[]
}

/**
 * Logs and broadcasts BeforeQuery, as TypeORM does before a query. These functions return undefined if nobody listens,
 * because every statement would have to wait for a promise.
 */
export function notifyStart(sent: SentQuery): Promise<void> | undefined {
  log(sent)
  return announce(sent)
}

export function log({ by, sql, values }: SentQuery): void {
  const { logger } = by.dataSource
  if (!isSilent(logger)) logger.logQuery(sql, values as unknown[], by.queryRunner)
}

export function announce({ by, sql, values }: SentQuery): Promise<void> | undefined {
  if (!hearsQueries(by.dataSource)) return undefined
  return by.queryRunner.broadcaster.broadcast('BeforeQuery', sql, values as unknown[])
}

/** Broadcasts AfterQuery and logs slow queries, as TypeORM does after a query. */
export function notifySuccess(sent: SentQuery, took: number, rows: readonly unknown[]): Promise<void> | undefined {
  if (hearsQueries(sent.by.dataSource)) return notifyHeard(sent, took, rows)
  logSlow(sent, took)
  return undefined
}

async function notifyHeard(sent: SentQuery, took: number, rows: readonly unknown[]): Promise<void> {
  const { by, sql, values } = sent
  const parameters = values as unknown[]
  await by.queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, true, Math.round(took), rows, undefined)
  logSlow(sent, took)
}

export function logSlow({ by, sql, values }: SentQuery, took: number): void {
  const milliseconds = Math.round(took)
  const limit = by.dataSource.options.maxQueryExecutionTime
  if (limit && milliseconds > limit) {
    by.dataSource.logger.logQuerySlow(milliseconds, sql, values as unknown[], by.queryRunner)
  }
}

/** Logs and broadcasts a failed query, as TypeORM does. */
export async function notifyFailure({ by, sql, values }: SentQuery, error: Error): Promise<void> {
  const parameters = values as unknown[]
  by.dataSource.logger.logQueryError(error, sql, parameters, by.queryRunner)
  if (!hearsQueries(by.dataSource)) return
  await by.queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, false, undefined, undefined, error)
}

/** Whether nobody is notified of a query that succeeds in time. */
export const isUnheard = (dataSource: DataSource): boolean => !hearsQueries(dataSource) && isSilent(dataSource.logger)

function hearsQueries({ subscribers }: DataSource): boolean {
  for (const one of subscribers)
    if ((one.beforeQuery !== undefined || one.afterQuery !== undefined) && !(OURS in one)) return true
  return false
}

/** Whether it is one of TypeORM's own loggers and does not log queries. */
function isSilent(logger: Logger): boolean {
  if (logger.logQuery !== AbstractLogger.prototype.logQuery) return false
  return !(logger as unknown as { isLogEnabledFor(type: 'query'): boolean }).isLogEnabledFor('query')
}
