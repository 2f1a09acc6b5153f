import { sameCondition } from '../sql/alter'
import { type Query, tableState } from '../sql/catalog'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName, textRules } from '../sql/text-table'
import { guardOf } from '../triggers/guard'
import { type AdoptSession, BatchSize, Later } from './session'
import { endFollowing, findFollowing, swapGuards } from './sql/swap'
import {
  addChecks,
  type Adopting,
  ADOPTIONS,
  analyzeTable,
  BY_INDEX,
  conditionOf,
  createAdoptions,
  createIndex,
  createLookup,
  disableTriggers,
  dropIndex,
  endAdoption,
  FIND_KEPT,
  type LockMode,
  requireColumns,
  vacuumTable,
  validateChecks,
} from './sql/table'
import {
  beginAdoption,
  countBytes,
  countPages,
  countQueue,
  createObjects,
  dropNotes,
  dropNumbered,
  fillPages,
  findChains,
  forgetState,
  lockChains,
  noteRefused,
  numberChains,
  type Pages,
  readQueue,
  readState,
  readTexts,
  type Wanted,
  writeNumbers,
  writeState,
  writeTexts,
} from './sql/texts'
import { normalizeTexts, refuseNullRows, type Target } from './target'

/** The steps in their order. An adoption that stopped early continues with the step that it was in. */
export const STEPS = ['begin', 'fill', 'number', 'index', 'check', 'guard', 'clean', 'done'] as const

export type AdoptStep = (typeof STEPS)[number]

/** Whether a step comes after the last one that is to be done. */
export const isPast = (step: AdoptStep, until: AdoptStep | undefined, order: readonly AdoptStep[] = STEPS): boolean =>
  until !== undefined && order.indexOf(step) > order.indexOf(until)

/** How far an adoption has come, as the database keeps it. */
export interface AdoptionState {
  readonly step: AdoptStep
  /** Raised when a later version of this package cannot continue what an earlier version began. */
  readonly format: number
  /** The rules by which rows are written: an adoption with other rules cannot continue. */
  readonly rules: string
  readonly wanted: Wanted
  readonly page: number
  readonly pages: number | null
  /** A guard of another declaration stands beside. @default false */
  readonly swaps?: boolean
}

/** What one step of an adoption would do. */
export interface PlannedStep {
  readonly step: AdoptStep
  /** Which sessions wait while the last statements of the step hold their lock; undefined if none wait. */
  readonly lock: LockMode | undefined
  readonly statements: readonly string[]
}

const FORMAT = 1

/** What the steps say and count. */
export interface AdoptProgress {
  readonly step: AdoptStep
  /** 0 to 1; undefined where nobody knows. */
  readonly fraction: number | undefined
  /** Rows written in this step so far. */
  readonly rows: number
}

/** One run of the command. */
export interface Run {
  readonly session: AdoptSession
  readonly target: Target
  readonly onProgress: (progress: AdoptProgress) => void
  /** Rows that were written, normalized and numbered. */
  readonly counts: { filled: number; normalized: number; numbered: number }
}

export const rulesOf = ({ on: { table }, swap }: Pick<Target, 'on' | 'swap'>): string =>
  JSON.stringify([
    textRules(table, table.digest.name),
    table.deleted,
    table.normalizers,
    ...(swap ? [swap.before.rules] : []),
  ])

export async function stateOf({
  session,
  target,
}: {
  readonly session: { readonly query: Query }
  readonly target: Target
}): Promise<AdoptionState | undefined> {
  return await storedState<AdoptionState>(session.query, target.on)
}

/** How far an adoption has come. @returns undefined where none has begun */
export async function storedState<State>(query: Query, { table }: Pick<Adopting, 'table'>): Promise<State | undefined> {
  const [kept] = (await query(FIND_KEPT, [tableName(table), ADOPTIONS])) as readonly { kept: boolean }[]
  if (kept?.kept !== true) return undefined
  const [row] = (await query(readState(table.schema), [table.guard])) as readonly { state: string }[]
  return row && (JSON.parse(row.state) as State)
}

async function remember({ session, target: { on } }: Run, state: Partial<AdoptionState>): Promise<void> {
  await session.query(writeState(on), [on.table.guard, JSON.stringify(state)])
}

