import { TableColumn } from 'typeorm'
import { DeclarationError } from '../errors'
import { entityTable } from '../registry/declarations'
import { type Declaration, registry, type RemovedRows, type RowsChange, type TriggerWork } from '../registry/registry'
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
import { type TableName, tableName, type TextRows, textRules, type TextTable } from '../sql/text-table'
import { digests } from '../text/digest'
import { normalizerLabel, toNormalizer } from '../text/normalizer'
import {
  type InstalledDeclaration,
  attachedTo,
  declarationDifference,
  isOf,
  isWhole,
  lacksWritten,
  servesNamesakes,
} from '../triggers/attached'
import { columnsOf, type Declared } from '../triggers/kinds'
import { adoptInstead, raiseIfLarge, raiseIfNulls, raiseIfUnnormalized, type Renormalized } from '../sql/rows'
import { fillHashes } from '../triggers/guard'
import {
  type ChangingTable,
  emit,
  hasCheck,
  hasColumn,
  hasIndex,
  isDeclared,
  type RowsBefore,
  type RowsPlan,
  type SchemaEntity,
} from './table'

/** Plans the changes of the rows of a table that exists. */
export function planRows({ metadata, works, installed }: Omit<SchemaEntity, keyof RowsPlan>): RowsPlan {
  const { had, gone } = trace(works, installed)
  const removed = gone.map(({ declaration }) => ({ declaration, ...removedRows(declaration, entityTable(metadata)) }))
  return {
    changes: works.flatMap((work) => changeOf(work, had.get(work), installed).map((change) => ({ ...change, work }))),
    removed,
    released: [...removed, ...releases(works.filter((work) => !had.has(work)))],
  }
}

const releases = (works: readonly TriggerWork[]): RowsPlan['released'] =>
  works.map(({ declared: { declaration }, rows }) => ({ declaration, release: rows?.release }))

/** @throws DeclarationError if the feature is not imported. Only the feature knows what its triggers wrote */
function removedRows(before: Declared, from: TableName): RemovedRows {
  const remove = registry.removals.get(before.kind)
  if (remove) return remove(before, from)
  const entry = ENTRIES[before.kind]
  throw new DeclarationError(
    `Table ${tableName(from)} still has triggers for ${entry} that its entity does not declare. To remove them, import ` +
      `'typeorm-unique-text/${entry}' where the DataSource is created, generate the migration, and then remove the import.`,
  )
}

/** The entry that declares each kind. */
const ENTRIES: Readonly<Record<Declared['kind'], string>> = { text: 'texts', name: 'names', number: 'numbers' }

/**
 * Plans the changes of the rows of a table that does not exist yet.
 *
 * @param fresh all tables that do not exist yet. A revert drops them, so what triggers wrote to them needs no revert
 */
export const planNewRows = (
  { works, searchSchema }: Pick<SchemaEntity, 'works' | 'searchSchema'>,
  fresh: readonly Pick<SchemaEntity, 'schema' | 'table'>[],
): RowsPlan => ({
  changes: [],
  removed: [],
  released: releases(
    works.filter(
      ({ declared: { writes } }) =>
        !fresh.some(
          ({ schema = searchSchema, table }) => table === writes?.table && schema === (writes.schema ?? searchSchema),
        ),
    ),
  ),
})

function changeOf(
  { declared, rows }: TriggerWork,
  attached: InstalledDeclaration | undefined,
  installed: InstalledTriggers,
): RowsChange[] {
  if (!rows) return []
  if (!attached) return [rows]
  const { declaration: before } = attached
  // Without all triggers on its own columns, nobody knows what was written meanwhile. The table that the triggers write
  // to may be missing after a partial restore.
  if (!isWhole(attached) || servesNamesakes(declared, attached) || lacksWritten(declared, installed))
    return [rows.again?.(before) ?? rows]
  const isAlike = declarationDifference(declared.declaration, before) === undefined
  return isAlike ? [] : [rows.follow?.(before) ?? rows]
}

/** Refuses, before any other change, a migration that gives a large table its names or numbers. */
export async function refuseLargeTable(on: ChangingTable): Promise<void> {
  for (const { work } of on.changes) {
    const { declaration } = work.declared
    // A new name is NULL in every row.
    const isNew =
      declaration.kind === 'name' &&
      Object.entries(columnsOf(declaration)).every(([role, name]) => role.startsWith('key ') || !hasColumn(on, name))
    if (isNew) continue
    const gives = declaration.kind === 'name' ? 'names' : 'numbers'
    await emit(on.queryRunner, { up: [raiseIfLarge(on, gives)], down: [] })
  }
}

