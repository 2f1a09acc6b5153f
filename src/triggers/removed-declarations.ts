import { type DigestName, digests } from '../text/digest'
import { claimAllNames, type HolderNote, releaseAllNames } from './name-fill'
import type { HolderTable, NamesTable } from '../sql/name-table'
import { HOLDER_SET } from './name-triggers'
import { dropScopes, makeScopes, numberRows } from './number-scopes'
import type { NumberTable } from '../sql/number-table'
import { asNumberNote } from './number-triggers'
import type { RemovedFrom, RemovedRows, TriggerKind, TriggerNote } from '../sql/trigger-set'

/** The number goes with its column. On the way back rows are numbered anew, in key order. */
function removedNumbers(note: TriggerNote, { schema, table, primary }: RemovedFrom): RemovedRows {
  const had = asNumberNote(note)
  if (!had) return {}
  const rows: NumberTable = { ...had, schema, table, index: '', triggers: had.prefix }
  return {
    change: { up: [dropScopes(rows)], down: [makeScopes(rows)] },
    filled: [{ name: had.number, type: had.type, nullable: false }],
    fill: [numberRows({ table: rows, primary })],
  }
}

/** What the comment on the triggers of a holder's table says. */
interface NoteOfNames extends TriggerNote, HolderNote {
  readonly primary: HolderTable['primary']
  readonly of: Omit<NamesTable, 'digest'> & { readonly digest: string }
}

/** The holder's table as a note has it; undefined for another note. */
export function notedHolder(
  note: TriggerNote,
  { schema, table }: Pick<RemovedFrom, 'schema' | 'table'>,
): HolderTable | undefined {
  if (note.kind !== 'names' || note.name !== HOLDER_SET) return undefined
  const { holder, primary, names, of } = note as NoteOfNames
  const digest = digests[of.digest as DigestName] ?? digests.md5
  return { schema, table, holder, primary, names, of: { ...of, schema: of.schema, digest } }
}

/** The names of a table go with the declaration. On the way back its rows take them again. */
export function removedNames(note: TriggerNote, from: RemovedFrom): RemovedRows {
  const holder = notedHolder(note, from)
  return holder ? { change: { up: [releaseAllNames(holder)], down: [claimAllNames(holder)] } } : {}
}

/** By the kind of a set that nobody declares any more, from what its note says. */
const REMOVED: Partial<Readonly<Record<TriggerKind, (note: TriggerNote, from: RemovedFrom) => RemovedRows>>> = {
  names: removedNames,
  numbers: removedNumbers,
}

export const removedRows = (note: TriggerNote, from: RemovedFrom): RemovedRows | undefined =>
  REMOVED[note.kind]?.(note, from)
