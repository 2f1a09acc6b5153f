import { TableColumn } from 'typeorm'
import type { Finding } from '../errors'
import { checkOf } from '../registry/declarations'
import { type ColumnMetadata, dataSourceOf, type Declaration, namesOfTable, textsOfTable } from '../registry/registry'
import {
  addCheck,
  addIndexOf,
  type Change,
  changeComment,
  changeType,
  inverse,
  renameCheck,
  renameColumns,
  renameIndex,
  type TypeAndLength,
  uniqueIndexOf,
} from '../sql/alter'
import { renameIn } from '../sql/identifier'
import type { TextRows, TextTable } from '../sql/text-table'
import { digests } from '../text/digest'
import { OTHER_DECLARATION, servesNamesakes } from '../triggers/attached'
import { type GuardNote, guardNotesOf, guardsOf } from '../triggers/guard'
import { findDrift, OTHER_ORDER, OTHER_ROWS, workDrift } from './readiness'
import { type ColumnPair, compareRows, dropRules, rebuild, renormalized, workColumnPairs } from './rows'
import {
  type ChangingTable,
  emit,
  hasCheck,
  hasColumn,
  hasIndex,
  hasWholeIndex,
  isDeclared,
  type RowsBefore,
} from './table'

/**
 * Makes the changes that TypeORM would make by dropping texts and hashes. It runs before TypeORM's own comparison,
 * which then finds the columns as it wants them.
 *
 * @returns the changes that remain once TypeORM has changed the columns, before it makes the indexes and checks. They
 * give every row its hash, number and flag anew, if something changed that these depend on
 */
export async function changeDeclarations(on: ChangingTable): Promise<Change[]> {
  const { installed } = on
  const notes = guardNotesOf(installed)
  const declarations = textsOfTable(on.metadata)
  const had = predecessors(on, declarations, notes)
  const ofTexts = [...had].flatMap(([{ table: after }, note]): ColumnPair[] => {
    const text = note.text.length === after.text.length ? note.text : []
    return [
      ...text.map(({ name }, position): ColumnPair => [name, after.text[position]?.name ?? name]),
      [note.hash, after.hash],
      [note.number, after.number],
      [note.chained, after.chained],
      // TypeORM would drop this column, and every deleted row would hold its text again.
      [note.deleted ?? '', after.deleted ?? note.deleted ?? ''],
    ]
  })
  const created = declarations.filter((one) => !had.has(one) && isNew(on, one))
  // Several new texts are ambiguous, as with notes.
  const unnoted = new Map(created.length === 1 ? created.map((one) => [one, withoutNote(on, one)]) : [])
  const ofOthers = [...unnoted.values()].flatMap((one) => one?.pairs ?? [])
  const renames = await followRenames(on, [...ofTexts, ...ofOthers, ...workColumnPairs(on)])
  for (const { text } of namesOfTable(on.metadata)) await keepType(on, text.column)
  const renamed = (name: string): string => renames.get(name) ?? name
  /** Converts a guard's note to the current names of its columns. */
  const rows = (note: GuardNote, declaration?: Declaration): RowsBefore => ({
    ...note,
    schema: on.schema,
    table: on.table,
    text: note.text.map(({ name, prefix }) => ({ name: renamed(name), prefix })),
    scope: note.scope.map(renamed),
    deleted: note.deleted === undefined ? undefined : renamed(note.deleted),
    hash: renamed(note.hash),
    number: renamed(note.number),
    chained: renamed(note.chained),
    digest: [...Object.values(digests), ...(declaration ? [declaration.table.digest] : [])].find(
      ({ name }) => name === note.digest,
    ),
    digestName: note.digest,
  })
  const left: Change[] = []
  for (const declaration of declarations) {
    const note = had.get(declaration)
    const before = note ? rows(note, declaration) : unnoted.get(declaration)?.before
    const isOthers =
      note !== undefined && guardsOf(declaration.table).some((guard) => servesNamesakes(guard, note.installed))
    left.push(...(await change(on, declaration, before, isOthers)))
  }
  const kept = new Set(had.values())
  for (const note of notes.filter((one) => !kept.has(one))) await dropRules(on, rows(note))
  return left
}

/** @param isOthers whether other columns have taken the names of the columns that the guard served */
async function change(
  on: ChangingTable,
  declaration: Declaration,
  noted: RowsBefore | undefined,
  isOthers: boolean,
): Promise<Change[]> {
  const { table: after, text } = declaration
  for (const { column } of text) await keepType(on, column)
  await keepDeleteDate(on, after)
  // Index and check prove as much as a guard, if nothing changes except which columns may be NULL.
  const before = noted ?? guardlessRows(after).find((rows) => isWhole(on, rows))
  if (!before) {
    // If a guard has lost its note, index and check still define the rows. Nobody knows what was written while the
    // guard was absent.
    const rows = { ...after, digestName: after.digest.name }
    return await rebuild(on, declaration, isWhole(on, rows) ? rows : undefined)
  }
  const { texts, held, normalizers } = compareRows(before, before.digestName, after)
  const isSame = !texts && !held && normalizers.length === 0 && renormalized(after, before).length === 0
  if (isOthers || !isWhole(on, before) || !isSame) return await rebuild(on, declaration, before)
  await changeComments(on, declaration)
  await renameConstraints(on, before, after)
  return []
}

