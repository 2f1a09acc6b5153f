import { AdoptionError } from '../adopt/error'
import { stepsOf } from '../adopt/plan'
import { guardedAs } from '../adopt/renormalize'
import { type PlannedStep, stateOf } from '../adopt/steps'
import { targetOf } from '../adopt/swap'
import { findTarget, requireAdoptable } from '../adopt/target'
import { type FindWork, workState } from '../adopt/work'
import { UnsupportedDatabaseError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { findDrift } from '../schema/drift'
import type { Declaration } from '../registry/registry'
import { type DoctorFinding, findingOf, type Place } from './findings'
import type { Subject } from './subject'

/** A lock of `adopt` that stops readers or writers. */
export interface DoctorLock {
  /** As `adopt --until` has it. */
  readonly step: string
  readonly mode: 'ACCESS EXCLUSIVE' | 'SHARE ROW EXCLUSIVE'
}

/** What bringing a text under the guard would take. */
export interface DoctorAdoption {
  /** The step that comes next. */
  readonly step: string
  readonly locks: readonly DoctorLock[]
}

/** @returns undefined where the guard of the declaration stands, or `adopt` does not take the table */
export async function adoptionOf(
  { state, reader }: Subject,
  declaration: Declaration,
): Promise<DoctorAdoption | undefined> {
  const drift = findDrift(declaration.table, state)
  if (drift.length === 0) return undefined
  const lacks = drift.some(({ object, kind }) => kind === 'missing' && (object === 'column' || object === 'guard'))
  try {
    const found = await findTarget(declaration, reader.query)
    if (!lacks && guardedAs(found) !== 'other') return undefined
    const target = targetOf(found)
    const step = await stepOr('begin', async () => (await stateOf({ session: reader, target }))?.step)
    return { step, locks: locksFrom(stepsOf(target), step) }
  } catch (error) {
    if (error instanceof AdoptionError || error instanceof UnsupportedDatabaseError) return undefined
    throw error
  }
}

/** @returns undefined where nothing is missing, or `adopt` does not take the table */
export async function adoptionOfWork({ reader }: Subject, find: FindWork): Promise<DoctorAdoption | undefined> {
  try {
    const work = await find(reader.query)
    if (work.stands === 'ready' || work.stands === 'other') return undefined
    requireAdoptable(work.facts, tableName(work.on.table))
    const step = await stepOr('begin', async () => (await workState(reader.query, work))?.step)
    return { step, locks: locksFrom(work.plan(), step) }
  } catch (error) {
    if (error instanceof AdoptionError || error instanceof UnsupportedDatabaseError) return undefined
    throw error
  }
}

const locksFrom = (steps: readonly PlannedStep[], from: string): DoctorLock[] =>
  steps
    .slice(steps.findIndex(({ step }) => step === from))
    .flatMap(({ step, lock }) => (lock === undefined ? [] : [{ step, mode: lock }]))

/** A role that may not read how far an adoption is hears of all of it. */
async function stepOr(step: string, read: () => Promise<string | undefined>): Promise<string> {
  try {
    return (await read()) ?? step
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return step
    throw error
  }
}

const MEGABYTE = 1e6

/** An adoption that is not done, as findings. */
export function findingsOfAdoption(
  { step, locks }: DoctorAdoption,
  place: Place,
  { rows, heapBytes }: { readonly rows: number; readonly heapBytes: number },
  code: 'text.unadopted' | 'names.unadopted' | 'number.unadopted' = 'text.unadopted',
): DoctorFinding[] {
  const named = locks.map(({ step, mode }) => `${step} ${mode}`).join(', ') || 'none'
  const size = `${Math.ceil(heapBytes / MEGABYTE)} MB`
  return [
    findingOf(code, place, { count: rows, detail: `next step ${step}; short locks: ${named}` }),
    findingOf('disk.needed', place, { count: 1, detail: `up to ${size} for new versions of rows, and the index` }),
  ]
}

/** Unique indexes of the user's over a text that `adopt` would normalize into another row's: it stops there. */
export function findingsOfIndexes(
  { indexes }: Subject['state'],
  { table }: Declaration,
  place: Place,
  found: readonly DoctorFinding[],
): DoctorFinding[] {
  if (found.every(({ code }) => code !== 'text.twiceNormalized')) return []
  const texts: readonly unknown[] = table.text.map(({ name }) => name)
  const names = indexes
    .filter(({ unique, name, columns }) => unique && name !== table.index && texts.some((one) => has(columns, one)))
    .map(({ name }) => name)
  return names.length === 0 ? [] : [findingOf('index.user', place, { count: names.length, detail: names.join(', ') })]
}

/** An index over nothing but expressions has no columns. */
const has = (columns: readonly unknown[] | null, name: unknown): boolean => columns?.includes(name) === true
