import type { ObjectLiteral } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { isRowError } from '../sql/sqlstate'
import { type BatchItem, type DistinctRow, findQuery, inBatches } from './batches'
import { withCreated } from '../rows/deferred-row'
import { toRowError } from '../rows/row-error'
import { type BatchAnswer, type ManyCall, sendBatch, takeAnswers, writeResult } from './run-batch'

/**
 * Looks for all rows of a call before anything is written, and calls `create` for those that are missing: one after
 * another, in the order of the inputs. By then no lock of the call is held, in the caller's transaction neither.
 *
 * @returns the rows that remain to be found or created. A row about which the common look-up says nothing keeps its
 * `create`.
 */
export async function completeMissing<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  rows: readonly DistinctRow[],
): Promise<DistinctRow[]> {
  const given = new Map(rows.map((row) => [row.row.identity, row]))
  const left: DistinctRow[] = []
  const missing: DistinctRow[] = []
  const put = (list: DistinctRow[], row: DistinctRow): void => void list.push(given.get(row.row.identity) ?? row)
  for (const { items, alone } of inBatches(call, rows.map(keyOnly), (row) => put(left, row))) {
    call.progress.check()
    const answer = alone ? undefined : await look(call, items)
    const unanswered = answer ? takeAnswers(call, items, answer) : items
    const seen = new Set(answer?.rows.map(({ index }) => items[index]))
    for (const item of unanswered) put(answer && !seen.has(item) ? missing : left, item)
    call.progress.report()
  }
  return [...left, ...(await createValues(call, missing))]
}

const keyOnly = (row: DistinctRow): DistinctRow => ({ ...row, row: { ...row.row, others: [], all: row.row.key } })

/** @returns undefined if a row is refused for what it holds */
async function look<Entity>(call: ManyCall<Entity>, items: readonly BatchItem[]): Promise<BatchAnswer | undefined> {
  try {
    return await sendBatch(call, findQuery(call, items))
  } catch (error) {
    if (isRowError(error)) return undefined
    throw error
  }
}

async function createValues<Entity>(call: ManyCall<Entity>, missing: readonly DistinctRow[]): Promise<DistinctRow[]> {
  const complete: DistinctRow[] = []
  await call.session.release()
  for (const row of missing.toSorted((left, right) => left.input - right.input)) {
    try {
      complete.push({ ...row, ...(await withCreated(call.entityText, row)) })
    } catch (error) {
      if (error instanceof TransactionAbortedError) throw error
      writeResult(call, row, { error: toRowError(error) })
    }
  }
  return complete
}
