import { QueryFailedError, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { TransactionAbortedError, WaitsForItselfError } from '../errors'
import type { SavepointCommands, Statement, WireRow } from '../sql/statements'
import { inSavepoint } from './within-savepoint'
import { orWaitsForItself } from './own-transactions'
import { isPgClient, type PgResult } from './pg-client'
import type { Send, Session } from './session'

/** The rows of a statement. */
export function parsed<Row>({ parse }: Statement<Row>, rows: readonly WireRow[], values: readonly unknown[]): Row[] {
  const all: Row[] = []
  for (const row of rows) all.push(parse(row, values))
  return all
}

/** Needs no error of TypeORM around it. */
export const needsNoWrapping = (error: Error): boolean =>
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

/** Runs statements between the commands of a savepoint, on the client of a session. */
export async function inSavepointOf<T>(
  session: Session,
  client: unknown,
  commands: SavepointCommands,
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
  return await inSavepoint(
    async (sql) => await send(sql, []),
    commands,
    async () => await work(send),
  )
}
