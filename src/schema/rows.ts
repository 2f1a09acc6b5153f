import { type EntityMetadata, TableColumn } from 'typeorm'
import { entityTable } from '../registry/declarations'
import { type Declaration, type RowsChange, tableNames, type TriggerWork } from '../registry/registry'
import {
  addCheck,
  addColumn,
  addIndex,
  type Change,
  changeComment,
  changeHashType,
  changeType,
  dropHidden,
  type FilledColumn,
  inverse,
  requireColumn,
} from '../sql/alter'
import type { InstalledTriggers } from '../sql/catalog'
import { qualified } from '../sql/identifier'
import { type TextRows, textRules } from '../sql/text-table'
import type { RemovedRows, TriggerNote, TriggerSet } from '../sql/trigger-set'
import { digests } from '../text/digest'
import { normalizerLabel, toNormalizer } from '../text/normalizer'
import {
  hasNamesakes,
  installedFunction,
  isSameNote,
  LACKS_TRIGGER,
  notesOf,
  removedRows,
  tableDifference,
} from '../triggers/plan'
import {
  adoptInstead,
  rebuildRows,
  refuseDuplicates,
  refuseLarge,
  refuseNulls,
  refuseUnknownDigest,
  refuseUnnormalized,
  type Renormalized,
} from '../triggers/rows'
import {
  type ChangingTable,
  emit,
  type EntityTriggers,
  hasCheck,
  hasColumn,
  hasIndex,
  isDeclared,
  type RowsBefore,
  triggerWorks,
} from './table'

/** What to do with the rows of one table because triggers come, change or go. */
export interface RowsPlan {
  readonly changes: readonly PlannedChange[]
  /** The rows of sets that nobody declares any more, and of columns that a set no longer has. */
  readonly removed: readonly RemovedRows[]
}

interface PlannedChange extends RowsChange {
  readonly work: TriggerWork
  /** `adopt` does it too. */
  readonly adoptable?: boolean
}

