import type { DataSource, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { groupBy } from '../calls/batches'
import { checkOptions, RULE, type Rules } from '../options'
import { dataSourceOf } from '../registry/registry'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { Tables } from './merge'
import {
  type AdoptOptions,
  BATCH_RULES,
  type BatchOption,
  LOCK_RULES,
  type LockOption,
  PROPERTY_OPTION,
} from './options'
import { type AdoptSession, type Seams, withSession, withTable } from './session'
import { analyzeLog, type LoggedChange, createKeys, createLog, dropKeys, forgetLog, resolveKey } from './sql/merge'
import { type AdoptedTable, FIND_KEPT, nameOf } from './sql/table'
import { findAltered, forgetEntries, forgetKeys, putBack, readLogged, readMerged, turnBack } from './sql/unmerge'
import { findDeclaration, findTargetOf, requireAdopted } from './target'

/** A primary key: a value or, for several columns, an object by their names in the database. */
type PrimaryKey = number | string | ObjectLiteral

/**
 * Returns the primary key of the row that a merged row became, for links and caches that outlive that row. A role needs
 * SELECT on the table, and receives the keys of those rows that its policies show.
 *
 * @param key the key of the merged row
 * @returns the key in the same form; undefined if no row with this key was merged
 * @throws DeclarationError
 */
export async function resolveMerged<Key extends PrimaryKey>(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  key: Key,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<Key | undefined> {
  checkOptions('resolveMerged()', options, PROPERTY_OPTION)
  const { table, metadata } = findDeclaration(dataSourceOf(manager), entity, options.property)
  const names = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const found = { table, primary: names } as unknown as AdoptedTable
  const [keys] = (await manager.query(FIND_KEPT, [tableName(table), nameOf(found, 'merged')])) as {
    schema: string
    kept: boolean
  }[]
  if (keys?.kept !== true) return undefined
  const on = { ...found, table: { ...table, schema: keys.schema } }
  const [row] = (await manager.query(resolveKey(on), [partsOf(key, names)])) as { kept: string[] }[]
  if (!row) return undefined
  const like = (given: unknown, value: string | undefined): unknown =>
    typeof given === 'number' ? Number(value) : value
  if (typeof key !== 'object') return like(key, row.kept[0]) as Key
  return Object.fromEntries(names.map((name, index) => [name, like(key[name], row.kept[index])])) as Key
}

const partsOf = (key: PrimaryKey, names: readonly string[]): string[] =>
  names.map((name) => String(typeof key === 'object' ? key[name] : key))

/** Options of `unmerge`, like those of `adopt`. */
export interface UnmergeOptions extends Pick<AdoptOptions, LockOption | BatchOption> {
  /** The key of the only row to restore. @default all rows */
  readonly key?: PrimaryKey | undefined
  /**
   * Does each batch and rolls it back. The report lists what would be restored now. It locks rows as `unmerge` does,
   * and your triggers run. @default false
   */
  readonly dryRun?: boolean | undefined
  /** Called after each batch with the number of rows restored so far. */
  readonly onProgress?: (restored: number) => void
}

/** The result of `unmerge`. */
export interface UnmergeReport {
  /** How many merged rows were restored. */
  readonly restored: number
  /** The rows and values that differ from those before the merge. */
  readonly left: readonly LeftChange[]
}

/** A row or a value that was not restored. */
export interface LeftChange {
  /** The table of the row, with its schema. */
  readonly table: string
  /** Its key, by the columns' names in the database, as texts. Without a primary key, all values of the row. */
  readonly row: ObjectLiteral
  /** A constraint's name, an SQLSTATE or a clause. */
  readonly reason: string
}

const UNMERGE_RULES: Rules<UnmergeOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  key: {
    takes: (value) => ['number', 'string'].includes(typeof value) || (typeof value === 'object' && value !== null),
    expected: 'a primary key',
  },
  dryRun: RULE.boolean,
  onProgress: RULE.function,
}

const UNMERGE_BATCH = { first: 20, least: 5, fewest: 1 }

interface UnmergeRun {
  readonly session: AdoptSession
  readonly on: AdoptedTable
  readonly tables: Tables
  readonly left: LeftChange[]
  restored: number
}

interface MergedRow {
  readonly seq: string
  readonly old: readonly string[]
  readonly kept: readonly string[]
  readonly columns: readonly string[]
  readonly later: boolean
}

/**
 * Undoes the log of merges backwards in small transactions. Merged rows are restored whole, and references point to
 * them again. A value or a reference is restored if it is still that of the merge. Later changes by others are kept and
 * reported. Rows that cannot be restored remain in the log. This is possible only while the table is not unique: before
 * it is adopted, or after `abandon`. However it ends, the same call continues.
 *
 * @throws AdoptionError if the table is unique, while an adoption is running, and once the signal is aborted
 */
export async function unmerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: UnmergeOptions = {},
): Promise<UnmergeReport> {
  checkOptions('unmerge()', options, UNMERGE_RULES)
  return await unmergeWith(dataSource, entity, options, {})
}

