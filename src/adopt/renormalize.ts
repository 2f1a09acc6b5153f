import { createAdoptions } from '../sql/adopt-table'
import { forgetState, writeState } from '../sql/adopt-chains'
import { createRefused, noteRefused, type Pages, readTexts, renormalize } from '../sql/adopt-fill'
import { guardIn } from '../triggers/adopt-swap'
import { guardOf } from '../triggers/guard'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { quote } from '../sql/identifier'
import { textRules } from '../sql/text-table'
import { guardNotesOf, planAllFunctions, planSets } from '../triggers/trigger-plan'
import { ownConstraint } from './own-constraint'
import { BatchSize } from './session'
import { type AdoptionState, type Run, rulesOf } from './steps'
import { pagesOf, partsOf, readTextsOf } from './sweep'
import { normalizeTexts, type Target } from './target'

/** Whether a guard stands, and whether rows differ from its declaration in nothing but the normalizer. */
export function guardedAs({
  declaration,
  state,
}: Pick<Target, 'declaration' | 'state'>): 'none' | 'renormalized' | 'other' {
  const note = guardNotesOf(state).find(({ name }) => name === declaration.name)
  if (!note) return 'none'
  const { table } = declaration
  const same = textRules(note, note.digest) === textRules(table, table.digest.name)
  return same && note.deleted === table.deleted ? 'renormalized' : 'other'
}

const LEAST_PAGES = 16

/** A text that normalizing changes, and its row. */
export interface TextChange {
  readonly spot: string
  readonly before: readonly (string | null)[]
  readonly after: readonly (string | null)[]
}

/**
 * Normalizes all rows anew under the guard, which stays: no text is stored twice meanwhile. A row whose normalized text
 * stands in another one is noted with the refused ones.
 *
 * @param decide called before the guard takes over the new declaration; throws, or returns true, to stop there
 * @returns whether the guard has taken it over
 */
export async function renormalizeRows(
  run: Run,
  state: AdoptionState | undefined,
  decide: () => Promise<boolean>,
): Promise<boolean> {
  const { session, target } = run
  const { on } = target
  await session.all(createAdoptions(on))
  // A sweep that reached its end is done again: refused texts may have been corrected.
  let page = state && state.page < (state.pages ?? 0) ? state.page : 0
  if (page === 0) await session.all(createRefused(on))
  for (let sweeps = 1; ; sweeps += 1) {
    const left = await sweep(run, page)
    if (left === 0 && page === 0) break
    if (left > 0) await session.rest(sweeps)
    page = 0
  }
  if (await decide()) return false
  const wanted = guardOf(on.table)
  // Other texts, names and numbers of the table keep what is theirs.
  const installed = guardIn(target.state, on, wanted.note)
  const site = { schema: on.table.schema, table: on.table.table, wanted: [wanted], installed }
  const placed = { ...site, searchSchema: on.table.schema, touched: false }
  const { before, after } = planSets(placed)
  const functions = planAllFunctions([placed], [], []).before
  await session.locked({ on, step: 'guard', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all([...before.up, ...functions.up, ...after.up])
    await session.query(forgetState(on), [on.table.guard])
  })
  return true
}

/** @returns how many rows somebody else had locked */
async function sweep(run: Run, from: number): Promise<number> {
  const { session, target } = run
  const onBatch = async (page: number, pages: number): Promise<void> => {
    const state = { step: 'renormalize', format: 1, rules: rulesOf(target), page, pages }
    await session.query(writeState(target.on), [target.on.table.guard, JSON.stringify(state)])
  }
  return await normalizeAll(run, from, { onBatch })
}

interface Normalizing {
  /** Told which page comes next. */
  readonly onBatch?: (page: number, pages: number) => Promise<void>
  /** Once aborted, the rest of the pages is left. */
  readonly signal?: AbortSignal
}

/**
 * Normalizes the rows of all pages from one on.
 *
 * @returns how many rows somebody else had locked
 */