/** Types of numbers, which are changed in place. */
const INTEGERS: ReadonlySet<string> = new Set(['smallint', 'integer', 'bigint'])

/**
 * Adds the columns that get their values from us, without a value. Makes sure that a revert restores the values of
 * columns that TypeORM is about to drop.
 *
 * @returns the changes that remain once TypeORM has changed the columns, before it makes the indexes
 */
export async function fillColumns(on: ChangingTable): Promise<Change[]> {
  for (const one of on.removed) await fillOnTheWayBack(on, one)
  for (const { name, type } of on.works.flatMap((work) => work.rows?.filled ?? [])) {
    const found = on.picture.findColumnByName(name)
    if (!found || found.type === type || !INTEGERS.has(found.type) || !INTEGERS.has(type)) continue
    // TypeORM would drop the column and add it again.
    await emit(on.queryRunner, changeType(on, name, { type: found.type, length: '' }, { type, length: '' }))
    found.type = type
  }
  // Somebody has let the column be NULL.
  const loosened = on.works.flatMap(({ rows }) => {
    const isChanging = on.changes.some(({ work }) => work.rows === rows)
    const isLoose = rows?.filled?.some(
      ({ name, nullable }) => !nullable && on.picture.findColumnByName(name)?.isNullable,
    )
    return rows && isLoose && !isChanging ? [rows] : []
  })
  const left: Change[] = []
  for (const { filled = [], fill } of [...on.changes, ...loosened]) {
    const required: Change[] = []
    for (const column of filled) required.push(...(await addFilled(on, column)))
    left.push(...(fill ? [fill] : []), ...required)
  }
  return left
}

/** Restores columns in a revert, where TypeORM adds them without NOT NULL, and without their comments. */
async function fillOnTheWayBack(on: ChangingTable, { filled = [], fill = [] }: RemovedRows): Promise<void> {
  const dropped = filled.filter(({ name }) => hasColumn(on, name) && !isDeclared(on, name))
  if (dropped.length === 0) return
  const required = dropped.filter(({ nullable }) => !nullable)
  for (const { name } of required) Object.assign(on.picture.findColumnByName(name) ?? {}, { isNullable: true })
  const comments = dropped.flatMap(({ name }) => {
    const comment = on.picture.findColumnByName(name)?.comment
    return comment ? changeComment(on, name, undefined, comment).up : []
  })
  const notNull = required.flatMap(({ name }) => requireColumn(on, name).up)
  await emit(on.queryRunner, { up: [], down: [...fill, ...notNull, ...comments] })
}

async function addFilled(on: ChangingTable, { name, type, nullable }: FilledColumn): Promise<Change[]> {
  if (!hasColumn(on, name)) {
    await emit(on.queryRunner, addColumn(on, name, type))
    on.picture.addColumn(new TableColumn({ name, type, isNullable: nullable }))
    // A revert drops the column.
    return nullable ? [] : [{ ...requireColumn(on, name), down: [] }]
  }
  const found = on.picture.findColumnByName(name)
  if (!found?.isNullable || nullable) return []
  found.isNullable = false
  return [requireColumn(on, name)]
}

interface Trace {
  /** What the table had until now of each work. */
  readonly had: ReadonlyMap<TriggerWork, InstalledDeclaration>
  /** What is no longer declared. */
  readonly gone: readonly InstalledDeclaration[]
}

/** Finds for each work what the table had of the same name, or else the only one of its kind that is left. */
function trace(works: readonly TriggerWork[], installed: InstalledTriggers): Trace {
  const all = attachedTo(installed).filter(({ trusted, declaration: { kind } }) => trusted && kind !== 'text')
  const had = new Map<TriggerWork, InstalledDeclaration>()
  for (const work of works) {
    const one = all.find((each) => isOf(work.declared.declaration, each))
    if (one) had.set(work, one)
  }
  const kept = new Set(had.values())
  const left = works.filter((work) => !had.has(work))
  for (const work of left) {
    const { kind } = work.declared.declaration
    const isSole = left.filter(({ declared }) => declared.declaration.kind === kind).length === 1
    const [one, ...more] = all.filter((each) => each.declaration.kind === kind && !kept.has(each))
    if (isSole && one && more.length === 0) had.set(work, one)
  }
  const found = new Set(had.values())
  return { had, gone: all.filter((one) => !found.has(one)) }
}

