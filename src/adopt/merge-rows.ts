import type { ObjectLiteral } from 'typeorm'
import { literal, quote } from '../sql/identifier'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { field, isLive, tableName } from '../sql/text-table'
import {
  holds,
  identifyingColumns,
  keyArray,
  keysTable,
  type LoggedChange,
  type MergedTable,
  merges,
  namesOfColumns,
  type Reference,
  shownAll,
  shownRow,
  type Tables,
} from './merge-log'
import { parseRows } from './exact-json'
import type { AdoptSession } from './session'
import { type AdoptedTable, keyAsJson, own, samePrimary, sameTexts, type TextSite, worklistOf } from './table'
import type { Target } from './target'

/**
 * Writes other values to the row that stays, at the place $1, and logs each changed value. $2 is the text. The log
 * holds the values as triggers have left them.
 */
function setValues(on: AdoptedTable, columns: readonly string[]): string {
  const at = `w.place OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND ${samePrimary(on, 'w.p')}`
  const { schema, table } = on.table
  const set = columns.map((name) => `${quote(name)} = v.${quote(name)}`).join(', ')
  const changes = columns.map((name) => {
    const one = literal(name)
    const change = literal(JSON.stringify({ schema, table, columns: [name], set: true } satisfies LoggedChange))
    return `(${change}::pg_catalog.jsonb, pg_catalog.jsonb_build_object(${one}::pg_catalog.text, b.was OPERATOR(pg_catalog.->) ${one}::pg_catalog.text),
      pg_catalog.jsonb_build_object(${one}::pg_catalog.text, u.made OPERATOR(pg_catalog.->) ${one}::pg_catalog.text))`
  })
  return `WITH b AS MATERIALIZED (SELECT ${places(on, 'k')} AS old, ${places(on, 'p')} AS kept, ${shownRow('t', columns)} AS was
    FROM ${worklistOf(on)} AS w JOIN ${own(on)} ON ${at}),
u AS (UPDATE ${own(on)} SET ${set} FROM ${worklistOf(on)} AS w
    CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::${tableName(on.table)}, w.data) AS v
   WHERE ${at} RETURNING ${shownRow('t', on.primary)} AS key, ${shownRow('t', columns)} AS made)
INSERT INTO ${merges(on)} (guard, old, kept, change, data)
SELECT $2::pg_catalog.text, b.old, b.kept, c.change, pg_catalog.jsonb_build_object('key', u.key, 'was', c.was, 'made', c.made)
  FROM b CROSS JOIN u CROSS JOIN LATERAL (VALUES ${changes.join(', ')}) AS c (change, was, made)
 WHERE c.was OPERATOR(pg_catalog.<>) c.made`
}

/** The places $1 with the row to delete as `l` and the one that stays as `t`. */
const pairsOf = (on: AdoptedTable): Pick<MergedPairs, 'from' | 'where'> => ({
  from:
    `${worklistOf(on)} AS w JOIN ONLY ${tableName(on.table)} AS l ON ${samePrimary(on, 'w.k', 'l')} ` +
    `JOIN ${own(on)} ON ${samePrimary(on, 'w.p')}`,
  where: `w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`,
})

const pairs = (on: AdoptedTable): string => `${pairsOf(on).from} WHERE ${pairsOf(on).where}`

