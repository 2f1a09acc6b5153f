import type { ObjectLiteral } from 'typeorm'
import { TransactionAbortedError, UniqueTextError } from '../errors'
import type { BatchRow } from '../sql/batch-statement'
import { isRowError } from '../sql/sqlstate'
import { Attempts } from './attempts'
import {
  type Batch,
  type BatchItem,
  batchQuery,
  type BatchQuery,
  type BatchRules,
  columnSet,
  createQueries,
  type DistinctRow,
  findQuery,
  groupBy,
} from './batches'
import { listensToInsert } from '../rows/events'
import type { DeletedOption } from '../rows/call-options'
import { isDeleted } from './deleted-rows'
import { findOrCreateRow, type FindOrCreateResult } from './try-once'
import { hydrate } from '../rows/hydrate'
import { type RowError, toRowError } from '../rows/refused-input'
import type { Session } from '../connection/session'
import { guardError } from '../typeorm/refused-text'
import { forgetIfChanged } from '../schema/readiness'
import { readyText } from './ready-table'
import { updateOf } from '../rows/updates'
import { isHeard, upsertRow } from './upsert-row'
import type { Progress } from './progress'

/** The result for one input: its row, or the error why there is none. */
export type FindOrCreateManyResult<Entity> = FindOrCreateResult<Entity> | { readonly error: RowError }

/** What every step of one call needs. */
export interface ManyCall<Entity> extends BatchRules {
  readonly session: Session
  readonly results: FindOrCreateManyResult<Entity>[]
  readonly deleted: DeletedOption
  readonly progress: Progress
  /**
   * Called when a batch must be sent again: after a deadlock, or because its snapshot does not show what others wrote.
   */
  readonly onLost?: () => void
  /** Index of the first input among those of the caller. @default 0 */
  readonly first?: number
}

/** Up to this many rows are sent one by one after one of them was refused. */
const FEW_ROWS = 3

export async function runBatch<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  { items, alone }: Batch,
): Promise<void> {
  if (alone || goesSingly(call)) return await runSingly(call, items)
  await runItems(
    call,
    items.filter(({ create }) => !create),
    false,
  )
  await runSingly(
    call,
    items.filter(({ create }) => create),
  )
}

/** An event before the write must know which rows will be inserted, so each row goes its own way. */
export const goesSingly = ({ entityText, updates }: BatchRules): boolean =>
  updates ? isHeard(entityText) || entityText.ready.distributed : listensToInsert(entityText)

/** @param statementRuns whether the statement itself is known not to cause the error */
async function runItems<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  statementRuns: boolean,
): Promise<void> {
  if (items.length === 0) return
  let answer: BatchAnswer
  try {
    answer = call.entityText.ready.distributed
      ? await sendSpread(call, items)
      : await sendBatch(call, batchQuery(call, items))
  } catch (error) {
    const changed = await onChanged(call, error)
    if (changed) return await runItems(changed, items, statementRuns)
    if (!isRowError(error)) throw error
    if (items.length <= FEW_ROWS) return await runSingly(call, items)
    if (statementRuns || (await runsWithoutRows(call, items))) return await runHalves(call, items)
    return await divideBySets(call, items, error)
  }
  await runSingly(call, takeAnswers(call, items, answer))
}

/**
 * Runs the call again with the table as it is now, after a deferrable constraint was added. Nothing was done yet, or it
 * was undone.
 */
async function onChanged<Entity>(call: ManyCall<Entity>, error: unknown): Promise<ManyCall<Entity> | undefined> {
  const { entityText, session } = call
  if (entityText.ready.deferrable || !forgetIfChanged(entityText.declaration, error)) return undefined
  return { ...call, entityText: await readyText(session, entityText) }
}

/** A row is refused for what it holds: trying each half tells which one. */
async function runHalves<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
): Promise<void> {
  const middle = Math.ceil(items.length / 2)
  await runItems(call, items.slice(0, middle), true)
  await runItems(call, items.slice(middle), true)
}

/** A missing privilege, for instance, refuses the statement whatever the rows hold: trying each row would cost much. */
async function runsWithoutRows<Entity>(
  { session, ...rules }: ManyCall<Entity>,
  items: readonly BatchItem[],
): Promise<boolean> {
  // Each of these statements takes as many parameters as it has rows.
  if (rules.entityText.ready.distributed) return true
  const { statement, values } = batchQuery(rules, items)
  try {
    await session.rowsOrRollBack(
      statement,
      values.map(() => []),
    )
    return true
  } catch (error) {
    if (!isRowError(error)) throw error
    return false
  }
}

/** The statement is refused: perhaps for a column that only some rows bring. */
async function divideBySets<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  error: unknown,
): Promise<void> {
  const sets = groupBy(items, ({ row }) => columnSet(row))
  if (sets.size === 1) for (const item of items) writeError(call, item, error)
  else for (const set of sets.values()) await runItems(call, set, false)
}

/** The rows that a batch's statement gave, and after how many attempts. */
export interface BatchAnswer {
  readonly rows: readonly BatchRow[]
  readonly attempts: number
}

