import { TableColumn } from 'typeorm'
import {
  addCheck,
  addColumn,
  addIndex,
  type Change,
  changeHashType,
  dropHidden,
  inverse,
  requireColumn,
} from '../sql/alter'
import { adoptInstead, refuseLarge } from '../sql/adopt-table'
import {
  rebuildRows,
  refuseDuplicates,
  refuseNulls,
  refuseUnknownDigest,
  refuseUnnormalized,
  type Renormalized,
} from '../triggers/rebuild'
import { type TextRows, textRules } from '../sql/text-table'
import { digests } from '../text/digest'
import { normalizerLabel, toNormalizer } from '../text/normalizer'
import { type ChangingTable, emit, hasCheck, hasColumn, hasIndex, isDeclared, type RowsBefore } from './changing-table'
import type { Declaration } from '../registry/registry'

/** What a text has that nothing normalizes. */
const NONE = normalizerLabel(toNormalizer(undefined))

const primaryKey = ({ metadata }: ChangingTable): string[] =>
  metadata.primaryColumns.map(({ databaseName }) => databaseName)

/** Before TypeORM has changed any column. */
const oldPrimaryKey = ({ table }: ChangingTable): string[] => table.primaryColumns.map(({ name }) => name)

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
  await emit(on.queryRunner, {
    up: [refuseLarge(rows, { gives: 'hashes', online: onlineFor(on, declaration) })],
    down: [],
  })
  const nulls = await forbidNulls(on, declaration)
  const duplicates = before ? await forbidDuplicates(on, before, rows) : []
  const hash = on.table.findColumnByName(rows.hash)
  const { loosened, tightened } = notNullOf(hash, rows)
  if (before) await takeAwayRules(on, before, loosened)
  await forbidOtherNormalizers(on, before, rows)
  if (loosened) await emit(on.queryRunner, { up: requireColumn(rows, rows.hash).down, down: [] })
  await prepareHash(on, rows)
  return [
    ...nulls,
    ...duplicates,
    { up: [rebuildRows({ rows, primary: primaryKey(on) })], down: [] },
    // A hash that is new is dropped on the way back.
    ...(tightened ? [{ ...requireColumn(rows, rows.hash), ...(hash ? {} : { down: [] }) }] : []),
  ]
}

/** How this work is done while others use the table. */
function onlineFor({ metadata }: ChangingTable, { name, table }: Declaration): string {
  const instead = adoptInstead({ entity: metadata.name, property: name })
  return table.guardless === true
    ? `Declare the text with its guard, and let a later migration take the guard away. ${instead}`
    : instead
}

/** Whether the hash must stop being NOT NULL, because rows have none for a while, and become so in the end. */
function notNullOf(hash: TableColumn | undefined, rows: TextRows): { loosened: boolean; tightened: boolean } {
  if (!hash) return { loosened: false, tightened: !rows.nullable }
  const loosened = !hash.isNullable && (hash.type !== rows.digest.type || rows.nullable)
  return { loosened, tightened: !rows.nullable && (loosened || hash.isNullable) }
}

/** Adds the hash, or gives it another type. */
async function prepareHash({ table, queryRunner }: ChangingTable, rows: TextRows): Promise<void> {
  const hash = table.findColumnByName(rows.hash)
  const { type } = rows.digest
  if (!hash) {
    await emit(queryRunner, addColumn(rows, rows.hash, type))
    table.addColumn(new TableColumn({ name: rows.hash, type, isNullable: rows.nullable }))
    return
  }
  if (hash.type !== type) await emit(queryRunner, changeHashType(rows, hash.type, type))
  Object.assign(hash, { type, isNullable: rows.nullable })
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
async function forbidNulls(on: ChangingTable, { table: rows, text, scope }: Declaration): Promise<Change[]> {
  const back: Change[] = []
  for (const { databaseName, isNullable } of [...text.map(({ column }) => column), ...scope]) {
    const wasNullable = on.table.findColumnByName(databaseName)?.isNullable
    if (wasNullable === true && !isNullable) {
      const refusal = refuseNulls({ rows, primary: oldPrimaryKey(on) }, databaseName)
      await emit(on.queryRunner, { up: [refusal], down: [] })
    } else if (wasNullable === false && isNullable) {
      back.push({ up: [], down: [refuseNulls({ rows, primary: primaryKey(on) }, databaseName)] })
    }
  }
  return back
}

/**
 * Whether both have the same texts in the same columns with the same digest. Which rows hold their texts is decided
 * elsewhere.
 */
export const hasSameTexts = (before: RowsBefore, after: TextRows): boolean =>
  textRules(before, before.digestName) === textRules(after, after.digest.name)

/**
 * Where softly deleted rows are to hold their texts again, on the way or on the way back, rows that then hold the same
 * are refused before TypeORM may drop the delete date.
 */
async function forbidDuplicates(on: ChangingTable, before: RowsBefore, after: TextRows): Promise<Change[]> {
  if (before.deleted === after.deleted || !hasSameTexts(before, after)) return []
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
  const primary = oldPrimaryKey(on)
  const refusals = (changes: readonly Renormalized[]): string[] =>
    changes
      .filter(({ column }) => hasColumn(on, column))
      .map((change) => refuseUnnormalized({ rows: after, primary }, change))
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
