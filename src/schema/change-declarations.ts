import { type QueryRunner, type Table, TableColumn } from 'typeorm'
import {
  addCheck,
  type Change,
  changeComment,
  changeType,
  inverse,
  renameCheck,
  renameColumns,
  renameIndex,
  type TypeAndLength,
} from '../sql/alter'
import type { InstalledTriggers } from '../sql/catalog'
import type { GuardNote } from '../triggers/guard'
import { renameIn } from '../sql/identifier'
import type { TextRows, TextTable } from '../sql/text-table'
import { guardNotesOf } from '../triggers/trigger-plan'
import { digests } from '../text/digest'
import {
  type ChangingTable,
  emit,
  hasCheck,
  hasColumn,
  hasWholeIndex,
  isDeclared,
  type RowsBefore,
} from './changing-table'
import { dropRules, hasSameTexts, rebuild, renormalized } from './rebuild'
import {
  type ColumnMetadata,
  dataSourceOf,
  type Declaration,
  tableDeclarations,
  tableNames,
} from '../registry/registry'
import { checkOf, foreignSchema } from '../registry/resolve-declaration'
import { type ColumnPair, setColumnPairs } from './trigger-rows'

/**
 * Does, before TypeORM's own changes, what TypeORM would do by dropping texts and hashes. Its comparison, which comes
 * after, then finds the columns as it wants them.
 *
 * @param installed the triggers that stand on the table
 * @returns what is left to do once TypeORM has changed the columns, before it makes the indexes and checks: to give
 * every row its hash, number and flag anew, wherever something changed that they depend on
 */
export async function changeDeclarations(on: ChangingTable, installed: InstalledTriggers): Promise<Change[]> {
  const notes = guardNotesOf(installed)
  const declarations = tableDeclarations(on.metadata)
  const had = predecessors(on, declarations, notes)
  const ofTexts = [...had].flatMap(([{ table }, note]) => columnPairs(note, table))
  const created = declarations.filter((one) => !had.has(one) && isNew(on, one))
  // As with notes, several that are new may be any.
  const unnoted = new Map(created.length === 1 ? created.map((one) => [one, withoutNote(on, one)]) : [])
  const ofOthers = [...unnoted.values()].flatMap((one) => one?.pairs ?? [])
  const renames = renamesBetween(on, [...ofTexts, ...ofOthers, ...setColumnPairs(on.metadata, installed)])
  if (renames.size > 0) await rename(on, renames)
  const names = { schema: foreignSchema(on.metadata), table: on.metadata.tableName }
  for (const { text } of tableNames(on.metadata)) await keepType(on.queryRunner, names, text.column, on.table)
  const rows = (note: GuardNote, declaration?: Declaration): RowsBefore => rowsOf(on, { note, declaration, renames })
  const left: Change[] = []
  for (const declaration of declarations) {
    const note = had.get(declaration)
    left.push(...(await change(on, declaration, note ? rows(note, declaration) : unnoted.get(declaration)?.before)))
  }
  const kept = new Set(had.values())
  for (const note of notes.filter((one) => !kept.has(one))) await dropRules(on, rows(note))
  return left
}

async function change(on: ChangingTable, declaration: Declaration, noted: RowsBefore | undefined): Promise<Change[]> {
  const { table: after, text } = declaration
  for (const { column } of text) await keepType(on.queryRunner, after, column, on.table)
  await keepDeleteDate(on.queryRunner, after, declaration, on.table)
  // Index and check prove all that a guard would.
  const proven = noted ?? rowsWithoutGuard(on, after)
  const before = proven ?? rowsWithoutNote(on, after)
  // Without a note nobody knows what was written while the guard was away.
  if (!proven || !before || !isWhole(on, before) || !sameRules(before, after)) {
    return await rebuild(on, declaration, before)
  }
  await changeComments(on, declaration)
  await renameConstraints(on, before, after)
  return []
}

type Renames = ReadonlyMap<string, string>

/**
 * A column follows its declaration if the old one is there and not wanted, and the new one wanted and not there. One
 * whose name another column is to have makes room for it, so they are in the order to rename.
 */
