import type { EntityManager } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { seesCommitted, wholeSavepoint } from '../sql/transaction-commands'
import { openSession } from './open-session'
import { inSavepoint } from './within-savepoint'
import { orWaitsForItself } from './own-transactions'
import { isPgClient } from './pg-client'
import { dataSourceOf } from '../registry/registry'
import type { Session } from './session'

/**
 * Runs several statements as one: in a transaction of their own, or behind a savepoint of the caller's, which stays
 * usable. What else the caller sends on the same connection waits for the end.
 *
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 */
export async function asOne<T>(manager: EntityManager, run: (manager: EntityManager) => Promise<T>): Promise<T> {
  const session = await openSession(manager)
  await session.close()
  if (!session.inTransaction) return await session.exclusively(async () => await inTransaction(manager, run))
  const { queryRunner } = session
  const send = async (sql: string): Promise<unknown> => {
    // A savepoint that is gone is not rolled back to either: that would abort the transaction.
    session.requireStanding()
    // A subscriber that fails in a transaction that has failed must not keep us from rolling back.
    return await queryRunner.query(sql).catch(async (error: unknown) => {
      const client: unknown = await queryRunner.connect()
      if (!isPgClient(client)) throw error
      return await client.query({ text: sql, rowMode: 'array' }).catch(async (second: unknown) => {
        throw second instanceof Error ? await session.failure(sql, second) : second
      })
    })
  }
  try {
    const result = await session.exclusively(
      async () => await inSavepoint(send, wholeSavepoint, async () => await run(manager)),
    )
    session.requireStanding()
    return result
  } catch (error) {
    if (isSerializationError(error)) throw new TransactionAbortedError(error)
    throw error
  }
}

/** As TypeORM's `transaction()`. */
async function inTransaction<T>(manager: EntityManager, run: (manager: EntityManager) => Promise<T>): Promise<T> {
  const dataSource = dataSourceOf(manager)
  const queryRunner = manager.queryRunner ?? dataSource.createQueryRunner()
  try {
    const client: unknown = await queryRunner.connect()
    const transact = async (): Promise<T> => await queryRunner.manager.transaction(run)
    return await (isPgClient(client) ? orWaitsForItself(dataSource, client, transact) : transact())
  } finally {
    if (!manager.queryRunner) await queryRunner.release()
  }
}

/**
 * @param error of an index of ours, about a row that was looked for and not seen
 * @throws TransactionAbortedError where the caller's transaction does not see what others have committed since it began
 */
export async function requireCurrentSnapshot(session: Session, error: unknown): Promise<void> {
  if (!session.inTransaction) return
  const [sees] = await session.rows(seesCommitted, [])
  if (sees !== true)
    throw new TransactionAbortedError(error, 'a row that its snapshot does not show holds the text, or the number')
}