/** @param seams the replacements for tests */
export async function unmergeWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: UnmergeOptions,
  seams: Seams,
): Promise<UnmergeReport> {
  const find = findTargetOf(dataSource, entity, options.property)
  return await withTable({ dataSource, find, options, seams }, async (session, target) => {
    const { on } = target
    requireAdopted(target, false)
    const tables = new Tables(session)
    await session.make('unmerge', [...createLog(on), ...createKeys(on, await tables.keyed(on.table))])
    await session.query(analyzeLog(on))
    session.isTrial = options.dryRun === true
    const run: UnmergeRun = { session, on, tables, left: [], restored: 0 }
    const key = options.key === undefined ? null : partsOf(options.key, on.primary)
    let last = '9223372036854775807'
    await session.inBatches(UNMERGE_BATCH, async (limit) => {
      const rows = await session.query<MergedRow>(readMerged(on), [on.table.guard, last, limit, key])
      // The batch ends before a row that became another row of it, which must have its references restored first.
      const old = new Set<string>()
      const end = rows.findIndex((row) => {
        old.add(JSON.stringify(row.old))
        return old.has(JSON.stringify(row.kept))
      })
      const batch = end === -1 ? rows : rows.slice(0, end)
      await restoreBatch(run, batch)
      options.onProgress?.(run.restored)
      last = batch.at(-1)?.seq ?? last
      return { done: batch.length, more: batch.length > 0 }
    })
    return { restored: run.restored, left: run.left }
  })
}

async function restoreBatch(run: UnmergeRun, batch: readonly MergedRow[]): Promise<void> {
  const rows = batch.filter((row) => {
    if (row.later) leaveRow(run, row, 'the row that it became was merged later, and is to come back first')
    return !row.later
  })
  if (rows.length === 0) return
  try {
    const left = await run.session.patiently('unmerge', async () => await restoreRows(run, rows))
    run.restored += rows.length
    run.left.push(...left)
  } catch (error) {
    const { code, constraint } = serverError(error) ?? {}
    if (code === undefined || code === SQLSTATE.insufficientPrivilege || !/^(?:09|2|P0|42)/.test(code)) throw error
    const [only, ...others] = rows
    if (only && others.length === 0) leaveRow(run, only, constraint ?? code)
    else for (const row of rows) await restoreBatch(run, [row])
  }
}

function leaveRow({ left, on }: UnmergeRun, { old }: MergedRow, reason: string): void {
  const row = Object.fromEntries(on.primary.map((name, index) => [name, old[index]]))
  left.push({ table: tableName(on.table), row, reason })
}

/** Another change of a merge. */
type LogEntry = Readonly<Record<'seq' | 'change' | 'data', string>>

const ALTERED = 'a trigger, or a column that is gone, made another row of it'