/** A former column, and the column that replaces it. */
export type ColumnPair = readonly [from: string, to: string]

/** The former columns of what a table has, and the columns that replace them. */
export const workColumnPairs = ({ works, installed }: ChangingTable): ColumnPair[] =>
  [...trace(works, installed).had].flatMap(([{ declared }, { declaration }]) => {
    const [before, after] = [columnsOf(declaration), columnsOf(declared.declaration)]
    const same = Object.keys(before).filter((key) => key in after)
    const gone = Object.entries(before).filter(([key]) => !(key in after))
    const created = Object.entries(after).filter(([key]) => !(key in before))
    // Like TypeORM, this treats one missing column and one new column as a rename.
    const renamed: ColumnPair[] =
      gone.length === 1 && created.length === 1 ? [[gone[0]?.[1] ?? '', created[0]?.[1] ?? '']] : []
    return [...same.map((key): ColumnPair => [before[key] ?? '', after[key] ?? '']), ...renamed]
  })

/** The label of a text's normalizer if nothing normalizes the text. */
const NONE = normalizerLabel(toNormalizer(undefined))

/** The way to the same rows while others use the table. */
function online({ metadata }: ChangingTable, { table, name }: Declaration, before: RowsBefore | undefined): string {
  const differs = before && compareRows(before, before.digestName, table)
  if (differs?.texts || differs?.held) {
    return 'While others use the table, add a property with the new declaration, adopt it and drop the old one (docs/changing-a-declaration.md).'
  }
  const instead = adoptInstead({ entity: metadata.name, property: name })
  return table.guardless
    ? `Declare the text with its guard, and let a later migration take the guard away. ${instead}`
    : instead
}

/**
 * Prepares the rows for other rules: drops index and check, and gives the hash its type. A revert, which runs from the
 * last statement to the first, restores the values of the rows before it makes index and check again.
 *
 * @returns the changes that remain once the columns match the declaration
 */
export async function rebuild(
  on: ChangingTable,
  declaration: Declaration,
  before: RowsBefore | undefined,
): Promise<Change[]> {
  const { table: rows, text } = declaration
  // A new text is NULL in every row, or the table is empty.
  if (text.every(({ column }) => !hasColumn(on, column.databaseName) && column.default === undefined)) return []
  await emit(on.queryRunner, {
    up: [raiseIfLarge(rows, 'hashes', online(on, declaration, before))],
    down: [],
  })
  const nulls = await forbidNulls(on, declaration)
  const hash = on.picture.findColumnByName(rows.hash)
  const { loosened, tightened } = notNullOf(hash, rows)
  if (before) await takeAwayRules(on, before, loosened)
  await forbidOtherNormalizers(on, before, rows)
  if (loosened) await emit(on.queryRunner, { up: requireColumn(rows, rows.hash).down, down: [] })
  const { type } = rows.digest
  if (!hash) {
    await emit(on.queryRunner, addColumn(rows, rows.hash, type))
    on.picture.addColumn(new TableColumn({ name: rows.hash, type, isNullable: rows.nullable }))
  } else {
    const digests = rows.spread === undefined ? {} : { from: before?.digest, to: rows.digest }
    if (hash.type !== type) {
      await emit(on.queryRunner, changeHashType(rows, { from: hash.type, to: type }, digests))
    }
    Object.assign(hash, { type, isNullable: rows.nullable })
  }
  return [
    ...nulls,
    { up: [fillHashes(rows)], down: [] },
    // A revert drops a new hash.
    ...(tightened ? [{ ...requireColumn(rows, rows.hash), ...(hash ? {} : { down: [] }) }] : []),
  ]
}

/** Whether the hash must become nullable, because rows have none for a while, and whether it ends as NOT NULL. */
function notNullOf(hash: TableColumn | undefined, rows: TextTable): { loosened: boolean; tightened: boolean } {
  if (!hash) return { loosened: false, tightened: !rows.nullable }
  // It is in the primary key.
  if (rows.spread !== undefined) return { loosened: false, tightened: false }
  const loosened = !hash.isNullable && (hash.type !== rows.digest.type || rows.nullable)
  return { loosened, tightened: !rows.nullable && (loosened || hash.isNullable) }
}

