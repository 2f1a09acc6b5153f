import {
  claimRows,
  nameColumnsOf,
  countLeft,
  deleteNamedRows,
  lastKey,
  lastNote,
  lockKeys,
  lockRows,
  type NamedTable,
  noteKeys,
  noteLocked,
  noteRows,
  readLeft,
  takeNotes,
  writeNames,
} from '../triggers/adopt-names'
import { refusedNames } from '../sql/name-table'
import { isBusyError, serverError } from '../sql/sqlstate'
import { savepoint } from '../sql/transaction-commands'
import { TextRejectedError } from '../errors'
import { normalizeText } from '../text/normalizer'
import type { NameDeclaration } from '../registry/registry'
import { ownConstraint } from './own-constraint'
import { BatchSize } from './session'
import { goOn, keyOf, type WorkRun } from './work'

/** A table whose rows are to hold the names that they have. */
export interface ClaimedTable {
  readonly on: NamedTable
  /** In the order of its columns. */
  readonly names: readonly NameDeclaration[]
}

/** A row that is locked, with its key and its texts. */
type LockedRow = Readonly<Record<string, string | null>> & { readonly spot: string }

const LEAST_ROWS = 20
const FIRST_ROWS = 200

/** Keys between which rows are to be claimed, and how many there may be. */
interface Sweep {
  readonly after: readonly string[]
  readonly upTo: readonly string[]
  readonly total: number
}

/** The key of the last row; empty where there is none. Rows that come later bring their names. */
export async function lastRow({ session }: WorkRun, { on }: ClaimedTable): Promise<readonly string[]> {
  const [row] = await session.query<LockedRow>(lastKey(on))
  return row ? keyOf(on, row) : []
}

/** Goes over all rows in key order; the position is stored. Rows that somebody has locked are noted. */
export async function claimAll(run: WorkRun, table: ClaimedTable, { after: first, upTo, total }: Sweep): Promise<void> {
  const { on } = table
  const { session } = run
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS)
  for (let [after, attempts]: [readonly string[], number] = [first, 0]; ;) {
    const [started, limit] = [performance.now(), attempts === 0 ? size.value : Math.ceil(size.value / 2 ** attempts)]
    const from = after
    const locked = await tried(async () => await claimPage(run, table, { after: from, upTo, limit }))
    if (locked) {
      attempts = 0
      size.took(performance.now() - started, locked.length)
      run.onProgress({
        step: 'fill',
        fraction: Math.min(run.counts.filled / Math.max(total, 1), 1),
        rows: run.counts.filled,
      })
      const last = locked.at(-1)
      if (!last || locked.length < limit) return
      after = keyOf(on, last)
    } else {
      attempts += 1
      if (attempts > PATIENCE) after = (await passOver(run, on, { after: from, upTo, limit: LEAST_ROWS })) ?? after
      await session.rest(attempts)
    }
    await session.breathe()
  }
}

/** After so many attempts other rows come first. */
const PATIENCE = 4

/** @returns undefined where somebody else stands in the way */
async function tried<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (!isBusyError(error)) throw error
    return undefined
  }
}

interface Page extends Omit<Sweep, 'total'> {
  readonly limit: number
}

async function claimPage(run: WorkRun, table: ClaimedTable, page: Page): Promise<readonly LockedRow[]> {
  const { session } = run
  const { on } = table
  return await session.together(async () => {
    const { rows, upTo } = await lockPage(run, on, page)
    await claimLocked(run, table, rows)
    await goOn(run, on, { step: 'fill', after: upTo })
    return rows
  })
}

/** Rows between them that somebody has locked are noted. @returns the key up to which it has come */
async function lockPage(
  { session }: WorkRun,
  on: NamedTable,
  { after, upTo, limit }: Page,
): Promise<{ readonly rows: readonly LockedRow[]; readonly upTo: readonly string[] }> {
  const rows = await session.query<LockedRow>(lockRows(on, limit, after.length > 0), [...upTo, ...after])
  const last = rows.at(-1)
  const end = last && rows.length === limit ? keyOf(on, last) : upTo
  await session.query(noteLocked(on, after.length > 0), [rows.map(({ spot }) => spot), ...end, ...after])
  return { rows, upTo: end }
}

