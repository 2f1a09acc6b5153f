import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { checkOptions, RULE, type Rules } from '../options'
import { createRefused } from './sql/texts'
import { beginFollowing, createWritten, dropWritten, FOLLOWS, readWritten } from './sql/swap'
import { type AdoptOptions, type RefusedRow, refusedRows, withTarget } from './adopt'
import { BATCH_RULES, type BatchOption, LOCK_RULES, type LockOption, MILLISECONDS } from './options'
import { requireAdopted } from './merge'
import { normalizeAll, note, type TextChange, writeChanges } from './swap'
import type { Seams } from './session'
import { readTextsOf, type Run, stopFollowing } from './texts'
import { findDeclaration, normalizeTexts } from './target'

/** How it goes about its work; as for `adopt`. */
export interface FollowOptions extends Pick<AdoptOptions, LockOption | BatchOption | 'holdMilliseconds'> {
  /** Once aborted, it takes its triggers away and returns. */
  readonly signal: AbortSignal
  /** Called as soon as it follows, and after each change, with the number of texts that it has normalized. */
  readonly onProgress?: (normalized: number) => void
}

/** What other code wrote meanwhile. */
export interface FollowReport {
  readonly normalized: number
  /** The first ten rows whose texts could not be normalized: refused, or standing in another row once normalized. */
  readonly refused: readonly RefusedRow[]
  readonly refusedTotal: number
}

const FOLLOW_RULES: Rules<FollowOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  holdMilliseconds: MILLISECONDS,
  onProgress: RULE.function,
}

const NOTES = 200
const IDLE_MILLISECONDS = 500

/**
 * Normalizes what code that knows nothing of the package writes into an adopted table, until the signal is aborted. It
 * reads the table once, for what was written before. Your triggers on UPDATE run for the rows that it changes.
 *
 * @throws AdoptionError for a table that is not adopted, and where an adoption runs
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function follow(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: FollowOptions,
): Promise<FollowReport> {
  checkOptions('follow()', options, FOLLOW_RULES, ['signal'])
  return await followWith(dataSource, entity, options, {})
}

/** @param seams of tests */
export async function followWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: FollowOptions,
  seams: Seams,
): Promise<FollowReport> {
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withTarget({ dataSource, declaration, options, seams }, async (session, target) => {
    requireAdopted(target, true)
    const run: Run = { session, target, onProgress: () => {}, counts: { filled: 0, normalized: 0, numbered: 0 } }
    await begin(run)
    // From now on the signal ends the work in good order, and not at the next statement.
    session.manners = { ...session.manners, signal: undefined }
    try {
      await followOn(run, options)
    } finally {
      await session.set(FOLLOWS, 'off')
    }
    await stopFollowing(session, target)
    const { total, first } = await refusedRows(run)
    return { normalized: run.counts.normalized, refused: first, refusedTotal: total }
  })
}

async function begin({ session, target }: Run): Promise<void> {
  const { on } = target
  await stopFollowing(session, target)
  await session.all([...createRefused(on), ...createWritten(on)])
  await session.locked({ on, step: 'follow', mode: 'SHARE ROW EXCLUSIVE' }, async () => {
    await session.all(beginFollowing(on))
  })
  await session.set(FOLLOWS, 'on')
}

async function followOn(run: Run, { signal, onProgress, onNotice }: FollowOptions): Promise<void> {
  const { session, counts } = run
  onProgress?.(counts.normalized)
  for (let swept = false; !signal.aborted;) {
    const before = counts.normalized
    // Rows that somebody has locked come again.
    if (!swept) swept = (await normalizeAll(run, 0, { signal })) === 0
    const busy = await settleWritten(run, (reason) => onNotice?.(reason))
    if (counts.normalized > before) onProgress?.(counts.normalized)
    if (busy || !swept) await session.breathe()
    if (!busy) await session.sleep(IDLE_MILLISECONDS)
  }
}

type WrittenRow = Readonly<Record<string, string | null>>

/** A row that is to be written, and the notes that name it. */
interface Open extends TextChange {
  readonly key: string | null
  readonly notes: string[]
}

/** What the notes of some rows come to. */
interface Sorted {
  /** Notes of which nothing is left to do. */
  readonly settled: string[]
  readonly open: Map<string, Open>
  readonly refused: { readonly spot: string; readonly key: string | null; readonly reason: string }[]
}

function sortWritten({ target }: Run, rows: readonly WrittenRow[]): Sorted {
  const sorted: Sorted = { settled: [], open: new Map(), refused: [] }
  for (const row of rows) {
    const [seq, spot, key] = [row['seq'] ?? '', row['spot'] ?? '', row['key'] ?? null]
    const before = readTextsOf(target, row)
    // A row that is gone has no text.
    const normalized = normalizeTexts(target.declaration, before)
    if ('changed' in normalized && normalized.changed) {
      const one = sorted.open.get(spot) ?? { spot, before, after: normalized.texts, key, notes: [] }
      one.notes.push(seq)
      sorted.open.set(spot, one)
    } else sorted.settled.push(seq)
    if ('refused' in normalized) sorted.refused.push({ spot, key, reason: normalized.refused })
  }
  return sorted
}

/** @returns whether there is more to do at once */
async function settleWritten(run: Run, tell: (notice: string) => void): Promise<boolean> {
  const { session, target } = run
  const rows = await session.query<WrittenRow>(readWritten(target.on), [NOTES])
  const { settled, open, refused } = sortWritten(run, rows)
  const written = await writeChanges(run, [...open.values()])
  run.counts.normalized += written.rows
  for (const { spot, key, reason } of refused) {
    await note(run, spot, reason)
    tell(`${key} is not normalized: ${reason}`)
  }
  for (const [spot, reason] of written.refused) {
    const one = open.get(spot)
    settled.push(...(one?.notes ?? []))
    tell(`${one?.key} is not normalized: ${reason}`)
  }
  await session.query(dropWritten(target.on), [settled])
  // A row that was written is read once more, for it may have changed meanwhile.
  return settled.length === NOTES || written.rows > 0
}
