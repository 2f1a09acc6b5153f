import { type DataSource, QueryFailedError, type QueryRunner, type ReplicationMode } from 'typeorm'
import { endsConnection } from '../sql/sqlstate'
import { ownTransaction, type Statement, type WireRow } from '../sql/statements'
import { inBrackets } from './brackets'
import { isPgClient, type PgClient, requireTextFormat } from './pg-client'
import { tellFailure, tellStart, tellSuccess } from './query-events'
import { driverErrorOf, isOurs, preparable, wireRows } from './send-by-pg'
import { sendPrepared } from './send-prepared'
import type { Send, Session } from './session'

/** A connection of the operation's own, from the pool, outside a transaction. */
export class PoolSession implements Session {
  readonly shared = false
  readonly inTransaction = false
  private runner: QueryRunner

  /** @param mode of the connection; `slave` is TypeORM's word for a replica */
  constructor(
    readonly dataSource: DataSource,
    private readonly mode: ReplicationMode,
  ) {
    this.runner = dataSource.createQueryRunner(mode)
  }

  get queryRunner(): QueryRunner {
    return this.runner
  }

  /** Takes its connection now, and not only for the first statement. */
  async take(): Promise<void> {
    await this.connect()
  }

  async close(): Promise<void> {
    await this.runner.release()
  }

  async letGo(): Promise<void> {
    await this.runner.release()
    this.runner = this.dataSource.createQueryRunner(this.mode)
  }

  withSavepoints(): Session {
    return this
  }

  rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return this.send(statement, values)
  }

  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    return this.send(statement, values)
  }

  async together<T>(work: (send: Send) => Promise<T>): Promise<T> {
    const client = await this.connect()
    // Past TypeORM: a subscriber that fails in a transaction that has failed must not keep us from rolling back.
    const send: Send = isPgClient(client)
      ? async (text, values) => (await client.query({ text, values, rowMode: 'array' })).rows
      : async (sql, values) => wireRows(await this.runner.query(sql, [...values]))
    return await inBrackets(
      async (sql) => await send(sql, []),
      ownTransaction,
      async () => await work(send),
    )
  }

  async inOneTurn<T>(run: () => Promise<T>): Promise<T> {
    return await run()
  }

  async isUnheard(): Promise<boolean> {
    return isPgClient(await this.connect())
  }

  async failure(sql: string, error: Error): Promise<Error> {
    if (isOurs(error)) return error
    // Without the parameters, as everywhere: they hold the text.
    return new QueryFailedError(sql, undefined, await this.told(driverErrorOf(error)))
  }

  readonly query = async (sql: string, values?: unknown[]): Promise<readonly unknown[]> => {
    try {
      return (await this.runner.query(sql, values)) as unknown[]
    } catch (error) {
      await this.discardIfLost(error)
      throw error
    }
  }

  async byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T> {
    try {
      return await run(this.runner)
    } catch (error) {
      if (error instanceof QueryFailedError) await this.discardIfLost(error.driverError)
      throw error
    }
  }

  private async send<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]> {
    const client = await this.connect()
    const rows = isPgClient(client)
      ? await this.sendByPg(client, statement, values)
      : await this.sendByTypeOrm(statement, values)
    return rows.map((row) => statement.parse(row, values))
  }

  /** Past TypeORM's own `query()`, which knows no prepared statements; logged and broadcast as there. */
  private async sendByPg(
    client: PgClient,
    statement: Statement<unknown>,
    values: readonly unknown[],
  ): Promise<readonly WireRow[]> {
    const sent = { dataSource: this.dataSource, queryRunner: this.runner, sql: statement.sql, values }
    await tellStart(sent)
    const started = performance.now()
    let rows: readonly WireRow[]
    try {
      rows = await sendPrepared(client, { ...preparable(this.dataSource, statement, values), ...ALONE })
    } catch (error) {
      if (!(error instanceof Error)) throw error
      await tellFailure(sent, error.cause instanceof Error ? error.cause : error)
      throw await this.failure(statement.sql, error)
    }
    await tellSuccess(sent, performance.now() - started, rows)
    return rows
  }

  /** By the only way that every driver has. */
  private async sendByTypeOrm({ sql }: Statement<unknown>, values: readonly unknown[]): Promise<readonly WireRow[]> {
    try {
      return wireRows(await this.runner.query(sql, [...values]))
    } catch (error) {
      throw error instanceof QueryFailedError ? await this.failure(sql, error) : error
    }
  }

  private async connect(): Promise<unknown> {
    const client: unknown = await this.runner.connect()
    if (isPgClient(client)) requireTextFormat(client)
    return client
  }

  /** Hears an error of the driver. */
  private async told(error: Error): Promise<Error> {
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
    const client: unknown = await this.runner.connect().catch(() => undefined)
    if (isPgClient(client)) void client.end()
  }
}

/** Nobody else uses the connection, and there is no transaction to lose. */
const ALONE = { behindSavepoint: false, safe: true, requireOwn: (): void => {} }
