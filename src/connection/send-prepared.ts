import { TransactionAbortedError } from '../errors'
import { isInternal, isStale, mayBeStale, SQLSTATE, serverError } from '../sql/sqlstate'
import type { ParameterOptions } from '../sql/parameter-text'
import type { WireRow } from '../sql/statements'
import { hasTimeout, sendBehindSavepoint } from './behind-savepoint'
import { plainTexts } from './bind-message'
import { orRollBack } from './brackets'
import { sendMessages } from './messages'
import { type PgClient, type PgQuery, type PgResult, takesPreparedQueries } from './pg-client'
import { type PreparedName, PreparedNames } from './prepared-names'
import { sendByName } from './prepared-query'

/** One statement and how it stands to the caller's transaction. */
export interface Sending {
  /** Of the statement; '' sends it without one. */
  readonly name: string
  readonly query: PgQuery
  readonly behindSavepoint: boolean
  /** How `pg` sends a Date. */
  readonly dates: ParameterOptions
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
  const reused = taken !== undefined && taken.uses > 1
  try {
    return await run(client, sending, taken)
  } catch (error) {
    const known = serverError(error)?.code === SQLSTATE.duplicatePreparedStatement
    if (!taken || (!known && !(reused && mayBeStale(error)))) throw withStack(error)
    if (sending.safe) return await sendAgain(names, async () => await run(client, sending, undefined), error)
    throw lostBy(names, error)
  }
}

function run(client: PgClient, sending: Sending, name: PreparedName | undefined): Promise<readonly WireRow[]> {
  const { query, requireOwn, behindSavepoint } = sending
  const values = goesByOwn(client, sending) ? plainTexts(query.values ?? [], sending.dates) : undefined
  requireOwn()
  if (values) {
    const own = { name: name ?? { ...NAMELESS }, text: query.text, values }
    return behindSavepoint ? sendBehindSavepoint(client, own) : sendByName(client, own)
  }
  const one: PgQuery = name === undefined ? query : { ...query, name: name.name }
  const answer = behindSavepoint ? orRollBack(client, (send) => send(one) as Promise<PgResult>) : client.query(one)
  return answer.then(({ rows }) => rows)
}

const NAMELESS: PreparedName = { name: '', since: 0, uses: 1, types: undefined }

/** Whether a query object of ours is better than `pg`'s own. */
function goesByOwn(client: PgClient, { behindSavepoint }: Sending): boolean {
  return takesPreparedQueries(client) && !(behindSavepoint && hasTimeout(client))
}

/** The error was made where its answer was read; the caller should see their own line. */
function withStack(error: unknown): unknown {
  if (error instanceof Error) Error.captureStackTrace(error, withStack)
  return error
}

/** In a transaction, nothing can be sent again. */
function lostBy(names: PreparedNames, error: unknown): unknown {
  const stale = isStale(error)
  if (stale || isInternal(error)) names.lose(performance.now())
  return stale ? new TransactionAbortedError(error, LOST) : error
}

const LOST =
  'a statement prepared earlier on its connection no longer fits; ' +
  'if this happens again and again behind a pooler, pass { prepare: false } to withUniqueText()'

/** Sends the statement once more. If it fails with the same error, the name was not to blame. */
async function sendAgain(
  names: PreparedNames,
  send: () => Promise<readonly WireRow[]>,
  first: unknown,
): Promise<readonly WireRow[]> {
  try {
    const rows = await send()
    names.lose(performance.now())
    return rows
  } catch (second) {
    if (serverError(second)?.code !== serverError(first)?.code) names.lose(performance.now())
    throw withStack(second)
  }
}

/** By the protocol's own message, which cannot fail: DEALLOCATE of a name that is gone aborts a transaction. */
async function closeNames(client: PgClient, names: readonly string[]): Promise<void> {
  await sendMessages(
    (messages) => client.query(messages),
    (connection) => {
      for (const name of names) {
        connection.close({ type: 'S', name })
        // What `pg` remembers of it, the SQL.
        Reflect.deleteProperty(connection.parsedStatements, name)
      }
      connection.sync()
    },
  )
}
