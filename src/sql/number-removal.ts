import { numberRows } from './number-rows'
import { dropScopes, makeScopes } from './number-scopes'
import type { NumberTable } from './number-table'
import { asNumberNote } from './number-triggers'
import type { RemovedFrom, RemovedRows, TriggerNote } from './trigger-set'

/** The number goes with its column. On the way back rows are numbered anew, in key order. */
export function removedNumbers(note: TriggerNote, { schema, table, primary }: RemovedFrom): RemovedRows {
  const had = asNumberNote(note)
  if (!had) return {}
  const rows: NumberTable = { ...had, schema, table, index: '', triggers: had.prefix }
  return {
    change: { up: [dropScopes(rows)], down: [makeScopes(rows)] },
    filled: [{ name: had.number, type: had.type, nullable: false }],
    fill: [numberRows({ table: rows, primary })],
  }
}
