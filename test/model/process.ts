/** Where a process stands, and a turn: one process's step on a copy of the state. */
import type { Fault } from './faults'
import { FINISHED, type Part, type Script } from './script'
import type { Row } from './state'

/** What the process does next. Each is one query or one write, atomic but for its waits. */
export const STEPS = [
  'start',
  'find',
  'insert.index',
  'delete.row',
  'update.row',
  'update.write',
  'update.index',
  'place.read',
  'place.lock',
  'place.readAgain',
  'settle.anchor',
  'settle.compare',
  'settle.index',
  'end',
] as const

export type Step = (typeof STEPS)[number]

/** A queued AFTER trigger. */
export interface Event {
  readonly chain: number
  /** NEW's number, for a touch; OLD's, which is 0, for a promotion. */
  readonly number: number
}

export const isTouch = ({ number }: Event): boolean => number > 0

export interface ProcessFields {
  readonly script: Script
  readonly step: Step
  /** Index of the part of the statement that runs. */
  readonly part: number
  /** Holds the transaction's snapshot (RR) or the client statement's (RC). */
  readonly holdsStatement: boolean
  /** Holds the snapshot of a query inside a trigger function, which waits (RC). */
  readonly holdsQuery: boolean
  readonly inSavepoint: boolean
  /** The pass of find-or-create. */
  readonly round: number
  /** The pass of the loop in `place`. */
  readonly loop: number
  /** Variables of the procedures: the number placed, and the flag that goes with it. */
  readonly number: number
  readonly flag: boolean
  readonly events: readonly Event[]
}

export interface Process extends ProcessFields {
  /** All fields, packed: an arbitrary order of processes. */
  readonly order: number
  readonly key: string
}

export interface State {
  readonly rows: readonly Row[]
  readonly processes: readonly Process[]
}

/** One step of process `me` on a copy of the state, which the step changes. */
export interface Turn {
  rows: Row[]
  readonly processes: Process[]
  readonly me: number
  readonly fault: Fault | undefined
  /** A fault seen in the step itself; the checker adds what it sees in the rows. */
  violation: string | undefined
  committed: boolean
  failed: string | undefined
}

const STEP_INDEX = new Map(STEPS.map((step, index) => [step, index]))

/** Everything but the script, in 31 bits. */
function code(fields: ProcessFields): number {
  const { step, part, holdsStatement, holdsQuery, inSavepoint, round, loop, number, flag, events } = fields
  const small = part <= 3 && number <= 7 && round <= 7 && loop <= 7
  if (!small || events.length > 3 || events.some((each) => each.number > 6))
    throw new RangeError('the model is too small')
  const flags = Number(holdsStatement) | (Number(holdsQuery) << 1) | (Number(inSavepoint) << 2)
  let bits = (STEP_INDEX.get(step) ?? 0) | (part << 4) | (flags << 6) | (number << 9) | (round << 12) | (loop << 15)
  bits |= Number(flag) << 18
  let shift = 19
  for (const each of events) {
    bits |= ((each.number + 1) | (each.chain << 3)) << shift
    shift += 4
  }
  return bits
}

const interned: Map<number, Process>[] = []

/** The one object for these fields. */
export function process(fields: ProcessFields): Process {
  const { script, step, part, holdsStatement, holdsQuery, inSavepoint, round, loop, number, flag, events } = fields
  const bits = code(fields)
  const ofScript = (interned[script.id] ??= new Map<number, Process>())
  const known = ofScript.get(bits)
  if (known !== undefined) return known
  const key = String.fromCharCode(bits & 0x7fff, bits >>> 15, script.id)
  const order = script.id * 0x8000_0000 + bits
  const flags = { holdsStatement, holdsQuery, inSavepoint, flag }
  const made = { script, step, part, ...flags, round, loop, number, events, order, key }
  ofScript.set(bits, made)
  return made
}

/** The process whose key these three characters are. */
export function processOf(key: string): Process {
  const known = interned[key.charCodeAt(2)]?.get(key.charCodeAt(0) | (key.charCodeAt(1) << 15))
  if (known === undefined) throw new TypeError('not the key of a process')
  return known
}

const FRESH: Omit<ProcessFields, 'script'> = {
  step: 'start',
  part: 0,
  holdsStatement: false,
  holdsQuery: false,
  inSavepoint: false,
  round: 0,
  loop: 0,
  number: 0,
  flag: false,
  events: [],
}

/** A fresh start at a statement: no variable of the last one survives, but for what is kept. */
export function begin(script: Script, keep: Partial<ProcessFields> = {}): Process {
  return process({ ...FRESH, ...keep, script })
}

export function isFinished(of: Process): boolean {
  return of.script === FINISHED
}

export function self(turn: Turn): Process {
  const own = turn.processes[turn.me]
  if (own === undefined) throw new RangeError(`no process ${turn.me}`)
  return own
}

export function set(turn: Turn, patch: Partial<ProcessFields>): void {
  turn.processes[turn.me] = process({ ...self(turn), ...patch })
}

export function go(turn: Turn, step: Step, patch: Partial<ProcessFields> = {}): void {
  set(turn, { step, ...patch })
}

/** Find-or-create asks in turn: by hash and number 0, in the chain, and in the chain with an error (see its file). */
export const PASSES = 3

/** The part that runs. */
export function currentPart(of: Process): Part {
  const { statement } = of.script
  if (typeof statement === 'string') throw new TypeError(`no part in ${statement}`)
  if (statement.kind === 'findOrCreate') {
    const { text, chain } = statement
    const pass = of.round % PASSES
    return {
      kind: 'insert',
      text,
      becomes: text,
      chain,
      fast: pass === 0,
      onConflict: pass === 2 ? 'error' : 'nothing',
    }
  }
  const part = statement.kind === 'write' ? statement.parts[of.part] : undefined
  if (part === undefined) throw new TypeError(`no part ${of.part} in ${statement.kind}`)
  return part
}