/** Does one step. Each may be done again from its start, and ends with the name of the next in the database. */
export async function doStep(run: Run, state: AdoptionState): Promise<AdoptStep> {
  switch (state.step) {
    case 'begin':
      return await begin(run)
    case 'fill':
      return await fill(run, state)
    case 'number':
      return await number(run)
    case 'index':
      return await index(run)
    case 'check':
      return await check(run)
    case 'guard':
      return await guard(run)
    case 'clean':
    case 'done':
      return await clean(run)
  }
}

async function go(run: Run, step: AdoptStep, more: Partial<AdoptionState> = {}): Promise<AdoptStep> {
  await remember(run, { step, ...more })
  return step
}

/** Columns and transitional triggers: from its commit on every row that is written has its hash. */
async function begin(run: Run): Promise<AdoptStep> {
  const { session, target } = run
  const { on, hidden, state, required, swap } = target
  await refuseNullTexts(run, [...required, ...(swap?.tightened ?? [])])
  await session.all(createAdoptions(on))
  const swaps = swap !== undefined
  await remember(run, { step: 'begin', format: FORMAT, rules: rulesOf(target), ...(swaps ? { swaps } : {}) })
  await session.all(createObjects(on))
  const standing = new Set(state.columns.map(({ name }) => name))
  // Somebody made these columns by hand: what they hold is checked.
  const wanted: Wanted = standing.has(on.table.hash) ? 'wrong' : 'missing'
  await session.locked({ on, step: 'begin', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(beginAdoption(on, hidden, standing))
    await remember(run, { step: 'fill', wanted, page: 0, pages: null })
  })
  return 'fill'
}

async function refuseNullTexts({ session, target }: Run, columns: readonly string[]): Promise<void> {
  const { on, state } = target
  const there = columns.filter((name) => name !== on.table.hash && state.columns.some((one) => one.name === name))
  const todo = 'Give them a value or delete them, or declare the property nullable.'
  await refuseNullRows(session.query, on, there, { todo })
}

/** Sweeps until no row is left: rows that somebody had locked are swept again. */
async function fill(run: Run, state: AdoptionState): Promise<AdoptStep> {
  const { session, target, counts } = run
  let { wanted, page, pages } = state
  for (let sweeps = 1; ; sweeps += 1) {
    const sweep = { wanted, page, pages: pages ?? (await pagesOf(session, target)) }
    const before = counts.filled
    const filled = await sweepPages(session, target, sweep, ({ written }, next) => {
      counts.filled = before + written
      run.onProgress({ step: 'fill', fraction: next / Math.max(sweep.pages, 1), rows: counts.filled })
    })
    counts.normalized += filled.normalized
    await session.query(vacuumTable(target.on))
    if (filled.seen === filled.written && sweep.page === 0) return await go(run, 'number')
    if (filled.written === 0) await session.rest(sweeps)
    ;[page, pages] = [0, null]
    await remember(run, { page, pages })
  }
}

/** Rows of equal hash get numbers 0, 1, 2 …, duplicates too: so the index cannot fail. */
async function number(run: Run): Promise<AdoptStep> {
  const { session, target, counts } = run
  await session.all(findChains(target.on))
  counts.numbered += await settleNumbers(session, target)
  return await go(run, 'index')
}

async function index(run: Run): Promise<AdoptStep> {
  const { session, target } = run
  const { on, declaration } = target
  run.onProgress({ step: 'index', fraction: undefined, rows: 0 })
  try {
    if (!(await hasUniqueIndex(run))) {
      await session.query(dropIndex(on, on.table.index))
      await session.query(createIndex(on))
    }
  } catch (error) {
    const code = serverError(error)?.code
    if (code !== SQLSTATE.uniqueViolation && code !== SQLSTATE.deadlockDetected) throw error
    await session.query(dropIndex(on, on.table.index))
    // Somebody wrote numbers by hand.
    return code === SQLSTATE.uniqueViolation ? await go(run, 'number') : 'index'
  }
  if (declaration.lookup !== undefined) await makeLookup(run, declaration.lookup)
  return await go(run, 'check')
}

async function stateNow({ session, target: { on } }: Run): Promise<Target['state'] | null> {
  const { table } = await tableState(session.query, tableName(on.table), [guardOf(on.table)])
  return table
}

async function hasUniqueIndex(run: Run): Promise<boolean> {
  const { on } = run.target
  const found = (await stateNow(run))?.indexes.find(({ name }) => name === on.table.index)
  const columns = [...on.table.scope, on.table.hash, on.table.number]
  return (
    found?.valid === true &&
    found.unique &&
    sameCondition(conditionOf(on), found.condition) &&
    JSON.stringify(found.columns) === JSON.stringify(columns)
  )
}

