import type { EntityManager } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { wholeSavepoint } from '../sql/statements'
import { Session } from './session'

/**
 * Runs several statements as one: in a transaction of their own, or behind a savepoint of the caller's, which stays
 * usable. What else the caller sends on the same connection waits for the end.
 *
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 */
export async function asOne<T>(manager: EntityManager, run: (manager: EntityManager) => Promise<T>): Promise<T> {
  const session = await Session.open(manager)
  await session.close()
  if (!session.inTransaction) return await session.inOneTurn(async () => await manager.transaction(run))
  try {
    return await session.together(async () => await run(manager), wholeSavepoint)
  } catch (error) {
    if (isSerializationError(error)) throw new TransactionAbortedError(error)
    throw error
  }
}