function renamesBetween(on: ChangingTable, all: readonly ColumnPair[]): Renames {
  const pairs = all.filter(([from, to]) => from !== to && hasColumn(on, from))
  const free = new Set(pairs.map(([from]) => from).filter((name) => !isDeclared(on, name)))
  // As often as there are pairs: each round frees at least one name, or none of the rest can be.
  for (const _ of pairs) for (const [from, to] of pairs) if (free.has(from)) free.add(to)
  const renames = new Map<string, string>()
  const isRoom = (name: string): boolean => !hasColumn(on, name) || renames.has(name)
  const isNext = ([from, to]: ColumnPair): boolean => !renames.has(from) && free.has(from) && isRoom(to)
  for (let pair = pairs.find(isNext); pair; pair = pairs.find(isNext)) renames.set(...pair)
  return renames
}

/** Columns that a declaration had, with those that it has in their place. */
function columnPairs(before: GuardNote, after: TextRows): ColumnPair[] {
  const text = before.text.length === after.text.length ? before.text : []
  return [
    ...text.map(({ name }, position): ColumnPair => [name, after.text[position]?.name ?? name]),
    [before.hash, after.hash],
    [before.number, after.number],
    [before.chained, after.chained],
    // TypeORM would drop it, and every deleted row would hold its text again.
    [before.deleted ?? '', after.deleted ?? before.deleted ?? ''],
  ]
}

/** A text that had no guard, and was renamed: its columns by their old names with the new, and what the rows are. */
interface Unnoted {
  readonly pairs: readonly ColumnPair[]
  readonly before: RowsBefore
}

/** Without a note its check tells: it has a name that only these columns give. Those that the entity has lost are tried. */
function withoutNote(on: ChangingTable, { table: after }: Declaration): Unnoted | undefined {
  const [text, ...more] = after.text
  if (!text || more.length > 0) return undefined
  const had = (own: string, types: ReadonlySet<string>): string[] =>
    on.table.columns
      .filter(({ name, type }) => name === own || (types.has(type) && !isDeclared(on, name)))
      .map(({ name }) => name)
  const hashes = had(after.hash, new Set(['bytea']))
  const numbers = had(after.number, new Set(['integer']))
  const booleans = had(after.chained, new Set(['boolean']))
  // No rule names the flag. Where other booleans go too, its comment tells.
  const ours = booleans.filter((name) => on.table.findColumnByName(name)?.comment?.startsWith('typeorm-unique-text'))
  const [chained, ...others] = booleans.length === 1 ? booleans : ours
  if (chained === undefined || others.length > 0) return undefined
  const all = had(text.name, TEXT_TYPES).flatMap((name) =>
    hashes.flatMap((hash) => numbers.map((number) => ({ name, hash, number }))),
  )
  const found = all.flatMap(({ name, ...hidden }): Unnoted[] => {
    const rows = { ...after, ...hidden, text: [{ ...text, name }] }
    const before = guardlessRows(rows).find(({ check }) => hasCheck(on, check))
    const keys = [hidden.hash, hidden.number].join()
    const index = on.table.indices.find((one) => one.isUnique && one.columnNames.slice(-2).join() === keys)
    if (!before || index?.name === undefined) return []
    const { hash, number } = after
    const pairs: ColumnPair[] = [
      [name, text.name],
      [hidden.hash, hash],
      [hidden.number, number],
      [chained, after.chained],
    ]
    const scope = index.columnNames.slice(0, -2)
    return [
      {
        pairs,
        before: { ...before, text: after.text, scope, hash, number, index: index.name },
      },
    ]
  })
  return found.length === 1 ? found[0] : undefined
}

const isNew = (on: ChangingTable, { table }: Declaration): boolean =>
  table.text.every(({ name }) => !hasColumn(on, name))

async function rename({ queryRunner, table, metadata }: ChangingTable, renames: Renames): Promise<void> {
  const rows = { schema: foreignSchema(metadata), table: metadata.tableName }
  await emit(queryRunner, renameColumns(rows, renames))
  const renamed = (name: string): string => renames.get(name) ?? name
  for (const column of table.columns) column.name = renamed(column.name)
  for (const one of [...table.indices, ...table.uniques]) one.columnNames = one.columnNames.map(renamed)
  // TypeORM makes an index that it drops again on the way back, before columns have their former names.
  for (const one of table.indices) if (one.where) one.where = renameIn(one.where, renames)
}