async function makeLookup(run: Run, name: string): Promise<void> {
  const found = (await stateNow(run))?.indexes.find((one) => one.name === name)
  if (found?.valid === true) return
  await run.session.query(dropIndex(run.target.on, name))
  for (const statement of createLookup(run.target.on, name)) await run.session.query(statement)
}

/** Added as NOT VALID, validated in one scan that blocks nobody, and then required. */
async function check(run: Run): Promise<AdoptStep> {
  const { session, target } = run
  const { on } = target
  const required = await stillNullable(run)
  const hasCheck = (await stateNow(run))?.checks.some(({ name }) => name === on.table.check) === true
  const added = addChecks(on, required, !hasCheck)
  if (added.length > 0)
    await session.locked({ on, step: 'check', mode: 'ACCESS EXCLUSIVE' }, async () => await session.all(added))
  run.onProgress({ step: 'check', fraction: undefined, rows: 0 })
  try {
    await session.query(validateChecks(on, required))
  } catch (error) {
    if (serverError(error)?.code !== SQLSTATE.checkViolation) throw error
    await refuseNullTexts(run, required)
    // A row without its hash, or with another one: written past the triggers.
    return await go(run, 'fill', { wanted: 'wrong', page: 0, pages: null })
  }
  const statements = requireColumns(on, required)
  if (statements.length === 0) return await go(run, 'guard')
  await session.locked({ on, step: 'require', mode: 'ACCESS EXCLUSIVE' }, async () => {
    for (const statement of statements) await session.query(statement)
    await go(run, 'guard')
  })
  return 'guard'
}

/** The columns that are still nullable and should not be. */
async function stillNullable(run: Run): Promise<readonly string[]> {
  const columns = (await stateNow(run))?.columns ?? []
  return run.target.required.filter((name) => columns.some((one) => one.name === name && one.nullable))
}

/** From the commit of its last transaction on no text is stored that stands there. */
async function guard(run: Run): Promise<AdoptStep> {
  const { session, target } = run
  const { on, swap } = target
  await refuseNullTexts(run, swap?.tightened ?? [])
  await forgetNumbered(session, target)
  const work = async (inTime: () => void): Promise<void> => {
    await settleRest(session, target)
    inTime()
    await session.all(swap ? swapGuards(on, swap) : [...guardOf(on.table).create, disableTriggers(on)])
    await go(run, 'clean', swap ? { rules: rulesOf({ on: swap.final }), swaps: false } : {})
  }
  const prepare = async (): Promise<void> => await settleMost(run)
  const mode = swap ? 'ACCESS EXCLUSIVE' : 'SHARE ROW EXCLUSIVE'
  await session.locked({ on, step: 'guard', mode, prepare }, work)
  return 'clean'
}

/** Settles what clients wrote until so little is left that the lock has time for it. */
async function settleMost({ session, target, onProgress }: Run): Promise<void> {
  let before = Infinity
  for (let rounds = 1; ; rounds += 1) {
    const stuck = await settleAll(session, target)
    const left = await notesLeft(session, target, MOST_NOTES + 1)
    onProgress({ step: 'guard', fraction: undefined, rows: left })
    if (stuck === 0 && (left <= LAST_NOTES || (left >= before && left <= MOST_NOTES))) return
    before = left
    if (stuck > 0) await session.rest(rounds)
  }
}

async function clean(run: Run): Promise<AdoptStep> {
  const { session, target } = run
  const { on } = target
  const required = await requireLate(run)
  await session.locked({ on, step: 'clean', mode: 'ACCESS EXCLUSIVE' }, async () => {
    for (const statement of requireColumns(on, required)) await session.query(statement)
    await session.all(endAdoption(on))
    await session.query(forgetState(on), [on.table.guard])
  })
  await session.query(analyzeTable(on))
  return 'done'
}

/**
 * What the old declaration allowed until its guard went: no row with NULL is written any more, and those that are there
 * stop the command.
 *
 * @returns the columns, each with a valid check
 */
async function requireLate(run: Run): Promise<readonly string[]> {
  const { session, target } = run
  const { on } = target
  const required = await stillNullable(run)
  if (required.length === 0) return required
  await session.locked({ on, step: 'check', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(addChecks(on, required, false))
  })
  for (;;) {
    try {
      await session.query(validateChecks(on, required))
      return required
    } catch (error) {
      if (serverError(error)?.code !== SQLSTATE.checkViolation) throw error
      await refuseNullTexts(run, required)
    }
  }
}