/**
 * Renames columns. A column follows its declaration if the old name exists and is not declared, and the new name is
 * declared and does not exist. A column whose name another column needs is renamed first.
 *
 * @returns the new names, by the old ones
 */
async function followRenames(on: ChangingTable, all: readonly ColumnPair[]): Promise<ReadonlyMap<string, string>> {
  const pairs = all.filter(([from, to]) => from !== to && hasColumn(on, from))
  const free = new Set(pairs.map(([from]) => from).filter((name) => !isDeclared(on, name)))
  // There are enough rounds: each one frees at least one name, or none of the rest can be freed.
  for (const _ of pairs) for (const [from, to] of pairs) if (free.has(from)) free.add(to)
  const renames = new Map<string, string>()
  const isRoom = (name: string): boolean => !hasColumn(on, name) || renames.has(name)
  const isNext = ([from, to]: ColumnPair): boolean => !renames.has(from) && free.has(from) && isRoom(to)
  for (let pair = pairs.find(isNext); pair; pair = pairs.find(isNext)) renames.set(...pair)
  if (renames.size === 0) return renames
  const { picture } = on
  await emit(on.queryRunner, renameColumns(on, renames))
  const renamed = (name: string): string => renames.get(name) ?? name
  for (const column of picture.columns) column.name = renamed(column.name)
  for (const one of [...picture.indices, ...picture.uniques]) one.columnNames = one.columnNames.map(renamed)
  // In a revert, TypeORM makes an index that it drops here, before columns have their former names.
  for (const one of picture.indices) if (one.where) one.where = renameIn(one.where, renames)
  return renames
}

/** A text that had no guard and was renamed, with the old and new names of its columns, and the rules of its rows. */
interface Unnoted {
  readonly pairs: readonly ColumnPair[]
  readonly before: RowsBefore
}

