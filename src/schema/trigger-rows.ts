import { type EntityMetadata, TableColumn } from 'typeorm'
import { addColumn, type Change, changeComment, changeType, type FilledColumn, requireColumn } from '../sql/alter'
import { adoptInstead, refuseLarge } from '../sql/adopt-table'
import type { InstalledTriggers } from '../sql/catalog'
import { removedRows } from '../triggers/removed-declarations'
import { installedFunction, isSameNote, notesOf } from '../triggers/trigger-plan'
import type { RemovedRows, TriggerNote } from '../sql/trigger-set'
import { type ChangingTable, emit, hasColumn, isDeclared } from './changing-table'
import { type RowsChange, tableNames, type TriggerWork } from '../registry/registry'
import { foreignSchema } from '../registry/resolve-declaration'
import { type EntityTriggers, triggerWorks } from './trigger-sets'

/** What to do with the rows of one table because triggers come, change or go. */
export interface RowsPlan {
  readonly changes: readonly PlannedChange[]
  /** Of sets that nobody declares any more, and of columns that a set has no longer. */
  readonly removed: readonly RemovedRows[]
}

interface PlannedChange extends RowsChange {
  readonly work: TriggerWork
  /** What the set was until now. */
  readonly before?: TriggerNote | undefined
}

/** @returns what to do if the table exists already */
export function planRows({ metadata, installed }: EntityTriggers): RowsPlan {
  const works = triggerWorks(metadata)
  const { had, gone } = trace(works, installed)
  const primary = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const from = { schema: foreignSchema(metadata), table: metadata.tableName, primary }
  const changes = works.flatMap((work) => {
    const before = had.get(work)
    return changeOf(work, before, installed).map((change) => ({ ...change, work, before }))
  })
  return {
    changes,
    removed: [
      ...gone.flatMap((note) => removedRows(note, from) ?? []),
      ...changes.flatMap(({ dropped }) => dropped ?? []),
    ],
  }
}

/** What to do with the rows of a table that does not exist yet. */
export const planNewRows = ({ metadata }: EntityTriggers): RowsPlan => ({
  changes: triggerWorks(metadata).flatMap((work) => (work.rows?.created ? { install: work.rows.created, work } : [])),
  removed: [],
})

function changeOf(
  { set, rows }: TriggerWork,
  before: TriggerNote | undefined,
  installed: InstalledTriggers,
): RowsChange[] {
  if (!rows) return []
  // Without all of its triggers nobody knows what was written meanwhile.
  if (!before || before.adopting === true || !isWhole(installed)) return [rows]
  const [first] = set.functions
  const found = first && installedFunction(installed, first)
  if (found && isSameNote(first, found)) {
    const stands = set.tables.every((one) => installed.tables.includes(one))
    return stands || !rows.tables ? [] : [{ install: rows.tables }]
  }
  return [rows.follow?.(before) ?? rows]
}

/** Every trigger that the notes on a table's functions tell of is there, and enabled. */
function isWhole(installed: InstalledTriggers): boolean {
  const noted = notesOf(installed).reduce((sum, { triggers }) => sum + triggers.length, 0)
  return installed.triggers.length >= noted && installed.triggers.every(({ enabled }) => enabled)
}

/** Comes before any other change: a large table does not get its names or numbers in a migration. */
export async function refuseLargeTable(on: ChangingTable, { changes }: RowsPlan): Promise<void> {
  const rows = { schema: foreignSchema(on.metadata), table: on.metadata.tableName }
  for (const change of changes.filter((one) => worksOnRows(on, one))) {
    const names = change.work.set.kind === 'names' ? tableNames(on.metadata) : undefined
    const property = names?.[0]?.name ?? change.work.set.name
    const online =
      (change.before?.adopting ?? change.before === undefined)
        ? adoptInstead({ entity: on.metadata.name, property })
        : 'No command changes them while others use the table.'
    await emit(on.queryRunner, { up: [refuseLarge(rows, { gives: names ? 'names' : 'numbers', online })], down: [] })
  }
}