/** Takes away what a command that follows needs, where it is there: such a command was killed. */
export async function stopFollowing(session: AdoptSession, { on }: Pick<Target, 'on'>): Promise<void> {
  const [row] = await session.query<{ found: boolean }>(findFollowing(on))
  if (row?.found !== true) return
  await session.locked({ on, step: 'follow', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(endFollowing(on))
  })
}

const FIRST_ROWS = 200
const LEAST_ROWS = 20

/** So few notes that the last transaction, which holds the lock, settles them at once. */
const LAST_NOTES = 20
/** As many notes as there may still be time for, if clients write as quickly as notes are settled. */
const MOST_NOTES = 200

type Numbered = Readonly<Record<'last' | 'seen' | 'written', string | null>>

/** Numbers the rows that wait in the table of work: 0, 1, 2 … within each chain, duplicates too. */
async function settleNumbers(session: AdoptSession, { on }: Target): Promise<number> {
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS)
  let [last, numbered, stuck] = ['0', 0, 0]
  for (let rounds = 1; ;) {
    const started = performance.now()
    const [row] = await session.patiently(
      'number',
      async () => await session.query<Numbered>(numberChains(on), [last, size.value]),
    )
    const [seen, written] = [Number(row?.seen ?? 0), Number(row?.written ?? 0)]
    if (seen > 0) size.took(performance.now() - started, seen)
    numbered += written
    stuck += seen - written
    if (seen > 0) last = row?.last ?? last
    else if (stuck === 0) return numbered
    else {
      await session.rest(rounds)
      rounds += 1
      ;[last, stuck] = ['0', 0]
    }
    await session.breathe()
  }
}

/** By the unique index, which is not there while they are made. */
async function forgetNumbered(session: AdoptSession, { on }: Target): Promise<void> {
  await session.patiently('index', async () => await session.query(dropNumbered(on)))
}

/** How many notes there are, of which at most so many are counted. */
async function notesLeft(session: AdoptSession, { on }: Target, limit: number): Promise<number> {
  const [row] = await session.query<{ notes: string }>(countQueue(on), [limit])
  return Number(row?.notes ?? 0)
}

/**
 * Goes once through the notes that there are now. Notes that come meanwhile wait for the next round, or it would follow
 * its clients for ever.
 *
 * @returns how many chains somebody else had locked
 */
async function settleAll(session: AdoptSession, target: Target): Promise<number> {
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS)
  let stuck = 0
  for (let last = '0'; ;) {
    const wanted = size.value
    const notes = await notesAfter(session, target, last, wanted)
    if (notes.length === 0) return stuck
    const started = performance.now()
    stuck += await session.patiently('number', async () => await settleNotes(session, target, notes))
    size.took(performance.now() - started, notes.length)
    if (notes.length < wanted) return stuck
    last = notes.at(-1) ?? last
    await session.breathe()
  }
}

/** Settles all notes that are left, under the lock of the transaction. @throws Later if it cannot be done now */
async function settleRest(session: AdoptSession, target: Target): Promise<void> {
  await session.query(BY_INDEX)
  // A text that is normalized moves to another chain, which is noted.
  for (let round = 0; round < 3; round += 1) {
    const notes = await notesAfter(session, target, '0', MOST_NOTES + 1)
    if (notes.length === 0) return
    if (notes.length > MOST_NOTES || (await settleNotes(session, target, notes)) > 0) break
  }
  throw new Later('There is more to do than the lock has time for.')
}

async function notesAfter(session: AdoptSession, { on }: Target, last: string, limit: number): Promise<string[]> {
  const notes = await session.query<{ seq: string }>(readQueue(on), [last, limit])
  return notes.map(({ seq }) => seq)
}

/** A row of a chain as it is read, locked; one that somebody else has locked has no spot. */
type ChainRow = Readonly<Record<string, string | null>>

/** What to write into the rows of some chains. */
interface Writes {
  readonly numbers: { readonly spot: string; readonly number: number; readonly chained: boolean }[]
  readonly texts: { readonly spot: string; readonly texts: readonly (string | null)[] }[]
  readonly refused: { readonly spot: string; readonly reason: string }[]
}

