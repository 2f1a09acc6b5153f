import type { BatchRow } from '../sql/batch-statement'
import type { StoredRow } from '../sql/statements'
import { find } from './try-once'
import { type BatchQuery, type BatchRules, findQuery, groupBy, inBatches } from './batches'
import type { ReadyText } from '../rows/entity-text'
import type { RowValues } from '../rows/row-values'
import type { Session } from '../connection/session'

const NO_DEFAULTS: ReadonlyMap<string, string> = new Map()

/** No input is answered by position, and nothing is created. */
const UNASKED = { input: 0, repeats: undefined, values: {}, more: [], create: undefined }

/**
 * Returns the rows that hold the texts, by the identities of the inputs. Looks them up in batches.
 *
 * @throws DuplicateTextError, and what parameters of the scope that have no text throw
 */
export async function findRows(
  session: Session,
  entityText: ReadyText,
  rows: readonly RowValues[],
): Promise<ReadonlyMap<string, StoredRow>> {
  const requested = new Map(rows.map((row) => [row.identity, { ...row, others: [], all: row.key }]))
  const distinct = [...requested.values()].map((row) => ({ ...UNASKED, row }))
  const rules: BatchRules = { entityText, defaults: NO_DEFAULTS }
  const found = new Map<string, StoredRow>()
  const batches = inBatches(rules, distinct, (_, error) => {
    throw error
  })
  for (const { items, alone } of batches) {
    const answers = groupBy(alone ? [] : await look(session, findQuery(rules, items)), ({ index }) => index)
    for (const [index, { row }] of items.entries()) {
      const [stored, another] = answers.get(index) ?? []
      const one = alone || another ? await find(session, entityText, row) : stored
      if (one) found.set(row.identity, one)
    }
  }
  return found
}

const look = (session: Session, { statement, values }: BatchQuery): Promise<BatchRow[]> =>
  session.rowsOrRollBack(statement, values)
