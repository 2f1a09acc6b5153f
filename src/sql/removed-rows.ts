import type { Change } from './alter'
import type { TriggerKind, TriggerNote } from './trigger-set'

/** By the kind of a set, from what its note says. */
const REMOVED: Partial<Readonly<Record<TriggerKind, (note: TriggerNote) => Change>>> = {}

/**
 * What is to be done with the rows when a set of triggers goes that nobody declares any more; the triggers are gone by
 * then.
 */
export const removedRows = (note: TriggerNote): Change | undefined => REMOVED[note.kind ?? 'guard']?.(note)
