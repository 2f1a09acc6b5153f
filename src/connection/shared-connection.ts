import type { QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { seesOpenTransaction } from '../sql/statements'
import { NO_ROLLBACKS, registry, type Rollbacks } from '../typeorm/registry'
import type { ClientQuery } from './exclusive'
import { isPgClient, type PgClient } from './pg-client'
import { Savepoints } from './savepoints'

const watched = new WeakMap<QueryRunner, PgClient>()
export function watch(queryRunner: QueryRunner, client: PgClient): void {
  watched.set(queryRunner, client)
}

/** The client of a query runner, once it was watched. */
export const watchedClient = (queryRunner: QueryRunner): PgClient | undefined => watched.get(queryRunner)

/** A transaction that the caller began by SQL, which TypeORM does not count. */
export async function isInRawTransaction(queryRunner: QueryRunner): Promise<boolean> {
  if (queryRunner.isReleased) return false
  const client: unknown = await queryRunner.connect()
  const status = isPgClient(client) ? client.getTransactionStatus?.() : undefined
  if (status) return status !== 'I'
  // `pg` before 8.17, and other drivers.
  try {
    const rows = (await queryRunner.query(seesOpenTransaction)) as readonly unknown[]
    return rows.length > 0
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.failedTransaction) return true
    throw error
  }
}

const rollbacksOn = (queryRunner: QueryRunner): Rollbacks => registry.rollbacks.get(queryRunner) ?? NO_ROLLBACKS

export const savepointsOf = (queryRunner: QueryRunner): Savepoints =>
  Savepoints.watch((watched.get(queryRunner) ?? queryRunner) as unknown as { query: ClientQuery })

/** The connection that a query runner has by now. */
function clientOf(queryRunner: QueryRunner): PgClient | undefined {
  const client: unknown = Reflect.get(queryRunner, 'databaseConnection')
  return isPgClient(client) ? client : undefined
}

/** Where a call stands in the caller's transaction. */
export class Footing {
  private readonly before: Rollbacks
  /** Of the savepoints: the driver's client, as far as it was known when the call began. */
  private readonly holder: object
  private savepoints: Savepoints | undefined
  /** When it last sent something, or began. */
  private at: number

  /** @param outside when the section began that a call from outside waits for. @default there is none */
  constructor(
    private readonly queryRunner: QueryRunner,
    outside: number | undefined,
  ) {
    this.before = rollbacksOn(queryRunner)
    this.holder = watched.get(queryRunner) ?? clientOf(queryRunner) ?? queryRunner
    this.savepoints = Savepoints.of(this.holder)
    this.at = outside ?? this.savepoints?.now ?? 0
  }

  /** @throws TransactionAbortedError if what the call did was rolled back, or the transaction in which it began */
  require(): void {
    const { ofTransactions, toSavepoints } = rollbacksOn(this.queryRunner)
    // Another call may have begun to hear them since this one began: what it heard came after.
    this.savepoints ??= Savepoints.of(this.holder)
    const isUndone = this.savepoints
      ? this.savepoints.isUndone(this.at)
      : // Not told yet which: as long as the first connect() takes, any may be.
        toSavepoints !== this.before.toSavepoints
    if (isUndone || ofTransactions !== this.before.ofTransactions)
      throw new TransactionAbortedError(undefined, ROLLED_BACK)
  }

  /** Something is sent now, by a connection that is watched where it is one of `pg`. */
  step(): void {
    this.require()
    this.savepoints = savepointsOf(this.queryRunner)
    this.at = this.savepoints.now
  }
}

const ROLLED_BACK = 'it was rolled back while this call was under way: await every call before you end a transaction'
