import type { EntityManager, QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { wholeSavepoint } from '../sql/statements'
import { Session } from './session'
import { inWholeTurn } from './shared-connection'

/** The caller's connection, in its transaction. */
async function transactionOf(manager: EntityManager): Promise<QueryRunner | undefined> {
  const session = await Session.open(manager)
  await session.close()
  return session.inTransaction ? session.queryRunner : undefined
}

/**
 * Runs several statements as one: in a transaction of their own, or behind a savepoint of the caller's, which stays
 * usable. Other calls of this package in the caller's transaction wait for the end.
 *
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 */
export async function asOne<T>(manager: EntityManager, run: (manager: EntityManager) => Promise<T>): Promise<T> {
  const queryRunner = await transactionOf(manager)
  if (!queryRunner) return await manager.transaction(run)
  return await inWholeTurn(queryRunner, async () => {
    await queryRunner.query(wholeSavepoint.set)
    try {
      const result = await run(manager)
      await queryRunner.query(wholeSavepoint.release)
      return result
    } catch (error) {
      await rollBack(queryRunner).catch(() => {})
      if (isSerializationError(error)) throw new TransactionAbortedError(error)
      throw error
    }
  })
}

async function rollBack(queryRunner: QueryRunner): Promise<void> {
  await queryRunner.query(wholeSavepoint.rollBack)
  await queryRunner.query(wholeSavepoint.release)
}
