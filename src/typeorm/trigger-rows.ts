import { TableColumn } from 'typeorm'
import { addColumn, type Change, requireColumn } from '../sql/alter'
import type { InstalledTriggers } from '../sql/catalog'
import { removedRows } from '../sql/removed-rows'
import { installedFunction, notesOf, sameComment } from '../sql/trigger-drift'
import type { TriggerNote } from '../sql/trigger-set'
import { type ChangingTable, hasColumn } from './changing-table'
import type { EntityTriggers } from './installed-triggers'
import { emit } from './record-ddl'
import type { FilledColumn, RowsChange, TriggerWork } from './registry'
import { foreignSchema } from './resolve-declaration'
import { triggerWorks } from './trigger-sets'

/** What is to be done with the rows of one table, because triggers come, change or go. */
export interface RowsPlan {
  readonly changes: readonly RowsChange[]
  /** Of sets that nobody declares any more. */
  readonly removed: readonly Change[]
}

/** @returns what is to be done if the table is there already */
export function planRows({ metadata, installed }: EntityTriggers): RowsPlan {
  const works = triggerWorks(metadata)
  const notes = notesOf(installed).filter(({ kind }) => kind !== undefined)
  const had = pair(works, notes)
  const kept = new Set(had.values())
  return {
    changes: works.flatMap((work) => changeOf(work, had.get(work), installed)),
    removed: notes.filter((one) => !kept.has(one)).flatMap((note) => removedRows(note) ?? []),
  }
}

/** The set that stands of the same name, or the only one of its kind that is left. */
function pair(works: readonly TriggerWork[], notes: readonly TriggerNote[]): ReadonlyMap<TriggerWork, TriggerNote> {
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
  return had
}

function changeOf(
  { set, rows }: TriggerWork,
  before: TriggerNote | undefined,
  installed: InstalledTriggers,
): RowsChange[] {
  if (!rows) return []
  // Without all of its triggers nobody knows what was written meanwhile.
  if (!before || !isWhole(installed)) return [rows]
  const [first] = set.functions
  const found = first && installedFunction(installed, first)
  if (found && sameComment(first, found)) return []
  return [rows.follow?.(before) ?? rows]
}

/** Every trigger that the notes on a table's functions tell of is there, and enabled. */
function isWhole(installed: InstalledTriggers): boolean {
  const noted = notesOf(installed).reduce((sum, { triggers }) => sum + triggers.length, 0)
  return installed.triggers.length >= noted && installed.triggers.every(({ enabled }) => enabled)
}

/**
 * Adds the columns that get their values from us, without a value.
 *
 * @returns what is left to do once TypeORM has changed the columns, before it makes the indexes
 */
export async function fillColumns(on: ChangingTable, { changes }: RowsPlan): Promise<Change[]> {
  const left: Change[] = []
  for (const { filled = [], fill } of changes) {
    const required: Change[] = []
    for (const column of filled) required.push(...(await addFilled(on, column)))
    left.push(...(fill ? [fill] : []), ...required)
  }
  return left
}

async function addFilled(on: ChangingTable, { name, type, nullable }: FilledColumn): Promise<Change[]> {
  const rows = { schema: foreignSchema(on.metadata), table: on.metadata.tableName }
  if (!hasColumn(on, name)) {
    await emit(on.queryRunner, addColumn(rows, name, type))
    on.table.addColumn(new TableColumn({ name, type, isNullable: nullable }))
    // It is dropped on the way back.
    return nullable ? [] : [{ ...requireColumn(rows, name), down: [] }]
  }
  const found = on.table.findColumnByName(name)
  if (!found?.isNullable || nullable) return []
  found.isNullable = false
  return [requireColumn(rows, name)]
}
