import { serverError } from '../sql/sqlstate'
import { type Brackets, ownTransaction, savepoint } from '../sql/statements'
import { holdOthers, type Query } from './hold'
import type { PgClient } from './pg-client'

/**
 * Runs statements whose error leaves the caller's transaction as it was before.
 *
 * @param client others may send statements by it meanwhile, and these wait
 * @param run sends them by the function that it is given
 */
export async function orRollBack<T>(client: PgClient, run: (query: Query) => Promise<T>): Promise<T> {
  const hold = holdOthers(client as unknown as { query: Query })
  try {
    return await inBrackets(hold.query, savepoint, async () => await run(hold.query))
  } finally {
    hold.end()
  }
}

/** Sends `brackets` around statements, and keeps nobody from sending others. */
export async function inBrackets<T>(
  query: (sql: string) => unknown,
  brackets: Brackets,
  run: () => Promise<T>,
): Promise<T> {
  // Rolling back to a savepoint that may not have been set would abort the transaction, or meet another savepoint.
  await query(brackets.set)
  let done = false
  try {
    const result = await run()
    done = true
    await query(brackets.release)
    return result
  } catch (error) {
    // After 40001 and 40P01 too a savepoint can be rolled back to, but the snapshot is the same: the caller must retry.
    // On a connection that is gone the rollback fails as well; the first error says more. What is not released because
    // a listener has caught an error of the server is still there.
    if (!done || serverError(error)) await rollBack(query, brackets).catch(() => {})
    throw error
  }
}

/** Two statements for a savepoint, since not every driver takes two at once. */
async function rollBack(query: (sql: string) => unknown, { rollBack: back, release }: Brackets): Promise<void> {
  await query(back)
  if (release !== ownTransaction.release) await query(release)
}
