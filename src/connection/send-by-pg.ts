import { type DataSource, QueryFailedError, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import type { Statement, WireRow } from '../sql/statements'
import { registry } from '../typeorm/registry'
import type { Sending } from './send-prepared'

/** What is sent of a statement, whatever the connection. */
export function preparable(
  dataSource: DataSource,
  { name, sql }: Statement<unknown>,
  values: readonly unknown[],
): Pick<Sending, 'name' | 'query'> {
  const prepare = registry.settings.get(dataSource)?.prepare ?? true
  return { name: prepare ? name : '', query: { text: sql, values, rowMode: 'array' } }
}

/** Needs no words of TypeORM's around it. */
export const isOurs = (error: Error): boolean =>
  error instanceof TransactionAbortedError || error instanceof QueryRunnerAlreadyReleasedError

export const driverErrorOf = (error: Error): Error =>
  error instanceof QueryFailedError ? (error.driverError as Error) : error

/** The rows of another driver, which are objects: their values are in the order of the select list. */
export const wireRows = (objects: unknown): WireRow[] =>
  (objects as readonly object[]).map((row): WireRow => Object.values(row))
