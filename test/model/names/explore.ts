/** Breadth-first search over every state that can be reached from one start. */
import {
  abort,
  commit,
  Failure,
  hasWritten,
  self,
  set,
  Violation,
  Wait,
  type Process,
  type Program,
  type Row,
  type State,
  type Step,
  type Turn,
} from './heap'
import { brokenBy } from './properties'
import { run } from './statements'

export interface Result {
  readonly states: number
  readonly transitions: number
  readonly depth: number
  readonly deadlocks: number
  readonly violation: string | undefined
  /** The steps to it. */
  readonly trace: readonly string[]
}

export interface Options {
  readonly fault?: string | undefined
  /** Whether a deadlock that Postgres ends is one too many. */
  readonly deadlocks: 'none' | 'possible'
}

interface Move {
  readonly turn: Turn
  readonly name: string
  readonly violation?: string | undefined
}

/** The program of the statement, played up to its next step. */
function resume(turn: Turn): { readonly program: Program; readonly next: Step | undefined } {
  const { statements, at, answers } = self(turn)
  const statement = statements[at]
  if (statement === undefined) throw new RangeError('all statements have run')
  const program = run(statement)
  let { value, done } = program.next()
  for (const answer of answers) ({ value, done } = program.next(answer))
  return { program, next: done ? undefined : (value as Step) }
}

const turnOf = ({ rows, processes, committed }: State, me: number, fault: string | undefined): Turn => ({
  rows: [...rows],
  processes: [...processes],
  committed,
  me,
  fault,
})

function runStep(turn: Turn): string | Wait {
  const { program, next } = resume(turn)
  const answer = next?.(turn)
  if (answer instanceof Wait) return answer
  const { answers, at, statements } = self(turn)
  const isLast = program.next(answer).done === true
  set(turn, isLast ? { at: at + 1, answers: [] } : { answers: [...answers, answer] })
  return `${statements[at]?.kind ?? ''} ${answers.length}: ${JSON.stringify(answer)}`
}

/** The next step of a process; or who must end first. */
function move(state: State, me: number, fault: string | undefined): Move | Wait {
  const turn = turnOf(state, me, fault)
  const { at, statements } = self(turn)
  try {
    if (at === statements.length) {
      commit(turn)
      return { turn, name: 'COMMIT', violation: brokenBy(state, turn, statements) }
    }
    const done = runStep(turn)
    return done instanceof Wait ? done : { turn, name: done }
  } catch (error) {
    if (error instanceof Violation) return { turn, name: 'violation', violation: error.message }
    if (!(error instanceof Failure)) throw error
    return { turn: rollback(state, me, fault), name: error.message }
  }
}

function rollback(state: State, me: number, fault: string | undefined): Turn {
  const turn = turnOf(state, me, fault)
  abort(turn)
  return turn
}

/** All processes on a cycle of waits. */
function deadlocked(waits: readonly (readonly number[])[]): number[] {
  return waits.flatMap((first, start) => {
    const reached = new Set(first)
    for (const one of reached) for (const other of waits[one] ?? []) reached.add(other)
    return reached.has(start) ? [start] : []
  })
}

function movesFrom(state: State, { fault, deadlocks }: Options): { moves: Move[]; deadlock: boolean } {
  const moves: Move[] = []
  const rollbacks: Move[] = []
  const waits: (readonly number[])[] = state.processes.map(() => [])
  for (const [me, { ended }] of state.processes.entries()) {
    if (ended) continue
    const made = move(state, me, fault)
    if (made instanceof Wait) waits[me] = made.processes
    else moves.push(made)
    if (hasWritten(state, me)) rollbacks.push({ turn: rollback(state, me, fault), name: 'ROLLBACK' })
  }
  const cycle = deadlocked(waits)
  const violation = deadlocks === 'none' ? 'a deadlock' : undefined
  for (const me of cycle) moves.push({ turn: rollback(state, me, fault), name: 'deadlock', violation })
  if (moves.length === 0 && state.processes.some(({ ended }) => !ended)) {
    moves.push({ turn: turnOf(state, 0, fault), name: 'stuck', violation: 'a deadlock that nobody sees' })
  }
  return { moves: [...moves, ...rollbacks], deadlock: cycle.length > 0 }
}

/** What has not changed is the same object from one state to the next. */
function remembered<T extends object>(make: (of: T) => string): (of: T) => string {
  const known = new WeakMap<T, string>()
  return (of) => {
    const found = known.get(of)
    if (found !== undefined) return found
    const made = make(of)
    known.set(of, made)
    return made
  }
}

const rowKey = remembered<Row>((row) => JSON.stringify(row))
const processKey = remembered<Process>(({ at, answers, command, snapshot, ended }) =>
  JSON.stringify([at, answers, command, snapshot, ended]),
)

const keyOf = ({ rows, processes, committed }: State): string =>
  [...rows.map(rowKey).sort(), ...processes.map(processKey), committed].join()

interface Visit {
  readonly state: State
  readonly depth: number
  readonly from: Visit | undefined
  readonly name: string
}

function traceOf(last: Visit): string[] {
  const trace: string[] = []
  for (let at: Visit | undefined = last; at?.from; at = at.from) trace.unshift(at.name)
  return trace
}

export function explore(start: State, options: Options): Result {
  const seen = new Set([keyOf(start)])
  const queue: Visit[] = [{ state: start, depth: 0, from: undefined, name: '' }]
  const counts = { transitions: 0, depth: 0, deadlocks: 0 }
  for (const visit of queue) {
    const { moves, deadlock } = movesFrom(visit.state, options)
    counts.depth = visit.depth
    counts.deadlocks += Number(deadlock)
    for (const { turn, name, violation } of moves) {
      counts.transitions += 1
      const { rows, processes, committed, me } = turn
      const state = { rows, processes, committed }
      const reached: Visit = { state, depth: visit.depth + 1, from: visit, name: `${me} ${name}` }
      if (violation !== undefined) {
        return { ...counts, depth: reached.depth, states: seen.size, violation, trace: traceOf(reached) }
      }
      const key = keyOf(state)
      if (seen.has(key)) continue
      seen.add(key)
      queue.push(reached)
    }
  }
  return { ...counts, states: seen.size, violation: undefined, trace: [] }
}