/** A guard's note, in the names that its columns have by now. */
function rowsOf(
  { metadata }: ChangingTable,
  { note, declaration, renames }: { note: GuardNote; declaration: Declaration | undefined; renames: Renames },
): RowsBefore {
  const renamed = (name: string): string => renames.get(name) ?? name
  const known = [...Object.values(digests), ...(declaration ? [declaration.table.digest] : [])]
  return {
    ...note,
    schema: foreignSchema(metadata),
    table: metadata.tableName,
    text: note.text.map(({ name, prefix }) => ({ name: renamed(name), prefix })),
    scope: note.scope.map(renamed),
    deleted: note.deleted === undefined ? undefined : renamed(note.deleted),
    hash: renamed(note.hash),
    number: renamed(note.number),
    chained: renamed(note.chained),
    digest: known.find(({ name }) => name === note.digest),
    digestName: note.digest,
  }
}

/** A guard that lost its comments, as in a dump without them: index and check still say what the rows are. */
function rowsWithoutNote(on: ChangingTable, after: TextRows): RowsBefore | undefined {
  const rows = { ...after, digestName: after.digest.name }
  return isWhole(on, rows) ? rows : undefined
}

/** What the rows are if they had no guard, and nothing else changes but who may be NULL. */
function rowsWithoutGuard(on: ChangingTable, after: TextRows): RowsBefore | undefined {
  return guardlessRows(after).find((rows) => isWhole(on, rows))
}

function guardlessRows(after: TextRows): (TextRows & RowsBefore)[] {
  const { sha256: digest } = digests
  return [after.nullable, !after.nullable]
    .map((nullable) => ({ ...after, digest, digestName: digest.name, guardless: true, nullable }))
    .map((rows) => ({ ...rows, check: checkOf(rows) }))
}

function isWhole(on: ChangingTable, rows: RowsBefore): boolean {
  const hidden = [rows.hash, rows.number, rows.chained]
  return hidden.every((name) => hasColumn(on, name)) && hasWholeIndex(on, rows) && hasCheck(on, rows.check)
}

function sameRules(before: RowsBefore, after: TextRows): boolean {
  const same = before.deleted === after.deleted && hasSameTexts(before, after)
  return same && renormalized(before, after).length === 0 && renormalized(after, before).length === 0
}

/** Of hidden columns, which tell the property. For another comment TypeORM would build the index anew. */
async function changeComments({ queryRunner, table }: ChangingTable, declaration: Declaration): Promise<void> {
  for (const { databaseName, comment = '' } of declaration.hidden) {
    const found = table.findColumnByName(databaseName)
    if (!found || (found.comment ?? '') === comment) continue
    await emit(queryRunner, changeComment(declaration.table, databaseName, found.comment, comment))
    found.comment = comment
  }
}

async function renameConstraints(
  { queryRunner, table }: ChangingTable,
  before: RowsBefore,
  after: TextRows,
): Promise<void> {
  if (before.index !== after.index) {
    await emit(queryRunner, renameIndex(after, before.index, after.index))
    for (const one of table.indices) if (one.name === before.index) one.name = after.index
  }
  if ((before.guardless === true) !== (after.guardless === true)) {
    // Another check holds the numbers. TypeORM makes it; on the way back it would make the old one by the new names.
    await emit(queryRunner, inverse(addCheck({ ...before, digest: after.digest })))
    table.checks = table.checks.filter(({ name }) => name !== before.check)
  } else if (before.check !== after.check) {
    await emit(queryRunner, renameCheck(after, before.check, after.check))
    for (const one of table.checks) if (one.name === before.check) one.name = after.check
  }
}

const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'character varying'])

