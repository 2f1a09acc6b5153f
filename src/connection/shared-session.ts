import { type DataSource, QueryFailedError, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import type { Statement, WireRow } from '../sql/statements'
import { ownTransaction, savepoint, type SavepointCommands } from '../sql/transaction-commands'
import { lossOf } from '../registry/losses'
import { hearTransaction } from '../registry/open-transactions'
import { mayWaitForItself } from './own-transactions'
import { isPgClient, requireTextFormat } from './pg-client'
import { notifyFailure, notifyStart, notifySuccess, type SentQuery } from './query-events'
import {
  driverErrorOf,
  inSavepointOf,
  needsNoWrapping,
  parsed,
  type PreparedSending,
  queryByTypeOrm,
  sendPrepared,
  sendWatched,
} from './send-prepared'
import type { Send, Session } from './session'
import { Footing, isInRawTransaction, watch, watchedClient } from './shared-connection'
import { beganOutside, inSection, lockMutex, orStuck, untilOwnEnded } from './mutex'

/** How a session treats the caller's connection. */
interface SharedOptions {
  /** A transaction is open on it. */
  readonly inTransaction: boolean
  /** In a transaction, every statement stands behind a savepoint. */
  readonly savepoints: boolean
  readonly footing: Footing
}

/** The caller's connection, who may use and release it meanwhile. */
export class SharedSession implements Session {
  readonly shared = true

  private constructor(
    readonly queryRunner: QueryRunner,
    readonly dataSource: DataSource,
    private readonly options: SharedOptions,
  ) {}

  static open(queryRunner: QueryRunner, dataSource: DataSource): SharedSession | Promise<SharedSession> {
    const footing = new Footing(queryRunner, beganOutside(queryRunner))
    const make = (inTransaction: boolean): SharedSession =>
      new SharedSession(queryRunner, dataSource, { inTransaction, savepoints: false, footing })
    if (queryRunner.isTransactionActive && !untilOwnEnded(queryRunner)) return make(true)
    return isInTransaction(queryRunner).then(make)
  }

  get inTransaction(): boolean {
    return this.options.inTransaction
  }

  close(): undefined {}

  async release(): Promise<void> {}

  withSavepoints(): Session {
    if (!this.inTransaction) return this
    return new SharedSession(this.queryRunner, this.dataSource, { ...this.options, savepoints: true })
  }

  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return this.rows(statement, values, true)
  }

  async together<T>(work: (send: Send) => Promise<T>): Promise<T> {
    const commands: SavepointCommands = this.inTransaction ? savepoint : ownTransaction
    const result = await this.exclusively(async () => await inSavepointOf(this, await this.connect(), commands, work))
    this.requireStanding()
    return result
  }

  async exclusively<T>(run: () => Promise<T>): Promise<T> {
    const connect = async (): Promise<unknown> => {
      const client = await this.connect()
      this.step()
      return client
    }
    return await inSection(this.queryRunner, { connect, ownTransaction: !this.inTransaction }, run)
  }

  async isUnheard(): Promise<boolean> {
    return isPgClient(await this.connect())
  }

  async failure(sql: string, error: Error): Promise<Error> {
    if (needsNoWrapping(error)) return error
    // Without the parameters, as everywhere: they hold the text.
    return new QueryFailedError(sql, undefined, await this.explained(driverErrorOf(error)))
  }

  readonly query = async (sql: string, values?: unknown[]): Promise<readonly unknown[]> =>
    (await this.queryRunner.query(sql, values)) as unknown[]

  async byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T> {
    this.requireOwn()
    const behindSavepoints = Object.create(this.queryRunner, { query: { value: this.queryOrRollBack } }) as QueryRunner
    try {
      return await run(this.inTransaction ? behindSavepoints : this.queryRunner)
    } catch (error) {
      if (error instanceof QueryFailedError) await this.explained(error.driverError)
      throw error
    }
  }

  /** Past TypeORM's own `query()`, which knows no prepared statements; logged and broadcast as there. */
  async rows<Row>(
    statement: Statement<Row>,
    values: readonly unknown[],
    savepoint: boolean = this.options.savepoints,
  ): Promise<Row[]> {
    const behindSavepoint = savepoint && this.inTransaction
    this.requireOwn()
    const client = watchedClient(this.queryRunner) ?? (await this.connect())
    if (!isPgClient(client)) return await this.sendByTypeOrm(statement, values, behindSavepoint)
    const sent = { by: this, sql: statement.sql, values }
    const notified = notifyStart(sent)
    if (notified) await notified
    const started = performance.now()
    let rows: readonly WireRow[]
    // Ended before anyone hears of it: a subscriber may send a statement of its own, which waits for the mutex.
    const lock = lockMutex(this.queryRunner)
    try {
      if (lock.before) await orStuck(this.queryRunner, lock.before)
      const sending = this.sending(statement, values, behindSavepoint)
      rows = await (mayWaitForItself(this.queryRunner) ? sendWatched(client, sending) : sendPrepared(client, sending))
      hearTransaction(this.queryRunner)
      lock.release()
    } catch (error) {
      lock.release()
      throw await this.failed(error, sent)
    }
    const heard = notifySuccess(sent, performance.now() - started, rows)
    if (heard) await heard
    this.requireStanding()
    return parsed(statement, rows, values)
  }

  private sending(
    statement: Statement<unknown>,
    values: readonly unknown[],
    behindSavepoint: boolean,
  ): PreparedSending {
    const { dataSource, inTransaction } = this
    return {
      dataSource,
      statement,
      values,
      behindSavepoint,
      safe: behindSavepoint || !inTransaction,
      requireOwn: this.step,
    }
  }

  private async failed(error: unknown, sent: SentQuery): Promise<unknown> {
    if (!(error instanceof Error)) return error
    await notifyFailure(sent, error.cause instanceof Error ? error.cause : error)
    return await this.failure(sent.sql, error)
  }

  /** By the only way that every driver has. */
  private async sendByTypeOrm<Row>(
    statement: Statement<Row>,
    values: readonly unknown[],
    behindSavepoint: boolean,
  ): Promise<Row[]> {
    const { sql } = statement
    const query = async (): Promise<WireRow[]> => await queryByTypeOrm(this.queryRunner, sql, values)
    let rows: readonly WireRow[]
    try {
      if (!behindSavepoint) this.step()
      rows = await (behindSavepoint ? this.together(query) : query())
    } catch (error) {
      throw error instanceof QueryFailedError ? await this.failure(sql, error) : error
    }
    this.requireStanding()
    return parsed(statement, rows, values)
  }

  private readonly queryOrRollBack = async (...args: Parameters<QueryRunner['query']>): Promise<unknown> =>
    await this.together(async () => (await this.queryRunner.query(...args)) as unknown)

  /**
   * Hears an error of the driver.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   */
  private async explained(error: Error): Promise<Error> {
    if (this.inTransaction && isSerializationError(error)) throw new TransactionAbortedError(error)
    return error
  }

  private async connect(): Promise<unknown> {
    this.requireOwn()
    const client: unknown = await this.queryRunner.connect()
    if (isPgClient(client)) {
      requireTextFormat(client)
      watch(this.queryRunner, client)
    }
    return client
  }

  requireStanding(): void {
    if (this.inTransaction) this.options.footing.require()
  }

  /** By now the connection may serve another transaction or none, or it was lost between two statements. */
  private readonly requireOwn = (): void => {
    if (this.queryRunner.isReleased) throw lossOf(this.queryRunner) ?? new QueryRunnerAlreadyReleasedError()
    this.requireStanding()
  }

  /** Something is sent now. */
  private readonly step = (): void => {
    this.requireOwn()
    if (this.inTransaction) this.options.footing.step()
  }
}

/** The caller's own: one of ours on the same connection may begin whenever this waits. */
async function isInTransaction(queryRunner: QueryRunner): Promise<boolean> {
  for (;;) {
    for (let ended = untilOwnEnded(queryRunner); ended; ended = untilOwnEnded(queryRunner))
      await orStuck(queryRunner, ended)
    if (queryRunner.isTransactionActive) return true
    const inRaw = await isInRawTransaction(queryRunner)
    if (!inRaw || !untilOwnEnded(queryRunner)) return inRaw
  }
}
