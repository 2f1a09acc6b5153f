import { serverError } from '../sql/sqlstate'
import { ownTransaction, savepoint, type SavepointCommands } from '../sql/transaction-commands'
import { type ClientQuery, useExclusively } from './exclusive'
import type { PgClient } from './pg-client'

/**
 * Runs statements whose error leaves the caller's transaction as it was before.
 *
 * @param client others may send statements by it meanwhile, and these wait
 * @param run sends them by the function that it is given
 */
export async function orRollBack<T>(client: PgClient, run: (query: ClientQuery) => Promise<T>): Promise<T> {
  const exclusive = useExclusively(client as unknown as { query: ClientQuery })
  try {
    return await inSavepoint(exclusive.query, savepoint, async () => await run(exclusive.query))
  } finally {
    exclusive.end()
  }
}

/** Runs statements between the commands of a savepoint, and keeps nobody from sending others. */
export async function inSavepoint<T>(
  query: (sql: string) => unknown,
  commands: SavepointCommands,
  run: () => Promise<T>,
): Promise<T> {
  // Rolling back to a savepoint that may not have been set would abort the transaction, or meet another savepoint.
  await query(commands.set)
  let done = false
  try {
    const result = await run()
    done = true
    await query(commands.release)
    return result
  } catch (error) {
    // After 40001 and 40P01 too a savepoint can be rolled back to, but the snapshot is the same: the caller must retry.
    // On a connection that is gone the rollback fails as well; the first error says more. What is not released because
    // a listener has caught an error of the server is still there.
    if (!done || serverError(error)) await rollBack(query, commands).catch(() => {})
    throw error
  }
}

/** Two statements for a savepoint, since not every driver takes two at once. */
async function rollBack(
  query: (sql: string) => unknown,
  { rollBack: back, release }: SavepointCommands,
): Promise<void> {
  await query(back)
  if (release !== ownTransaction.release) await query(release)
}