/** Selects the places among $1 whose rows are still duplicates: both have one text, in one scope. */
function seePairs(on: AdoptedTable): string {
  const { table } = on
  const scope = [...table.scope, table.hash].map(
    (name) => `${field('l', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const equal = [...sameTexts(on, 'l', 't'), ...scope, ...isLive(table, 'l'), ...isLive(table, 't')].join(' AND ')
  return `SELECT w.place::pg_catalog.text AS place FROM ${pairs(on)} AND ${equal}`
}

const dropPlaces = (on: TextSite): string =>
  `DELETE FROM ${worklistOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`

const places = (on: AdoptedTable, letter: string): string =>
  keyArray(on.primary.map((_, index) => `w.${letter}${index}`))

/** Pairs of rows, of which `l` is deleted and `t` stays, and the keys under which a change is logged. */
interface MergedPairs {
  readonly from: string
  readonly where: string
  readonly old: string
  readonly kept: string
}

const PLACE = 'w.place::pg_catalog.text'

/** The pairs of the places $1. */
const placesSource = (on: AdoptedTable): MergedPairs => ({
  ...pairsOf(on),
  old: places(on, 'k'),
  kept: places(on, 'p'),
})

const refers = (reference: Reference, row: string, to: string): string =>
  [
    ...reference.columns.map(
      (name, index) => `${field(row, name)} OPERATOR(pg_catalog.=) ${field(to, reference.referenced[index] ?? '')}`,
    ),
    ...holds(reference, row),
  ].join(' AND ')

/** Selects the pairs whose kept row refers to the row to delete. After a merge, it would refer to itself. */
const seeSelf = ({ from, where }: MergedPairs, reference: Reference, place: string): string =>
  `SELECT ${place} AS place FROM ${from} WHERE ${where} AND ${refers(reference, 't', 'l')}`

/**
 * Selects why references of a pair cannot be turned and restored exactly, with a row for each place and reason.
 *
 * @param place a column that identifies the pair
 */
function findInexact({ from, where }: MergedPairs, reference: Reference, place: string): string {
  const { columns, referenced, shared, table } = reference
  const both = (name: string): readonly [string, string] => [field('l', name), field('t', name)]
  const missing = referenced.map((name) => `${field('t', name)} IS NULL`).join(' OR ')
  const different = (name: string): string => {
    const [left, right] = both(name)
    return `(${left} OPERATOR(pg_catalog.=) ${right}) IS NOT TRUE`
  }
  const count = referenced.map((name) => `(${different(name)})::pg_catalog.int4`).join(' OPERATOR(pg_catalog.+) ')
  const composite = [
    `${count} OPERATOR(pg_catalog.>) 1`,
    ...columns.flatMap((name, index) => (shared.includes(name) ? [different(referenced[index] ?? '')] : [])),
  ].join(' OR ')
  const spelled = columns.map(
    (name, index) =>
      `pg_catalog.concat(${field('r', name)}) OPERATOR(pg_catalog.<>) pg_catalog.concat(${field('l', referenced[index] ?? '')})`,
  )
  const reasons = [
    `WHEN ${missing} THEN ${literal(`${table} refers to a column that is NULL in the row that stays`)}`,
    ...(columns.length > 1
      ? [`WHEN ${composite} THEN ${literal(`${table} refers by several columns, and more than the key differs`)}`]
      : []),
    `WHEN ${spelled.join(' OR ')} THEN ${literal(`${table} spells the key otherwise`)}`,
  ]
  return `SELECT DISTINCT f.place, f.reason FROM (SELECT ${place} AS place, CASE ${reasons.join('\n    ')} END AS reason
    FROM ${from} JOIN ${tableName(reference)} AS r ON ${refers(reference, 'r', 'l')} WHERE ${where}) AS f WHERE f.reason IS NOT NULL`
}

/**
 * Turns references from the rows to delete to the rows that stay, and logs each by the key that its row then has.
 * $first is the text, and the next parameter is the reference as a `LoggedChange`.
 */
function turn(
  on: TextSite,
  { from, where, old, kept }: MergedPairs,
  reference: Reference,
  child: MergedTable,
  first: 2 | 3,
): string {
  const { columns, referenced } = reference
  const values = referenced.flatMap((name, index) => [
    `${field('l', name)} AS o${index}`,
    `${field('t', name)} AS n${index}`,
  ])
  const set = columns.map((name, index) => `${quote(name)} = m.n${index}`).join(', ')
  const met = columns.map((name, index) => `${field('r', name)} OPERATOR(pg_catalog.=) m.o${index}`)
  const was = shownAll(columns.map((name, index) => [name, `m.o${index}`]))
  return `WITH m AS MATERIALIZED (SELECT ${old} AS old, ${kept} AS kept, ${values.join(', ')} FROM ${from} WHERE ${where}),
u AS (UPDATE ${tableName(reference)} AS r SET ${set} FROM m WHERE ${[...met, ...holds(reference, 'r')].join(' AND ')}
  RETURNING m.old, m.kept, pg_catalog.jsonb_build_object('key', ${shownRow('r', identifyingColumns(child))}, 'was', ${was}, 'made', ${shownRow('r', columns)}) AS data)
INSERT INTO ${merges(on)} (guard, old, kept, change, data)
SELECT $${first}::pg_catalog.text, u.old, u.kept, $${first + 1}::pg_catalog.jsonb, u.data FROM u`
}

/** Counts up to one row that still refers to a row to delete, and would be deleted with it. */
const stillReferring = ({ from, where }: MergedPairs, reference: Reference): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM (SELECT FROM ${from} JOIN ${tableName(reference)} AS r ON ${refers(reference, 'r', 'l')} WHERE ${where} LIMIT 1) AS f`

/** Clears the flag of rows that are alone again, or a later DELETE would look for others. The guard must not fire. */
function clearFlags(on: AdoptedTable): string {
  const { table } = on
  const chain = [...table.scope, table.hash].map(
    (name) => `${field('o', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const others = [...chain, ...isLive(table, 'o'), `o.${quote(table.number)} OPERATOR(pg_catalog.<>) 0`].join(' AND ')
  return `UPDATE ${own(on)} SET ${quote(table.chained)} = false FROM ${worklistOf(on)} AS w
 WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${samePrimary(on, 'w.p')} AND t.${quote(table.number)} OPERATOR(pg_catalog.=) 0
   AND NOT EXISTS (SELECT FROM ONLY ${tableName(table)} AS o WHERE ${others})`
}

/** The row of a key that is given as text[]. */
const isRow = ({ primary, types }: MergedTable, row: string, key: string): string =>
  primary
    .map(
      (name, index) =>
        `${field(row, name)} OPERATOR(pg_catalog.=) (${key}::pg_catalog.text[])[${index + 1}]::${types[index]}`,
    )
    .join(' AND ')

/**
 * Selects and locks the rows that refer to the row $1 and would clash with another row if they referred to $2, and
 * those other rows. Selects also whether each two differ only in key and reference.
 */
function findConflicts(
  parent: MergedTable,
  reference: Reference,
  child: MergedTable,
  columns: readonly string[],
): string {
  const clash = columns.map((name) => {
    const at = reference.columns.indexOf(name)
    const value = at === -1 ? field('r', name) : field('t', reference.referenced[at] ?? '')
    return `${field('o', name)} OPERATOR(pg_catalog.=) ${value}`
  })
  const ignored = `ARRAY[${[...child.primary, ...reference.columns].map((name) => literal(name)).join(', ')}]::pg_catalog.text[]`
  const rest = (row: string): string => `(pg_catalog.to_jsonb(${row}.*) OPERATOR(pg_catalog.-) ${ignored})`
  const key = (row: string): string => keyArray(child.primary.map((name) => field(row, name)))
  return `SELECT ${key('r')} AS old, ${key('o')} AS kept,
       ${rest('r')} OPERATOR(pg_catalog.=) ${rest('o')} AS same
  FROM ${tableName(parent)} AS l JOIN ${tableName(parent)} AS t ON ${isRow(parent, 't', '$2')}
  JOIN ${tableName(child)} AS r ON ${refers(reference, 'r', 'l')}
  JOIN ${tableName(child)} AS o ON ${clash.join(' AND ')}
 WHERE ${isRow(parent, 'l', '$1')} FOR UPDATE OF r, o`
}

/** The primary keys of a deleted row and of its replacement, by the columns' names in the database. */
export interface MergedKey {
  /** The primary key of the row that was removed. */
  readonly row: ObjectLiteral
  /** The primary key of the row that remains. */
  readonly kept: ObjectLiteral
}

/** A row that still holds the text of another row, and the row that would have been kept. */
export interface LeftRow extends MergedKey {
  /** A constraint's name, or a clause. */
  readonly reason: string
}

/** One run. */
export interface MergeRun {
  readonly session: AdoptSession
  readonly target: Target
  readonly table: MergedTable
  readonly tables: Tables
  readonly references: readonly Reference[]
  /** Tables, as `table` or `schema.table`, whose clashing rows are merged although they differ. */
  readonly mergedTables: readonly string[]
  readonly clears: boolean
  /** Whether a function chooses, so that kept rows may get other values. */
  readonly decides: boolean
  readonly onMerged: ((rows: readonly MergedKey[]) => void) | undefined
  readonly left: LeftRow[]
  /** Numbers of rows by the change that the log notes. */
  readonly changes: Map<string, number>
  /** The last entry of the log that is counted. */
  logged: string
  merged: number
  /** The number of rows that were found but were no duplicates any more when they were processed. */
  changed: number
}

/** Removes from the work rows that were deleted, or are no duplicates any more. */
export async function dropChanged(merging: MergeRun, places: readonly string[]): Promise<void> {
  merging.changed += places.length
  await merging.session.query(dropPlaces(merging.target.on), [places])
}

async function setAll({ session, target: { on } }: MergeRun, ready: readonly string[]): Promise<void> {
  const sets = await session.query<Record<'place' | 'data', string>>(
    `SELECT w.place::pg_catalog.text AS place, w.data::pg_catalog.text AS data FROM ${worklistOf(on)} AS w ` +
      `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND w.data IS NOT NULL`,
    [ready],
  )
  for (const { place, data } of sets) {
    const columns = Object.keys(JSON.parse(data) as ObjectLiteral)
    if (columns.length === 0) continue
    await session.query(setValues(on, columns), [place, on.table.guard])
  }
}

/**
 * @param clears whether a unique index refused the only row, so that clashing rows are deleted first
 * @returns how many rows are left for later, because another session has locked them
 */
export async function mergeBatch(merging: MergeRun, places: readonly string[], clears = false): Promise<number> {
  try {
    const done = await merging.session.together(async () => await mergeRows(merging, places, clears))
    await noteMerged(merging, places, done)
    return done.busy.length
  } catch (error) {
    if (isBusyError(error)) return places.length
    const reason = reasonOf(error)
    if (reason === undefined) throw error
    if (places.length > 1) {
      let busy = 0
      for (const place of places) busy += await mergeBatch(merging, [place])
      return busy
    }
    const clashes = serverError(error)?.code === SQLSTATE.uniqueViolation
    if (clashes && !clears) return await mergeBatch(merging, places, true)
    return await leaveRows(merging, places, reason)
  }
}

async function noteMerged(merging: MergeRun, places: readonly string[], done: Merged): Promise<void> {
  const { session, target, onMerged, changes } = merging
  const { busy, merged, keys, left, turned } = done
  merging.merged += merged
  for (const [change, rows] of turned) changes.set(change, (changes.get(change) ?? 0) + rows)
  if (keys.length > 0) onMerged?.(keys)
  for (const [place, reason] of left) await leaveRows(merging, [place], reason)
  if (!session.isTrial) return
  const seen = places.filter((place) => !busy.includes(place))
  await session.query(dropPlaces(target.on), [seen])
}

/** The reason why a row is left; undefined for an error that would affect every row. */
function reasonOf(error: unknown): string | undefined {
  if (error instanceof Unmergeable) return error.message
  const { code = '', constraint } = serverError(error) ?? {}
  return /^(?:23|P0|2F|09|54)/.test(code) ? (constraint ?? code) : undefined
}

async function leaveRows(merging: MergeRun, places: readonly string[], reason: string): Promise<number> {
  if (places.length === 0) return 0
  for (const one of await mergedKeysOf(merging, places)) merging.left.push({ ...one, reason })
  await merging.session.query(dropPlaces(merging.target.on), [places])
  return 0
}

/** The results for the rows of one transaction. */
interface Merged {
  /** Places whose rows another session has locked. */
  readonly busy: readonly string[]
  readonly merged: number
  /** The keys of those rows, if the caller has `onMerged`. */
  readonly keys: readonly MergedKey[]
  /** Numbers of rows by change. */
  readonly turned: ReadonlyMap<string, number>
  /** Places whose rows are left, with the reasons. */
  readonly left: ReadonlyMap<string, string>
}

async function mergeRows(merging: MergeRun, places: readonly string[], clears: boolean): Promise<Merged> {
  const { session, target, references } = merging
  const { on } = target
  const placesOf = async (sql: string, of: readonly string[]): Promise<string[]> =>
    (await session.query<{ place: string }>(sql, [of])).map(({ place }) => place)
  const source = placesSource(on)
  const seen = new Set(await placesOf(seePairs(on), places))
  // Locks both rows, so that no new reference to them can appear. A pair with a row that another session has locked is
  // left out.
  const locked = await placesOf(`${seePairs(on)} FOR UPDATE OF l, t SKIP LOCKED`, places)
  const left = new Map<string, string>()
  for (const one of references) {
    if (one.own) {
      for (const place of await placesOf(seeSelf(source, one, PLACE), locked))
        left.set(place, 'it would refer to itself')
    }
    const inexact = findInexact(source, one, PLACE)
    for (const { place, reason } of await session.query<Record<'place' | 'reason', string>>(inexact, [locked])) {
      left.set(place, reason)
    }
  }
  const ready = locked.filter((place) => !left.has(place))
  const keys = merging.onMerged ? await mergedKeysOf(merging, ready) : []
  await mergeReady(merging, ready, clears)
  // The entries that this batch has logged.
  const logged = await session.query<Record<'change' | 'rows' | 'last', string>>(
    `SELECT m.change::pg_catalog.text AS change, pg_catalog.count(*)::pg_catalog.text AS rows, pg_catalog.max(m.seq)::pg_catalog.text AS last FROM ${merges(on)} AS m
 WHERE m.seq OPERATOR(pg_catalog.>) $2::pg_catalog.int8 AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.change IS NOT NULL
 GROUP BY m.change`,
    [on.table.guard, merging.logged],
  )
  for (const { last } of logged) if (Number(last) > Number(merging.logged)) merging.logged = last
  const turned = new Map(logged.map(({ change, rows }) => [change, Number(rows)]))
  await dropChanged(
    merging,
    places.filter((place) => !seen.has(place) && !locked.includes(place)),
  )
  const busy = [...seen].filter((place) => !locked.includes(place))
  return { busy, merged: ready.length, keys, left, turned }
}

async function mergedKeysOf({ session, target }: MergeRun, places: readonly string[]): Promise<MergedKey[]> {
  const { on } = target
  const key = (letter: 'k' | 'p'): string => `${keyAsJson(on, (_, index) => `w.${letter}${index}`)}::pg_catalog.text`
  const rows = await session.query<Record<'row' | 'kept', string>>(
    `SELECT ${key('k')} AS row, ${key('p')} AS kept FROM ${worklistOf(on)} AS w ` +
      `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`,
    [places],
  )
  return rows.map(({ row, kept }) => ({
    row: parseRows(row, 1) as ObjectLiteral,
    kept: parseRows(kept, 1) as ObjectLiteral,
  }))
}

/** Whether a statement counts any row, as `n`. */
async function isAny(session: AdoptSession, sql: string, values: unknown[]): Promise<boolean> {
  const [found] = await session.query<{ n: string }>(sql, values)
  return found?.n !== '0'
}

/** @throws Unmergeable if a trigger prevents it */
async function mergeReady(merging: MergeRun, ready: readonly string[], first: boolean): Promise<void> {
  const { session, target, table, tables, references, clears } = merging
  const { on } = target
  if (ready.length === 0) return
  const source = placesSource(on)
  for (const places of await turnedTogether(merging, ready)) {
    for (const one of references) {
      if (first) for (const place of places) await mergeClashing(merging, place, one)
      const change: LoggedChange = { schema: one.schema, table: one.table, columns: one.columns, when: one.when }
      const values = [places, on.table.guard, JSON.stringify(change)]
      await session.query(turn(on, source, one, await tables.keyed(one), 2), values)
    }
  }
  // Triggers that count references run now, because a row that is restored later must not be counted twice.
  await session.query('SET CONSTRAINTS ALL IMMEDIATE')
  // Only now, because a trigger on one table may write rows of another table whose references were turned before.
  for (const one of references) {
    if (await isAny(session, stillReferring(source, one), [ready]))
      throw new Unmergeable(`a trigger undoes references of ${one.table}`)
  }
  // Logs the whole rows, as they are once nothing refers to them, but for the library's own columns, because `abandon`
  // drops them.
  const { hash, number, chained } = on.table
  const columns = namesOfColumns(table).filter((name) => ![hash, number, chained].includes(name))
  await session.query(
    `INSERT INTO ${merges(on)} (guard, old, kept, data) SELECT $2::pg_catalog.text, ${source.old}, ${source.kept}, ` +
      `${shownRow('l', columns)} FROM ${pairs(on)} ORDER BY w.place`,
    [ready, on.table.guard],
  )
  const isPlace = `w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`
  await session.query(
    `DELETE FROM ${own(on)} USING ${worklistOf(on)} AS w WHERE ${isPlace} AND ${samePrimary(on, 'w.k')}`,
    [ready],
  )
  const stillThere =
    `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM ${worklistOf(on)} AS w JOIN ${own(on)} ON ${samePrimary(on, 'w.k')} ` +
    `WHERE ${isPlace}`
  if (await isAny(session, stillThere, [ready])) throw new Unmergeable('a trigger keeps it')
  // Rows that were merged into the deleted rows before resolve to the kept rows too.
  await session.query(
    `WITH m AS MATERIALIZED (
  SELECT ${source.old} AS old, ${source.kept} AS kept FROM ${worklistOf(on)} AS w WHERE ${isPlace}),
before AS (UPDATE ${keysTable(on)} AS n SET kept = m.kept FROM m WHERE n.kept OPERATOR(pg_catalog.=) m.old)
INSERT INTO ${keysTable(on)} AS n (old, kept) SELECT m.old, m.kept FROM m ON CONFLICT (old) DO UPDATE SET kept = excluded.kept`,
    [ready],
  )
  if (merging.decides) await setAll(merging, ready)
  if (clears) {
    await session.set('session_replication_role', 'replica')
    await session.query(clearFlags(on), [ready])
    await session.set('session_replication_role', 'origin')
  }
  await session.query(dropPlaces(on), [ready])
}

/**
 * Groups the rows whose references one statement turns: usually all rows. If a row can refer to several rows to delete,
 * and its key includes a reference, each row is a group, because the log has the key between two changes.
 */
async function turnedTogether(
  { references, tables }: MergeRun,
  ready: readonly string[],
): Promise<readonly string[][]> {
  for (const { schema, table } of references) {
    const ofTable = references.filter((one) => one.schema === schema && one.table === table)
    const key = ofTable.length > 1 ? identifyingColumns(await tables.keyed({ schema, table })) : []
    if (ofTable.some(({ columns }) => columns.some((name) => key.includes(name)))) return ready.map((place) => [place])
  }
  return [[...ready]]
}

/** The constraint or the clause that prevents a merge of two rows. */
class Unmergeable extends Error {
  override readonly name = 'Unmergeable'
}

/** The keys of two rows of a table: one is deleted, and one stays. */
interface Pair {
  readonly old: readonly string[]
  readonly kept: readonly string[]
}

/** Rows refer to rows that refer to rows. Beyond this depth, a person should look. */
const DEEPEST = 10

/** Merges the rows that would clash when references to the row of a place are turned. @throws Unmergeable */
async function mergeClashing(merging: MergeRun, place: string, reference: Reference): Promise<void> {
  const { session, table, target } = merging
  const { on } = target
  const [pair] = await session.query<Pair>(
    `SELECT ${places(on, 'k')} AS old, ${places(on, 'p')} AS kept FROM ${worklistOf(on)} AS w ` +
      `WHERE w.place OPERATOR(pg_catalog.=) $1::pg_catalog.int8`,
    [place],
  )
  if (pair) await mergeReferring(merging, table, reference, pair, [pair])
}

/**
 * Merges the rows that refer to a pair of rows and would clash, and rows that refer to them in turn.
 *
 * @param above the pair to merge, and the pairs below it down to this one
 */
async function mergeReferring(
  merging: MergeRun,
  parent: MergedTable,
  reference: Reference,
  pair: Pair,
  above: readonly Pair[],
): Promise<void> {
  const { session, tables, mergedTables } = merging
  const child = await tables.keyed(reference)
  if (child.primary.length === 0) return
  const isMerged = [child.table, `${child.schema}.${child.table}`].some((name) => mergedTables.includes(name))
  const touched = child.indexes.filter(({ columns }) => columns.some((name) => reference.columns.includes(name)))
  for (const { name, columns } of touched) {
    const sql = findConflicts(parent, reference, child, columns)
    for (const one of await session.query<Pair & { same: boolean }>(sql, [pair.old, pair.kept])) {
      if (!one.same && !isMerged) throw new Unmergeable(name)
      await mergePair(merging, child, one, above)
    }
  }
}

async function mergePair(merging: MergeRun, table: MergedTable, pair: Pair, above: readonly Pair[]): Promise<void> {
  if (above.length > DEEPEST) throw new Unmergeable(`rows refer to each other over more than ${DEEPEST} tables`)
  const { session, tables } = merging
  const { on } = merging.target
  const { guard } = on.table
  const { schema, table: name } = table
  const [values, keys] = [
    [pair.old, pair.kept],
    [above[0]?.old, above[0]?.kept],
  ]
  // The pair with the keys $1 and $2. Its changes are logged under the keys $5 and $6 of the merged pair above it.
  const source: MergedPairs = {
    from: `${tableName(table)} AS l JOIN ${tableName(table)} AS t ON ${isRow(table, 't', '$2')}`,
    where: isRow(table, 'l', '$1'),
    old: '$5::pg_catalog.text[]',
    kept: '$6::pg_catalog.text[]',
  }
  for (const reference of await tables.referencesTo(table)) {
    const isSelf = reference.own && (await session.query(seeSelf(source, reference, '0'), values)).length > 0
    if (isSelf) throw new Unmergeable(`a row of ${name} would refer to itself`)
    const [inexact] = await session.query<{ reason: string }>(findInexact(source, reference, '0'), values)
    if (inexact) throw new Unmergeable(inexact.reason)
    await mergeReferring(merging, table, reference, pair, [...above, pair])
    const change: LoggedChange = { schema: reference.schema, table: reference.table, columns: reference.columns }
    const turned = turn(on, source, reference, await tables.keyed(reference), 3)
    await session.query(turned, [...values, guard, JSON.stringify(change), ...keys])
    if (await isAny(session, stillReferring(source, reference), values)) {
      throw new Unmergeable(`a trigger undoes references of ${reference.table}`)
    }
  }
  const change: LoggedChange = { schema, table: name }
  const row = `FROM ${tableName(table)} AS r WHERE ${isRow(table, 'r', '$1')}`
  await session.query(
    `INSERT INTO ${merges(on)} (guard, old, kept, change, data)
SELECT $2::pg_catalog.text, $4::pg_catalog.text[], $5::pg_catalog.text[], $3::pg_catalog.jsonb, ${shownRow('r', namesOfColumns(table))}
  ${row}`,
    [pair.old, guard, JSON.stringify(change), ...keys],
  )
  await session.query(`DELETE ${row}`, [pair.old])
  const stillThere = `SELECT pg_catalog.count(*)::pg_catalog.text AS n ${row}`
  if (await isAny(session, stillThere, [pair.old])) throw new Unmergeable(`a trigger keeps a row of ${name}`)
}
