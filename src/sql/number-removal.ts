import { countRows, numberRows } from './number-rows'
import type { NumberTable } from './number-table'
import { asNumberNote } from './number-triggers'
import type { RemovedFrom, RemovedRows, TriggerNote } from './trigger-set'

/** Number and count go with their columns. On the way back rows are numbered anew, in key order. */
export function removedNumbers(note: TriggerNote, { schema, table, primary }: RemovedFrom): RemovedRows {
  const had = asNumberNote(note)
  if (!had) return {}
  const rows: NumberTable = { ...had, schema, table, index: '', triggers: '' }
  const count = had.count === undefined ? [] : [{ name: had.count, type: 'integer', nullable: true }]
  return {
    filled: [{ name: had.number, type: 'integer', nullable: false }, ...count],
    fill: [numberRows({ table: rows, primary }), ...(had.count === undefined ? [] : countRows(rows))],
  }
}
