import {
  type DataSource,
  type EntityManager,
  QueryFailedError,
  type QueryRunner,
  QueryRunnerAlreadyReleasedError,
  type ReplicationMode,
} from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { dataSourceOf } from '../registry/registry'
import { lossOf, obtainsAsMade, type PoolDriver } from '../registry/pool'
import { hearTransaction, type OpenTransaction, openTransaction } from '../registry/open-transactions'
import type { Statement, WireRow } from '../sql/find'
import { endsConnection, isSerializationError } from '../sql/sqlstate'
import { ownTransaction, savepoint, type SavepointCommands } from '../sql/transaction-commands'
import { beganOutside, beginCall, inSection, lockMutex, orStuck, untilOwnEnded } from './mutex'
import { driverErrorOf, inSavepointOf, needsNoWrapping, parsed, queryByTypeOrm, sendPrepared } from './send'
import {
  isUnheard,
  logSlow,
  notifyFailure,
  notifyStart,
  notifySuccess,
  type Send,
  type SentQuery,
  type Session,
} from './session'
import { Footing, isInRawTransaction, watch, watchedClient } from './shared-connection'
import { isPgClient, type PgClient, pgClientOf, requireTextFormat } from './wire'

/**
 * Uses the manager's own connection, or takes one from the pool when the first statement is sent.
 *
 * @param mode the mode of a connection from the pool; `slave` is TypeORM's word for a replica
 */
export function openSession(manager: EntityManager, mode: ReplicationMode = 'master'): Session | Promise<Session> {
  const dataSource = dataSourceOf(manager)
  const given = manager.queryRunner
  return given ? SharedSession.open(given, dataSource) : new PoolSession(dataSource, mode)
}

/** Runs work on a session, and closes it. Operations that are called often have these lines themselves. */
export async function withSession<Result>(
  manager: EntityManager,
  run: (session: Session) => Promise<Result>,
  mode: ReplicationMode = 'master',
): Promise<Result> {
  const session = await openSession(manager, mode)
  try {
    return await run(session)
  } finally {
    await session.close()
  }
}

/**
 * The operation's own connection, from the pool, outside a transaction. It has no query runner of TypeORM until code
 * asks for one. Later statements are sent through that query runner.
 */
export class PoolSession implements Session {
  readonly shared = false
  readonly inTransaction = false
  readonly around: OpenTransaction | undefined = openTransaction()
  readonly connectsAsMade: boolean
  private runner: QueryRunner | undefined
  private held: PooledClient | undefined
  /** Set while a connection is taken, so that two statements at once share one. */
  private taking: Promise<PooledClient | undefined> | undefined
  /** How often the connection was returned to the pool. */
  private ends = 0

  /** @param mode the mode of the connection; `slave` is TypeORM's word for a replica */
  constructor(
    readonly dataSource: DataSource,
    private readonly mode: ReplicationMode,
  ) {
    this.connectsAsMade = connectsAsMade(dataSource)
  }

  /** Returns our own connection to the pool first, because the query runner takes one and the pool may have no more. */
  get queryRunner(): QueryRunner {
    this.giveBack()
    return (this.runner ??= this.dataSource.createQueryRunner(this.mode))
  }

  /** Takes the connection now, and not when the first statement is sent. */
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

