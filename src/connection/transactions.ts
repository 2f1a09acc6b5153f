import { type EntityManager, QueryFailedError, type QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { dataSourceOf, registry } from '../registry/registry'
import { insideTransaction, openTransaction } from '../registry/open-transactions'
import type { Statement } from '../sql/find'
import { isSerializationError } from '../sql/sqlstate'
import { ownTransaction, seesCommitted, wholeSavepoint } from '../sql/transaction-commands'
import { orWaitsForItself } from './mutex'
import { announce, isUnheard, log, notifyFailure, notifySuccess, type SentQuery, type Session } from './session'
import { inFrontOf, inSavepoint, queryHolder, savepointsOf, watch } from './shared-connection'
import { hasTimeout, isPgClient, joinedCommands, type PgClient, PreparedQuery, takesPreparedQueries } from './wire'

/**
 * Runs several statements as one. They run in their own transaction, or behind a savepoint in the caller's transaction,
 * which stays usable. Other statements that the caller sends on the same connection wait for the end.
 *
 * @param session the session of the whole call, open since the call began
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 */
export async function asOne<T>(
  session: Session,
  manager: EntityManager,
  run: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  if (!session.inTransaction) return await session.exclusively(async () => await inTransaction(manager, run))
  const { queryRunner } = session
  const send = async (sql: string): Promise<unknown> => {
    // A rollback to a savepoint that no longer exists would abort the transaction.
    session.requireStanding()
    // A subscriber that fails in an aborted transaction must not prevent our rollback.
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

/** Runs work as TypeORM's `transaction()` does. */
async function inTransaction<T>(manager: EntityManager, run: (manager: EntityManager) => Promise<T>): Promise<T> {
  const dataSource = dataSourceOf(manager)
  const queryRunner = manager.queryRunner ?? dataSource.createQueryRunner()
  try {
    const client: unknown = await queryRunner.connect()
    const transact = async (): Promise<T> => await queryRunner.manager.transaction(run)
    const around = openTransaction()
    return await (around && isPgClient(client) ? orWaitsForItself(dataSource, client, around, transact) : transact())
  } finally {
    if (!manager.queryRunner) await queryRunner.release()
  }
}

/**
 * @param error an error of one of our indexes, about a row that a look-up did not find
 * @throws TransactionAbortedError if the caller's transaction does not see what others have committed since it began
 */
export async function requireCurrentSnapshot(session: Session, error: unknown): Promise<void> {
  if (!session.inTransaction) return
  const [sees] = await session.rows(seesCommitted, [])
  if (sees !== true)
    throw new TransactionAbortedError(error, 'a row that its snapshot does not show holds the text, or the number')
}

/** One of several statements that are all done or all undone. */
export interface Step<Row> {
  readonly statement: Statement<Row>
  readonly values: readonly unknown[]
  /** Checks the rows of the step; an error that it throws undoes everything. */
  readonly check?: (rows: readonly Row[]) => void
  /** Whether `check` can fail although the step has changed rows. @default it has changed none then */
  readonly isPartial?: boolean
}

/** The result of a step at the server. */
interface StepAnswer<Row> {
  readonly rows: readonly Row[]
  readonly milliseconds: number
}

/**
 * Runs all steps or none. The caller's transaction stays usable. One step outside a transaction is one round trip.
 *
 * @returns the rows of each step
 * @throws TransactionAbortedError, QueryFailedError, and the errors of `check`
 */
export async function allOrNothing<Row>(session: Session, steps: readonly Step<Row>[]): Promise<(readonly Row[])[]> {
  const [only, another] = steps
  if (!only) return []
  if (another || only.isPartial) return await runTogether(session, steps)
  const rows = await session.rowsOrRollBack(only.statement, only.values)
  only.check?.(rows)
  return [rows]
}

async function runTogether<Row>(session: Session, steps: readonly Step<Row>[]): Promise<(readonly Row[])[]> {
  // Subscribers are called before and after: a statement that a subscriber sends would wait for the end of ours.
  const announced = (await session.bypassesTypeOrm()) ? steps.map((step) => sentOf(session, step)) : []
  for (const one of announced) await announce(one)
  const answers: StepAnswer<Row>[] = []
  const logCommand = (sql: string): void => {
    if (announced.length > 0 && !session.inTransaction) log(sentOf(session, { statement: { sql }, values: [] }))
  }
  logCommand(ownTransaction.set)
  let checking = false
  try {
    await session.together(async (send) => {
      for (const { statement, values, check } of steps) {
        const sent = announced[answers.length]
        if (sent) log(sent)
        const started = performance.now()
        const rows = (await send(statement.sql, values)).map((row) => statement.parse(row, values))
        answers.push({ rows, milliseconds: performance.now() - started })
        checking = true
        check?.(rows)
        checking = false
      }
    })
  } catch (thrown) {
    const { sql } = steps[answers.length]?.statement ?? { sql: ownTransaction.release }
    // `failure` throws some errors, and returns others.
    const error: unknown =
      checking || !(thrown instanceof Error)
        ? thrown
        : await session.failure(sql, thrown).catch((lost: unknown) => lost)
    logCommand(ownTransaction.rollBack)
    await notifyEnd(announced, answers, error)
    throw error
  }
  logCommand(ownTransaction.release)
  await notifyEnd(announced, answers)
  return answers.map(({ rows }) => rows)
}

async function notifyEnd<Row>(
  announced: readonly SentQuery[],
  answers: readonly StepAnswer<Row>[],
  error?: unknown,
): Promise<void> {
  for (const [index, { rows, milliseconds }] of answers.entries()) {
    const sent = announced[index]
    if (sent) await notifySuccess(sent, milliseconds, rows)
  }
  const failed = announced[answers.length]
  if (failed && error instanceof QueryFailedError) await notifyFailure(failed, error.driverError as Error)
}

const sentOf = (
  by: Session,
  { statement, values }: { readonly statement: { readonly sql: string }; readonly values: readonly unknown[] },
): SentQuery => ({ by, sql: statement.sql, values })

/** Work in a transaction, and the statement that ends it. */
export interface JoinedWork {
  /** The work. Its first statement is sent together with START TRANSACTION. */
  readonly run: (manager: EntityManager) => Promise<void>
  /** Sends one statement together with JOINED_COMMIT; if it fails, everything is undone. */
  readonly last: (manager: EntityManager) => Promise<void>
  /** The SQL of that statement, which distinguishes it from statements that the work has started and not awaited. */
  readonly lastSql: string
}

const ENDED = 'the code that runs in it ended it'

const JOINED_BEGIN = joinedCommands([ownTransaction.set], [])
const JOINED_COMMIT = joinedCommands([], [ownTransaction.release])

/** Whether it is a query object of ours, without commands around it. */
const isPlain = (query: unknown): query is PreparedQuery => query instanceof PreparedQuery && !query.isJoined

/** The result that TypeORM gets for a command that is sent together with a statement. */
const DONE = { rows: [], rowCount: null, command: '' } as const

/**
 * Runs work as TypeORM's `transaction()` does, and saves two round trips. If no logger or subscriber listens, START
 * TRANSACTION and JOINED_COMMIT are sent together with the next or the last statement.
 *
 * @throws TransactionAbortedError if the work has ended the transaction
 */
export async function transact(manager: EntityManager, { run, last, lastSql }: JoinedWork): Promise<void> {
  const queryRunner = manager.queryRunner ?? dataSourceOf(manager).createQueryRunner()
  const own = queryRunner.manager

  try {
    const client = await joiningClient(queryRunner)
    if (client) {
      watch(queryRunner, client)
      // Our functions are put in front of this one, and removed before it.
      savepointsOf(queryRunner)
    }
    const stop = client && joinBegin(client)
    try {
      await queryRunner.startTransaction()
      await insideTransaction(queryRunner, async () => {
        await run(own)
      })
    } finally {
      stop?.()
    }
    if (!queryRunner.isTransactionActive) throw new TransactionAbortedError(undefined, ENDED)
    if (client) await commitWith(queryRunner, client, lastSql, async () => await last(own))
    else {
      await last(own)
      await queryRunner.commitTransaction()
    }
  } catch (error) {
    // The first error is more specific.
    if (queryRunner.isTransactionActive)
      await queryRunner.rollbackTransaction().catch(async () => {
        // After a `query_timeout`, for instance, the transaction may still be open. Its connection must not return to
        // the pool.
        const client: unknown = queryRunner.isReleased ? undefined : await queryRunner.connect().catch(() => undefined)
        if (isPgClient(client)) void client.end()
      })
    throw error
  } finally {
    if (!manager.queryRunner) await queryRunner.release()
  }
}

/** @returns undefined if a logger or subscriber listens, or if statements are not sent by our own query object */
async function joiningClient(queryRunner: QueryRunner): Promise<PgClient | undefined> {
  const dataSource = dataSourceOf(queryRunner.manager)
  const client: unknown = await queryRunner.connect()
  if (!isUnheard(dataSource) || registry.settings.get(dataSource)?.prepare === false) return undefined
  return isPgClient(client) && takesPreparedQueries(client) && !hasTimeout(client) ? client : undefined
}

/** Delays START TRANSACTION until the next statement is sent. */
function joinBegin(client: PgClient): () => void {
  let kept = false
  let sent = false
  const stop = inFrontOf(queryHolder(client), (query) => (...args) => {
    const [first] = args
    if (!kept && first === ownTransaction.set) {
      kept = true
      return Promise.resolve(DONE)
    }
    // If other code has put a function in front of ours by now, ours stays in place.
    if (!kept || sent) return query(...args)
    sent = true
    stop()
    if (isPlain(first)) return query(first.joinedBy(JOINED_BEGIN))
    return Promise.resolve(query(ownTransaction.set)).then(() => query(...args))
  })
  return stop
}

/** Sends the last statement when TypeORM sends JOINED_COMMIT: its subscribers may have sent others before. */
async function commitWith(
  queryRunner: QueryRunner,
  client: PgClient,
  lastSql: string,
  sendLast: () => Promise<void>,
): Promise<void> {
  let failure: { readonly error: unknown } | undefined
  let state: 'open' | 'ending' | 'joined' = 'open'
  const stop = inFrontOf(queryHolder(client), (query) => (...args) => {
    const [first] = args
    if (state === 'open' && first === ownTransaction.release) {
      state = 'ending'
      return sendLast().then(
        async () => (state === 'joined' ? DONE : await query(...args)),
        (error: unknown) => {
          failure = { error }
          throw error
        },
      )
    }
    if (state !== 'ending' || !isPlain(first) || first.text !== lastSql) return query(...args)
    state = 'joined'
    return query(first.joinedBy(JOINED_COMMIT))
  })
  try {
    await queryRunner.commitTransaction()
  } catch (error) {
    // TypeORM would report that JOINED_COMMIT had failed.
    throw failure ? failure.error : error
  } finally {
    stop()
    // JOINED_COMMIT may have been sent together with a statement.
    savepointsOf(queryRunner).hear([{ does: 'commit' }])
  }
}
