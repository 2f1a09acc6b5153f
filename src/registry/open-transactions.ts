import { AsyncLocalStorage } from 'node:async_hooks'
import type { QueryRunner } from 'typeorm'

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
