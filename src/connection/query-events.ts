import { AbstractLogger, type DataSource, type Logger, type QueryRunner } from 'typeorm'
import { OURS } from '../typeorm/subscriber'

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
  if (!isHeard(by.dataSource)) return undefined
  return by.queryRunner.broadcaster.broadcast('BeforeQuery', sql, values as unknown[])
}

/** What TypeORM does after a query: AfterQuery, and the log of slow queries. */
export function notifySuccess(sent: SentQuery, took: number, rows: readonly unknown[]): Promise<void> | undefined {
  const milliseconds = Math.round(took)
  if (isHeard(sent.by.dataSource)) return notifyHeard(sent, milliseconds, rows)
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
  if (!isHeard(by.dataSource)) return
  await by.queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, false, undefined, undefined, error)
}

/** Whether nobody hears of a query that succeeds in time. */
export const isUnheard = (dataSource: DataSource): boolean => !isHeard(dataSource) && isSilent(dataSource.logger)

function isHeard({ subscribers }: DataSource): boolean {
  for (const one of subscribers)
    if ((one.beforeQuery !== undefined || one.afterQuery !== undefined) && !(OURS in one)) return true
  return false
}

/** Whether it is a logger of TypeORM's own that does not log queries. */
function isSilent(logger: Logger): boolean {
  if (logger.logQuery !== AbstractLogger.prototype.logQuery) return false
  return !(logger as unknown as { isLogEnabledFor(type: 'query'): boolean }).isLogEnabledFor('query')
}
