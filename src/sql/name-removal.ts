import { digests, type DigestName } from '../text/digest'
import { claimAllNames, type HolderNote, releaseAllNames } from './name-fill'
import type { HolderTable, NamesTable } from './name-table'
import { HOLDER_SET } from './name-triggers'
import type { RemovedFrom, RemovedRows, TriggerNote } from './trigger-set'

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
