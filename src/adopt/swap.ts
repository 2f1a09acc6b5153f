import { columnDrift } from '../schema/readiness'
import { renormalized } from '../schema/rows'
import type { InstalledTriggers } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName, textRules } from '../sql/text-table'
import { isKernel } from '../sql/trigger-set'
import { type GuardNote, guardOf } from '../triggers/guard'
import { guardNotesOf, planAllFunctions, planSets } from '../triggers/plan'
import { AdoptionError, BatchSize } from './session'
import { beside, guardIn, type StandingGuard } from './sql/swap'
import { createAdoptions, nameOf } from './sql/table'
import { createRefused, forgetState, noteRefused, type Pages, readTexts, renormalize, writeState } from './sql/texts'
import { normalizeTexts, ownConstraint, requireAdoptable, type Target } from './target'
import { type AdoptionState, pagesOf, partsOf, readTextsOf, rulesOf, type Run } from './texts'

/**
 * What an adoption works on: where a guard of another declaration stands, columns beside those that it keeps, which take
 * their places in the end.
 *
 * @param begun hidden columns are those of an adoption that has begun
 * @throws AdoptionError where the change has to be made in several steps, or by a migration
 */
export function targetOf(target: Target, begun = false): Target {
  const guarded = guardedAs(target)
  if (guarded !== 'renormalized') requireAdoptable(target.facts, tableName(target.on.table))
  if (guarded === 'none') refuseForeignWork(target)
  if (guarded === 'none' && !begun) refuseTaken(target)
  return guarded === 'other' ? besideGuard(target) : target
}

function besideGuard(target: Target): Target {
  const { declaration, on: final, state } = target
  const note = guardNotesOf(state).find(({ name }) => name === declaration.name)
  if (!note) return target
  refuseColumns(target, note)
  refuseNormalizer(target, note)
  const nullable = new Set(state.columns.filter((one) => one.nullable).map(({ name }) => name))
  const texts = declaration.text.map(({ column }) => column)
  const tightened = [...texts, ...declaration.scope]
    .filter(({ isNullable, databaseName }) => !isNullable && nullable.has(databaseName))
    .map(({ databaseName }) => databaseName)
  const on = beside(final)
  const { hash, number, chained } = on.table
  return {
    ...target,
    on,
    hidden: [hash, number, chained].map((name, index) => ({ name, comment: target.hidden[index]?.comment ?? '' })),
    // Until the guards change, a row without a text has none.
    required: final.table.nullable || tightened.length > 0 ? [] : [hash],
    // Texts stay as they are: the guard that stands would look at each.
    normalizes: false,
    swap: {
      final,
      before: standing(target, note),
      loosened: texts
        .filter(({ isNullable, databaseName }) => isNullable && !nullable.has(databaseName))
        .map(({ databaseName }) => databaseName),
      tightened,
    },
  }
}

/** The kernel, which stands in every guard, stays for the others. */
const installedNames = ({ functions, triggers }: InstalledTriggers): Pick<StandingGuard, 'functions' | 'triggers'> => ({
  functions: functions.flatMap(({ schema, name, body }) => (isKernel(body) ? [] : [{ schema, name }])),
  triggers: triggers.map(({ name }) => name),
})

const standing = ({ state, on }: Target, note: GuardNote): StandingGuard => ({
  hash: note.hash,
  number: note.number,
  chained: note.chained,
  index: note.index,
  rules: JSON.stringify([textRules(note, note.digest), note.deleted]),
  ...installedNames(guardIn(state, on, note)),
})

function unsupportedChange(target: Target, why: string, next: string): AdoptionError {
  const { declaration, on } = target
  return new AdoptionError(
    'unsupported',
    `"${declaration.name}" of ${tableName(on.table)} cannot be changed by adopt as it is declared now: ${why}. ${next}`,
  )
}

