import type { DataSource, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { groupBy } from '../calls/batches'
import { checkOptions, RULE, type Rules } from '../options'
import { dataSourceOf } from '../registry/registry'
import { literal, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { alike, field, tableName } from '../sql/text-table'
import {
  analyzeLog,
  createKeys,
  createLog,
  dropKeys,
  forgetLog,
  holds,
  identifyingColumns,
  keysTable,
  type LoggedChange,
  type MergedTable,
  merges,
  namesOfColumns,
  resolveKey,
  shown,
  shownRow,
  Tables,
  type WritableColumn,
} from './merge-log'
import {
  type AdoptOptions,
  BATCH_RULES,
  type BatchOption,
  LOCK_RULES,
  type LockOption,
  PROPERTY_OPTION,
} from './options'
import type { AdoptSession } from './session'
import { type AdoptedTable, FIND_KEPT, nameOf, type TextSite } from './table'
import { requireAdopted } from './refusals'
import { findDeclaration, withText } from './target'

/** The record of a table that JSON of the log holds. `valueOf` reads its columns of JSON separately. */
function loggedRecord(table: MergedTable, json: string): string {
  const ofJson = table.columns.flatMap(({ name, json: type }) => (type === null ? [] : [literal(name)]))
  const others =
    ofJson.length === 0 ? json : `${json} OPERATOR(pg_catalog.-) ARRAY[${ofJson.join(', ')}]::pg_catalog.text[]`
  return `pg_catalog.jsonb_populate_record(NULL::${tableName(table)}, ${others})`
}

const valueOf = (record: string, json: string, { name, json: type }: WritableColumn): string =>
  type === null
    ? field(record, name)
    : `(${json} OPERATOR(pg_catalog.->>) ${literal(name)}::pg_catalog.text)::pg_catalog.${type}`

/** Restores the rows that the log holds at the places $1, the last first. Columns that are not logged get defaults. */
function putBack(on: TextSite, table: MergedTable, logged: ReadonlySet<string>): string {
  const columns = table.columns.filter(({ name }) => logged.has(name))
  return `INSERT INTO ${tableName(table)} (${columns.map(({ name }) => quote(name)).join(', ')}) OVERRIDING SYSTEM VALUE
SELECT ${columns.map((one) => valueOf('v', 'm.data', one)).join(', ')}
  FROM ${merges(on)} AS m CROSS JOIN LATERAL ${loggedRecord(table, 'm.data')} AS v
 WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) ORDER BY m.seq DESC`
}

/** Selects the places among $1 whose rows differ from the log. */
function findAltered(on: TextSite, table: MergedTable, logged: ReadonlySet<string>): string {
  const names = namesOfColumns(table).filter((name) => logged.has(name))
  const same = table.primary.map((name) => `${field('t', name)} OPERATOR(pg_catalog.=) ${field('v', name)}`)
  return `SELECT m.seq::pg_catalog.text AS seq FROM ${merges(on)} AS m CROSS JOIN LATERAL ${loggedRecord(table, 'm.data')} AS v
  LEFT JOIN ${tableName(table)} AS t ON ${same.join(' AND ')}
 WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])
   AND coalesce(${shownRow('t', names)} OPERATOR(pg_catalog.<>) m.data, true)`
}

/**
 * Restores the values that the log holds at the places $1, if the merge's values are still there. Returns the places of
 * the restored values. All values together identify a row without a primary key, so such rows take one place at a time.
 */
function turnBack(on: TextSite, table: MergedTable, change: LoggedChange): string {
  const columns = table.columns.filter(({ name }) => change.columns?.includes(name))
  const json = { key: part('key'), was: part('was'), made: part('made') }
  const set = columns.map((one) => `${quote(one.name)} = ${valueOf('w', json.was, one)}`).join(', ')
  const same = (record: string, names: readonly string[]): string[] =>
    names.map((name) => `${field('r', name)} OPERATOR(pg_catalog.=) ${field(record, name)}`)
  const still = columns.map(({ name }) => {
    const made = `${json.made} OPERATOR(pg_catalog.->>) ${literal(name)}::pg_catalog.text`
    return alike(`(${shown(field('r', name))})`, `(${made})`)
  })
  const isRow =
    table.primary.length > 0
      ? [...same('k', table.primary), ...still, ...holds(change, 'r')]
      : [
          `ROW(r.tableoid, r.ctid) OPERATOR(pg_catalog.=) (SELECT x.tableoid, x.ctid FROM ${tableName(table)} AS x
      WHERE ${columns.map(({ name }) => `${field('x', name)} OPERATOR(pg_catalog.=) ${field('d', name)}`).join(' AND ')}
        AND ${shownRow('x', identifyingColumns(table))} OPERATOR(pg_catalog.@>) (${json.key}) LIMIT 1)`,
        ]
  return `WITH u AS (UPDATE ${tableName(table)} AS r SET ${set} FROM ${merges(on)} AS m
  CROSS JOIN LATERAL ${loggedRecord(table, json.key)} AS k
  CROSS JOIN LATERAL ${loggedRecord(table, json.was)} AS w
  CROSS JOIN LATERAL ${loggedRecord(table, json.made)} AS d
 WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${isRow.join(' AND ')}
RETURNING m.seq)
SELECT u.seq::pg_catalog.text AS seq FROM u`
}

const part = (name: 'key' | 'was' | 'made'): string =>
  `(m.data OPERATOR(pg_catalog.->) ${literal(name)}::pg_catalog.text)`

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
  return await withText(dataSource, entity, options, async (session, target) => {
    const { on } = target
    requireAdopted(target, false)
    const tables = new Tables(session)
    await session.make('unmerge', [...createLog(on), ...createKeys(on, await tables.keyed(on.table))])
    await session.query(analyzeLog(on))
    session.isTrial = options.dryRun === true
    const run: UnmergeRun = { session, on, tables, left: [], restored: 0 }
    const key = options.key === undefined ? null : partsOf(options.key, on.primary)
    let last = '9223372036854775807'
    await session.atPace(UNMERGE_BATCH, async (limit) => {
      // The newest rows before the place $2 of the log. `later` is whether the row that it became was merged later.
      const rows = await session.query<MergedRow>(
        `SELECT m.seq::pg_catalog.text AS seq, m.old, m.kept,
       ARRAY(SELECT pg_catalog.jsonb_object_keys(m.data)) AS columns,
       EXISTS (SELECT FROM ${merges(on)} AS n WHERE n.guard OPERATOR(pg_catalog.=) m.guard AND n.old OPERATOR(pg_catalog.=) m.kept
         AND n.change IS NULL AND n.seq OPERATOR(pg_catalog.>) m.seq) AS later
  FROM ${merges(on)} AS m
 WHERE m.change IS NULL AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.seq OPERATOR(pg_catalog.<) $2::pg_catalog.int8
   AND coalesce(m.old OPERATOR(pg_catalog.=) $4::pg_catalog.text[], true)
 ORDER BY m.seq DESC LIMIT $3::pg_catalog.int8`,
        [on.table.guard, last, limit, key],
      )
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
  // The other changes of these merges, the last first.
  const entries = await session.query<LogEntry>(
    `WITH r AS MATERIALIZED (SELECT r.seq, r.guard, r.old
    FROM ${merges(on)} AS r WHERE r.seq OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int8[])),
m AS MATERIALIZED (SELECT m.seq, m.change, m.data, r.seq AS of, r.guard, r.old
    FROM r JOIN ${merges(on)} AS m ON m.guard OPERATOR(pg_catalog.=) r.guard AND m.old OPERATOR(pg_catalog.=) r.old
   WHERE m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.change IS NOT NULL
     AND (m.seq OPERATOR(pg_catalog.>) r.seq) OPERATOR(pg_catalog.=) pg_catalog.jsonb_exists(m.change, 'set'))
SELECT m.seq::pg_catalog.text AS seq, m.change::pg_catalog.text AS change, m.data::pg_catalog.text AS data FROM m
 WHERE NOT EXISTS (SELECT FROM ${merges(on)} AS b
   WHERE b.guard OPERATOR(pg_catalog.=) m.guard AND b.old OPERATOR(pg_catalog.=) m.old AND b.change IS NULL
     AND (b.seq OPERATOR(pg_catalog.>) m.seq AND b.seq OPERATOR(pg_catalog.<) m.of
       OR b.seq OPERATOR(pg_catalog.>) m.of AND b.seq OPERATOR(pg_catalog.<) m.seq))
 ORDER BY m.seq DESC`,
    [on.table.guard, seqs],
  )
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
  // Rows that were merged before into a restored row resolve to it again.
  await session.query(
    `WITH a AS MATERIALIZED (SELECT a.old, b.old AS own, b.kept FROM ${merges(on)} AS b JOIN ${merges(on)} AS a
      ON a.guard OPERATOR(pg_catalog.=) b.guard AND a.kept OPERATOR(pg_catalog.=) b.old AND a.change IS NULL
   WHERE b.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]))
UPDATE ${keysTable(on)} AS n SET kept = a.own FROM a WHERE n.old OPERATOR(pg_catalog.=) a.old AND n.kept OPERATOR(pg_catalog.=) a.kept`,
    [seqs],
  )
  await session.query(
    `DELETE FROM ${keysTable(on)} AS n USING ${merges(on)} AS b
 WHERE b.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND n.old OPERATOR(pg_catalog.=) b.old`,
    [seqs],
  )
  await session.query(`DELETE FROM ${merges(on)} AS m WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`, [
    [...seqs, ...entries.map(({ seq }) => seq)],
  ])
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

/**
 * Empties the log. After that, merged rows cannot be restored, and their keys cannot be resolved.
 *
 * @throws AdoptionError while another command works on the table: adopt, follow, merge, unmerge or abandon
 */
export async function forgetMerges(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<void> {
  checkOptions('forgetMerges()', options, PROPERTY_OPTION)
  await withText(dataSource, entity, options, async (session, { on }) => {
    await session.make('forget', [...createLog(on), dropKeys(on)])
    await session.query(forgetLog(on), [on.table.guard])
  })
}
