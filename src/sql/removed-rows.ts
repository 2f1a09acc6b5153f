import { removedNames } from './name-removal'
import { removedNumbers } from './number-removal'
import type { RemovedFrom, RemovedRows, TriggerKind, TriggerNote } from './trigger-set'

/** By the kind of a set that nobody declares any more, from what its note says. */
const REMOVED: Partial<Readonly<Record<TriggerKind, (note: TriggerNote, from: RemovedFrom) => RemovedRows>>> = {
  names: removedNames,
  numbers: removedNumbers,
}

export const removedRows = (note: TriggerNote, from: RemovedFrom): RemovedRows | undefined =>
  REMOVED[note.kind]?.(note, from)