  /** Bypasses TypeORM's `query()`, which has no prepared statements. Logs and broadcasts as that does. */
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
      const { dataSource, around } = this
      rows = await sendPrepared(client, { dataSource, statement, values, behindSavepoint: false, safe: true, around })
    } catch (error) {
      throw await this.failed(error, sent)
    }
    const took = performance.now() - started
    if (isQuick) logSlow(sent, took)
    else await notifySuccess(sent, took, rows)
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

  async bypassesTypeOrm(): Promise<boolean> {
    return isPgClient(await this.connect())
  }

  async failure(sql: string, error: Error): Promise<Error> {
    if (needsNoWrapping(error)) return error
    const driverError = driverErrorOf(error)
    await this.discardIfLost(driverError)
    // Without the parameters, as everywhere: they contain the text.
    return new QueryFailedError(sql, undefined, driverError)
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

  /** Gives up the connection first, because a subscriber may take another one. */
  private async failed(error: unknown, sent: SentQuery): Promise<unknown> {
    if (!(error instanceof Error)) return error
    const failure = await this.failure(sent.sql, error)
    await notifyFailure(sent, error)
    return failure
  }

  /** Sends through TypeORM's `query()`, which every driver has. */
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

  /** Whether a client of `pg` can be taken without a query runner, because no other code replaces the way to it. */
  private isQuick(): boolean {
    const { dataSource } = this
    return !this.runner && this.connectsAsMade && !others.has(dataSource.driver) && isUnheard(dataSource)
  }

  private async connect(): Promise<unknown> {
    const held = this.isQuick() ? (this.held ?? (await (this.taking ??= this.takeNew()))) : undefined
    if (held) return held.client
    const client: unknown = await this.queryRunner.connect()
    if (isPgClient(client)) requireTextFormat(client)
    return client
  }

  private async takeNew(): Promise<PooledClient | undefined> {
    const { ends, dataSource, mode } = this
    const pool = dataSource.driver as unknown as PoolDriver
    try {
      const [client, handBack] = await (mode === 'slave' && pool.isReplicated
        ? pool.obtainSlaveConnection()
        : pool.obtainMasterConnection())
      if (ends !== this.ends) {
        // The operation ended before its connection was available.
        handBack()
        throw new QueryRunnerAlreadyReleasedError()
      }
      if (!isPgClient(client)) {
        handBack()
        others.add(pool)
        return undefined
      }
      // A session never holds a client that it refused.
      const held = new PooledClient(client, handBack, pool.connectedQueryRunners)
      try {
        requireTextFormat(client)
      } catch (error) {
        held.release()
        throw error
      }
      this.held = held
      return held
    } finally {
      this.taking = undefined
    }
  }

  private giveBack(): void {
    this.ends += 1
    this.held?.release()
    this.held = undefined
  }

  /**
   * Closes a connection that the server is closing, or whose answer may still arrive: the next caller of the pool would
   * get it. On release, `pg` drops it only if it has seen its end. With another driver, `end()` may close more: PGlite
   * closes the database.
   */
  private async discardIfLost(cause: unknown): Promise<void> {
    if (!endsConnection(cause)) return
    const client: unknown = this.held?.client ?? (await this.runner?.connect().catch(() => undefined))
    if (isPgClient(client)) void client.end()
  }
}

/** A client of the pool while it is ours, held as TypeORM's query runners hold theirs. */
class PooledClient {
  private isReleased = false

  constructor(
    readonly client: PgClient,
    private readonly handBack: (error?: Error) => void,
    private readonly others: { release(): unknown }[],
  ) {
    others.push(this)
    // Without a listener, a lost connection would end the process.
    client.on('error', this.release)
  }

  /** Returns the client to the pool. With an error, the pool drops it. */
  readonly release = (error?: Error): void => {
    if (this.isReleased) return
    this.isReleased = true
    this.client.removeListener('error', this.release)
    this.others.splice(this.others.indexOf(this), 1)
    this.handBack(error)
  }
}

/** Drivers whose clients are not of `pg`. */
const others = new WeakSet<object>()

/** How each driver creates query runners, and whether they take a client as `PooledClient` does. */
const makings = new WeakMap<
  object,
  { readonly ofDataSource: unknown; readonly ofDriver: unknown; readonly isKnown: boolean }
>()

/** Whether no other code replaces the way from a call to its connection. */
function connectsAsMade(dataSource: DataSource): boolean {
  const { driver } = dataSource
  if (!obtainsAsMade(dataSource)) return false
  const ofDataSource: unknown = Reflect.get(dataSource, 'createQueryRunner')
  const ofDriver: unknown = Reflect.get(driver, 'createQueryRunner')
  const making = makings.get(driver)
  if (making && making.ofDataSource === ofDataSource && making.ofDriver === ofDriver) return making.isKnown
  // The driver's class makes a query runner of TypeORM, whatever wraps the driver's method.
  const { createQueryRunner } = Object.getPrototypeOf(driver) as Pick<typeof driver, 'createQueryRunner'>
  const own = Reflect.apply(createQueryRunner, driver, ['master'] as const)
  const isKnown = Reflect.get(dataSource.createQueryRunner('master'), 'connect') === Reflect.get(own, 'connect')
  makings.set(driver, { ofDataSource, ofDriver, isKnown })
  return isKnown
}