/** @returns what to do if the table exists already */
export function planRows({ metadata, installed }: EntityTriggers): RowsPlan {
  const works = triggerWorks(metadata)
  const { had, gone } = trace(works, installed)
  const primary = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const from = { ...entityTable(metadata), primary }
  const changes = works.flatMap((work) => {
    const before = had.get(work)
    const adoptable = before === undefined || before.adopting === true || lacksWritten(work.set, installed)
    return changeOf(work, before, installed).map((change) => ({ ...change, work, adoptable }))
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
  if (!before || before.adopting === true) return [rows]
  if (hasStrayed(set, before, installed)) return [rows.again?.(before) ?? rows]
  if (isNotedAlike(set, installed)) {
    const install = changeOfTables(rows, set, installed)
    return install ? [{ install }] : []
  }
  return [rows.follow?.(before) ?? rows]
}

/** Without all of its triggers, as its own columns have them, nobody knows what was written meanwhile. */
const hasStrayed = (set: TriggerSet, before: TriggerNote, installed: InstalledTriggers): boolean =>
  !hasAllTriggers(installed) || lacksWritten(set, installed) || hasNamesakes(set, before, installed)

/** The table that the triggers write to is gone, as where a restore has left it out, and with it what it said of rows. */
const lacksWritten = ({ writes }: TriggerSet, { homes }: InstalledTriggers): boolean =>
  writes !== undefined && homes[qualified(writes.schema, writes.name)] === null

function isNotedAlike({ functions: [first] }: TriggerSet, installed: InstalledTriggers): boolean {
  const found = first && installedFunction(installed, first)
  return first !== undefined && found !== undefined && isSameNote(first, found)
}

/** What to do where only a table that the set keeps differs. */
function changeOfTables(rows: RowsChange, set: TriggerSet, installed: InstalledTriggers): Change | undefined {
  const differences = set.tables.flatMap((one) => tableDifference(one, installed) ?? [])
  if (differences.length === 0) return undefined
  return differences.every((one) => one === LACKS_TRIGGER) ? rows.triggers : rows.tables
}

/** Every trigger that the notes on a table's functions tell of is there, and enabled. */
function hasAllTriggers(installed: InstalledTriggers): boolean {
  const noted = notesOf(installed).reduce((sum, { triggers }) => sum + triggers.length, 0)
  return (
    installed.triggers.length >= noted &&
    installed.triggers.every(({ enabled, unguarded }) => enabled && unguarded.length === 0)
  )
}

/** Comes before any other change: a large table does not get its names or numbers in a migration. */
export async function refuseLargeTable(on: ChangingTable, { changes }: RowsPlan): Promise<void> {
  const rows = entityTable(on.metadata)
  const onRows = changes.filter(({ work, fill, install }) => {
    const isOfRows =
      fill !== undefined || (install !== undefined && install !== work.rows?.tables && install !== work.rows?.triggers)
    // A new name is NULL in every row.
    return (
      isOfRows && (work.set.kind !== 'names' || Object.values(work.set.columns).some((name) => hasColumn(on, name)))
    )
  })
  for (const { work, adoptable } of onRows) {
    const names = work.set.kind === 'names' ? tableNames(on.metadata) : undefined
    const property = names?.[0]?.name ?? work.set.name
    const online = adoptable
      ? adoptInstead({ entity: on.metadata.name, property })
      : 'No command changes them while others use the table.'
    await emit(on.queryRunner, { up: [refuseLarge(rows, { gives: names ? 'names' : 'numbers', online })], down: [] })
  }
}

/** Types of numbers, which are changed in place. */
const INTEGERS: ReadonlySet<string> = new Set(['smallint', 'integer', 'bigint'])

/**
 * Adds the columns that get their values from us, without a value; and sees to it that those which TypeORM is about to
 * drop have their values again on the way back.
 *
 * @returns what is left to do once TypeORM has changed the columns, before it makes the indexes
 */
export async function fillColumns(on: ChangingTable, { changes, removed }: RowsPlan): Promise<Change[]> {
  for (const one of removed) await fillOnTheWayBack(on, one)
  const rows = entityTable(on.metadata)
  for (const { name, type } of triggerWorks(on.metadata).flatMap((work) => work.rows?.filled ?? [])) {
    const found = on.table.findColumnByName(name)
    if (!found || found.type === type || !INTEGERS.has(found.type) || !INTEGERS.has(type)) continue
    // TypeORM would drop the column and add it again.
    await emit(on.queryRunner, changeType(rows, name, { type: found.type, length: '' }, { type, length: '' }))
    found.type = type
  }
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
  const rows = entityTable(on.metadata)
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

async function addFilled(on: ChangingTable, { name, type, nullable }: FilledColumn): Promise<Change[]> {
  const rows = entityTable(on.metadata)
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
  /** The notes of sets that nobody declares any more. */
  readonly gone: readonly TriggerNote[]
}

/** Finds for each set the installed one of the same name, or else the only one of its kind that is left. */
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
  [...trace(triggerWorks(metadata), installed).had].flatMap(([{ set }, { columns: before = {} }]) => {
    const after = set.columns
    const same = Object.keys(before).filter((key) => key in after)
    const gone = Object.entries(before).filter(([key]) => !(key in after))
    const created = Object.entries(after).filter(([key]) => !(key in before))
    // If one is gone and one is new, it was renamed, as TypeORM takes it.
    const renamed: ColumnPair[] =
      gone.length === 1 && created.length === 1 ? [[gone[0]?.[1] ?? '', created[0]?.[1] ?? '']] : []
    return [...same.map((key): ColumnPair => [before[key] ?? '', after[key] ?? '']), ...renamed]
  })

/** What a text has that nothing normalizes. */
const NONE = normalizerLabel(toNormalizer(undefined))

const primaryKey = ({ metadata }: ChangingTable): string[] =>
  metadata.primaryColumns.map(({ databaseName }) => databaseName)

/** Before TypeORM has changed any column. A restore may have left the key out, and a table may have none yet. */
function oldPrimaryKey(on: ChangingTable): string[] {
  const keys = [on.table.primaryColumns.map(({ name }) => name), primaryKey(on).filter((name) => hasColumn(on, name))]
  return keys.find(({ length }) => length > 0) ?? ['ctid']
}

/**
 * Makes the rows ready for other rules: index and check go, the hash gets its type. On the way back, which runs from
 * the last statement to the first, the rows get what they had, before index and check are there again.
 *
 * @returns what remains to be done once the columns match the declaration
 */
export async function rebuild(
  on: ChangingTable,
  declaration: Declaration,
  before: RowsBefore | undefined,
): Promise<Change[]> {
  const { table: rows, text } = declaration
  // A new text is NULL in every row, or the table is empty.
  if (text.every(({ column }) => !hasColumn(on, column.databaseName) && column.default === undefined)) return []
  const instead = adoptInstead({ entity: on.metadata.name, property: declaration.name })
  const online = rows.guardless
    ? `Declare the text with its guard, and let a later migration take the guard away. ${instead}`
    : instead
  await emit(on.queryRunner, { up: [refuseLarge(rows, { gives: 'hashes', online })], down: [] })
  const nulls = await forbidNulls(on, declaration)
  const duplicates = before ? await forbidDuplicates(on, before, rows) : []
  const hash = on.table.findColumnByName(rows.hash)
  const { loosened, tightened } = notNullOf(hash, rows)
  if (before) await takeAwayRules(on, before, loosened)
  await forbidOtherNormalizers(on, before, rows)
  if (loosened) await emit(on.queryRunner, { up: requireColumn(rows, rows.hash).down, down: [] })
  const { type } = rows.digest
  if (!hash) {
    await emit(on.queryRunner, addColumn(rows, rows.hash, type))
    on.table.addColumn(new TableColumn({ name: rows.hash, type, isNullable: rows.nullable }))
  } else {
    if (hash.type !== type) await emit(on.queryRunner, changeHashType(rows, hash.type, type))
    Object.assign(hash, { type, isNullable: rows.nullable })
  }
  return [
    ...nulls,
    ...duplicates,
    { up: [rebuildRows({ rows, primary: primaryKey(on) })], down: [] },
    // A hash that is new is dropped on the way back.
    ...(tightened ? [{ ...requireColumn(rows, rows.hash), ...(hash ? {} : { down: [] }) }] : []),
  ]
}

/** Whether the hash must stop being NOT NULL, because rows have none for a while, and become so in the end. */
function notNullOf(hash: TableColumn | undefined, rows: TextRows): { loosened: boolean; tightened: boolean } {
  if (!hash) return { loosened: false, tightened: !rows.nullable }
  const loosened = !hash.isNullable && (hash.type !== rows.digest.type || rows.nullable)
  return { loosened, tightened: !rows.nullable && (loosened || hash.isNullable) }
}

/** Drops what a text needs that nobody declares any more; the way back makes it for the rows that are there then. */
export async function dropRules(on: ChangingTable, before: RowsBefore): Promise<void> {
  const { table, queryRunner } = on
  const hidden = [before.hash, before.number, before.chained].flatMap((name) => table.findColumnByName(name) ?? [])
  const [hash] = hidden
  if (!hash || hidden.length < 3 || hidden.some(({ name }) => isDeclared(on, name))) return
  await takeAwayRules(on, before, !hash.isNullable)
  const columns = hidden.map(({ name, comment }) => ({ name, comment }))
  await emit(queryRunner, dropHidden(before, columns, hash.type))
  for (const column of hidden) table.removeColumn(column)
}

/** Index and check go. On the way back the rows get their hashes and numbers first. */
async function takeAwayRules(on: ChangingTable, before: RowsBefore, requiresHash: boolean): Promise<void> {
  const { table, queryRunner } = on
  const rows: TextRows = { ...before, digest: before.digest ?? digests.md5 }
  if (hasIndex(on, rows.index)) await emit(queryRunner, inverse(addIndex(rows)))
  if (hasCheck(on, rows.check)) await emit(queryRunner, inverse(addCheck(rows)))
  table.indices = table.indices.filter(({ name }) => name !== rows.index)
  table.checks = table.checks.filter(({ name }) => name !== rows.check)
  const required = requiresHash ? requireColumn(rows, rows.hash).up : []
  const rebuilt = before.digest
    ? rebuildRows({ rows, primary: oldPrimaryKey(on) })
    : refuseUnknownDigest(before, before.digestName)
  await emit(queryRunner, { up: [], down: [rebuilt, ...required] })
}

/** Names the rows that stand against NOT NULL, which Postgres would not: on the way, or on the way back. */
async function forbidNulls(on: ChangingTable, declaration: Declaration): Promise<Change[]> {
  const { table: rows } = declaration
  const { tightened, loosened } = nullChanges(declaration, (name) => on.table.findColumnByName(name)?.isNullable)
  for (const name of tightened) {
    await emit(on.queryRunner, { up: [refuseNulls({ rows, primary: oldPrimaryKey(on) }, name)], down: [] })
  }
  return loosened.map((name) => ({ up: [], down: [refuseNulls({ rows, primary: primaryKey(on) }, name)] }))
}

/** The rules of rows, as a declaration or the note of a guard has them. */
type RowRules = Normalized & Pick<TextRows, 'scope' | 'nullable' | 'hash' | 'number' | 'chained' | 'deleted'>

/** What differs between the rows that two declarations want. */
export interface RowsDifference {
  /** Rows have other texts, in other columns or scopes, or other hashes. */
  readonly texts: boolean
  /** Other rows hold their texts. */
  readonly held: boolean
  /** Columns whose texts the normalizer that is declared now may not have made. */
  readonly normalizers: readonly Renormalized[]
}

/**
 * Compares the rows of two declarations. A migration changes a small table by what this finds, and `adopt` a large one.
 *
 * @param digest the name of the one before
 */
export const compareRows = (before: RowRules, digest: string, after: TextRows): RowsDifference => ({
  texts: textRules(before, digest) !== textRules(after, after.digest.name),
  held: before.deleted !== after.deleted,
  normalizers: renormalized(before, after),
})

/** Columns of texts and scope that become NOT NULL, and those that may be NULL from then on. */
export function nullChanges(
  { text, scope }: Pick<Declaration, 'text' | 'scope'>,
  wasNullable: (column: string) => boolean | undefined,
): { readonly tightened: readonly string[]; readonly loosened: readonly string[] } {
  const columns = [...text.map(({ column }) => column), ...scope]
  const which = (was: boolean): string[] =>
    columns
      .filter(({ databaseName, isNullable }) => isNullable === !was && wasNullable(databaseName) === was)
      .map(({ databaseName }) => databaseName)
  return { tightened: which(true), loosened: which(false) }
}

/**
 * Where softly deleted rows are to hold their texts again, on the way or on the way back, rows that then hold the same
 * are refused before TypeORM may drop the delete date.
 */
async function forbidDuplicates(on: ChangingTable, before: RowsBefore, after: TextRows): Promise<Change[]> {
  const { held, texts } = compareRows(before, before.digestName, after)
  if (!held || texts) return []
  const refusal = (primary: readonly string[]): string[] => [
    refuseDuplicates({ rows: { ...after, deleted: undefined }, primary }),
  ]
  if (after.deleted !== undefined) return [{ up: [], down: refusal(primaryKey(on)) }]
  await emit(on.queryRunner, { up: refusal(oldPrimaryKey(on)), down: [] })
  return []
}

async function forbidOtherNormalizers(
  on: ChangingTable,
  before: RowsBefore | undefined,
  after: TextRows,
): Promise<void> {
  const table = { rows: after, primary: oldPrimaryKey(on), entity: on.metadata.name }
  const refusals = (changes: readonly Renormalized[]): string[] =>
    changes.filter(({ column }) => hasColumn(on, column)).map((change) => refuseUnnormalized(table, change))
  const [up, down] = [refusals(renormalized(before, after)), before ? refusals(renormalized(after, before)) : []]
  if (up.length + down.length > 0) await emit(on.queryRunner, { up, down })
}

type Normalized = Pick<TextRows, 'text' | 'normalizers'>

/** The columns whose texts the normalizer that is declared now may not have made. Without one, every text is right. */
export function renormalized(before: Normalized | undefined, after: Normalized): Renormalized[] {
  const had = new Map(before?.text.map(({ name }, position) => [name, before.normalizers[position] ?? NONE]))
  return after.text.flatMap(({ name }, position) => {
    const [from, to] = [had.get(name) ?? NONE, after.normalizers[position] ?? NONE]
    return to === NONE || to === from ? [] : [{ column: name, from, to }]
  })
}
