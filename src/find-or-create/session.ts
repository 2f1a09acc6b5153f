import {
  type DataSource,
  type EntityManager,
  QueryFailedError,
  type QueryRunner,
  QueryRunnerAlreadyReleasedError,
} from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { endsConnection, isSerializationError } from '../sql/sqlstate'
import type { Statement, WireRow } from '../sql/statements'
import { dataSourceOf, registry } from '../typeorm/registry'
import { type SentQuery, tellFailure, tellStart, tellSuccess } from './query-events'
import { lossOf, type PgClient, type PgQuery, queryOrRollBack, takeTurn, watchForLoss } from './shared-connection'

/** How a session treats its connection. */
interface SessionOptions {
  /** The connection is the caller's, who may use and release it meanwhile. */
  readonly shared: boolean
  /** The connection is the caller's and a transaction is open on it. */
  readonly inTransaction: boolean
  /** In a transaction, every statement stands behind a savepoint. */
  readonly savepoints: boolean
}

/** One connection for the time of an operation: the caller's, in its transaction, or one from the pool. */
export class Session {
  private constructor(
    private runner: QueryRunner,
    readonly dataSource: DataSource,
    private readonly options: SessionOptions,
  ) {}

  /** Takes the manager's own connection, or will take one from the pool for the first statement. */
  static async open(manager: EntityManager): Promise<Session> {
    const dataSource = dataSourceOf(manager)
    const given = manager.queryRunner
    const inTransaction = given !== undefined && (given.isTransactionActive || (await isInRawTransaction(given)))
    const options = { shared: given !== undefined, inTransaction, savepoints: false }
    return new Session(given ?? dataSource.createQueryRunner('master'), dataSource, options)
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
    this.runner = this.dataSource.createQueryRunner('master')
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
  async rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return await this.send(statement, values, this.options.savepoints)
  }

  /** As `rows`; an error leaves the caller's transaction as it was before. */
  async rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return await this.send(statement, values, true)
  }

  /** Runs SQL and gives its rows as objects, by TypeORM's own way. */
  readonly query = async (sql: string, values?: unknown[]): Promise<readonly unknown[]> => {
    const endTurn = await this.takeTurn()
    try {
      return (await this.runner.query(sql, values)) as unknown[]
    } catch (error) {
      await this.discardIfLost(error)
      throw error
    } finally {
      endTurn()
    }
  }

  private async takeTurn(): Promise<() => void> {
    return this.options.shared ? await takeTurn(this.runner) : () => {}
  }

  /** Past TypeORM's own `query()`, which knows no prepared statements; logged and broadcast as there. */
  private async send<Row>(statement: Statement<Row>, values: readonly unknown[], savepoint: boolean): Promise<Row[]> {
    const endTurn = await this.takeTurn()
    try {
      const client = await this.connect()
      const sent = { dataSource: this.dataSource, queryRunner: this.runner, sql: statement.sql, values }
      const started = await tellStart(sent)
      const rows = await this.answer(sent, client, this.queryOf(statement, values), savepoint)
      await tellSuccess(sent, started, rows)
      return rows.map(statement.parse)
    } finally {
      endTurn()
    }
  }

  private async answer(
    sent: SentQuery,
    client: PgClient,
    query: PgQuery,
    savepoint: boolean,
  ): Promise<readonly WireRow[]> {
    try {
      const { rows } = await (savepoint && this.inTransaction ? queryOrRollBack(client, query) : client.query(query))
      return rows
    } catch (error) {
      if (!(error instanceof Error)) throw error
      await tellFailure(sent, error)
      await this.discardIfLost(error)
      if (this.inTransaction && isSerializationError(error)) throw new TransactionAbortedError(error)
      // Without the parameters: they hold the text.
      throw new QueryFailedError(sent.sql, undefined, error)
    }
  }

  private queryOf({ name, sql }: Statement<unknown>, values: readonly unknown[]): PgQuery {
    const prepare = name !== '' && (registry.settings.get(this.dataSource)?.prepare ?? true)
    return { text: sql, values, rowMode: 'array', ...(prepare ? { name } : {}) }
  }

  private async connect(): Promise<PgClient> {
    const { shared } = this.options
    // By now the connection may serve another transaction, or it was lost between two statements.
    if (shared && this.runner.isReleased) throw lossOf(this.runner) ?? new QueryRunnerAlreadyReleasedError()
    const client = (await this.runner.connect()) as PgClient
    if (shared) watchForLoss(this.runner, client)
    return client
  }

  /**
   * A connection that the server is closing, or whose answer may still come, must not go back to the pool: the next
   * caller would get it. `pg` drops it on release only once it has seen its end.
   */
  private async discardIfLost(cause: unknown): Promise<void> {
    if (this.options.shared || !endsConnection(cause)) return
    const client = (await this.runner.connect().catch(() => undefined)) as PgClient | undefined
    void client?.end()
  }
}

/** A transaction that the caller began by SQL, which TypeORM does not count. Known from pg 8.17 on. */
async function isInRawTransaction(queryRunner: QueryRunner): Promise<boolean> {
  if (queryRunner.isReleased) return false
  const status = ((await queryRunner.connect()) as PgClient).getTransactionStatus?.()
  return status === 'T' || status === 'E'
}
