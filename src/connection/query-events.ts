import type { DataSource, QueryRunner } from 'typeorm'
import { isOurs } from '../typeorm/subscriber'

/** A statement on its way, as TypeORM's logger and subscribers know it. */
export interface SentQuery {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly sql: string
  readonly values: readonly unknown[]
}

/**
 * What TypeORM does before a query: the log, and BeforeQuery. These functions return nothing where nobody listens, for a
 * promise to wait for would cost every statement.
 */
export function tellStart(sent: SentQuery): Promise<void> | undefined {
  log(sent)
  return announce(sent)
}

export function log({ dataSource, queryRunner, sql, values }: SentQuery): void {
  dataSource.logger.logQuery(sql, values as unknown[], queryRunner)
}

/** BeforeQuery. */
export function announce({ dataSource, queryRunner, sql, values }: SentQuery): Promise<void> | undefined {
  if (!isHeard(dataSource)) return undefined
  return queryRunner.broadcaster.broadcast('BeforeQuery', sql, values as unknown[])
}

/** What TypeORM does after a query: AfterQuery, and the log of slow queries. */
export function tellSuccess(sent: SentQuery, took: number, rows: readonly unknown[]): Promise<void> | undefined {
  const milliseconds = Math.round(took)
  if (isHeard(sent.dataSource)) return tellHeard(sent, milliseconds, rows)
  logSlow(sent, milliseconds)
  return undefined
}

async function tellHeard(sent: SentQuery, milliseconds: number, rows: readonly unknown[]): Promise<void> {
  const { queryRunner, sql, values } = sent
  const parameters = values as unknown[]
  await queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, true, milliseconds, rows, undefined)
  logSlow(sent, milliseconds)
}

function logSlow({ dataSource, queryRunner, sql, values }: SentQuery, milliseconds: number): void {
  const limit = dataSource.options.maxQueryExecutionTime
  if (limit && milliseconds > limit) dataSource.logger.logQuerySlow(milliseconds, sql, values as unknown[], queryRunner)
}

/** What TypeORM does after a query that failed. */
export async function tellFailure({ dataSource, queryRunner, sql, values }: SentQuery, error: Error): Promise<void> {
  const parameters = values as unknown[]
  dataSource.logger.logQueryError(error, sql, parameters, queryRunner)
  if (!isHeard(dataSource)) return
  await queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, false, undefined, undefined, error)
}

function isHeard({ subscribers }: DataSource): boolean {
  return subscribers.some((one) => !isOurs(one) && (one.beforeQuery !== undefined || one.afterQuery !== undefined))
}
