import { TransactionAbortedError } from '../errors'
import { isInternal, isStale, mayBeStale, SQLSTATE, serverError } from '../sql/sqlstate'
import type { WireRow } from '../sql/statements'
import type { PgClient, PgConnection, PgQuery, PgResult } from './pg-client'
import { PreparedNames } from './prepared-names'
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
export async function sendPrepared(
  client: PgClient,
  { name, query, behindSavepoint, safe, requireOwn }: Sending,
): Promise<readonly WireRow[]> {
  const run = (one: PgQuery): Promise<PgResult> => {
    requireOwn()
    return behindSavepoint ? orRollBack(client, (send) => send(one) as Promise<PgResult>) : client.query(one)
  }
  const names = PreparedNames.of(client)
  // What cannot be closed must not be kept.
  const taken = name === '' || client.pipeline ? undefined : names.take(name, performance.now())
  const givenUp = names.takeGivenUp()
  if (givenUp.length > 0) await closeNames(client, givenUp)
  if (!taken) return (await run(query)).rows
  try {
    return (await run({ ...query, name: taken.name })).rows
  } catch (error) {
    const known = serverError(error)?.code === SQLSTATE.duplicatePreparedStatement
    if (!known && !(taken.reused && mayBeStale(error))) throw error
    if (safe) return await sendAgain(names, async () => await run(query), error)
    throw lostBy(names, error)
  }
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
      if (connection.parsedStatements) Reflect.deleteProperty(connection.parsedStatements, name)
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