/** Changes a text column's type in place. TypeORM would drop the column and add it again. */
async function keepType(
  queryRunner: QueryRunner,
  names: Pick<TextTable, 'schema' | 'table'>,
  column: ColumnMetadata,
  table: Table,
): Promise<void> {
  const { driver } = dataSourceOf(column.entityMetadata)
  const found = table.findColumnByName(column.databaseName)
  const to = { type: driver.normalizeType(column), length: driver.getColumnLength(column) }
  if (!found || !TEXT_TYPES.has(found.type) || (found.type === to.type && found.length === to.length)) return
  await emit(queryRunner, changeType(names, found.name, found, to))
  Object.assign(found, to)
}

const DATE_TYPES: ReadonlySet<string> = new Set(['timestamp without time zone', 'timestamp with time zone', 'date'])

/** The precision of a date column that declares none. */
const DEFAULT_PRECISION = 6

/**
 * Changes the type of the delete date in place. If TypeORM dropped the column, Postgres would drop the unique index
 * too, whose condition names it.
 */
async function keepDeleteDate(
  queryRunner: QueryRunner,
  names: TextTable,
  { metadata }: Pick<Declaration, 'metadata'>,
  table: Table,
): Promise<void> {
  const column = metadata.columns.find(({ databaseName }) => databaseName === names.deleted)
  const found = column && table.findColumnByName(column.databaseName)
  if (!found) return
  const { driver } = dataSourceOf(metadata)
  const type = driver.normalizeType(column)
  const precision = column.precision === undefined ? found.precision : column.precision
  const same = found.type === type && found.precision === precision
  if (same || !DATE_TYPES.has(found.type) || !DATE_TYPES.has(type)) return
  const full = (one: string, digits: number | null | undefined): TypeAndLength => {
    const said = digits === undefined || digits === DEFAULT_PRECISION ? {} : { precision: digits }
    return { type: driver.createFullType(new TableColumn({ name: found.name, type: one, ...said })), length: '' }
  }
  await emit(queryRunner, changeType(names, found.name, full(found.type, found.precision), full(type, precision)))
  Object.assign(found, { type, precision })
}

type Rule = (declaration: Declaration, note: GuardNote) => boolean

/** In this order: the same text, another name for the same columns, or a hidden column that keeps its name. */
const RULES: readonly Rule[] = [
  ({ name }, note) => note.name === name,
  ({ table }, note) => columnNames(note) === columnNames(table),
  ({ table }, note) => HIDDEN.some((hidden) => note[hidden] === table[hidden]),
]

const HIDDEN = ['hash', 'number', 'chained'] as const

const columnNames = ({ text }: Pick<TextRows, 'text'>): string => JSON.stringify(text.map(({ name }) => name))

/** Which installed guard each declaration had until now, if any. No guard is given twice. */
function predecessors(
  on: ChangingTable,
  declarations: readonly Declaration[],
  notes: readonly GuardNote[],
): ReadonlyMap<Declaration, GuardNote> {
  const found = new Map<Declaration, GuardNote>()
  const free = new Set(notes.filter(({ hash }) => hasColumn(on, hash)))
  const pair = (declaration: Declaration | undefined, note: GuardNote | undefined): void => {
    if (!declaration || !note) return
    found.set(declaration, note)
    free.delete(note)
  }
  for (const rule of RULES) {
    for (const declaration of declarations.filter((one) => !found.has(one))) {
      const note = [...free].find((one) => rule(declaration, one))
      pair(declaration, note)
    }
  }
  const unpaired = declarations.filter((one) => !found.has(one))
  pair(...onlyChange(on, unpaired, [...free]))
  return found
}

/** As TypeORM does with columns: if one text is gone and one is new, it was renamed. */
function onlyChange(
  on: ChangingTable,
  declarations: readonly Declaration[],
  notes: readonly GuardNote[],
): [Declaration | undefined, GuardNote | undefined] {
  const created = declarations.filter((one) => isNew(on, one))
  const gone = notes.filter(({ text }) => text.every(({ name }) => hasColumn(on, name) && !isDeclared(on, name)))
  const [declaration, note] = [created[0], gone[0]]
  const sole = created.length === 1 && gone.length === 1 && declaration?.table.text.length === note?.text.length
  return sole ? [declaration, note] : [undefined, undefined]
}
