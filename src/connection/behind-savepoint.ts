import { savepoint, type WireRow } from '../sql/statements'
import { commandMessages, SYNC } from './bind-message'
import { joined, JoinedQuery } from './joined-query'
import { holdOthers, type Query } from './hold'
import { sendMessages } from './messages'
import type { PgClient } from './pg-client'
import { type NamedQuery, sendByName, write } from './prepared-query'

/** Savepoint, statement and release: after an error the release is skipped too. */
const AROUND = joined({ before: [savepoint.set], after: [savepoint.release] })
const COMMANDS = 3
const UNDO = Buffer.from(commandMessages(savepoint.rollBack) + commandMessages(savepoint.release) + SYNC, 'latin1')

/**
 * Sends a statement whose error leaves the caller's transaction as it was before: savepoint, statement and release in
 * one round trip, and one more if it fails. Statements that others send on the connection meanwhile wait.
 */
export async function sendBehindSavepoint(client: PgClient, query: NamedQuery): Promise<readonly WireRow[]> {
  const hold = holdOthers(client as unknown as { query: Query })
  let sent: JoinedQuery | undefined
  try {
    return await sendByName(client, query, (one) => hold.query((sent = new JoinedQuery(one, AROUND))))
  } catch (error) {
    // Rolling back to a savepoint that does not exist would abort the transaction, or meet another savepoint. It is
    // also gone once it is released, if the answer could not be read: then the work is done.
    if (sent && sent.ended > 0 && sent.ended < COMMANDS) await undo(hold.query)
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
