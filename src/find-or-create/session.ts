import { type DataSource, type EntityManager, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import type { Query } from '../sql/catalog'
import { endsConnection, isSerializationError, serverError } from '../sql/sqlstate'
import { savepoint, type Statement } from '../sql/statements'
import { dataSourceOf, registry } from '../typeorm/registry'

/** The parts of a `pg` client that are used here. */
interface PgClient {
  query(config: {
    text: string
    values: readonly unknown[]
    rowMode: 'array'
    name?: string
  }): Promise<{ rows: unknown[][] }>
  end(): Promise<void>
  once(event: 'error', listener: (error: Error) => void): unknown
}

/** A row as the driver gives it: values in the order of the select list. */
export type Row = readonly unknown[]

/** One connection for the time of an operation: the caller's, in its transaction, or one from the pool. */
export interface Session {
  readonly queryRunner: QueryRunner
  readonly dataSource: DataSource
  /** The connection is the caller's and its transaction is open. */
  readonly inTransaction: boolean
  readonly rows: (statement: Statement, values: readonly unknown[]) => Promise<Row[]>
  /** As `rows`; an error leaves the caller's transaction usable. */
  readonly safely: (statement: Statement, values: readonly unknown[]) => Promise<Row[]>
  readonly query: Query
}

/** Runs `work` on the manager's own connection, or on one from the pool that is given back however it ends. */
export async function withSession<T>(manager: EntityManager, work: (session: Session) => Promise<T>): Promise<T> {
  const dataSource = dataSourceOf(manager)
  const given = manager.queryRunner
  if (given) return await work(openSession({ queryRunner: given, dataSource, shared: true }))
  const queryRunner = dataSource.createQueryRunner('master')
  try {
    return await work(openSession({ queryRunner, dataSource, shared: false }))
  } finally {
    await queryRunner.release()
  }
}

interface Connection {
  readonly queryRunner: QueryRunner
  readonly dataSource: DataSource
  /** The caller's, who may use and release it meanwhile. */
  readonly shared: boolean
}

function openSession(connection: Connection): Session {
  const { queryRunner, dataSource, shared } = connection
  const inTransaction = shared && queryRunner.isTransactionActive
  const exclusive = shared
    ? async <T>(work: () => Promise<T>): Promise<T> => await oneAtATime(queryRunner, work)
    : async <T>(work: () => Promise<T>): Promise<T> => await orDiscard(queryRunner, work)
  const send = async (statement: Statement, values: readonly unknown[]): Promise<Row[]> => {
    try {
      return await run(connection, statement, values)
    } catch (error) {
      if (inTransaction && isSerializationError(error)) throw new TransactionAbortedError(error)
      throw error
    }
  }
  return {
    queryRunner,
    dataSource,
    inTransaction,
    rows: async (statement, values) => await exclusive(async () => await send(statement, values)),
    safely: async (statement, values) =>
      await exclusive(async () =>
        inTransaction
          ? await inSavepoint(connection, async () => await send(statement, values))
          : await send(statement, values),
      ),
    query: async (sql, values) =>
      await exclusive(async () => {
        try {
          return (await queryRunner.query(sql, values)) as unknown[]
        } catch (error) {
          throw serverError(error) ?? error
        }
      }),
  }
}

/**
 * A connection that the server is closing, or whose answer may still come, must not go back to the pool: the next caller
 * would get it. `pg` drops it on release only once it has seen its end.
 */
async function orDiscard<T>(queryRunner: QueryRunner, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (endsConnection(error)) {
      const client = (await queryRunner.connect().catch(() => undefined)) as PgClient | undefined
      void client?.end()
    }
    throw error
  }
}

async function inSavepoint<T>(connection: Connection, work: () => Promise<T>): Promise<T> {
  const command = async (sql: string): Promise<void> => {
    await run(connection, { name: '', sql }, [])
  }
  await command(savepoint.set)
  try {
    const result = await work()
    await command(savepoint.release)
    return result
  } catch (error) {
    // After 40001 and 40P01 too a savepoint can be rolled back to, but the snapshot is the same: the caller must retry.
    // On a connection that is gone the rollback fails as well; the first error says more.
    await command(savepoint.rollBack).catch(() => {})
    throw error
  }
}

const queues = new WeakMap<QueryRunner, Promise<unknown>>()

/**
 * Calls in parallel on one transaction share one connection: without a queue, the statement of one could fall between
 * another's failed statement and its rollback to the savepoint. No listener runs inside, so none can wait for itself.
 */
async function oneAtATime<T>(queryRunner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const before = queues.get(queryRunner) ?? Promise.resolve()
  const result = before.then(work)
  queues.set(
    queryRunner,
    result.catch(() => {}),
  )
  return await result
}

const watched = new WeakMap<QueryRunner, PgClient>()
const losses = new WeakMap<PgClient, { error?: Error }>()

/** TypeORM releases a query runner whose connection is lost, and forgets why; the caller should hear it (25P03, 57P01). */
function watch(queryRunner: QueryRunner, client: PgClient): void {
  watched.set(queryRunner, client)
  if (losses.has(client)) return
  const loss: { error?: Error } = {}
  losses.set(client, loss)
  client.once('error', (error) => (loss.error = error))
}

function lossOf(queryRunner: QueryRunner): Error | undefined {
  const client = watched.get(queryRunner)
  return client && losses.get(client)?.error
}

/** Past TypeORM's own `query()`, which knows no prepared statements; logged as it would be. */
async function run(
  { queryRunner, dataSource, shared }: Connection,
  { name, sql }: Statement,
  values: readonly unknown[],
): Promise<Row[]> {
  // By now the connection may serve another transaction, or it was lost between two statements.
  if (shared && queryRunner.isReleased) throw lossOf(queryRunner) ?? new QueryRunnerAlreadyReleasedError()
  const client = (await queryRunner.connect()) as PgClient
  if (shared) watch(queryRunner, client)
  const { logger } = dataSource
  const logged = values as unknown[]
  logger.logQuery(sql, logged, queryRunner)
  const prepare = name !== '' && (registry.settings.get(dataSource)?.prepare ?? true)
  try {
    const config = { text: sql, values, rowMode: 'array' } as const
    return (await client.query(prepare ? { ...config, name } : config)).rows
  } catch (error) {
    logger.logQueryError(error as Error, sql, logged, queryRunner)
    throw error
  }
}
