import { type DataSource, QueryFailedError, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { TransactionAbortedError, WaitsForItselfError } from '../errors'
import type { ParameterOptions } from '../sql/parameter-text'
import type { Brackets, Statement, WireRow } from '../sql/statements'
import { registry } from '../typeorm/registry'
import { inBrackets } from './brackets'
import { orWaitsForItself } from './own-transactions'
import { isPgClient, type PgResult } from './pg-client'
import type { Sending } from './send-prepared'
import type { Send, Session } from './session'

/** What is sent of a statement, whatever the connection. */
export function preparable(
  dataSource: DataSource,
  { name, sql }: Statement<unknown>,
  values: readonly unknown[],
): Pick<Sending, 'name' | 'query' | 'dates'> {
  const prepare = registry.settings.get(dataSource)?.prepare ?? true
  return {
    name: prepare ? name : '',
    query: { text: sql, values, rowMode: 'array' },
    dates: parameterOptions(dataSource),
  }
}

/** How the driver of a DataSource sends a Date. */
export function parameterOptions({ driver }: DataSource): ParameterOptions {
  const { postgres } = driver as { postgres?: { defaults?: { parseInputDatesAsUTC?: boolean } } }
  return { utcDates: postgres?.defaults?.parseInputDatesAsUTC ?? false }
}

/** Needs no error of TypeORM around it. */
export const isOurs = (error: Error): boolean =>
  error instanceof TransactionAbortedError ||
  error instanceof WaitsForItselfError ||
  error instanceof QueryRunnerAlreadyReleasedError

export const driverErrorOf = (error: Error): Error =>
  error instanceof QueryFailedError ? (error.driverError as Error) : error

/**
 * Sends a statement by the only way that every driver has. Its rows are objects, whose values are in the order of the
 * select list: so no two columns of a statement have one name.
 */
export async function queryByTypeOrm(
  queryRunner: Pick<QueryRunner, 'query'>,
  sql: string,
  values: readonly unknown[],
): Promise<WireRow[]> {
  // Structured, for of an UPDATE TypeORM gives rows and their number otherwise.
  const { records } = await queryRunner.query(sql, [...values], true)
  return (records as readonly object[]).map((row): WireRow => Object.values(row))
}

/** Runs statements between `brackets` on the client of a session. */
export async function bracketed<T>(
  session: Session,
  client: unknown,
  brackets: Brackets,
  work: (send: Send) => Promise<T>,
): Promise<T> {
  // Past TypeORM: a subscriber that fails in a transaction that has failed must not keep us from rolling back.
  const send: Send = isPgClient(client)
    ? async (text, values) => {
        // Nor is a savepoint rolled back to that is gone: that would abort the transaction.
        session.requireStanding()
        const sent = async (): Promise<PgResult> => await client.query({ text, values, rowMode: 'array' })
        return (await orWaitsForItself(session.dataSource, client, sent)).rows
      }
    : async (sql, values) => await queryByTypeOrm(session.queryRunner, sql, values)
  return await inBrackets(
    async (sql) => await send(sql, []),
    brackets,
    async () => await work(send),
  )
}