/** Drops the rules of a text that is no longer declared. A revert makes them for the rows that exist then. */
export async function dropRules(on: ChangingTable, before: RowsBefore): Promise<void> {
  const { picture, queryRunner } = on
  const hidden = [before.hash, before.number, before.chained].flatMap((name) => picture.findColumnByName(name) ?? [])
  const [hash] = hidden
  if (!hash || hidden.length < 3 || hidden.some(({ name }) => isDeclared(on, name))) return
  // Postgres would drop the key with the hash in it, and TypeORM, from whose picture the hash goes, make none.
  const keys = picture.primaryColumns.filter((column) => !hidden.includes(column))
  if (keys.length < picture.primaryColumns.length) await queryRunner.updatePrimaryKeys(picture, keys)
  await takeAwayRules(on, before, !hash.isNullable)
  const columns = hidden.map(({ name, comment }) => ({ name, comment }))
  await emit(queryRunner, dropHidden(before, columns, hash.type))
  for (const column of hidden) picture.removeColumn(column)
}

/** Drops index and check. A revert gives the rows their hashes and numbers before it makes them again. */
async function takeAwayRules(on: ChangingTable, before: RowsBefore, requiresHash: boolean): Promise<void> {
  const { picture, queryRunner } = on
  const rows: TextRows = { ...before, digest: before.digest ?? digests.md5 }
  if (hasIndex(on, rows.index)) await emit(queryRunner, inverse(addIndex(rows)))
  if (hasCheck(on, rows.check)) await emit(queryRunner, inverse(addCheck(rows)))
  picture.indices = picture.indices.filter(({ name }) => name !== rows.index)
  picture.checks = picture.checks.filter(({ name }) => name !== rows.check)
  const required = requiresHash ? requireColumn(rows, rows.hash).up : []
  await emit(queryRunner, { up: [], down: [fillHashes(rows, before.digestName), ...required] })
}

/** Names the rows that violate NOT NULL, which Postgres would not, both in the migration and in its revert. */
async function forbidNulls(on: ChangingTable, declaration: Declaration): Promise<Change[]> {
  const { table: rows } = declaration
  const { tightened, loosened } = nullChanges(declaration, (name) => on.picture.findColumnByName(name)?.isNullable)
  await emit(on.queryRunner, { up: tightened.map((name) => raiseIfNulls(rows, name)), down: [] })
  return loosened.map((name) => ({ up: [], down: [raiseIfNulls(rows, name)] }))
}

/** The rules of rows in a declaration, or in that of an installed guard. */
type RowRules = Normalized & Pick<TextRows, 'scope' | 'nullable' | 'hash' | 'number' | 'chained' | 'deleted'>

/** The differences between the rows that two declarations want. */
export interface RowsDifference {
  /** Whether rows have other texts, in other columns or scopes, or other hashes. */
  readonly texts: boolean
  /** Whether other rows hold their texts. */
  readonly held: boolean
  /** Columns whose texts the normalizer that is declared now may not have made. */
  readonly normalizers: readonly Renormalized[]
}

/**
 * Compares the rows of two declarations.
 *
 * @param digest the name of the former digest
 */
export const compareRows = (before: RowRules, digest: string, after: TextRows): RowsDifference => ({
  texts: textRules(before, digest) !== textRules(after, after.digest.name),
  held: before.deleted !== after.deleted,
  normalizers: renormalized(before, after),
})

/** Returns the columns of texts and scope that become NOT NULL, and those that become nullable. */
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

async function forbidOtherNormalizers(
  on: ChangingTable,
  before: RowsBefore | undefined,
  after: TextRows,
): Promise<void> {
  const refusals = (changes: readonly Renormalized[]): string[] =>
    changes
      .filter(({ column }) => hasColumn(on, column))
      .map((change) => raiseIfUnnormalized(after, on.metadata.name, change))
  const [up, down] = [refusals(renormalized(before, after)), before ? refusals(renormalized(after, before)) : []]
  if (up.length + down.length > 0) await emit(on.queryRunner, { up, down })
}

type Normalized = Pick<TextRows, 'text' | 'normalizers'>

/** Returns the columns whose texts the declared normalizer may not have made. Without one, every text is right. */
export function renormalized(before: Normalized | undefined, after: Normalized): Renormalized[] {
  const had = new Map(before?.text.map(({ name }, position) => [name, before.normalizers[position] ?? NONE]))
  return after.text.flatMap(({ name }, position) => {
    const [from, to] = [had.get(name) ?? NONE, after.normalizers[position] ?? NONE]
    return to === NONE || to === from ? [] : [{ column: name, from, to }]
  })
}
