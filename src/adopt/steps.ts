import {
  addChecks,
  type Adopting,
  analyzeTable,
  vacuumTable,
  conditionOf,
  createAdoptions,
  createIndex,
  createLookup,
  disableTriggers,
  dropIndex,
  endAdoption,
  type LockMode,
  requireColumns,
  validateChecks,
} from '../sql/adopt-table'
import { beginAdoption, createObjects } from '../triggers/adopt-triggers'
import { textRules } from '../sql/text-table'
import { findChains, forgetState, readState, writeState } from '../sql/adopt-chains'
import { type Wanted } from '../sql/adopt-fill'
import { swapGuards } from '../triggers/adopt-swap'
import { endFollowing, findFollowing } from '../triggers/adopt-follow'
import { sameCondition } from '../sql/alter'
import { type Query, tableState } from '../sql/catalog'
import { guardOf } from '../triggers/guard'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { forgetNumbered, LAST_NOTES, MOST_NOTES, notesLeft, settleAll, settleNumbers, settleRest } from './chains'
import type { AdoptSession } from './session'
import { pagesOf, sweepPages } from './sweep'
import { refuseNullRows, type Target } from './target'

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
  try {
    const [row] = (await query(readState(table.schema), [table.guard])) as readonly { state: string }[]
    return row && (JSON.parse(row.state) as State)
  } catch (error) {
    // No table has been adopted in this schema.
    if (serverError(error)?.code === SQLSTATE.undefinedTable) return undefined
    throw error
  }
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
    if (!(await hasIndex(run))) {
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

async function hasIndex(run: Run): Promise<boolean> {
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