/** @returns how many chains are left as they are, because somebody has a row of theirs locked */
async function settleNotes(session: AdoptSession, target: Target, notes: readonly string[]): Promise<number> {
  const { on } = target
  const chains = new Map<string, ChainRow[]>()
  for (const row of await session.query<ChainRow>(lockChains(on), [notes])) {
    const chain = row['chain'] ?? ''
    chains.set(chain, [...(chains.get(chain) ?? []), row])
  }
  const writes: Writes = { numbers: [], texts: [], refused: [] }
  const stuck: string[] = []
  for (const [chain, rows] of chains) {
    if (rows.some(({ spot }) => spot === null) || !planChain(target, rows, writes)) stuck.push(chain)
  }
  await writeChain(session, target, writes)
  await session.query(dropNotes(on), [notes, stuck])
  return stuck.length
}

async function writeChain(session: AdoptSession, target: Target, { numbers, texts, refused }: Writes): Promise<void> {
  const { on } = target
  await reportRefused(session, target, refused)
  if (texts.length > 0) {
    const columns = on.table.text.map((_, index) => texts.map((one) => one.texts[index] ?? null))
    await session.query(writeTexts(on), [texts.map(({ spot }) => spot), ...columns])
  }
  if (numbers.length === 0) return
  const of = <T>(member: (one: Writes['numbers'][number]) => T): T[] => numbers.map(member)
  await session.query(writeNumbers(on), [of((one) => one.spot), of((one) => one.number), of((one) => one.chained)])
}

/**
 * Texts that are not normalized leave the chain; of the rest the first is the anchor, and each has a number.
 *
 * @returns false where the chain has to be read again: the anchor leaves rows behind that were not read
 */
function planChain(target: Target, rows: readonly ChainRow[], writes: Writes): boolean {
  const staying = rows.filter((row) => !leaves(target, row, writes))
  const highest = Number(rows[0]?.['highest'])
  const unread = highest > Number(rows[0]?.['number'])
  if (unread && staying[0] !== rows[0]) return false
  let next = Math.max(0, highest) + 1
  for (const [position, row] of staying.entries()) {
    const had = Number(row['number'])
    const number = position === 0 ? 0 : next++
    const chained = position === 0 && (staying.length > 1 || unread)
    const same = number === had && chained === (row['chained'] === 'yes')
    if (!same) writes.numbers.push({ spot: row['spot'] ?? '', number, chained })
  }
  return true
}

function leaves(target: Target, row: ChainRow, { texts, refused }: Writes): boolean {
  if (!target.normalizes) return false
  const spot = row['spot'] ?? ''
  const normalized = normalizeTexts(target.declaration, readTextsOf(target, row))
  if ('refused' in normalized) refused.push({ spot, reason: normalized.refused })
  else if (normalized.changed) texts.push({ spot, texts: normalized.texts })
  return 'changed' in normalized && normalized.changed
}

/** How far a sweep over the table's pages has come. */
interface Sweep {
  readonly wanted: Wanted
  /** Number of the next page to read. */
  readonly page: number
  /** How many pages the table had when the sweep began; rows of later pages bring their hashes. */
  readonly pages: number
}

/** Rows of one batch as they were read. */
type StoredTexts = Readonly<Record<string, string | null>> & { readonly spot: string }

/** What became of the rows of some pages: a row that somebody had locked was seen and not written. */
interface Filled {
  readonly seen: number
  readonly written: number
  readonly normalized: number
}

/** Committing the rows of one page costs more than writing them. */
const LEAST_SWEPT_PAGES = 16
/** How often a sweep frees the space of old row versions for new ones: otherwise the heap would double. */
const VACUUMS = 4
const VACUUM_LEAST_PAGES = 1_000

const NOTHING: Filled = { seen: 0, written: 0, normalized: 0 }

const sum = (one: Filled, other: Filled): Filled => ({
  seen: one.seen + other.seen,
  written: one.written + other.written,
  normalized: one.normalized + other.normalized,
})

export async function pagesOf(session: AdoptSession, { on }: Target): Promise<number> {
  const [row] = await session.query<{ pages: string }>(countPages(on))
  return Number(row?.pages ?? 0)
}

/**
 * Gives all rows that stand in these pages their hashes, batch by batch.
 *
 * @param onBatch notified after each, with the rows so far and the page that comes next
 */