/** Somebody holds on to a name that one of the next rows wants: they are noted, all of them. */
async function passOver({ session }: WorkRun, on: NamedTable, page: Page): Promise<readonly string[] | undefined> {
  const { after, limit } = page
  return await session.patiently('fill', async () => {
    const rows = await session.query<LockedRow>(lockRows(on, limit, after.length > 0), [...page.upTo, ...after])
    const last = rows.at(-1)
    if (!last) return undefined
    await session.query(noteLocked(on, after.length > 0), [[], ...keyOf(on, last), ...after])
    return keyOf(on, last)
  })
}

/** What a note says of a row. */
interface RowNote {
  readonly spot: string
  readonly kind: 'clash' | 'refused'
  readonly property?: string | undefined
  readonly reason?: string
  readonly holder?: string | undefined
  readonly holderProperty?: string | undefined
  readonly holderKey?: string | undefined
}

/** What becomes of rows that are locked. */
interface Sorted {
  readonly changed: { readonly spot: string; readonly texts: readonly (string | null)[] }[]
  readonly claimed: string[]
  readonly gone: string[]
  readonly notes: RowNote[]
}

async function claimLocked(run: WorkRun, table: ClaimedTable, rows: readonly LockedRow[]): Promise<void> {
  const { session, counts } = run
  const { on } = table
  const { changed, claimed, gone, notes } = sortRows(run, table, rows)
  if (gone.length > 0) await session.query(deleteNamedRows(on), [gone])
  if (changed.length > 0) notes.push(...(await writeAll(run, on, changed)))
  if (claimed.length > 0) await session.query(claimRows(on), [claimed])
  const of = (member: (note: RowNote) => string | undefined): (string | null)[] =>
    notes.map((one) => member(one) ?? null)
  if (notes.length > 0) {
    await session.query(noteRows(on), [
      of(({ spot }) => spot),
      of(({ kind }) => kind),
      of(({ property }) => property),
      of(({ reason }) => reason),
      of(({ holder }) => holder),
      of(({ holderProperty }) => holderProperty),
      of(({ holderKey }) => holderKey),
    ])
  }
  counts.filled += rows.length
  counts.normalized += changed.length
}

function sortRows({ options }: WorkRun, table: ClaimedTable, rows: readonly LockedRow[]): Sorted {
  const sorted: Sorted = { changed: [], claimed: [], gone: [], notes: [] }
  for (const row of rows) {
    const { spot } = row
    const stored = table.names.map((_, index) => row[`c${index}`] ?? null)
    const normalized = normalizeNames(table, stored)
    if ('refused' in normalized) {
      if (options.refused === 'delete') sorted.gone.push(spot)
      else if (options.refused === 'keep') sorted.claimed.push(spot)
      else sorted.notes.push({ spot, kind: 'refused', property: normalized.column, reason: normalized.refused })
    } else if (normalized.texts.some((text, index) => text !== stored[index])) {
      sorted.changed.push({ spot, texts: normalized.texts })
    } else sorted.claimed.push(spot)
  }
  return sorted
}

type NormalizedNames =
  | { readonly texts: readonly (string | null)[] }
  | { readonly refused: string; readonly column: string }

function normalizeNames({ names }: ClaimedTable, stored: readonly (string | null)[]): NormalizedNames {
  const texts: (string | null)[] = []
  for (const [index, { text, name }] of names.entries()) {
    const value = stored[index] ?? null
    try {
      texts.push(value === null ? null : normalizeText(text.normalizer, name, value))
    } catch (error) {
      if (!(error instanceof TextRejectedError)) throw error
      return { refused: error.reason, column: text.column.databaseName }
    }
  }
  return { texts }
}

/** Together; where a name is taken one by one, so that only that row is left as it is. */
async function writeAll(run: WorkRun, on: NamedTable, changed: Sorted['changed']): Promise<RowNote[]> {
  const taken = await writeSome(run, on, changed)
  if (taken === undefined || changed.length === 1) return taken ?? []
  const notes: RowNote[] = []
  for (const one of changed) notes.push(...((await writeSome(run, on, [one])) ?? []))
  return notes
}

