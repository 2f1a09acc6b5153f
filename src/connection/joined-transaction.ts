import type { EntityManager, QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { ownTransaction } from '../sql/transaction-commands'
import { insideTransaction } from '../registry/open-transactions'
import { dataSourceOf, registry } from '../registry/registry'
import type { ClientQuery } from './exclusive'
import { hasTimeout, isPgClient, type PgClient, takesPreparedQueries } from './pg-client'
import { isUnheard } from './query-events'
import { savepointsOf, watch } from './shared-connection'
import { joined, JoinedQuery, PreparedQuery } from './wire'

/** What runs in a transaction, and the statement that ends it. */
export interface JoinedWork {
  /** Its first statement goes with START TRANSACTION. */
  readonly run: (manager: EntityManager) => Promise<void>
  /** Sends one statement together with COMMIT; if it fails, everything is undone. */
  readonly last: (manager: EntityManager) => Promise<void>
  /** Its SQL, which tells it from statements that the work has started and not awaited. */
  readonly lastSql: string
}

const ENDED = 'the code that runs in it ended it'

const BEGIN = joined({ before: [ownTransaction.set], after: [] })
const COMMIT = joined({ before: [], after: [ownTransaction.release] })

/** What to tell TypeORM of a command that goes with a statement. */
const DONE = { rows: [], rowCount: null, command: '' } as const

/**
 * Runs work as TypeORM's `transaction()` does, and saves two round trips: where nobody hears of statements, START
 * TRANSACTION and COMMIT go to the server with the statement that comes next, or last.
 *
 * @throws TransactionAbortedError where the work has ended the transaction
 */
export async function transact(manager: EntityManager, { run, last, lastSql }: JoinedWork): Promise<void> {
  const queryRunner = manager.queryRunner ?? dataSourceOf(manager).createQueryRunner()
  const own = queryRunner.manager
  const end: End = { sql: lastSql, send: async () => await last(own) }
  try {
    const client = await joiningClient(queryRunner)
    if (client) {
      watch(queryRunner, client)
      // Ours come and go in front of it.
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
    if (client) await commitWith(queryRunner, client, end)
    else await end.send().then(async () => await queryRunner.commitTransaction())
  } catch (error) {
    // The first error says more.
    if (queryRunner.isTransactionActive)
      await queryRunner.rollbackTransaction().catch(async () => {
        await endConnection(queryRunner)
      })
    throw error
  } finally {
    if (!manager.queryRunner) await queryRunner.release()
  }
}

/**
 * A transaction that is not known to be rolled back, as after a `query_timeout`, may still be open: its connection must
 * not go back to the pool.
 */
async function endConnection(queryRunner: QueryRunner): Promise<void> {
  if (queryRunner.isReleased) return
  const client: unknown = await queryRunner.connect().catch(() => undefined)
  if (isPgClient(client)) void client.end()
}

/** @returns undefined where somebody hears of statements, or where they do not go by a query of ours */
async function joiningClient(queryRunner: QueryRunner): Promise<PgClient | undefined> {
  const dataSource = dataSourceOf(queryRunner.manager)
  const client: unknown = await queryRunner.connect()
  if (!isUnheard(dataSource) || registry.settings.get(dataSource)?.prepare === false) return undefined
  return isPgClient(client) && takesPreparedQueries(client) && !hasTimeout(client) ? client : undefined
}

/** Keeps START TRANSACTION back until the next statement is sent. */
function joinBegin(client: PgClient): () => void {
  let kept = false
  let sent = false
  const stop = inFrontOf(client, (query) => (...args) => {
    const [first] = args
    if (!kept && first === ownTransaction.set) {
      kept = true
      return Promise.resolve(DONE)
    }
    // If somebody has put a function in front of it by now, it stays.
    if (!kept || sent) return query(...args)
    sent = true
    stop()
    if (first instanceof PreparedQuery) return query(new JoinedQuery(first, BEGIN))
    return Promise.resolve(query(ownTransaction.set)).then(() => query(...args))
  })
  return stop
}

/** The last statement. */
interface End {
  readonly sql: string
  readonly send: () => Promise<void>
}

/** Sends the last statement when TypeORM sends COMMIT: its subscribers may have sent others before. */
async function commitWith(queryRunner: QueryRunner, client: PgClient, last: End): Promise<void> {
  let failure: { readonly error: unknown } | undefined
  let state: 'open' | 'ending' | 'joined' = 'open'
  const stop = inFrontOf(client, (query) => (...args) => {
    const [first] = args
    if (state === 'open' && first === ownTransaction.release) {
      state = 'ending'
      return last.send().then(
        async () => (state === 'joined' ? DONE : await query(...args)),
        (error: unknown) => {
          failure = { error }
          throw error
        },
      )
    }
    if (state !== 'ending' || !(first instanceof PreparedQuery) || first.text !== last.sql) return query(...args)
    state = 'joined'
    return query(new JoinedQuery(first, COMMIT))
  })
  try {
    await queryRunner.commitTransaction()
  } catch (error) {
    // TypeORM would say that COMMIT had failed.
    throw failure ? failure.error : error
  } finally {
    stop()
    // COMMIT may have gone with a statement.
    savepointsOf(queryRunner).hear([{ does: 'commit' }])
  }
}

/** Puts a function in the place of the client's `query`. */
function inFrontOf(client: PgClient, make: (query: ClientQuery) => ClientQuery): () => void {
  const holder = client as unknown as { query: ClientQuery }
  const { query } = holder
  const isOwn = Object.hasOwn(holder, 'query')
  const front = make((...args) => query.apply(holder, [...args]))
  holder.query = front
  return () => {
    // Somebody may have put another in front of ours meanwhile, which stays and calls it.
    if (holder.query !== front) return
    if (isOwn) holder.query = query
    else Reflect.deleteProperty(holder, 'query')
  }
}
