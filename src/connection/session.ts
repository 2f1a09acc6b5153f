import {
  type DataSource,
  type EntityManager,
  QueryFailedError,
  type QueryRunner,
  QueryRunnerAlreadyReleasedError,
  type ReplicationMode,
} from 'typeorm'
import { TransactionAbortedError, UnsupportedDatabaseError } from '../errors'
import { endsConnection, isSerializationError } from '../sql/sqlstate'
import { type Brackets, ownTransaction, savepoint, type Statement, type WireRow } from '../sql/statements'
import { dataSourceOf, registry } from '../typeorm/registry'
import { tellFailure, tellStart, tellSuccess } from './query-events'
import { type Sending, sendPrepared } from './send-prepared'
import {
  inBrackets,
  inWholeTurn,
  isInRawTransaction,
  isPgClient,
  lossOf,
  type PgClient,
  requireTransaction,
  rollbacksOn,
  takeTurn,
  untilOwnEnded,
  watchForLoss,
} from './shared-connection'

/** How a session treats its connection. */
interface SessionOptions {
  /** The connection is the caller's, who may use and release it meanwhile. */
  readonly shared: boolean
  /** The connection is the caller's and a transaction is open on it. */
  readonly inTransaction: boolean
  /** In a transaction, every statement stands behind a savepoint. */
  readonly savepoints: boolean
  /** On the connection before the operation began. */
  readonly rollbacks: number
  /** Where a connection of our own comes from. */
  readonly mode: ReplicationMode
}

/** Sends a statement of several that stand together. */
export type Send = (sql: string, values: readonly unknown[]) => Promise<readonly WireRow[]>

/** One connection for the time of an operation: the caller's, in its transaction, or one from the pool. */
export class Session {
  private constructor(
    private runner: QueryRunner,
    readonly dataSource: DataSource,
    private readonly options: SessionOptions,
  ) {}

  /**
   * Takes the manager's own connection, or will take one from the pool for the first statement.
   *
   * @param mode of a connection from the pool; `slave` is TypeORM's word for a replica
   */
  static async open(manager: EntityManager, mode: ReplicationMode = 'master'): Promise<Session> {
    const dataSource = dataSourceOf(manager)
    const given = manager.queryRunner
    const rollbacks = given ? rollbacksOn(given) : 0
    if (given) await untilOwnEnded(given)
    const inTransaction = given !== undefined && (given.isTransactionActive || (await isInRawTransaction(given)))
    const options = { shared: given !== undefined, inTransaction, savepoints: false, rollbacks, mode }
    return new Session(given ?? dataSource.createQueryRunner(mode), dataSource, options)
  }

  get queryRunner(): QueryRunner {
    return this.runner
  }

  get inTransaction(): boolean {
    return this.options.inTransaction
  }

  /** Gives the connection back to the pool, unless it is the caller's. */
  async close(): Promise<void> {
    if (!this.options.shared) await this.runner.release()
  }

  /**
   * Gives the connection back for the time in which code of the user's runs: that may itself wait for one, and a small
   * pool would have none left. The next statement takes another one.
   */
  async letGo(): Promise<void> {
    if (this.options.shared) return
    await this.runner.release()
    this.runner = this.dataSource.createQueryRunner(this.options.mode)
  }

  /** The same connection, whose transaction stays usable whatever fails. */
  withSavepoints(): Session {
    if (!this.inTransaction) return this
    return new Session(this.runner, this.dataSource, { ...this.options, savepoints: true })
  }