/** Hidden columns of ours are those of another text, which was perhaps renamed, or of one without a guard. */
function refuseForeignWork(target: Target): void {
  const { declaration, state, on, facts } = target
  const check = facts.checks.find(
    ({ name, columns }) =>
      columns.includes(on.table.number) && name !== on.table.check && !name.startsWith(nameOf(on, 'filled_')),
  )
  if (check) {
    throw unsupportedChange(
      target,
      `the check ${quote(check.name)} stands on ${quote(on.table.number)}, as that of a text with guard: false does`,
      'Give it its guard by a migration that changes nothing else.',
    )
  }
  const ours = new Set([on.table.hash, on.table.number, on.table.chained])
  const other = guardNotesOf(state).find(({ hash, number, chained }) =>
    [hash, number, chained].some((name) => ours.has(name)),
  )
  if (!other) return
  throw unsupportedChange(
    target,
    `its hidden columns belong to the guard of "${other.name}"`,
    `Rename "${other.name}" to "${declaration.name}" by a migration that changes nothing else.`,
  )
}

/**
 * The triggers of an adoption would break whatever writes the table, and `abandon` would drop the column.
 *
 * @throws AdoptionError where a column has the name of a hidden one, and cannot be it
 */
export function refuseTaken(target: Target): void {
  const { declaration, state } = target
  const taken = columnDrift(declaration.table, state).find(({ kind }) => kind === 'different')
  if (!taken) return
  const type = state.columns.find(({ name }) => name === taken.name)?.type
  throw unsupportedChange(
    target,
    `the column ${quote(taken.name)} is there already, of type ${type}`,
    'Rename it, or give the hidden column another name by the option "hidden".',
  )
}

function refuseColumns(target: Target, note: GuardNote): void {
  const { on, state, declaration } = target
  const { text, scope, deleted, hash, number, chained, spread } = on.table
  const has = (name: string): boolean => state.columns.some((one) => one.name === name)
  const wanted = [...text.map(({ name }) => name), ...scope, ...(deleted === undefined ? [] : [deleted])]
  const missing = wanted.find((name) => !has(name))
  if (missing !== undefined) {
    throw unsupportedChange(
      target,
      `there is no column ${quote(missing)}`,
      'Add it by a migration of its own, before the text is declared with it.',
    )
  }
  const old = [note.hash, note.number, note.chained]
  const gone = old.find((name) => !has(name))
  if (gone !== undefined) {
    throw unsupportedChange(target, `its guard has lost the column ${quote(gone)}`, 'Run abandon, and adopt it again.')
  }
  const taken = [hash, number, chained].find((name) => has(name) && !old.includes(name))
  if (taken !== undefined) {
    throw unsupportedChange(target, `the column ${quote(taken)} is there already`, 'Rename it.')
  }
  const index = state.indexes.find(
    ({ name, columns }) => name !== note.index && columns.some((one) => old.includes(one)),
  )
  if (index) {
    throw unsupportedChange(
      target,
      `the index ${quote(index.name)} has a hidden column of "${declaration.name}", which would take it along`,
      'Drop it, and make it again afterwards.',
    )
  }
  if (spread !== undefined) throw unsupportedChange(target, 'its table is spread by the hash', 'Use a migration.')
}

/** The guard that stands refuses texts by its own rules. So rows are normalized under the new one. */
function refuseNormalizer(target: Target, note: GuardNote): void {
  const [first] = renormalized(note, target.on.table)
  if (!first) return
  throw unsupportedChange(
    target,
    `${quote(first.column)} has another normalizer too (${first.from}, now ${first.to})`,
    'Adopt it with the normalizer that it had, and then once more with the new one.',
  )
}

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

const NO_TEXTS: ReadonlyMap<string, string> = new Map()

/** All at once, or one by one where the guard refuses one of them. */
export async function writeChanges(run: Run, changes: readonly TextChange[]): Promise<Written> {
  const { session, target } = run
  const [first] = changes
  if (!first) return { rows: 0, refused: NO_TEXTS }
  const texts = target.on.table.text.flatMap((_, index) => [
    changes.map(({ before }) => before[index] ?? null),
    changes.map(({ after }) => after[index] ?? null),
  ])
  try {
    const work = async (): Promise<readonly { written: string }[]> =>
      await session.query<{ written: string }>(renormalize(target.on), [changes.map(({ spot }) => spot), ...texts])
    const [row] = await session.together(work)
    return { rows: Number(row?.written ?? 0), refused: NO_TEXTS }
  } catch (error) {
    if (isBusyError(error)) return { rows: 0, refused: NO_TEXTS }
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
