import type { DataSource, QueryRunner } from 'typeorm'
import { isOurs } from '../typeorm/subscriber'

/** A statement on its way, as TypeORM's logger and subscribers know it. */
export interface SentQuery {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly sql: string
  readonly values: readonly unknown[]
}

/** What TypeORM does before a query: the log, and BeforeQuery. Returns when the query starts, by `performance.now()`. */
export async function tellStart(sent: SentQuery): Promise<number> {
  log(sent)
  await announce(sent)
  return performance.now()
}

export function log({ dataSource, queryRunner, sql, values }: SentQuery): void {
  dataSource.logger.logQuery(sql, values as unknown[], queryRunner)
}

/** BeforeQuery. */
export async function announce({ dataSource, queryRunner, sql, values }: SentQuery): Promise<void> {
  if (isHeard(dataSource)) await queryRunner.broadcaster.broadcast('BeforeQuery', sql, values as unknown[])
}

/** What TypeORM does after a query: AfterQuery, and the log of slow queries. */
export async function tellSuccess(sent: SentQuery, took: number, rows: readonly unknown[]): Promise<void> {
  const { dataSource, queryRunner, sql, values } = sent
  const parameters = values as unknown[]
  const milliseconds = Math.round(took)
  if (isHeard(dataSource)) {
    await queryRunner.broadcaster.broadcast('AfterQuery', sql, parameters, true, milliseconds, rows, undefined)
  }
  const limit = dataSource.options.maxQueryExecutionTime
  if (limit && milliseconds > limit) dataSource.logger.logQuerySlow(milliseconds, sql, parameters, queryRunner)
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