  /**
   * Runs a statement and parses its rows.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   * @throws QueryFailedError for every other error of the driver
   */
  rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return this.send(statement, values, this.options.savepoints)
  }

  /** As `rows`; an error leaves the caller's transaction as it was before. */
  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return this.send(statement, values, true)
  }

  /**
   * Runs several statements, of which an error undoes all: behind a savepoint in the caller's transaction, and otherwise
   * in one of their own.
   *
   * @param work sends them by the function that it is given, or by TypeORM
   */
  async together<T>(work: (send: Send) => Promise<T>): Promise<T> {
    const brackets: Brackets = this.inTransaction ? savepoint : ownTransaction
    return await this.inOneTurn(async () => {
      const client = await this.connect()
      // Past TypeORM: a subscriber that fails in a transaction that has failed must not keep us from rolling back.
      const send: Send = isPgClient(client)
        ? async (text, values) => (await client.query({ text, values, rowMode: 'array' })).rows
        : async (sql, values) => rowsOf(await this.runner.query(sql, [...values]))
      return await inBrackets(
        async (sql) => await send(sql, []),
        brackets,
        async () => await work(send),
      )
    })
  }

  /** Runs several statements. Nobody else's come between them, but those of listeners and subscribers that they call. */
  async inOneTurn<T>(run: () => Promise<T>): Promise<T> {
    if (!this.options.shared) return await run()
    const connect = async (): Promise<unknown> => await this.connect()
    return await inWholeTurn(this.runner, { connect, ownTransaction: !this.inTransaction }, run)
  }

  /** Nobody but us tells TypeORM's logger and subscribers of what `together` sends. */
  async isUnheard(): Promise<boolean> {
    return isPgClient(await this.connect())
  }

  /** An error of the driver as TypeORM gives it, or what it means for the caller's transaction. */
  async failure(sql: string, error: Error): Promise<Error> {
    if (isOurs(error)) return error
    // Without the parameters, as everywhere: they hold the text.
    const driverError = error instanceof QueryFailedError ? (error.driverError as Error) : error
    return new QueryFailedError(sql, undefined, await this.told(driverError))
  }

  /** Runs SQL and gives its rows as objects, by TypeORM's own way. */
  readonly query = async (sql: string, values?: unknown[]): Promise<readonly unknown[]> => {
    try {
      return (await this.runner.query(sql, values)) as unknown[]
    } catch (error) {
      await this.discardIfLost(error)
      throw error
    }
  }

  /**
   * Runs queries of TypeORM's own making. In the caller's transaction, one that fails leaves that usable.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   */
  async byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T> {
    this.requireOwn()
    const behindSavepoints = Object.create(this.runner, { query: { value: this.queryOrRollBack } }) as QueryRunner
    try {
      return await run(this.inTransaction ? behindSavepoints : this.runner)
    } catch (error) {
      if (error instanceof QueryFailedError) await this.told(error.driverError)
      throw error
    }
  }

  private async send<Row>(statement: Statement<Row>, values: readonly unknown[], savepoint: boolean): Promise<Row[]> {
    const behindSavepoint = savepoint && this.inTransaction
    const client = await this.connect()
    const rows = isPgClient(client)
      ? await this.sendByPg(client, statement, values, behindSavepoint)
      : await this.sendByTypeOrm(statement, values, behindSavepoint)
    return rows.map(statement.parse)
  }

  /** Past TypeORM's own `query()`, which knows no prepared statements; logged and broadcast as there. */
  private async sendByPg(
    client: PgClient,
    { name, sql }: Statement<unknown>,
    values: readonly unknown[],
    behindSavepoint: boolean,
  ): Promise<readonly WireRow[]> {
    const sent = { dataSource: this.dataSource, queryRunner: this.runner, sql, values }
    const started = await tellStart(sent)
    const prepare = registry.settings.get(this.dataSource)?.prepare ?? true
    const sending: Sending = {
      name: prepare ? name : '',
      query: { text: sql, values, rowMode: 'array' },
      behindSavepoint,
      safe: behindSavepoint || !this.inTransaction,
      requireOwn: () => {
        this.requireOwn()
      },
    }
    let rows: readonly WireRow[]
    try {
      // Ended before anyone hears of it: a subscriber may send a statement of its own, which waits for its turn.
      const endTurn = this.options.shared ? await takeTurn(this.runner) : undefined
      try {
        rows = await sendPrepared(client, sending)
      } finally {
        endTurn?.()
      }
    } catch (error) {
      if (!(error instanceof Error)) throw error
      await tellFailure(sent, error.cause instanceof Error ? error.cause : error)
      throw await this.failure(sql, error)
    }
    await tellSuccess(sent, performance.now() - started, rows)
    return rows
  }

  /** By the only way that every driver has: its rows are objects, in the order of the select list. */
  private async sendByTypeOrm(
    { sql }: Statement<unknown>,
    values: readonly unknown[],
    behindSavepoint: boolean,
  ): Promise<readonly WireRow[]> {
    const parameters = [...values]
    try {
      if (behindSavepoint) return rowsOf(await this.queryOrRollBack(sql, parameters))
      return rowsOf(await this.runner.query(sql, parameters))
    } catch (error) {
      throw error instanceof QueryFailedError ? await this.failure(sql, error) : error
    }
  }

  private readonly queryOrRollBack = async (...args: Parameters<QueryRunner['query']>): Promise<unknown> =>
    await this.together(async () => (await this.runner.query(...args)) as unknown)

  /**
   * Hears an error of the driver.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   */
  private async told(error: Error): Promise<Error> {
    await this.discardIfLost(error)
    if (this.inTransaction && isSerializationError(error)) throw new TransactionAbortedError(error)
    return error
  }

  private async connect(): Promise<unknown> {
    this.requireOwn()
    const client: unknown = await this.runner.connect()
    if (!isPgClient(client)) return client
    if (client.binary) {
      throw new UnsupportedDatabaseError(
        'The option "binary" of pg gives wrong values: 239 for the integer 200. Leave it out of the DataSource.',
      )
    }
    if (this.options.shared) watchForLoss(this.runner, client)
    return client
  }

  /** By now the connection may serve another transaction or none, or it was lost between two statements. */
  private requireOwn(): void {
    const { shared, inTransaction, rollbacks } = this.options
    if (!shared) return
    if (this.runner.isReleased) throw lossOf(this.runner) ?? new QueryRunnerAlreadyReleasedError()
    if (inTransaction) requireTransaction(this.runner, rollbacks)
  }

  /**
   * A connection that the server is closing, or whose answer may still come, must not go back to the pool: the next
   * caller would get it. `pg` drops it on release only once it has seen its end. Of another driver it is not known
   * what else `end()` would end: PGlite closes the database.
   */
  private async discardIfLost(cause: unknown): Promise<void> {
    if (this.options.shared || !endsConnection(cause)) return
    const client: unknown = await this.runner.connect().catch(() => undefined)
    if (isPgClient(client)) void client.end()
  }
}

/** Its values are in the order of the select list. */
const rowsOf = (objects: unknown): WireRow[] => (objects as readonly object[]).map((row) => Object.values(row))

const isOurs = (error: Error): boolean =>
  error instanceof TransactionAbortedError || error instanceof QueryRunnerAlreadyReleasedError