async function sweepPages(
  session: AdoptSession,
  target: Target,
  sweep: Sweep,
  onBatch: (filled: Filled, page: number) => void,
): Promise<Filled> {
  const size = new BatchSize(session.manners.batch, LEAST_SWEPT_PAGES, LEAST_SWEPT_PAGES)
  const vacuumed = Math.max(VACUUM_LEAST_PAGES, Math.ceil(sweep.pages / VACUUMS))
  let all = NOTHING
  for (let page = sweep.page; page < sweep.pages;) {
    const to = Math.min(page + size.value, sweep.pages)
    const started = performance.now()
    for await (const part of partsOf(session, target, { from: page, to }, sweep.wanted)) {
      all = sum(all, await fillBatch(session, target, sweep, part))
    }
    size.took(performance.now() - started, to - page)
    if (Math.floor(to / vacuumed) > Math.floor(page / vacuumed)) await session.query(vacuumTable(target.on))
    page = to
    onBatch(all, page)
    await session.breathe()
  }
  return all
}

/** So many bytes of texts are read at once. As parameters they are there several times over, with what they become. */
const MOST_BYTES = 16e6
/** More than a page has. */
const LINES = 2_048

/** Parts of these pages, each with few enough bytes of texts to be read, or a row: rows move as they are written. */
export async function* partsOf(
  session: AdoptSession,
  target: Target,
  pages: Pages,
  wanted: Wanted,
): AsyncGenerator<Pages, void, undefined> {
  const { from, to, lines: [first, last] = [0, LINES] } = pages
  if (!target.normalizes || last - first === 1 || (await bytesOf(session, target, pages, wanted)) <= MOST_BYTES) {
    yield pages
    return
  }
  const [middle, line] = [Math.ceil((from + to) / 2), Math.ceil((first + last) / 2)]
  const halves: readonly Pages[] =
    to - from > 1
      ? [
          { from, to: middle },
          { from: middle, to },
        ]
      : [
          { from, to, lines: [first, line] },
          { from, to, lines: [line, last] },
        ]
  for (const half of halves) yield* partsOf(session, target, half, wanted)
}

async function bytesOf(session: AdoptSession, { on }: Target, pages: Pages, wanted: Wanted): Promise<number> {
  const [row] = await session.query<{ bytes: string }>(countBytes(on, pages, wanted))
  return Number(row?.bytes ?? 0)
}

async function fillBatch(session: AdoptSession, target: Target, sweep: Sweep, part: Pages): Promise<Filled> {
  const { on, normalizes } = target
  const { wanted, pages } = sweep
  const changes = normalizes ? await readChanges(session, target, part, wanted) : []
  const stored = JSON.stringify({ wanted, page: part.lines ? part.from : part.to, pages })
  const [row] = await session.query<Record<'seen' | 'written', string>>(
    fillPages(on, part, wanted, changes.length > 0),
    [on.table.guard, stored, ...columnsOf(target, changes)],
  )
  return { seen: Number(row?.seen ?? 0), written: Number(row?.written ?? 0), normalized: changes.length }
}

interface TextChange {
  readonly spot: string
  readonly before: readonly (string | null)[]
  readonly after: readonly (string | null)[]
}

/** Spots, then old and new texts of each column; nothing where there are no changes. */
function columnsOf({ on }: Target, changes: readonly TextChange[]): unknown[] {
  if (changes.length === 0) return []
  const texts = on.table.text.flatMap((_, index) => [
    changes.map(({ before }) => before[index] ?? null),
    changes.map(({ after }) => after[index] ?? null),
  ])
  return [changes.map(({ spot }) => spot), ...texts]
}

async function readChanges(session: AdoptSession, target: Target, pages: Pages, wanted: Wanted): Promise<TextChange[]> {
  const rows = await session.query<StoredTexts>(readTexts(target.on, pages, wanted))
  const changes: TextChange[] = []
  const refused: { readonly spot: string; readonly reason: string }[] = []
  for (const row of rows) {
    const before = readTextsOf(target, row)
    const normalized = normalizeTexts(target.declaration, before)
    if ('refused' in normalized) refused.push({ spot: row.spot, reason: normalized.refused })
    else if (normalized.changed) changes.push({ spot: row.spot, before, after: normalized.texts })
  }
  await reportRefused(session, target, refused)
  return changes
}

/** The texts of a row that was read as `c0`, …. */
export const readTextsOf = ({ on }: Target, row: Readonly<Record<string, string | null>>): (string | null)[] =>
  on.table.text.map((_, index) => row[`c${index}`] ?? null)

async function reportRefused(
  session: AdoptSession,
  { on }: Target,
  refused: readonly { readonly spot: string; readonly reason: string }[],
): Promise<void> {
  if (refused.length === 0) return
  await session.query(noteRefused(on), [refused.map(({ spot }) => spot), refused.map(({ reason }) => reason)])
}
