import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, oneOf, type Rule, RULE, type Rules } from '../options'
import { quote } from '../sql/identifier'
import { isBusyError, isRowError, serverError } from '../sql/sqlstate'
import { field, isLive, tableName } from '../sql/text-table'
import { rowsOfChains } from './chains'
import { MergeList } from './merge-list'
import { findReferences, holds, MergeStatements, type Reference } from './merge-references'
import { type AdoptOptions, BATCH_RULES, type BatchOption, LOCK_RULES, type LockOption } from './options'
import { AdoptionError, type AdoptSession } from './session'
import { type AdoptedTable, keyAsJson, makeWorklist, own, samePrimary, sameTexts, worklistOf } from './table'
import { type Target, withText } from './target'
import { throughPlaces } from './work'

/** Options of the merge of duplicates. */
export interface MergeOptions extends Pick<AdoptOptions, LockOption | BatchOption> {
  /** The row of equal texts to keep, by primary key. Rows that are not soft-deleted take precedence. */
  readonly keep: 'oldest' | 'newest'
  /**
   * Columns that refer to the primary key without a foreign key, as `table.column` or `schema.table.column`. If a
   * column refers to several tables, also its rows: `attachment.target_id where target_type = 'page'`. @default []
   */
  readonly also?: readonly string[]
  /**
   * The file that keeps every deleted row and every changed reference as lines of JSON, from which a person can restore
   * them. A new file can be read by its owner only. The list of an earlier merge is continued.
   */
  readonly list: string
  /**
   * Does each batch and rolls it back. The report and the list show what a merge would change now. It locks rows as a
   * merge does, and your triggers run. @default false
   */
  readonly dryRun?: boolean | undefined
  /** Called after each batch. */
  readonly onProgress?: (progress: MergeProgress) => void
}

type SetupOption = 'property' | 'also' | 'list'

const SETUP_RULES: Readonly<Record<SetupOption, Rule>> = {
  property: RULE.name,
  also: {
    takes: (value) => Array.isArray(value) && value.every((name) => typeof name === 'string'),
    expected: 'a list of names as table.column',
  },
  list: RULE.name,
}

const MERGE_RULES: Rules<MergeOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  ...SETUP_RULES,
  keep: oneOf('oldest', 'newest'),
  dryRun: RULE.boolean,
  onProgress: RULE.function,
}

/** The progress of a merge. */
export interface MergeProgress {
  /** How many rows were merged or kept so far. */
  readonly rows: number
  /** How many rows there are to merge. */
  readonly total: number
}

/** The result of a merge. */
export interface MergeReport {
  /** How many rows were removed. */
  readonly merged: number
  /** How many references were redirected, by column. */
  readonly redirected: readonly RedirectedReferences[]
  /** Rows that are kept unchanged, with the reasons. */
  readonly kept: readonly KeptRow[]
}

/** The references of a column that a merge has redirected. */
export interface RedirectedReferences {
  /** With its schema. */
  readonly table: string
  /** The column with the references. */
  readonly column: string
  /** How many rows. */
  readonly rows: number
}

/** A row that still holds the text of another row. Keys are by the columns' names in the database. */
export interface KeptRow {
  /** The primary key of the row. */
  readonly row: ObjectLiteral
  /** The primary key of the row that would have been kept. */
  readonly kept: ObjectLiteral
  /** A constraint's name, an SQLSTATE or a clause. */
  readonly reason: string
}

/**
 * Checks all that can be known about a merge before it begins: that the columns exist, that the list can be written, and
 * that the server accepts every statement of this role. `mergeDuplicates` checks this too. This function is for a caller
 * that first adopts the table, which may take hours.
 *
 * @throws DeclarationError if a table or a column does not exist, or the list cannot be written
 * @throws AdoptionError while an adoption is running, and if the server refuses a statement
 */
export async function checkMerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<MergeOptions, SetupOption>,
): Promise<void> {
  checkOptions('checkMerge()', options, SETUP_RULES, ['list'])
  await withText(dataSource, entity, { property: options.property }, async (session, target) => {
    await prepareMerge(session, target, options.also)
    await (await MergeList.open(options.list)).close()
  })
}