/** @returns the rows that have no answer, several answers, or an unwanted deleted row: each is handled by itself */
export function takeAnswers<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  { rows, attempts }: BatchAnswer,
): BatchItem[] {
  const answers: (BatchRow | undefined)[] = []
  const doubled = new Set<number>()
  for (const row of rows) {
    if (answers[row.index]) doubled.add(row.index)
    answers[row.index] = row
  }
  const unanswered: BatchItem[] = []
  items.forEach((item, index) => {
    const stored = answers[index]
    const kept = call.deleted === 'return' || !stored || !isDeleted(call.entityText, stored)
    if (!stored || doubled.has(index) || !kept) unanswered.push(item)
    else writeStored(call, item, { stored, attempts })
  })
  return unanswered
}

function writeStored<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  item: BatchItem,
  { stored, attempts }: { readonly stored: BatchRow; readonly attempts: number },
): void {
  try {
    const entity = hydrate(call.entityText, call.session, stored) as Entity
    writeResult(call, item, { entity, created: stored.created, attempts })
  } catch (error) {
    writeError(call, item, error)
  }
}

/** Behind savepoints: a refused row must not abort the caller's transaction for the rows after it. */
async function runSingly<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
): Promise<void> {
  const session = call.session.withSavepoints()
  for (const item of items) {
    const onDeleted = { deleted: call.deleted, position: (call.first ?? 0) + item.input }
    const thrown: unknown[] = []
    const requested = item.create ? { ...item, create: noting(thrown, item.create) } : item
    try {
      const { updates } = call
      const run = async ({ entityText }: ManyCall<Entity>): Promise<FindOrCreateResult<Entity>> =>
        await (updates && updateOf(updates, item.row).length > 0
          ? upsertRow<Entity>(session, entityText, requested, updates)
          : findOrCreateRow<Entity>(session, entityText, requested, onDeleted))
      const result = await run(call).catch(async (error: unknown) => {
        const changed = await onChanged(call, error)
        if (!changed) throw error
        return await run(changed)
      })
      writeResult(call, item, result)
    } catch (error) {
      if (thrown.includes(error) && !(error instanceof TransactionAbortedError))
        writeResult(call, item, { error: toRowError(error) })
      else writeError(call, item, error)
    }
  }
}

/** An error that a user's function throws concerns its row only. */
function noting(thrown: unknown[], create: () => unknown): () => Promise<unknown> {
  return async () => {
    try {
      return await create()
    } catch (error) {
      thrown.push(error)
      throw error
    }
  }
}

/** @throws the error, unless it concerns this row only */
function writeError<Entity>(call: ManyCall<Entity>, item: DistinctRow, cause: unknown): void {
  const error = guardError(cause, [call.entityText.declaration]) ?? cause
  if (!isRowsDoing(error)) throw error
  writeResult(call, item, { error: toRowError(error) })
}

/** Whether an error concerns one row, and not the connection, the transaction or the server. */
export const isRowsDoing = (error: unknown): boolean =>
  isRowError(error) || (error instanceof UniqueTextError && !OF_NO_ROW.has(error.code))

const OF_NO_ROW: ReadonlySet<string> = new Set(['DATA_SOURCE_DESTROYED', 'TRANSACTION_ABORTED', 'WAITS_FOR_ITSELF'])

/**
 * Only the first input of a text can have created its row. An error is that of the first alone: the others are tried by
 * themselves, and so is the first where their changes were made together.
 */
export function writeResult<Entity>(
  { results, progress, updates }: Pick<ManyCall<Entity>, 'results' | 'progress' | 'updates'>,
  { input, repeats }: Pick<DistinctRow, 'input' | 'repeats'>,
  result: FindOrCreateManyResult<Entity>,
): void {
  if ('error' in result && repeats) {
    if (updates) return
    results[input] = result
    return progress.count(result, 1)
  }
  results[input] = result
  progress.count(result, 1 + (repeats?.length ?? 0))
  if (!repeats) return
  const again = { ...result, created: false }
  for (const repeat of repeats) results[repeat.input] = again
}

/**
 * On a distributed table: looks rows up, then inserts those that are missing. Rows without a result are then sent one
 * by one.
 */
async function sendSpread<Entity>(call: ManyCall<Entity>, items: readonly BatchItem[]): Promise<BatchAnswer> {
  const found = await sendBatch(call, findQuery(call, items))
  const seen = new Set(found.rows.map(({ index }) => index))
  const missing = items.map((_, index) => index).filter((index) => !seen.has(index))
  const rows = [...found.rows]
  let { attempts } = found
  for (const { query, places } of createQueries(call, items, missing)) {
    const created = await sendBatch(call, query)
    for (const row of created.rows) {
      const index = places[row.index]
      if (index !== undefined) rows.push({ ...row, index })
    }
    attempts = Math.max(attempts, created.attempts)
  }
  return { rows: rows.filter(({ index }) => index >= 0), attempts }
}

/** The loop of a batch's attempts. */
export async function sendBatch<Entity>(
  { session, entityText, onLost }: ManyCall<Entity>,
  { statement, values }: BatchQuery,
): Promise<BatchAnswer> {
  const attempts = new Attempts(session, entityText.declaration.name)
  for (;;) {
    try {
      return { rows: await session.rowsOrRollBack(statement, values), attempts: attempts.count }
    } catch (error) {
      if (attempts.mayHelp(error)) onLost?.()
      await attempts.again(error)
    }
  }
}
