import type { Change, FilledColumn } from './alter'
import type { TriggerKind, TriggerNote } from './trigger-set'

/** What becomes of the rows when a set of triggers goes that nobody declares any more; its triggers are gone by then. */
export interface RemovedRows {
  readonly change?: Change
  /** Columns that go with the set where no entity declares them, and on the way back get their values from `fill`. */
  readonly filled?: readonly FilledColumn[]
  readonly fill?: readonly string[]
}

/** By the kind of a set, from what its note says. */
const REMOVED: Partial<Readonly<Record<TriggerKind, (note: TriggerNote) => RemovedRows>>> = {}

export const removedRows = (note: TriggerNote): RemovedRows | undefined => REMOVED[note.kind ?? 'guard']?.(note)
