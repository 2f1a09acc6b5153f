/** Breadth-first search over every state that can be reached: the first violation found has a shortest trace. */
import type { Fault } from './faults'
import { keyOf, stateOf } from './keys'
import { isFinished, self, type Process, type State, type Turn } from './process'
import { brokenRows, brokenTurn, COPY_REFUSED, copyRefused, storedTwice, TWICE } from './properties'
import { hasWritten, run } from './run'
import { abort, fail } from './transactions'

export interface Result {
  readonly states: number
  readonly transitions: number
  /** Steps to the state that is farthest from the start, or to the violation. */
  readonly depth: number
  readonly deadlocks: number
  readonly violation: Violation | undefined
}

export interface Violation {
  readonly property: string
  /** Filled where it was asked for. */
  readonly trace: readonly Visit[]
}

/** A state on the way, and the move that led to it. */
export interface Visit {
  readonly move: string
  readonly state: State
}

export interface Options {
  /** With a fault, only a text stored twice and a copy refused count as violations. */
  readonly fault?: Fault | undefined
  /** Keeps each state's predecessor and the processes' order: more memory, more states. */
  readonly trace?: boolean
}

interface Move {
  readonly turn: Turn
  readonly name: string
}

function turnOf(state: State, me: number, fault: Fault | undefined): Turn {
  const rows = [...state.rows]
  const processes = [...state.processes]
  return { rows, processes, me, fault, violation: undefined, committed: false, failed: undefined }
}

/** All processes on a cycle of waits: the detector may choose any of them. */
function deadlocked(waiting: readonly number[]): number[] {
  return waiting.flatMap((_, start) => {
    let reached = waiting[start] ?? 0
    for (let before = 0; before !== reached;) {
      before = reached
      for (const [id, mask] of waiting.entries()) if (((reached >> id) & 1) === 1) reached |= mask
    }
    return ((reached >> start) & 1) === 1 ? [start] : []
  })
}

interface Next {
  readonly moves: readonly Move[]
  readonly deadlock: boolean
  /** Somebody is unfinished, everybody waits, and no deadlock explains it. */
  readonly stuck: boolean
}

function nameOf(before: Process, after: Process): string {
  const snapshot = after.script === before.script && after.step === before.step
  const step = before.script.statement === 'commit' ? 'COMMIT' : before.step
  if (snapshot) return `snapshot for ${step}`
  return step === 'start' && after.script === before.script ? `to ${after.step}` : step
}

/** Every step that some process can make from here; a connection may be lost at any of them. */
function next(state: State, fault: Fault | undefined): Next {
  const moves: Move[] = []
  const rollbacks: Move[] = []
  const waiting: number[] = state.processes.map(() => 0)
  for (const [me, each] of state.processes.entries()) {
    if (isFinished(each)) continue
    const turn = turnOf(state, me, fault)
    waiting[me] = run(turn)
    if (waiting[me] === 0) moves.push({ turn, name: nameOf(each, self(turn)) })
    if (!hasWritten(state.rows, me)) continue
    const rolledBack = turnOf(state, me, fault)
    abort(rolledBack)
    rollbacks.push({ turn: rolledBack, name: 'ROLLBACK' })
  }
  for (const me of deadlocked(waiting)) {
    const turn = turnOf(state, me, fault)
    fail(turn, '40P01')
    moves.push({ turn, name: 'deadlock' })
  }
  const stuck = moves.length === 0 && !state.processes.every(isFinished)
  return { moves: [...moves, ...rollbacks], deadlock: moves.some(({ name }) => name === 'deadlock'), stuck }
}

class Search {
  /** Also the queue: a Set is read in the order in which it was filled, while it is filled. */
  private readonly seen = new Set<string>()
  private readonly cameFrom = new Map<string, { from: string; move: string }>()
  private processCount = 0
  private transitions = 0
  private deadlocks = 0
  private violation: Violation | undefined

  constructor(private readonly options: Options) {}

  run(initial: Iterable<State>): Result {
    for (const state of initial) {
      this.seen.add(this.keyOf(state))
      this.processCount = state.processes.length
    }
    let depth = 0
    let expanded = 0
    let levelEnd = this.seen.size
    for (const key of this.seen) {
      if (expanded === levelEnd) {
        depth += 1
        levelEnd = this.seen.size
      }
      expanded += 1
      this.expand(key)
      if (this.violation !== undefined) break
    }
    const { transitions, deadlocks, violation } = this
    return { states: this.seen.size, transitions, depth: depth + (violation ? 1 : 0), deadlocks, violation }
  }

  private keyOf(state: State): string {
    return keyOf(state, this.options.trace === true ? 'processes in place' : 'processes sorted')
  }

  private expand(key: string): void {
    const state = stateOf(key, this.processCount)
    const { moves, deadlock, stuck } = next(state, this.options.fault)
    if (deadlock) this.deadlocks += 1
    if (stuck) this.report('an undetected deadlock', key)
    for (const { turn, name } of moves) {
      this.transitions += 1
      const reached = this.keyOf(turn)
      if (this.options.trace === true && !this.seen.has(reached)) {
        this.cameFrom.set(reached, { from: key, move: `${turn.me} ${turn.failed ?? name}` })
      }
      this.seen.add(reached)
      const broken = this.broken(turn, state.processes[turn.me] ?? self(turn))
      if (broken !== undefined) this.report(broken, reached)
    }
  }

  private broken(turn: Turn, before: Process): string | undefined {
    if (this.options.fault !== undefined) {
      if (turn.committed && storedTwice(turn.rows)) return TWICE
      return copyRefused(turn, before) ? COPY_REFUSED : undefined
    }
    return brokenTurn(turn, before) ?? (turn.committed ? brokenRows(turn.rows) : undefined)
  }

  private report(property: string, key: string): void {
    if (this.violation !== undefined) return
    const trace: Visit[] = []
    for (let at: string | undefined = key; at !== undefined;) {
      const by = this.cameFrom.get(at)
      trace.unshift({ move: by?.move ?? '', state: stateOf(at, this.processCount) })
      at = by?.from
    }
    this.violation = { property, trace }
  }
}

export function explore(initial: Iterable<State>, options: Options = {}): Result {
  return new Search(options).run(initial)
}
