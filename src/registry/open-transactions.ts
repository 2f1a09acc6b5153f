import { AsyncLocalStorage } from 'node:async_hooks'
import type { EntityManager, QueryRunner } from 'typeorm'

/** A transaction in which code was called. */
export interface OpenTransaction {
  readonly queryRunner: QueryRunner
  /** The transaction in which it was opened. */
  readonly outer: OpenTransaction | undefined
  /** The time when a statement was last sent or answered, by this process's clock. */
  heard: number
  isOver: boolean
}

const around = new AsyncLocalStorage<OpenTransaction>()
const open = new WeakMap<QueryRunner, OpenTransaction>()

/** Returns the innermost open transaction in which the current code was called. */
export function openTransaction(): OpenTransaction | undefined {
  let transaction = around.getStore()
  while (transaction?.isOver) transaction = transaction.outer
  return transaction
}

/** Records that a query runner's transaction sent a statement or received an answer. */
export function hearTransaction(queryRunner: QueryRunner): void {
  const transaction = open.get(queryRunner)
  if (transaction) transaction.heard = performance.now()
}

/** Runs the code that a transaction is opened for. Calls without the manager inside it then find the transaction. */
export async function insideTransaction<T>(queryRunner: QueryRunner, run: () => Promise<T>): Promise<T> {
  // This is a savepoint of a known transaction.
  if (open.has(queryRunner)) return await run()
  const transaction = { queryRunner, outer: openTransaction(), heard: performance.now(), isOver: false }
  open.set(queryRunner, transaction)
  try {
    return await around.run(transaction, run)
  } finally {
    transaction.isOver = true
    open.delete(queryRunner)
  }
}

const NOTES_TRANSACTIONS = Symbol.for('typeorm-unique-text.notesTransactions')

/** Makes a manager's `transaction()` register the transaction for the code that it runs. */
export function noteTransactions(manager: EntityManager): void {
  if (NOTES_TRANSACTIONS in manager) return
  const transaction = manager.transaction.bind(manager) as (...args: readonly unknown[]) => Promise<unknown>
  const inside =
    (run: Run): Run =>
    async (own) =>
      own.queryRunner ? await insideTransaction(own.queryRunner, async () => await run(own)) : await run(own)
  const noting = async (...args: readonly unknown[]): Promise<unknown> =>
    await transaction(...args.map((one) => (typeof one === 'function' ? inside(one as Run) : one)))
  manager.transaction = noting
  Object.defineProperty(manager, NOTES_TRANSACTIONS, { value: true })
}

/** TypeORM sets the manager of a query runner after the driver has created the query runner. */
export function noteTransactionsOf(queryRunner: QueryRunner): void {
  let { manager } = queryRunner as { manager?: EntityManager }
  Object.defineProperty(queryRunner, 'manager', {
    configurable: true,
    enumerable: true,
    get: () => manager,
    set: (given: EntityManager) => {
      manager = given
      noteTransactions(given)
    },
  })
}

type Run = (manager: EntityManager) => unknown
