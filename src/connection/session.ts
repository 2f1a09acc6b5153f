import { AbstractLogger, type DataSource, type Logger, type QueryRunner } from 'typeorm'
import type { Statement, WireRow } from '../sql/find'
import { OURS } from '../typeorm/subscriber'

/** Sends a statement of several that stand together. */
export type Send = (sql: string, values: readonly unknown[]) => Promise<readonly WireRow[]>

/** One connection for the duration of an operation: the caller's, in its transaction, or one from the pool. */
export interface Session {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  /** The connection is the caller's. */
  readonly shared: boolean
  /** The connection is the caller's and a transaction is open on it. */
  readonly inTransaction: boolean

  /** Gives the connection back to the pool, unless it is the caller's. @returns undefined where nothing is to be waited for */
  close(): Promise<void> | undefined

  /**
   * Gives the connection back for the time in which code of the user's runs: that may itself wait for one, and a small
   * pool would have none left. The next statement takes another one.
   */
  release(): Promise<void>

  /** A session on this connection whose statements leave the transaction usable, whatever fails. */
  withSavepoints(): Session

  /**
   * Runs a statement and parses its rows.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   * @throws QueryFailedError for every other error of the driver
   */
  rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]>

  /** Does what `rows` does; an error leaves the caller's transaction as it was before. */
  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]>

  /**
   * Runs several statements, of which an error undoes all: behind a savepoint in the caller's transaction, and otherwise
   * in one of their own.
   *
   * @param work sends them by the function that it is given, or by TypeORM
   */
  together<T>(work: (send: Send) => Promise<T>): Promise<T>

  /**
   * Runs several statements exclusively. None of anybody else's comes between them, but for those of listeners and
   * subscribers that they call.
   */
  exclusively<T>(run: () => Promise<T>): Promise<T>

  /** @throws TransactionAbortedError if what the operation did in the caller's transaction was rolled back meanwhile */
  requireStanding(): void

  /** TypeORM does not notify its logger and subscribers of what `together` sends: we do. */
  isUnheard(): Promise<boolean>

  /** An error of the driver as TypeORM gives it, or what it means for the caller's transaction. */
  failure(sql: string, error: Error): Promise<Error>

  /** Runs SQL and gives its rows as objects, by TypeORM's own way. */
  readonly query: (sql: string, values?: unknown[]) => Promise<readonly unknown[]>

  /**
   * Runs queries of TypeORM's own making. In the caller's transaction, one that fails leaves that usable.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   */
  byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T>
}

/** A statement on its way, as TypeORM's logger and subscribers know it. */
export interface SentQuery {
  /** The query runner is requested only if somebody listens, since it may have to be made. */
  readonly by: { readonly dataSource: DataSource; readonly queryRunner: QueryRunner }
  readonly sql: string
  readonly values: readonly unknown[]
}

/**
 * What TypeORM does before a query: the log, and BeforeQuery. These functions return nothing where nobody listens, for a
 * promise to wait for would cost every statement.
 */
export function notifyStart(sent: SentQuery): Promise<void> | undefined {
  log(sent)
  return announce(sent)
}

export function log({ by, sql, values }: SentQuery): void {
  const { logger } = by.dataSource
  if (!isSilent(logger)) logger.logQuery(sql, values as unknown[], by.queryRunner)
}

/** BeforeQuery. */
export function announce({ by, sql, values }: SentQuery): Promise<void> | undefined {
  if (!hearsQueries(by.dataSource)) return undefined
  return by.queryRunner.broadcaster.broadcast('BeforeQuery', sql, values as unknown[])
}

/** What TypeORM does after a query: AfterQuery, and the log of slow queries. */
export function notifySuccess(sent: SentQuery, took: number, rows: readonly unknown[]): Promise<void> | undefined {
  const milliseconds = Math.round(took)
  if (hearsQueries(sent.by.dataSource)) return notifyHeard(sent, milliseconds, rows)
  logSlow(sent, milliseconds)
  return undefined
}

async function notifyHeard(sent: SentQuery, milliseconds: number, rows: readonly unknown[]): Promise<void> {
  const { by, sql, values } = sent
  const parameters = values as unknown[]
  await by.queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, true, milliseconds, rows, undefined)
  logSlow(sent, milliseconds)
}

function logSlow({ by, sql, values }: SentQuery, milliseconds: number): void {
  const limit = by.dataSource.options.maxQueryExecutionTime
  if (limit && milliseconds > limit) {
    by.dataSource.logger.logQuerySlow(milliseconds, sql, values as unknown[], by.queryRunner)
  }
}

/** What TypeORM does after a query that failed. */
export async function notifyFailure({ by, sql, values }: SentQuery, error: Error): Promise<void> {
  const parameters = values as unknown[]
  by.dataSource.logger.logQueryError(error, sql, parameters, by.queryRunner)
  if (!hearsQueries(by.dataSource)) return
  await by.queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, false, undefined, undefined, error)
}

/** Whether nobody hears of a query that succeeds in time. */
export const isUnheard = (dataSource: DataSource): boolean => !hearsQueries(dataSource) && isSilent(dataSource.logger)

function hearsQueries({ subscribers }: DataSource): boolean {
  for (const one of subscribers)
    if ((one.beforeQuery !== undefined || one.afterQuery !== undefined) && !(OURS in one)) return true
  return false
}

/** Whether it is a logger of TypeORM's own that does not log queries. */
function isSilent(logger: Logger): boolean {
  if (logger.logQuery !== AbstractLogger.prototype.logQuery) return false
  return !(logger as unknown as { isLogEnabledFor(type: 'query'): boolean }).isLogEnabledFor('query')
}