/** Finds a text without a note by the check's name, which depends on its columns. Tries columns the entity has lost. */
function withoutNote(on: ChangingTable, { table: after }: Declaration): Unnoted | undefined {
  const [text, ...more] = after.text
  if (!text || more.length > 0) return undefined
  const had = (own: string, types: ReadonlySet<string>): string[] =>
    on.picture.columns
      .filter(({ name, type }) => name === own || (types.has(type) && !isDeclared(on, name)))
      .map(({ name }) => name)
  const hashes = had(after.hash, new Set(['bytea']))
  const numbers = had(after.number, new Set(['integer']))
  const booleans = had(after.chained, new Set(['boolean']))
  // No rule names the flag. If other booleans are removed too, its comment identifies it.
  const ours = booleans.filter((name) => on.picture.findColumnByName(name)?.comment?.startsWith('typeorm-unique-text'))
  const [chained, ...others] = booleans.length === 1 ? booleans : ours
  if (chained === undefined || others.length > 0) return undefined
  const all = had(text.name, TEXT_TYPES).flatMap((name) =>
    hashes.flatMap((hash) => numbers.map((number) => ({ name, hash, number }))),
  )
  const found = all.flatMap(({ name, ...hidden }): Unnoted[] => {
    const rows = { ...after, ...hidden, text: [{ ...text, name }] }
    const before = guardlessRows(rows).find(({ check }) => hasCheck(on, check))
    const keys = [hidden.hash, hidden.number].join()
    const index = on.picture.indices.find((one) => one.isUnique && one.columnNames.slice(-2).join() === keys)
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

/** Changes comments of hidden columns, which name the property. For another comment TypeORM would remake the index. */
async function changeComments({ queryRunner, picture }: ChangingTable, declaration: Declaration): Promise<void> {
  for (const { databaseName, comment = '' } of declaration.hidden) {
    const found = picture.findColumnByName(databaseName)
    if (!found || (found.comment ?? '') === comment) continue
    await emit(queryRunner, changeComment(declaration.table, databaseName, found.comment, comment))
    found.comment = comment
  }
}

async function renameConstraints(
  { queryRunner, picture, citus }: ChangingTable,
  before: RowsBefore,
  after: TextRows,
): Promise<void> {
  if (before.index !== after.index) {
    await emit(queryRunner, renameIndex(after, before.index, after.index))
    for (const one of picture.indices) if (one.name === before.index) one.name = after.index
  }
  const isOther = (before.guardless === true) !== (after.guardless === true)
  if (isOther || (citus && before.check !== after.check)) {
    // Another check keeps the numbers, or Citus cannot rename one. TypeORM makes the new check, but in a revert it would
    // make the old one with the new names.
    await emit(queryRunner, inverse(addCheck({ ...before, digest: after.digest })))
    picture.checks = picture.checks.filter(({ name }) => name !== before.check)
  } else if (before.check !== after.check) {
    await emit(queryRunner, renameCheck(after, before.check, after.check))
    for (const one of picture.checks) if (one.name === before.check) one.name = after.check
  }
}

const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'character varying'])

/** Changes a text column's type in place. TypeORM would drop the column and add it again. */
async function keepType(on: ChangingTable, column: ColumnMetadata): Promise<void> {
  const { driver } = dataSourceOf(on.metadata)
  const found = on.picture.findColumnByName(column.databaseName)
  const to = { type: driver.normalizeType(column), length: driver.getColumnLength(column) }
  if (!found || !TEXT_TYPES.has(found.type) || (found.type === to.type && found.length === to.length)) return
  await emit(on.queryRunner, changeType(on, found.name, found, to))
  Object.assign(found, to)
}

const DATE_TYPES: ReadonlySet<string> = new Set(['timestamp without time zone', 'timestamp with time zone', 'date'])

/** The precision of a date column that declares none. */
const DEFAULT_PRECISION = 6

/**
 * Changes the type of the delete date in place. If TypeORM dropped the column, Postgres would drop the unique index
 * too, whose condition names it.
 */
async function keepDeleteDate(on: ChangingTable, { deleted }: TextTable): Promise<void> {
  const { metadata } = on
  const column = metadata.columns.find(({ databaseName }) => databaseName === deleted)
  const found = column && on.picture.findColumnByName(column.databaseName)
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
  await emit(on.queryRunner, changeType(on, found.name, full(found.type, found.precision), full(type, precision)))
  Object.assign(found, { type, precision })
}

type Rule = (declaration: Declaration, note: GuardNote) => boolean

/** The rules in their order: the same text, another name for the same columns, a hidden column that keeps its name. */
const RULES: readonly Rule[] = [
  ({ name }, note) => note.name === name,
  ({ table }, note) => columnNames(note) === columnNames(table),
  ({ table }, note) => HIDDEN.some((hidden) => note[hidden] === table[hidden]),
]

const HIDDEN = ['hash', 'number', 'chained'] as const

const columnNames = ({ text }: Pick<TextRows, 'text'>): string => JSON.stringify(text.map(({ name }) => name))

/** Returns the installed guard that each declaration had until now, if any. No guard is assigned twice. */
function predecessors(
  on: ChangingTable,
  declarations: readonly Declaration[],
  notes: readonly GuardNote[],
): ReadonlyMap<Declaration, GuardNote> {
  const found = new Map<Declaration, GuardNote>()
  const free = new Set(notes.filter((note) => HIDDEN.some((hidden) => hasColumn(on, note[hidden]))))
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
  // Like TypeORM for columns, this treats one removed text and one new text as a rename.
  const created = declarations.filter((one) => !found.has(one) && isNew(on, one))
  const gone = [...free].filter(({ text }) => text.every(({ name }) => hasColumn(on, name) && !isDeclared(on, name)))
  if (created.length === 1 && gone.length === 1 && created[0]?.table.text.length === gone[0]?.text.length) {
    pair(created[0], gone[0])
  }
  return found
}

const isOfThis = (findings: readonly Finding[]): boolean => findings.every(({ detail }) => detail !== OTHER_DECLARATION)

/**
 * Drops indexes and checks of ours whose definition is not the declared one. TypeORM, which compares names, then makes
 * them anew as if they were missing.
 */
export async function dropDifferent(on: ChangingTable): Promise<void> {
  const { metadata, picture, state, works } = on
  if (!state) return
  const declarations = textsOfTable(metadata).map((one) => one.table)
  // TypeORM sees by itself that an index has other columns, or is not unique.
  const isUnseen = ({ kind, detail }: Finding): boolean => kind === 'invalid' || detail !== undefined
  const ofTexts = declarations.map((rows) => findDrift(rows, state))
  // A revert by TypeORM makes indexes with their columns in any order.
  const ofSets = works.map((work) => workDrift([work], state).filter(({ detail }) => detail !== OTHER_ORDER))
  // An object of another declaration changes with its rows.
  const ofSameTexts = ofTexts.filter(isOfThis).flat()
  const findings = [
    ...ofSameTexts.filter(({ detail }) => detail !== OTHER_ROWS),
    ...ofSets.filter(isOfThis).flat(),
  ].filter(isUnseen)
  const isOther = (object: 'index' | 'check', called: string): boolean =>
    findings.some((one) => one.object === object && one.name === called)
  const indexes = [...declarations.map(uniqueIndexOf), ...works.flatMap((work) => [...(work.indexes ?? [])])]
  const dropped: Change[] = [
    ...declarations.filter((rows) => isOther('check', rows.check) && hasCheck(on, rows.check)).map(addCheck),
    ...indexes.filter(({ name }) => isOther('index', name) && hasIndex(on, name)).map((index) => addIndexOf(on, index)),
  ]
  for (const one of dropped) await emit(on.queryRunner, inverse(one))
  picture.checks = picture.checks.filter(({ name = '' }) => !isOther('check', name))
  picture.indices = picture.indices.filter(({ name = '' }) => !isOther('index', name))
}