export async function normalizeAll(run: Run, from: number, { onBatch, signal }: Normalizing = {}): Promise<number> {
  const { session, target } = run
  const size = new BatchSize(session.manners.batch, LEAST_PAGES, LEAST_PAGES)
  const pages = await pagesOf(session, target)
  let left = 0
  for (let page = from; page < pages;) {
    if (signal?.aborted === true) break
    const to = Math.min(page + size.value, pages)
    const started = performance.now()
    for await (const part of partsOf(session, target, { from: page, to }, 'wrong'))
      left += await normalizePages(run, part)
    size.took(performance.now() - started, to - page)
    page = to
    await onBatch?.(page, pages)
    run.onProgress({ step: 'fill', fraction: page / pages, rows: run.counts.normalized })
    await session.breathe()
  }
  return left
}

async function normalizePages(run: Run, pages: Pages): Promise<number> {
  const { session, target, counts } = run
  const changes: TextChange[] = []
  for (const row of await session.query<Record<string, string>>(readTexts(target.on, pages, 'wrong'))) {
    const before = readTextsOf(target, row)
    const normalized = normalizeTexts(target.declaration, before)
    const spot = row['spot'] ?? ''
    if ('refused' in normalized) await note(run, spot, normalized.refused)
    else if (normalized.changed) changes.push({ spot, before, after: normalized.texts })
  }
  const written = await writeChanges(run, changes)
  counts.normalized += written.rows
  return changes.length - written.rows - written.refused.size
}

export const note = async ({ session, target }: Run, spot: string, reason: string): Promise<unknown> =>
  await session.query(noteRefused(target.on), [[spot], [reason]])

/** What became of some rows; the rest of them is locked, or has another text by now. */
interface Written {
  readonly rows: number
  /** Why, by their spots. They are noted. */
  readonly refused: ReadonlyMap<string, string>
}

const NONE: ReadonlyMap<string, string> = new Map()

/** All at once, or one by one where the guard refuses one of them. */
export async function writeChanges(run: Run, changes: readonly TextChange[]): Promise<Written> {
  const { session, target } = run
  const [first] = changes
  if (!first) return { rows: 0, refused: NONE }
  const texts = target.on.table.text.flatMap((_, index) => [
    changes.map(({ before }) => before[index] ?? null),
    changes.map(({ after }) => after[index] ?? null),
  ])
  try {
    const work = async (): Promise<readonly { written: string }[]> =>
      await session.query<{ written: string }>(renormalize(target.on), [changes.map(({ spot }) => spot), ...texts])
    const [row] = await session.together(work)
    return { rows: Number(row?.written ?? 0), refused: NONE }
  } catch (error) {
    if (isBusyError(error)) return { rows: 0, refused: NONE }
    const reason = reasonOf(error)
    if (reason === undefined) throw error
    if (changes.length > 1) return await writeEach(run, changes)
    await note(run, first.spot, reason)
    return { rows: 0, refused: new Map([[first.spot, reason]]) }
  }
}

async function writeEach(run: Run, changes: readonly TextChange[]): Promise<Written> {
  const refused = new Map<string, string>()
  let rows = 0
  for (const one of changes) {
    const written = await writeChanges(run, [one])
    rows += written.rows
    for (const [spot, reason] of written.refused) refused.set(spot, reason)
  }
  return { rows, refused }
}

function reasonOf(error: unknown): string | undefined {
  const { code, constraint = '' } = serverError(error) ?? {}
  if (code === SQLSTATE.uniqueViolation) return `another row holds its normalized text (${quote(constraint)})`
  if (code === SQLSTATE.immutableText) return 'it is immutable'
  const refuses = ownConstraint(error, []) ?? 'the database'
  // P0: a trigger of the user's.
  return /^(?:23|P0)/.test(code ?? '') ? `${refuses} refuses it normalized (SQLSTATE ${code})` : undefined
}
