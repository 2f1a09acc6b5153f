import {
  type DataSource,
  QueryFailedError,
  type QueryRunner,
  QueryRunnerAlreadyReleasedError,
  type ReplicationMode,
} from 'typeorm'
import { endsConnection } from '../sql/sqlstate'
import type { Statement, WireRow } from '../sql/statements'
import { ownTransaction } from '../sql/transaction-commands'
import { mayWaitForItself } from './own-transactions'
import { isPgClient, pgClientOf, requireTextFormat } from './pg-client'
import { givesClients, PooledClient } from './pooled-client'
import { isUnheard, notifyFailure, notifyStart, notifySuccess, type SentQuery } from './query-events'
import {
  driverErrorOf,
  inSavepointOf,
  needsNoWrapping,
  parsed,
  queryByTypeOrm,
  sendPrepared,
  sendWatched,
} from './send-prepared'
import type { Send, Session } from './session'

/**
 * A connection of the operation's own, from the pool, outside a transaction. It needs no query runner of TypeORM until
 * somebody asks for one; later statements go through that one.
 */
export class PoolSession implements Session {
  readonly shared = false
  readonly inTransaction = false
  private runner: QueryRunner | undefined
  private held: PooledClient | undefined
  /** Two statements at once share one connection. */
  private taking: Promise<PooledClient | undefined> | undefined
  /** How often the connection was given back. */
  private ends = 0

  /** @param mode of the connection; `slave` is TypeORM's word for a replica */
  constructor(
    readonly dataSource: DataSource,
    private readonly mode: ReplicationMode,
  ) {}

  /** Our own connection is given back before it could take another one: the pool may have no more. */
  get queryRunner(): QueryRunner {
    this.giveBack()
    return (this.runner ??= this.dataSource.createQueryRunner(this.mode))
  }

  /** Takes its connection now, not only when the first statement is sent. */
  async take(): Promise<void> {
    await this.connect()
  }

  close(): Promise<void> | undefined {
    this.giveBack()
    const { runner } = this
    this.runner = undefined
    return runner?.release()
  }

  async release(): Promise<void> {
    await this.close()
  }

  withSavepoints(): Session {
    return this
  }

  /** Past TypeORM's own `query()`, which knows no prepared statements; logged and broadcast as there. */
  async rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    const isQuick = this.isQuick()
    const held = isQuick ? (this.held ?? (await (this.taking ??= this.takeNew()))) : undefined
    const client = held?.client ?? pgClientOf(await this.connect())
    if (!client) return await this.sendByTypeOrm(statement, values)
    const sent = { by: this, sql: statement.sql, values }
    const notified = isQuick ? undefined : notifyStart(sent)
    if (notified) await notified
    const started = performance.now()
    let rows: readonly WireRow[]
    try {
      const sending = {
        dataSource: this.dataSource,
        statement,
        values,
        behindSavepoint: false,
        safe: true,
        requireOwn: nobodyElse,
      }
      rows = await (mayWaitForItself() ? sendWatched(client, sending) : sendPrepared(client, sending))
    } catch (error) {
      throw await this.failed(error, sent)
    }
    const heard = notifySuccess(sent, performance.now() - started, rows)
    if (heard) await heard
    return parsed(statement, rows, values)
  }

  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return this.rows(statement, values)
  }

  async together<T>(work: (send: Send) => Promise<T>): Promise<T> {
    return await inSavepointOf(this, await this.connect(), ownTransaction, work)
  }

  async exclusively<T>(run: () => Promise<T>): Promise<T> {
    return await run()
  }

  requireStanding(): void {}

  async isUnheard(): Promise<boolean> {
    return isPgClient(await this.connect())
  }

  async failure(sql: string, error: Error): Promise<Error> {
    if (needsNoWrapping(error)) return error
    // Without the parameters, as everywhere: they contain the text.
    return new QueryFailedError(sql, undefined, await this.explained(driverErrorOf(error)))
  }

  readonly query = async (sql: string, values?: unknown[]): Promise<readonly unknown[]> => {
    try {
      return (await (await this.connectedRunner()).query(sql, values)) as unknown[]
    } catch (error) {
      await this.discardIfLost(error)
      throw error
    }
  }

  async byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T> {
    try {
      return await run(await this.connectedRunner())
    } catch (error) {
      if (error instanceof QueryFailedError) await this.discardIfLost(error.driverError)
      throw error
    }
  }

  /** The connection is given up first: a subscriber may take another one. */
  private async failed(error: unknown, sent: SentQuery): Promise<unknown> {
    if (!(error instanceof Error)) return error
    const failure = await this.failure(sent.sql, error)
    await notifyFailure(sent, error)
    return failure
  }

  /** By the only way that every driver has. */
  private async sendByTypeOrm<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    const { sql } = statement
    try {
      return parsed(statement, await queryByTypeOrm(this.queryRunner, sql, values), values)
    } catch (error) {
      throw error instanceof QueryFailedError ? await this.failure(sql, error) : error
    }
  }

  private async connectedRunner(): Promise<QueryRunner> {
    const { queryRunner } = this
    await queryRunner.connect()
    return queryRunner
  }

  private isQuick(): boolean {
    return !this.runner && givesClients(this.dataSource) && isUnheard(this.dataSource)
  }

  private async connect(): Promise<unknown> {
    const held = this.isQuick() ? (this.held ?? (await (this.taking ??= this.takeNew()))) : undefined
    if (held) return held.client
    const client: unknown = await this.queryRunner.connect()
    if (isPgClient(client)) requireTextFormat(client)
    return client
  }

  private async takeNew(): Promise<PooledClient | undefined> {
    const { ends } = this
    let held: PooledClient | undefined
    try {
      held = await PooledClient.take(this.dataSource, this.mode)
    } finally {
      this.taking = undefined
    }
    if (ends === this.ends) return (this.held = held)
    // The operation ended before its connection came.
    held?.release()
    throw new QueryRunnerAlreadyReleasedError()
  }

  private giveBack(): void {
    this.ends += 1
    this.held?.release()
    this.held = undefined
  }

  /** Hears an error of the driver. */
  private async explained(error: Error): Promise<Error> {
    await this.discardIfLost(error)
    return error
  }

  /**
   * A connection that the server is closing, or whose answer may still come, must not go back to the pool: the next
   * caller would get it. `pg` drops it on release only once it has seen its end. Of another driver it is not known
   * what else `end()` would end: PGlite closes the database.
   */
  private async discardIfLost(cause: unknown): Promise<void> {
    if (!endsConnection(cause)) return
    const client: unknown = this.held?.client ?? (await this.runner?.connect().catch(() => undefined))
    if (isPgClient(client)) void client.end()
  }
}

/** Nobody else uses the connection, and there is no transaction to lose. */
function nobodyElse(): void {}
