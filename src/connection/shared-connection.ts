import type { QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { insideTransaction } from '../sql/statements'
import { registry } from '../typeorm/registry'
import { isPgClient, type PgClient } from './pg-client'

const watched = new WeakMap<QueryRunner, PgClient>()
const losses = new WeakMap<object, { error?: Error }>()

/** TypeORM releases a query runner whose connection is lost, and forgets why; the caller should hear it (25P03, 57P01). */
export function watchForLoss(queryRunner: QueryRunner, client: PgClient): void {
  watched.set(queryRunner, client)
  if (losses.has(client)) return
  const loss: { error?: Error } = {}
  losses.set(client, loss)
  client.once('error', (error) => (loss.error = error))
}

/** The client of a query runner, once it was watched. */
export const watchedClient = (queryRunner: QueryRunner): PgClient | undefined => watched.get(queryRunner)

export function lossOf(queryRunner: QueryRunner): Error | undefined {
  const client = watched.get(queryRunner)
  return client && losses.get(client)?.error
}

/** A transaction that the caller began by SQL, which TypeORM does not count. */
export async function isInRawTransaction(queryRunner: QueryRunner): Promise<boolean> {
  if (queryRunner.isReleased) return false
  const client: unknown = await queryRunner.connect()
  const status = isPgClient(client) ? client.getTransactionStatus?.() : undefined
  if (status) return status !== 'I'
  // `pg` before 8.17, and other drivers.
  try {
    const rows = (await queryRunner.query(insideTransaction)) as readonly unknown[]
    return rows.length > 0
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.failedTransaction) return true
    throw error
  }
}

export const rollbacksOn = (queryRunner: QueryRunner): number => registry.rollbacks.get(queryRunner) ?? 0

/** @throws TransactionAbortedError if it is not the one any more that began after so many rollbacks */
export function requireTransaction(queryRunner: QueryRunner, rollbacks: number): void {
  if (rollbacksOn(queryRunner) !== rollbacks) throw new TransactionAbortedError(undefined, ROLLED_BACK)
}

const ROLLED_BACK = 'it was rolled back while this call was under way: await every call before you end a transaction'
