import type { EntityMetadata } from 'typeorm'
import type { InstalledTriggers } from '../sql/catalog'
import { notesOf } from '../sql/trigger-drift'
import type { TriggerNote } from '../sql/trigger-set'
import type { TriggerWork } from './registry'
import { triggerWorks } from './trigger-sets'

/** What the sets of a table were until now, guards aside. */
interface Trace {
  readonly had: ReadonlyMap<TriggerWork, TriggerNote>
  /** Of sets that nobody declares any more. */
  readonly gone: readonly TriggerNote[]
}

/** Of each set the one that stands of the same name, or else the only one of its kind that is left, for the only one. */
export function trace(works: readonly TriggerWork[], installed: InstalledTriggers): Trace {
  const notes = notesOf(installed).filter(({ kind }) => kind !== 'guard')
  const had = new Map<TriggerWork, TriggerNote>()
  for (const work of works) {
    const note = notes.find(({ kind, name }) => kind === work.set.kind && name === work.set.name)
    if (note) had.set(work, note)
  }
  const kept = new Set(had.values())
  const left = works.filter((work) => !had.has(work))
  for (const work of left) {
    const isSole = left.filter(({ set }) => set.kind === work.set.kind).length === 1
    const [note, ...more] = notes.filter((one) => one.kind === work.set.kind && !kept.has(one))
    if (isSole && note && more.length === 0) had.set(work, note)
  }
  const found = new Set(had.values())
  return { had, gone: notes.filter((one) => !found.has(one)) }
}

/** A column that there was, and the one in its place. */
export type ColumnPair = readonly [from: string, to: string]

/** Columns that sets of an entity's table had, with those that they have in their place. */
export const setColumnPairs = (metadata: EntityMetadata, installed: InstalledTriggers): ColumnPair[] =>
  [...trace(triggerWorks(metadata), installed).had].flatMap(([{ set }, { columns = {} }]) =>
    pairColumns(columns, set.columns),
  )

/** Those that are the same to the set; and if one is gone and one is new, it was renamed, as TypeORM takes it. */
export function pairColumns(
  before: Readonly<Record<string, string>>,
  after: Readonly<Record<string, string>>,
): ColumnPair[] {
  const same = Object.keys(before).filter((key) => key in after)
  const gone = Object.entries(before).filter(([key]) => !(key in after))
  const created = Object.entries(after).filter(([key]) => !(key in before))
  const renamed =
    gone.length === 1 && created.length === 1 ? [[gone[0]?.[1] ?? '', created[0]?.[1] ?? ''] as const] : []
  return [...same.map((key): ColumnPair => [before[key] ?? '', after[key] ?? '']), ...renamed]
}