/** The table, what refers to it, and the statements that merge its rows. */
interface PreparedMerge {
  readonly references: readonly Reference[]
  readonly statements: MergeStatements
  /** The columns that a restored row needs: all but generated ones and those of the library. */
  readonly columns: readonly string[]
}

const FIND_COLUMNS = `SELECT a.attname AS name FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
   AND a.attgenerated OPERATOR(pg_catalog.=) '' ORDER BY a.attnum`

/** Has the server plan every statement, which also checks types, privileges, policies, rules and publications. */
async function prepareMerge(
  session: AdoptSession,
  target: Target,
  also: readonly string[] = [],
): Promise<PreparedMerge> {
  const { facts, state, table, primary } = target
  const { hash, number, chained } = table
  const references = await findReferences(session.query, target, facts.oid, also)
  const found = await session.query<{ name: string }>(FIND_COLUMNS, [facts.oid])
  const columns = found.map(({ name }) => name).filter((name) => ![hash, number, chained].includes(name))
  const types = primary.map((name) => state.columns.find((column) => column.name === name)?.declared ?? 'text')
  const statements = new MergeStatements(target, types, references)
  const check = async (what: string, sql: string): Promise<void> => {
    const none = Array.from({ length: 1 + 2 * primary.length }, () => [])
    await session.query(`EXPLAIN ${sql}`, none).catch((error: unknown) => {
      if (!isRowError(error)) throw error
      const { message, code } = serverError(error) ?? {}
      throw new AdoptionError(
        'unsupported',
        `The rows cannot be merged, because the role or the table does not allow to ${what}: ${message} (SQLSTATE ${code}). ` +
          `Remove the cause, or merge the rows by hand.`,
        error,
      )
    })
  }
  for (const one of references.filter(({ obstacle }) => obstacle === undefined)) {
    const where = holds(one, 'r')
    const what = `turn references of ${tableName(one)} (${one.columns.join(', ')})`
    await check(what, statements.turn(one))
    if (where.length === 0) continue
    const met = await session.query(`SELECT FROM ${tableName(one)} AS r WHERE ${where.join(' AND ')} LIMIT 1`)
    if (met.length > 0) continue
    throw new DeclarationError(
      `No row of ${tableName(one)} meets the condition on "${one.when?.column}". Correct it, or leave the reference out.`,
    )
  }
  for (const sql of [statements.findObstacles(), statements.findLeft()]) {
    if (sql !== '') await check(`read what refers to ${tableName(table)}`, sql)
  }
  await check(`lock rows of ${tableName(table)}`, `${statements.see([])} ${LOCK_PAIRS}`)
  await check(`delete rows of ${tableName(table)}`, statements.remove(columns))
  return { references, statements, columns }
}

const LOCK_PAIRS = 'FOR UPDATE OF l, t SKIP LOCKED'

/**
 * Finds the rows to delete (`k0`, …), each with the row that stays (`p0`, …), in the order of `place`.
 *
 * @param deleteDate the delete date column; a soft-deleted row is kept only if every row is soft-deleted
 */
function findSurplus(on: AdoptedTable, keep: 'oldest' | 'newest', deleteDate: string | undefined): string[] {
  const { primary } = on
  const { chains, rows, by } = rowsOfChains(on)
  const keys = primary.map((name) => field('t', name))
  const order = [
    ...(deleteDate === undefined ? [] : [`${field('t', deleteDate)} IS NOT NULL`]),
    ...keys.map((key) => (keep === 'oldest' ? key : `${key} DESC`)),
  ].join(', ')
  const kept = keys.map((key, index) => `pg_catalog.first_value(${key}) OVER w AS p${index}`).join(', ')
  return makeWorklist(
    on,
    `WITH ${chains},
r AS (SELECT ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${kept}, pg_catalog.row_number() OVER w AS rank
        FROM ${rows} WINDOW w AS (PARTITION BY ${by} ORDER BY ${order}))
SELECT pg_catalog.row_number() OVER (ORDER BY ${primary.map((_, index) => `r.p${index}`).join(', ')}) AS place, r.*
  FROM r WHERE r.rank OPERATOR(pg_catalog.>) 1`,
  )
}

