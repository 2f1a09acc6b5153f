import { type BatchRow, findManyStatement } from '../sql/batch-statement'
import type { StoredRow } from '../sql/statements'
import { find } from './attempt'
import { type BatchItem, type BatchRules, groupBy, inBatches } from './batches'
import type { ReadyText } from './entity-text'
import { rowShape, type RowValues } from './row-values'
import type { Session } from './session'

const NO_DEFAULTS: ReadonlyMap<string, string> = new Map()

/**
 * The rows that hold texts, by the identities of what asked for them; in batches.
 *
 * @throws DuplicateTextError, and what parameters of the scope that have no text throw
 */
export async function findRows(
  session: Session,
  entityText: ReadyText,
  rows: readonly RowValues[],
): Promise<ReadonlyMap<string, StoredRow>> {
  const asked = new Map(rows.map((row) => [row.identity, { ...row, others: [], all: row.key }]))
  const distinct = [...asked.values()].map((row) => ({ inputs: [], row, objects: [{}] as const, create: undefined }))
  const rules: BatchRules = { entityText, defaults: NO_DEFAULTS }
  const found = new Map<string, StoredRow>()
  const batches = inBatches(rules, distinct, (_, error) => {
    throw error
  })
  for (const { items, alone } of batches) {
    const answers = groupBy(alone ? [] : await sendBatch(session, rules, items), ({ index }) => index)
    for (const [index, { row }] of items.entries()) {
      const [stored, another] = answers.get(index) ?? []
      const one = alone || another ? await find(session, entityText, row) : stored
      if (one) found.set(row.identity, one)
    }
  }
  return found
}

function sendBatch(session: Session, { entityText }: BatchRules, items: readonly BatchItem[]): Promise<BatchRow[]> {
  const shape = { ...rowShape(entityText, []), types: entityText.ready.types, defaults: NO_DEFAULTS }
  const [first] = items
  const columns = first?.texts.map((_, index) => items.map(({ texts }) => texts[index] ?? null)) ?? []
  return session.rowsOrRollBack(findManyStatement(shape), columns)
}
