import { TransactionAbortedError } from '../errors'
import { isInternal, isStale, mayBeStale, SQLSTATE, serverError } from '../sql/sqlstate'
import type { WireRow } from '../sql/statements'
import { plainTexts } from './bind-message'
import { type PgClient, type PgConnection, type PgQuery, type PgResult, takesPreparedQueries } from './pg-client'
import { type PreparedName, PreparedNames } from './prepared-names'
import { sendByName } from './prepared-query'
import { orRollBack } from './brackets'

/** One statement and how it stands to the caller's transaction. */
export interface Sending {
  /** Of the statement; '' sends it without one. */
  readonly name: string
  readonly query: PgQuery
  readonly behindSavepoint: boolean
  /** An error leaves the caller's transaction usable, or there is none. */
  readonly safe: boolean
  /** Throws where the connection serves something else by now; asked whenever others could have come before us. */
  readonly requireOwn: () => void
}

/**
 * Sends a statement under a name, so that the server plans it once. Where the name may be why it failed, it goes once
 * more without one: tables are altered, sessions are discarded, poolers give a statement to another session.
 *
 * @throws TransactionAbortedError where the caller's transaction was lost to the name: the next try has a new one
 */
export async function sendPrepared(client: PgClient, sending: Sending): Promise<readonly WireRow[]> {
  const names = PreparedNames.of(client)
  // What cannot be closed must not be kept.
  const taken = sending.name === '' || client.pipeline ? undefined : names.take(sending.name, performance.now())
  if (names.hasGivenUp) await closeNames(client, names.takeGivenUp())
  if (!taken) return (await run(client, sending)).rows
  const reused = taken.uses > 1
  try {
    return await runByName(client, sending, taken)
  } catch (error) {
    const known = serverError(error)?.code === SQLSTATE.duplicatePreparedStatement
    if (!known && !(reused && mayBeStale(error))) throw withStack(error)
    if (sending.safe) return await sendAgain(names, async () => await run(client, sending), error)
    throw lostBy(names, error)
  }
}

function run(client: PgClient, { query, requireOwn, behindSavepoint }: Sending, name?: string): Promise<PgResult> {
  requireOwn()
  const one: PgQuery = name === undefined ? query : { ...query, name }
  return behindSavepoint ? orRollBack(client, (send) => send(one) as Promise<PgResult>) : client.query(one)
}

function runByName(client: PgClient, sending: Sending, name: PreparedName): Promise<readonly WireRow[]> {
  const { query, requireOwn, behindSavepoint } = sending
  const values = behindSavepoint || !takesPreparedQueries(client) ? undefined : plainTexts(query.values ?? [])
  if (!values) return run(client, sending, name.name).then(({ rows }) => rows)
  requireOwn()
  return sendByName(client, { name, text: query.text, values })
}

/** The error was made where its answer was read; the caller should see their own line. */
function withStack(error: unknown): unknown {
  if (error instanceof Error) Error.captureStackTrace(error, withStack)
  return error
}

/** In a transaction, nothing can be sent again. */
function lostBy(names: PreparedNames, error: unknown): unknown {
  const stale = isStale(error)
  if (stale || isInternal(error)) names.lose()
  return stale ? new TransactionAbortedError(error, LOST) : error
}

const LOST =
  'a statement prepared earlier on its connection no longer fits; ' +
  'if this happens again and again behind a pooler, pass { prepare: false } to withUniqueText()'

/** The same error shows that the name was not to blame. */
async function sendAgain(
  names: PreparedNames,
  send: () => Promise<PgResult>,
  first: unknown,
): Promise<readonly WireRow[]> {
  try {
    const { rows } = await send()
    names.lose()
    return rows
  } catch (second) {
    if (serverError(second)?.code !== serverError(first)?.code) names.lose()
    throw second
  }
}

/** By the protocol's own message, which cannot fail: DEALLOCATE of a name that is gone aborts a transaction. */
async function closeNames(client: PgClient, names: readonly string[]): Promise<void> {
  await new Promise<void>((resolve) => client.query(new Closing(names, resolve)))
}

/** What `pg` takes in place of a query, as it takes a cursor. */
class Closing {
  constructor(
    private readonly names: readonly string[],
    /** `pg` puts its own in front of it where there is a `query_timeout`. */
    public callback: () => void,
  ) {}

  submit(connection: PgConnection): void {
    for (const name of this.names) {
      connection.close({ type: 'S', name })
      // What `pg` remembers of it, the SQL.
      Reflect.deleteProperty(connection.parsedStatements, name)
    }
    connection.sync()
  }

  handleReadyForQuery(): void {
    this.callback()
  }

  /** The connection is gone, or too slow: so is the statement that comes next, and says so. */
  handleError(): void {
    this.callback()
  }
}
