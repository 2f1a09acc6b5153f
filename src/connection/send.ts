import { type DataSource, QueryFailedError, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { TransactionAbortedError, WaitsForItselfError } from '../errors'
import { isInternal, isStale, mayBeStale, serverError, SQLSTATE } from '../sql/sqlstate'
import type { Statement, WireRow } from '../sql/find'
import { savepoint, type SavepointCommands } from '../sql/transaction-commands'
import type { OpenTransaction } from '../registry/open-transactions'
import { registry } from '../registry/registry'
import { inSavepoint, orRollBack, queryHolder, useExclusively } from './shared-connection'
import { orWaitsForItself } from './mutex'
import {
  commandMessages,
  factsOf,
  hasTimeout,
  isPgClient,
  joinedCommands,
  parameterOptions,
  type PgClient,
  type PgResult,
  plainTexts,
  type PreparedName,
  type PreparedNames,
  PreparedQuery,
  sendMessages,
  SYNC,
  writeTo,
} from './wire'
import type { Send, Session } from './session'

/** One statement, and its relation to the caller's transaction. */
export interface PreparedSending {
  readonly dataSource: DataSource
  readonly statement: Statement<unknown>
  readonly values: readonly unknown[]
  readonly behindSavepoint: boolean
  /** Whether an error leaves the caller's transaction usable, or there is no transaction. */
  readonly safe: boolean
  /** Throws if the connection is no longer ours to use. @default nobody else uses it */
  readonly requireOwn?: () => void
  /** The transaction around the call for which the statement may wait. */
  readonly around: OpenTransaction | undefined
}

/**
 * Sends a statement under a name, so that the server plans it once. If the name may have caused a failure, it is sent
 * once more without one: tables are altered, sessions are discarded, poolers give a statement to another session.
 *
 * It does not wrap each step in a function: the caller's line must stay in the stack of the driver's error.
 *
 * @throws TransactionAbortedError if the name's failure aborted the caller's transaction. The next try uses a new name
 */
export async function sendPrepared(client: PgClient, sending: PreparedSending): Promise<readonly WireRow[]> {
  const { dataSource, around } = sending
  if (around) {
    const send = async (): Promise<readonly WireRow[]> => await sendPrepared(client, { ...sending, around: undefined })
    return await orWaitsForItself(dataSource, client, around, send)
  }
  const { names, takesOwn } = factsOf(client)
  const taken = takeName(client, names, sending)
  if (names.givenUp.length > 0) await closeNames(client, names.takeGivenUp())
  const reused = taken !== undefined && taken.uses > 1
  try {
    const own = takesOwn ? ownQuery(client, sending, taken) : undefined
    sending.requireOwn?.()
    if (!own) return await sendByPg(client, sending, taken)
    if (sending.behindSavepoint) return await sendBehindSavepoint(client, own)
    client.query(own)
    return await own.answer
  } catch (error) {
    if (!taken || !isOfName(error, reused)) throw withStack(error)
    if (sending.safe) return await sendAgain(client, sending, error)
    throw lostBy(names, error)
  }
}

/** Whether a statement may have failed because of its name. */
const isOfName = (error: unknown, reused: boolean): boolean =>
  serverError(error)?.code === SQLSTATE.duplicatePreparedStatement || (reused && mayBeStale(error))

function takeName(
  client: PgClient,
  names: PreparedNames,
  { dataSource, statement }: PreparedSending,
): PreparedName | undefined {
  // A name that cannot be closed must not be kept.
  if (statement.name === '' || client.pipeline) return undefined
  if (registry.settings.get(dataSource)?.prepare === false) return undefined
  return names.take(statement.name, performance.now(), statement.rows)
}

const NAMELESS: PreparedName = { name: '', since: 0, uses: 1, types: undefined }

/** @returns undefined if a query object of `pg` must be used instead */
function ownQuery(
  client: PgClient,
  { dataSource, statement: { sql: text }, values, behindSavepoint }: PreparedSending,
  name: PreparedName = { ...NAMELESS },
): PreparedQuery | undefined {
  if (client.pipeline || (behindSavepoint && hasTimeout(client))) return undefined
  const texts = plainTexts(values, () => parameterOptions(dataSource))
  return texts && new PreparedQuery(client, name, text, texts)
}

async function sendByPg(
  client: PgClient,
  { statement, values, behindSavepoint }: PreparedSending,
  taken: PreparedName | undefined,
): Promise<readonly WireRow[]> {
  const query = { text: statement.sql, values, rowMode: 'array', ...(taken && { name: taken.name }) } as const
  const answer = behindSavepoint ? orRollBack(client, (send) => send(query) as Promise<PgResult>) : client.query(query)
  return (await answer).rows
}

/** The savepoint and its release, around a statement. After an error the server skips the release too. */
const AROUND = joinedCommands([savepoint.set], [savepoint.release])
const JOINED_COMMANDS = 3
const UNDO = Buffer.from(commandMessages(savepoint.rollBack) + commandMessages(savepoint.release) + SYNC, 'latin1')

/**
 * Sends a statement whose error leaves the caller's transaction as it was before. Savepoint, statement and release take
 * one round trip, and one more if it fails. Statements that others send on the connection meanwhile wait.
 */
async function sendBehindSavepoint(client: PgClient, query: PreparedQuery): Promise<readonly WireRow[]> {
  const hold = useExclusively(queryHolder(client))
  try {
    hold.query(query.joinedBy(AROUND))
    return await query.answer
  } catch (error) {
    // A rollback to a savepoint that does not exist would abort the transaction or use another savepoint. If the answer
    // could not be read, the savepoint is already released and the work is done.
    if (query.ended > 0 && query.ended < JOINED_COMMANDS) {
      // After 40001 and 40P01 too. On a lost connection, the first error is more specific.
      await sendMessages(hold.query, ({ stream }) => {
        writeTo(stream, UNDO)
      })
    }
    throw error
  } finally {
    hold.end()
  }
}

/** Sets the stack, because the error was created where the answer was read. The caller should see their own line. */
function withStack(error: unknown): unknown {
  if (error instanceof Error) Error.captureStackTrace(error, withStack)
  return error
}

/** Notes the loss of a name. A statement cannot be repeated in an aborted transaction. */
function lostBy(names: PreparedNames, error: unknown): unknown {
  const stale = isStale(error)
  if (stale || isInternal(error)) names.lose(performance.now())
  return stale ? new TransactionAbortedError(error, LOST) : error
}

const LOST =
  'a statement prepared earlier on its connection no longer fits; ' +
  'if this happens again and again behind a pooler, pass { prepare: false } to withUniqueText()'

/** Sends the statement once more, without a name. If it fails with the same error, the name was not the cause. */
async function sendAgain(client: PgClient, sending: PreparedSending, first: unknown): Promise<readonly WireRow[]> {
  const { names } = factsOf(client)
  try {
    const rows = await sendPrepared(client, { ...sending, statement: { ...sending.statement, name: '' } })
    names.lose(performance.now())
    return rows
  } catch (second) {
    if (serverError(second)?.code !== serverError(first)?.code) names.lose(performance.now())
    throw withStack(second)
  }
}

/** Closes names by a protocol message, which cannot fail. DEALLOCATE of an unknown name aborts a transaction. */
async function closeNames(client: PgClient, names: readonly string[]): Promise<void> {
  await sendMessages(
    (messages) => client.query(messages),
    (connection) => {
      for (const name of names) {
        connection.close({ type: 'S', name })
        // The SQL that `pg` stores under the name.
        Reflect.deleteProperty(connection.parsedStatements, name)
      }
      connection.sync()
    },
  )
}

/** Parses the rows of a statement. */
export function parsed<Row>({ parse }: Statement<Row>, rows: readonly WireRow[], values: readonly unknown[]): Row[] {
  const all: Row[] = []
  for (const row of rows) all.push(parse(row, values))
  return all
}

/** Whether the error is thrown as it is, without a QueryFailedError around it. */
export const needsNoWrapping = (error: Error): boolean =>
  error instanceof TransactionAbortedError ||
  error instanceof WaitsForItselfError ||
  error instanceof QueryRunnerAlreadyReleasedError

export const driverErrorOf = (error: Error): Error =>
  error instanceof QueryFailedError ? (error.driverError as Error) : error

/**
 * Sends a statement through TypeORM's `query()`, which every driver has. Its rows are objects whose values are in the
 * order of the select list. Therefore no two columns of a statement have the same name.
 */
export async function queryByTypeOrm(
  queryRunner: Pick<QueryRunner, 'query'>,
  sql: string,
  values: readonly unknown[],
): Promise<WireRow[]> {
  // Structured, because otherwise TypeORM returns the rows of an UPDATE together with their number.
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
  // Not through TypeORM: a subscriber that fails in an aborted transaction must not prevent our rollback.
  const send: Send = isPgClient(client)
    ? async (text, values) => {
        // A rollback to a savepoint that no longer exists would abort the transaction.
        session.requireStanding()
        const sent = async (): Promise<PgResult> => await client.query({ text, values, rowMode: 'array' })
        const { dataSource, around } = session
        return (await (around ? orWaitsForItself(dataSource, client, around, sent) : sent())).rows
      }
    : async (sql, values) => await queryByTypeOrm(session.queryRunner, sql, values)
  return await inSavepoint(
    async (sql) => await send(sql, []),
    commands,
    async () => await work(send),
  )
}