/** @returns the values that are not restored */
async function restoreRows(run: UnmergeRun, rows: readonly MergedRow[]): Promise<LeftChange[]> {
  const { session, on, tables } = run
  const table = await tables.keyed(on.table)
  const seqs = rows.map(({ seq }) => seq)
  const left: LeftChange[] = []
  for (const [columns, some] of groupBy(rows, (row) => row.columns.join('\0'))) {
    const [places, names] = [some.map(({ seq }) => seq), new Set(columns.split('\0'))]
    await session.query(putBack(on, table, names), [places])
    const altered = await session.query<{ seq: string }>(findAltered(on, table, names), [places])
    const others = new Set(altered.map(({ seq }) => seq))
    for (const row of some.filter(({ seq }) => others.has(seq))) leaveRow({ ...run, left }, row, ALTERED)
  }
  const entries = await session.query<LogEntry>(readLogged(on), [on.table.guard, seqs])
  // Only adjacent entries of the same change are grouped, because an entry between them may have changed the same rows.
  const turns: { readonly change: string; readonly entries: LogEntry[] }[] = []
  for (const entry of entries) {
    const change = JSON.parse(entry.change) as LoggedChange
    if (change.columns === undefined) await putOneBack(run, change, entry, left)
    else if (turns.at(-1)?.change === entry.change) turns.at(-1)?.entries.push(entry)
    else turns.push({ change: entry.change, entries: [entry] })
  }
  for (const one of turns) await turnAllBack(run, JSON.parse(one.change) as LoggedChange, one.entries, left)
  await session.query('SET CONSTRAINTS ALL IMMEDIATE')
  for (const sql of forgetKeys(on)) await session.query(sql, [seqs])
  await session.query(forgetEntries(on), [[...seqs, ...entries.map(({ seq }) => seq)]])
  return left
}

/** Restores a row of another table that was deleted because it clashed with a kept row. */
async function putOneBack(
  { session, on, tables }: UnmergeRun,
  change: LoggedChange,
  entry: LogEntry,
  left: LeftChange[],
): Promise<void> {
  const table = await tables.keyed(change)
  const data = JSON.parse(entry.data) as ObjectLiteral
  const names = new Set(Object.keys(data))
  await session.query(putBack(on, table, names), [[entry.seq]])
  if ((await session.query(findAltered(on, table, names), [[entry.seq]])).length === 0) return
  const row = Object.fromEntries(table.primary.map((name) => [name, data[name] as unknown]))
  left.push({ table: tableName(table), row, reason: ALTERED })
}

/** Restores the references of one table and its columns, the last first. */
async function turnAllBack(
  { session, on, tables }: UnmergeRun,
  change: LoggedChange,
  entries: readonly LogEntry[],
  left: LeftChange[],
): Promise<void> {
  const table = await tables.keyed(change)
  const sql = turnBack(on, table, change)
  const turned = new Set<string>()
  const together = table.primary.length > 0 ? [entries] : entries.map((one) => [one])
  for (const some of together) {
    for (const { seq } of await session.query<{ seq: string }>(sql, [some.map(({ seq }) => seq)])) turned.add(seq)
  }
  for (const { seq, data } of entries) {
    if (turned.has(seq)) continue
    const { key } = JSON.parse(data) as { readonly key: ObjectLiteral }
    left.push({ table: tableName(table), row: key, reason: 'it has changed since the merge' })
  }
}

/** Empties the log. After that, merged rows cannot be restored, and their keys cannot be resolved. */
export async function forgetMerges(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<void> {
  checkOptions('forgetMerges()', options, PROPERTY_OPTION)
  const find = findTargetOf(dataSource, entity, options.property)
  await withSession(dataSource, {}, {}, async (session) => {
    const { on } = await find(session.query)
    await session.make('forget', [...createLog(on), dropKeys(on)])
    await session.query(forgetLog(on), [on.table.guard])
  })
}