/** How a session treats the caller's connection. */
interface SharedOptions {
  /** Whether a transaction is open on it. */
  readonly inTransaction: boolean
  /** Whether every statement in a transaction runs behind a savepoint. */
  readonly savepoints: boolean
  readonly footing: Footing
  /** Ends the call. Undefined outside a transaction. */
  readonly end: (() => void) | undefined
}

/** The caller's connection. The caller may use and release it meanwhile. */
class SharedSession implements Session {
  readonly shared = true
  readonly connectsAsMade = false
  readonly around: OpenTransaction | undefined

  private constructor(
    readonly queryRunner: QueryRunner,
    readonly dataSource: DataSource,
    private readonly options: SharedOptions,
  ) {
    const innermost = openTransaction()
    this.around = innermost?.queryRunner === queryRunner && !innermost.outer ? undefined : innermost
  }

  static open(queryRunner: QueryRunner, dataSource: DataSource): SharedSession | Promise<SharedSession> {
    const footing = new Footing(queryRunner, beganOutside(queryRunner))
    const make = (inTransaction: boolean): SharedSession =>
      new SharedSession(queryRunner, dataSource, {
        inTransaction,
        savepoints: false,
        footing,
        end: inTransaction ? beginCall(queryRunner) : undefined,
      })
    if (queryRunner.isTransactionActive && !untilOwnEnded(queryRunner)) return make(true)
    return isInTransaction(queryRunner).then(make)
  }

  get inTransaction(): boolean {
    return this.options.inTransaction
  }

  close(): undefined {
    this.options.end?.()
  }

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
    return await inSection(this.queryRunner, !this.inTransaction, connect, run)
  }

  async bypassesTypeOrm(): Promise<boolean> {
    return isPgClient(await this.connect())
  }

  async failure(sql: string, error: Error): Promise<Error> {
    if (needsNoWrapping(error)) return error
    // Without the parameters, as everywhere: they contain the text.
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

  /** Bypasses TypeORM's `query()`, which has no prepared statements. Logs and broadcasts as that does. */
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
    // Released before anyone is notified: a subscriber may send its own statement, which waits for the mutex.
    const lock = lockMutex(this.queryRunner)
    try {
      if (lock.before) await orStuck(this.queryRunner, lock.before)
      const { dataSource, around, step: requireOwn } = this
      const safe = behindSavepoint || !this.inTransaction
      rows = await sendPrepared(client, { dataSource, statement, values, behindSavepoint, safe, around, requireOwn })
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

  private async failed(error: unknown, sent: SentQuery): Promise<unknown> {
    if (!(error instanceof Error)) return error
    await notifyFailure(sent, error.cause instanceof Error ? error.cause : error)
    return await this.failure(sent.sql, error)
  }

  /** Sends through TypeORM's `query()`, which every driver has. */
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
   * Explains a driver error.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, and if that was rolled back
   */
  private async explained(error: Error): Promise<Error> {
    if (this.inTransaction && isSerializationError(error)) throw new TransactionAbortedError(error)
    if (this.inTransaction) this.options.footing.require(error)
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

  /** Throws if the connection now serves another transaction or none, or was lost between two statements. */
  private readonly requireOwn = (): void => {
    if (this.queryRunner.isReleased) throw lossOf(this.queryRunner) ?? new QueryRunnerAlreadyReleasedError()
    this.requireStanding()
  }

  /** Called when something is sent. */
  private readonly step = (): void => {
    this.requireOwn()
    if (this.inTransaction) this.options.footing.step()
  }
}

/** Whether the caller's own transaction is open. While this waits, one of ours on the same connection may begin. */
async function isInTransaction(queryRunner: QueryRunner): Promise<boolean> {
  for (;;) {
    for (let ended = untilOwnEnded(queryRunner); ended; ended = untilOwnEnded(queryRunner))
      await orStuck(queryRunner, ended)
    if (queryRunner.isTransactionActive) return true
    const inRaw = await isInRawTransaction(queryRunner)
    if (!inRaw || !untilOwnEnded(queryRunner)) return inRaw
  }
}
