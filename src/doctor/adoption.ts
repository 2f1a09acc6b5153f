import { AdoptionError } from '../adopt/error'
import { stepsOf } from '../adopt/plan'
import { stateOf } from '../adopt/steps'
import { guardedAs } from '../adopt/renormalize'
import { targetOf } from '../adopt/swap'
import { findTarget, type Target } from '../adopt/target'
import { UnsupportedDatabaseError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { findDrift } from '../typeorm/drift'
import type { Declaration } from '../typeorm/registry'
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
    const step = await nextStep(reader, target)
    const steps = stepsOf(target)
    const left = steps.slice(steps.findIndex((one) => one.step === step))
    return { step, locks: left.flatMap(({ step, lock }) => (lock === undefined ? [] : [{ step, mode: lock }])) }
  } catch (error) {
    if (error instanceof AdoptionError || error instanceof UnsupportedDatabaseError) return undefined
    throw error
  }
}

/** A role that may not read how far an adoption is hears of all of it. */
async function nextStep({ query }: Subject['reader'], target: Target): Promise<string> {
  try {
    return (await stateOf({ session: { query }, target }))?.step ?? 'begin'
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return 'begin'
    throw error
  }
}

const MEGABYTE = 1e6

/** The same in words. */
export function findingsOfAdoption(
  { step, locks }: DoctorAdoption,
  place: Place,
  { rows, heapBytes }: { readonly rows: number; readonly heapBytes: number },
): DoctorFinding[] {
  const named = locks.map(({ step, mode }) => `${step} ${mode}`).join(', ')
  const size = `${Math.ceil(heapBytes / MEGABYTE)} MB`
  return [
    findingOf('text.unadopted', place, { count: rows, detail: `next step ${step}; short locks: ${named}` }),
    findingOf('disk.needed', place, { count: 1, detail: `up to ${size} for new versions of rows, and the index` }),
  ]
}
