import { savepoint, type WireRow } from '../sql/statements'
import { commandMessages, SYNC } from './bind-message'
import { holdOthers, type Query } from './hold'
import { sendMessages } from './messages'
import type { PgClient, PgConnection } from './pg-client'
import { type NamedQuery, type PreparedQuery, sendByName, write } from './prepared-query'

/** As far as Sync the server skips all that comes after an error, the release too. */
const AROUND = {
  before: Buffer.from(commandMessages(savepoint.set), 'latin1'),
  after: commandMessages(savepoint.release) + SYNC,
}
const UNDO = Buffer.from(commandMessages(savepoint.rollBack) + commandMessages(savepoint.release) + SYNC, 'latin1')

/**
 * Sends a statement of which an error leaves the caller's transaction as it was before: savepoint, statement and release
 * in one round trip, and one more where it fails. What others send on the connection meanwhile waits.
 */
export async function sendBehindSavepoint(client: PgClient, query: NamedQuery): Promise<readonly WireRow[]> {
  const hold = holdOthers(client as unknown as { query: Query })
  let sent: BehindSavepoint | undefined
  try {
    return await sendByName(client, query, (one) => hold.query((sent = new BehindSavepoint(one))))
  } catch (error) {
    // One that is not there is not rolled back to: that would abort the transaction, or meet another one.
    if (sent?.isSet === true) await undo(hold.query)
    throw error
  } finally {
    hold.end()
  }
}

/** After 40001 and 40P01 too. On a connection that is gone the first error says more. */
async function undo(query: Query): Promise<void> {
  await sendMessages(query, ({ stream }) => {
    write(stream, UNDO)
  })
}

/** With `query_timeout` it is not known in time what the server has done, nor whether it should release the savepoint. */
export const hasTimeout = ({ connectionParameters }: PgClient): boolean => Boolean(connectionParameters?.query_timeout)

/** Savepoint, statement and release. */
const COMMANDS = 3

/** A query between its savepoint and the release. */
class BehindSavepoint {
  /** Whoever traces statements puts another in front of it, and finds it among the properties of its own. */
  callback: PreparedQuery['callback']
  private ended = 0

  constructor(private readonly query: PreparedQuery) {
    this.callback = query.callback
    query.callback = (error, rows): void => this.callback(error, rows)
  }

  /** Not any more once it is released, where the answer could not be read: then all has been done. */
  get isSet(): boolean {
    return this.ended > 0 && this.ended < COMMANDS
  }

  /** `pg` keeps the SQL by it whenever the server has parsed something: of the three, only the statement has a name. */
  get name(): string {
    return this.ended === 1 ? this.query.name : ''
  }

  get text(): string {
    return this.query.text
  }

  submit(connection: PgConnection): Error | undefined {
    return this.query.submit(connection, AROUND)
  }

  handleRowDescription(message: Parameters<PreparedQuery['handleRowDescription']>[0]): void {
    this.query.handleRowDescription(message)
  }

  handleDataRow(message: Parameters<PreparedQuery['handleDataRow']>[0]): void {
    this.query.handleDataRow(message)
  }

  handleCommandComplete(): void {
    this.ended += 1
  }

  handleReadyForQuery(): void {
    this.query.handleReadyForQuery()
  }

  handleError(error: unknown): void {
    this.query.handleError(error)
  }
}
