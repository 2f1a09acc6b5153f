import { AsyncLocalStorage } from 'node:async_hooks'
import type { EntityManager, QueryRunner } from 'typeorm'

/** A transaction that code was called in. */
export interface OpenTransaction {
  readonly queryRunner: QueryRunner
  /** The one that it was opened in. */
  readonly outer: OpenTransaction | undefined
  /** By the clock of this process: when something was last sent by it. */
  heard: number
  isOver: boolean
}

const around = new AsyncLocalStorage<OpenTransaction>()
const open = new WeakMap<QueryRunner, OpenTransaction>()

/** The innermost that the code that asks was called in, and that is open still. */
export function openTransaction(): OpenTransaction | undefined {
  let transaction = around.getStore()
  while (transaction?.isOver) transaction = transaction.outer
  return transaction
}

/** Something is sent in the transaction of a query runner, or answered. */
export function hearTransaction(queryRunner: QueryRunner): void {
  const transaction = open.get(queryRunner)
  if (transaction) transaction.heard = performance.now()
}

/** Runs code that a transaction is opened for: what it calls without the manager knows of the transaction. */
export async function insideTransaction<T>(queryRunner: QueryRunner, run: () => Promise<T>): Promise<T> {
  // A savepoint of a transaction that is known.
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

const NOTED = Symbol.for('typeorm-unique-text.notesTransactions')

/** Makes the code that a manager's `transaction()` runs know of it. */
export function noteTransactions(manager: EntityManager): void {
  if (NOTED in manager) return
  const transaction = manager.transaction.bind(manager) as (...args: readonly unknown[]) => Promise<unknown>
  const noting = async (...args: readonly unknown[]): Promise<unknown> =>
    await transaction(...args.map((one) => (isRun(one) ? inside(one) : one)))
  manager.transaction = noting
  Object.defineProperty(manager, NOTED, { value: true })
}

/** TypeORM gives a query runner its manager once the driver has made it. */
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

const isRun = (argument: unknown): argument is Run => typeof argument === 'function'

const inside =
  (run: Run): Run =>
  async (manager) =>
    manager.queryRunner
      ? await insideTransaction(manager.queryRunner, async () => await run(manager))
      : await run(manager)