/** Clears the flag of rows that are alone again, or a later DELETE would look for others. The guard must not fire. */
function clearFlags(on: AdoptedTable, pairs: readonly Pair[]): string {
  const { table } = on
  const chain = [...table.scope, table.hash].map(
    (name) => `${field('o', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const others = [...chain, ...isLive(table, 'o'), `${field('o', table.number)} OPERATOR(pg_catalog.<>) 0`]
  return `UPDATE ${own(on)} SET ${quote(table.chained)} = false FROM ${worklistOf(on)} AS w
 WHERE ${isPlace(pairs)} AND ${samePrimary(on, 'w.p')} AND ${field('t', table.number)} OPERATOR(pg_catalog.=) 0
   AND NOT EXISTS (SELECT FROM ONLY ${tableName(table)} AS o WHERE ${others.join(' AND ')})`
}

const isPlace = (pairs: readonly Pair[]): string =>
  `w.place OPERATOR(pg_catalog.=) ANY (ARRAY[${pairs.map(({ place }) => place).join(', ')}]::pg_catalog.int8[])`

/**
 * A row of the work: the place, the keys of the row to delete (`k0`, …) and of the row that stays (`p0`, …), and both keys
 * as JSON.
 */
type Pair = Readonly<Record<string, string>> & Readonly<Record<'place' | 'row' | 'kept', string>>

/** One run. */
interface MergeRun extends PreparedMerge {
  readonly session: AdoptSession
  readonly on: AdoptedTable
  readonly list: MergeList
  /** Whether the role may write the flags without the guard. */
  readonly clears: boolean
  readonly turned: Map<Reference, number>
  left: KeptRow[]
  merged: number
  /** How many rows were found but were no duplicates any more when they were processed. */
  changed: number
}

/** A row that a statement returns, with each value as its type's output function returns it. */
type Returned = Readonly<Record<string, string | null>>

const valuesOf = (names: readonly string[], row: Returned, letter: 'c' | 'p' = 'c'): ObjectLiteral =>
  Object.fromEntries(names.map((name, index) => [name, row[`${letter}${index}`] ?? null]))

const MERGE_BATCH = { first: 20, least: 10, fewest: 1 }

/** A limit, because clients may change duplicates all the time. The adoption reports the rest. */
const MOST_ROUNDS = 100

/**
 * Merges rows that hold the same text into one. References are turned to the row that is kept, and the others are
 * deleted. Before a batch commits, the list has its changes. A row whose references cannot be turned exactly is left and
 * reported. However it ends, the same call continues.
 *
 * @throws AdoptionError for a table that is not adopted, while an adoption is running, and if the server refuses a
 *   statement
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function mergeDuplicates(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
): Promise<MergeReport> {
  checkOptions('mergeDuplicates()', options, MERGE_RULES, ['keep', 'list'])
  return await withText(dataSource, entity, options, async (session, target) => {
    if (!target.isReady)
      throw new AdoptionError('unsupported', `${tableName(target.table)} is not adopted yet: run adopt first.`)
    const prepared = await prepareMerge(session, target, options.also)
    session.isTrial = options.dryRun === true
    // Foreign keys and the user's triggers must run. Only the flags are cleared without the guard.
    const clears = await session.becomeReplica()
    if (clears) await session.set('session_replication_role', 'origin')
    const list = await MergeList.open(options.list)
    const run: MergeRun = {
      ...prepared,
      session,
      on: target,
      list,
      clears,
      turned: new Map(),
      left: [],
      merged: 0,
      changed: 0,
    }
    try {
      await mergeRounds(run, options, target.declaration.metadata.deleteDateColumn?.databaseName)
      await list.keep(run.left)
      await session.query(`DROP TABLE ${worklistOf(target)}`)
      const redirected = [...run.turned].map(([one, rows]) => {
        return { table: tableName(one), column: one.columns[0] ?? '', rows }
      })
      return { merged: run.merged, redirected, kept: run.left }
    } finally {
      await list.close()
    }
  })
}

/** If the row to keep was deleted or has another text, the other rows of its group still have equal texts. */
async function mergeRounds(run: MergeRun, { keep, onProgress }: MergeOptions, deleteDate: string | undefined) {
  const { session, on } = run
  const json = (letter: 'k' | 'p'): string => `${keyAsJson(on, (_, index) => `w.${letter}${index}`)}::pg_catalog.text`
  const keys = keyNames(on).map((name) => `pg_catalog.concat(w.${name}) AS ${name}`)
  const pair = ['w.place::pg_catalog.text AS place', ...keys, `${json('k')} AS row`, `${json('p')} AS kept`]
  let [round, seen] = [0, 0]
  do {
    round += 1
    run.changed = 0
    run.left = []
    await session.all(findSurplus(on, keep, deleteDate))
    const [found] = await session.query<{ rows: string }>(
      `SELECT pg_catalog.count(*)::pg_catalog.text AS rows FROM ${worklistOf(on)} AS w`,
    )
    const total = seen + Number(found?.rows)
    await throughPlaces(session, MERGE_BATCH, async (last, limit) => {
      const pairs = await session.query<Pair>(
        `SELECT ${pair.join(', ')} FROM ${worklistOf(on)} AS w ` +
          `WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ORDER BY w.place LIMIT $2::pg_catalog.int8`,
        [last, limit],
      )
      if (pairs.length === 0) return { seen: 0, last, stuck: 0 }
      const stuck = await mergeBatch(run, pairs)
      seen += pairs.length - stuck
      onProgress?.({ rows: seen, total })
      return { seen: pairs.length, last: pairs.at(-1)?.place ?? last, stuck }
    })
  } while (run.changed > 0 && round < MOST_ROUNDS && !session.isTrial)
}

/** The reason why a row cannot be merged. */
class Unmergeable extends Error {
  override readonly name = 'Unmergeable'
}

/** @returns how many rows remain for later, because another session has locked them */
async function mergeBatch(run: MergeRun, pairs: readonly Pair[]): Promise<number> {
  const { session, list } = run
  let merged: MergedPairs
  try {
    merged = await session.together(async () => await mergePairs(run, pairs))
  } catch (error) {
    if (isBusyError(error)) return pairs.length
    const reason = reasonOf(error)
    if (reason === undefined) throw error
    const half = pairs.length >> 1
    if (half > 0) return (await mergeBatch(run, pairs.slice(0, half))) + (await mergeBatch(run, pairs.slice(half)))
    merged = { ...NOTHING, busy: new Set(), left: new Map(pairs.map(({ place }) => [place, reason])), changed: 0 }
  }
  const { busy, left, changed, turned, removed, transaction } = merged
  if (transaction !== undefined && !session.isTrial) await list.add([{ transaction, committed: true }])
  run.merged += removed
  run.changed += changed
  for (const [one, rows] of turned) run.turned.set(one, (run.turned.get(one) ?? 0) + rows)
  for (const { place, row, kept } of pairs) {
    const reason = left.get(place)
    if (reason === undefined) continue
    run.left.push({ row: JSON.parse(row) as ObjectLiteral, kept: JSON.parse(kept) as ObjectLiteral, reason })
  }
  const done = pairs.filter(({ place }) => !busy.has(place))
  await session.query(`DELETE FROM ${worklistOf(run.on)} AS w WHERE ${isPlace(done)}`)
  return busy.size
}

/** The reason why a row is left; undefined for an error that no row has caused. */
function reasonOf(error: unknown): string | undefined {
  if (error instanceof Unmergeable) return error.message
  const { constraint, code } = serverError(error) ?? {}
  return isRowError(error) ? (constraint ?? code) : undefined
}

/** What a transaction has changed. */
interface Merged {
  readonly turned: ReadonlyMap<Reference, number>
  readonly removed: number
  /** undefined if no row was removed. */
  readonly transaction: string | undefined
}

const NOTHING: Merged = { turned: new Map(), removed: 0, transaction: undefined }

/** The results for the rows of one transaction. */
interface MergedPairs extends Merged {
  /** Places whose rows another session has locked. */
  readonly busy: ReadonlySet<string>
  /** The reasons why rows are left, by their places. */
  readonly left: ReadonlyMap<string, string>
  /** How many rows are no duplicates any more. */
  readonly changed: number
}

async function mergePairs(run: MergeRun, pairs: readonly Pair[]): Promise<MergedPairs> {
  const { on, statements } = run
  const { table } = on
  const chain = [...table.scope, table.hash].map(
    (name) => `${field('l', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const see = statements.see([...sameTexts(on, 'l', 't'), ...chain, ...isLive(table, 'l'), ...isLive(table, 't')])
  const placesOf = async (sql: string, of: readonly Pair[]): Promise<Set<string>> =>
    new Set((await ask<Pair>(run, sql, of)).map(({ place }) => place))
  // No new reference to a locked row can appear.
  const locked = await placesOf(`${see} ${LOCK_PAIRS}`, pairs)
  const missed = pairs.filter(({ place }) => !locked.has(place))
  const busy = await placesOf(see, missed)
  const found = pairs.filter(({ place }) => locked.has(place))
  const obstacles = await ask<Record<'place' | 'reason', string>>(run, statements.findObstacles(), found)
  // A row can have several reasons.
  const left = new Map(obstacles.map(({ place, reason }) => [place, reason]))
  const ready = found.filter(({ place }) => !left.has(place))
  return { busy, left, changed: missed.length - busy.size, ...(await mergeReady(run, ready)) }
}

const keyNames = ({ primary }: AdoptedTable): string[] =>
  ['k', 'p'].flatMap((letter) => primary.map((_, index) => `${letter}${index}`))

/** Sends a statement with the keys of pairs. */
async function ask<Row>({ session, on }: MergeRun, sql: string, of: readonly Pair[]): Promise<readonly Row[]> {
  if (sql === '' || of.length === 0) return []
  return await session.query<Row>(
    sql,
    ['place', ...keyNames(on)].map((name) => of.map((pair) => pair[name])),
  )
}

/** @throws Unmergeable if a trigger or the type of a column prevents it */
async function mergeReady(run: MergeRun, ready: readonly Pair[]): Promise<Merged> {
  if (ready.length === 0) return NOTHING
  const { session, on, list, references, statements, columns, clears } = run
  const { primary, table } = on
  const changes: object[] = []
  const turned = new Map<Reference, number>()
  for (const one of references) {
    if (one.obstacle !== undefined) continue
    const rows = await ask<Returned>(run, statements.turn(one), ready)
    // By a trigger, or by a column's type that rounds. What a trigger has undone is found later.
    if (rows.some((row) => row['new'] !== row['kept'] && row['new'] !== row['old']))
      throw new Unmergeable(`${one.table} stores another key`)
    if (rows.length > 0) turned.set(one, rows.length)
    for (const row of rows) {
      const key = valuesOf(one.key, row)
      changes.push({ table: tableName(one), key, column: one.columns[0], old: row['old'], new: row['new'] })
    }
  }
  // Triggers that count references run now, because a restored row must not be counted twice.
  await session.query('SET CONSTRAINTS ALL IMMEDIATE')
  // Only now, because a trigger on one table may write rows of another table whose references were turned before.
  const [still] = await ask<{ reason: string }>(run, statements.findLeft(), ready)
  if (still) throw new Unmergeable(still.reason)
  const removed = await ask<Returned & { readonly transaction: string }>(run, statements.remove(columns), ready)
  if (removed.length < ready.length) throw new Unmergeable('a trigger keeps it')
  for (const row of removed) {
    changes.push({ table: tableName(table), row: valuesOf(columns, row), kept: valuesOf(primary, row, 'p') })
  }
  if (clears) {
    await session.all([
      "SET LOCAL session_replication_role = 'replica'",
      clearFlags(on, ready),
      "SET LOCAL session_replication_role = 'origin'",
    ])
  }
  const transaction = removed[0]?.transaction
  await list.keep(changes.map((change) => ({ transaction, ...change })))
  return { turned, removed: removed.length, transaction }
}
