import type { DataSource, QueryRunner } from 'typeorm'
import type { Statement, WireRow } from '../sql/statements'

/** Sends a statement of several that stand together. */
export type Send = (sql: string, values: readonly unknown[]) => Promise<readonly WireRow[]>

/** One connection for the duration of an operation: the caller's, in its transaction, or one from the pool. */
export interface Session {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  /** The connection is the caller's. */
  readonly shared: boolean
  /** The connection is the caller's and a transaction is open on it. */
  readonly inTransaction: boolean

  /** Gives the connection back to the pool, unless it is the caller's. @returns undefined where nothing is to be waited for */
  close(): Promise<void> | undefined

  /**
   * Gives the connection back for the time in which code of the user's runs: that may itself wait for one, and a small
   * pool would have none left. The next statement takes another one.
   */
  release(): Promise<void>

  /** A session on this connection whose statements leave the transaction usable, whatever fails. */
  withSavepoints(): Session

  /**
   * Runs a statement and parses its rows.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   * @throws QueryFailedError for every other error of the driver
   */
  rows<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]>

  /** As `rows`; an error leaves the caller's transaction as it was before. */
  rowsOrRollBack<Row>(statement: Statement<Row>, values: readonly unknown[]): Promise<Row[]>

  /**
   * Runs several statements, of which an error undoes all: behind a savepoint in the caller's transaction, and otherwise
   * in one of their own.
   *
   * @param work sends them by the function that it is given, or by TypeORM
   */
  together<T>(work: (send: Send) => Promise<T>): Promise<T>

  /**
   * Runs several statements exclusively. None of anybody else's comes between them, but for those of listeners and
   * subscribers that they call.
   */
  exclusively<T>(run: () => Promise<T>): Promise<T>

  /** @throws TransactionAbortedError if what the operation did in the caller's transaction was rolled back meanwhile */
  requireStanding(): void

  /** TypeORM does not notify its logger and subscribers of what `together` sends: we do. */
  isUnheard(): Promise<boolean>

  /** An error of the driver as TypeORM gives it, or what it means for the caller's transaction. */
  failure(sql: string, error: Error): Promise<Error>

  /** Runs SQL and gives its rows as objects, by TypeORM's own way. */
  readonly query: (sql: string, values?: unknown[]) => Promise<readonly unknown[]>

  /**
   * Runs queries of TypeORM's own making. In the caller's transaction, one that fails leaves that usable.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
   */
  byTypeOrm<T>(run: (queryRunner: QueryRunner) => Promise<T>): Promise<T>
}