/** @returns undefined where all were written */
async function writeSome(
  { session }: WorkRun,
  on: NamedTable,
  changed: Sorted['changed'],
): Promise<RowNote[] | undefined> {
  const columns = nameColumnsOf(on).map((_, index) => changed.map(({ texts }) => texts[index] ?? null))
  await session.query(savepoint.set)
  try {
    await session.query(writeNames(on), [changed.map(({ spot }) => spot), ...columns])
    await session.query(savepoint.release)
    return undefined
  } catch (error) {
    const told = serverError(error)
    const refused = told && refusedNames(told, on.holder.of)
    const own = ownConstraint(error, [on.holder.of.index])
    const spot = changed[0]?.spot ?? ''
    if (!refused && own === undefined) throw error
    await session.all([savepoint.rollBack, savepoint.release])
    if (!refused) return [{ spot, kind: 'refused', reason: `${own} refuses it normalized (SQLSTATE ${told?.code})` }]
    return refused.map(({ column, holder, holderColumn, key }) => ({
      spot,
      kind: 'clash',
      property: column,
      holder,
      holderProperty: holderColumn,
      holderKey: key ? JSON.stringify(key) : undefined,
    }))
  }
}

/** Looks again at the rows that are left, once at each. @returns how many of them somebody has locked */
export async function claimLeft(run: WorkRun, table: ClaimedTable): Promise<number> {
  const { session } = run
  const { on } = table
  const [{ seq } = { seq: '0' }] = await session.query<{ seq: string }>(lastNote(on))
  for (let [limit, attempts] = [FIRST_ROWS, 0]; ;) {
    const size = limit
    const found = await tried(async () => await claimNotes(run, table, seq, size))
    if (found === 0) break
    if (found === undefined) {
      attempts += 1
      // One row after the other, so that only those are held up that somebody stands in the way of.
      limit = 1
      if (attempts > PATIENCE) await deferNote(run, on, seq)
      await session.rest(attempts)
    } else attempts = 0
    await session.breathe()
  }
  return (await leftRows(run, on)).get('locked') ?? 0
}

/** The first note becomes the last, for another round. */
async function deferNote({ session }: WorkRun, on: NamedTable, upTo: string): Promise<void> {
  await session.patiently('fill', async () => {
    const notes = await session.query<{ key: string }>(takeNotes(on), [upTo, 1])
    await session.query(noteKeys(on), [notes.map(({ key }) => key)])
  })
}

async function claimNotes(run: WorkRun, table: ClaimedTable, upTo: string, limit: number): Promise<number> {
  const { session } = run
  const { on } = table
  return await session.together(async () => {
    const notes = await session.query<{ key: string }>(takeNotes(on), [upTo, limit])
    const keys = [...new Set(notes.map(({ key }) => key))]
    if (keys.length === 0) return 0
    const rows = await session.query<LockedRow>(lockKeys(on), [keys])
    const locked = new Set(rows.map(({ key }) => key))
    await session.query(noteKeys(on), [keys.filter((key) => !locked.has(key))])
    await claimLocked(run, table, rows)
    return notes.length
  })
}

/** By kind. */
export async function leftRows({ session }: WorkRun, on: NamedTable): Promise<ReadonlyMap<string, number>> {
  const rows = await session.query<Record<'kind' | 'notes', string>>(countLeft(on))
  return new Map(rows.map(({ kind, notes }) => [kind, Number(notes)]))
}

/** A row that is left, as it is reported. */
export interface LeftName {
  readonly kind: 'clash' | 'refused' | 'locked'
  readonly key: string
  readonly property: string | null
  readonly reason: string | null
  readonly holder: string | null
  readonly holder_property: string | null
  readonly holder_key: string | null
}

export const firstLeft = async ({ session }: WorkRun, on: NamedTable, limit: number): Promise<readonly LeftName[]> =>
  await session.query<LeftName>(readLeft(on, limit))