function worksOnRows(on: ChangingTable, { work, fill, install }: PlannedChange): boolean {
  const isOfRows = fill !== undefined || (install !== undefined && install !== work.rows?.tables)
  // A new name is NULL in every row.
  return isOfRows && (work.set.kind !== 'names' || Object.values(work.set.columns).some((name) => hasColumn(on, name)))
}

/**
 * Adds the columns that get their values from us, without a value; and sees to it that those which TypeORM is about to
 * drop have their values again on the way back.
 *
 * @returns what is left to do once TypeORM has changed the columns, before it makes the indexes
 */
export async function fillColumns(on: ChangingTable, { changes, removed }: RowsPlan): Promise<Change[]> {
  for (const one of removed) await fillOnTheWayBack(on, one)
  await keepTypes(on)
  const left: Change[] = []
  for (const { filled = [], fill } of changes) {
    const required: Change[] = []
    for (const column of filled) required.push(...(await addFilled(on, column)))
    left.push(...(fill ? [fill] : []), ...required)
  }
  return left
}

/** TypeORM then adds them on the way back without NOT NULL, and without their comments. */
async function fillOnTheWayBack(on: ChangingTable, { filled = [], fill = [] }: RemovedRows): Promise<void> {
  const rows = { schema: foreignSchema(on.metadata), table: on.metadata.tableName }
  const dropped = filled.filter(({ name }) => hasColumn(on, name) && !isDeclared(on, name))
  if (dropped.length === 0) return
  const required = dropped.filter(({ nullable }) => !nullable)
  for (const { name } of required) Object.assign(on.table.findColumnByName(name) ?? {}, { isNullable: true })
  const comments = dropped.flatMap(({ name }) => {
    const comment = on.table.findColumnByName(name)?.comment
    return comment ? changeComment(rows, name, undefined, comment).up : []
  })
  const notNull = required.flatMap(({ name }) => requireColumn(rows, name).up)
  await emit(on.queryRunner, { up: [], down: [...fill, ...notNull, ...comments] })
}

const INTEGERS: ReadonlySet<string> = new Set(['smallint', 'integer', 'bigint'])

/** Changes the type of a number in place. TypeORM would drop the column and add it again. */
async function keepTypes(on: ChangingTable): Promise<void> {
  const rows = { schema: foreignSchema(on.metadata), table: on.metadata.tableName }
  for (const { name, type } of triggerWorks(on.metadata).flatMap(({ rows: change }) => change?.filled ?? [])) {
    const found = on.table.findColumnByName(name)
    if (!found || found.type === type || !INTEGERS.has(found.type) || !INTEGERS.has(type)) continue
    await emit(on.queryRunner, changeType(rows, name, { type: found.type, length: '' }, { type, length: '' }))
    found.type = type
  }
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

/** What the sets of a table were until now, guards aside. */
interface Trace {
  readonly had: ReadonlyMap<TriggerWork, TriggerNote>
  /** Of sets that nobody declares any more. */
  readonly gone: readonly TriggerNote[]
}

/** Of each set the one that stands of the same name, or else the only one of its kind that is left, for the only one. */
function trace(works: readonly TriggerWork[], installed: InstalledTriggers): Trace {
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
function pairColumns(before: Readonly<Record<string, string>>, after: Readonly<Record<string, string>>): ColumnPair[] {
  const same = Object.keys(before).filter((key) => key in after)
  const gone = Object.entries(before).filter(([key]) => !(key in after))
  const created = Object.entries(after).filter(([key]) => !(key in before))
  const renamed =
    gone.length === 1 && created.length === 1 ? [[gone[0]?.[1] ?? '', created[0]?.[1] ?? ''] as const] : []
  return [...same.map((key): ColumnPair => [before[key] ?? '', after[key] ?? '']), ...renamed]
}
