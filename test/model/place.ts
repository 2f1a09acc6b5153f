/** The BEFORE trigger's function, query by query: the table's and the kernel's BEFORE part, in `src/triggers/guard.ts`. */
import type { Fault } from './faults'
import { again, inChain, numbered, seize } from './flow'
import { lockRow, PROGRESS, select, type Waiting } from './mvcc'
import { currentPart, go, self, type Turn } from './process'

/** What NEW wants: a text in a chain where the row is not yet. */
interface Wish {
  readonly chain: number
  readonly text: number
}

function wish(turn: Turn): Wish {
  const part = currentPart(self(turn))
  return part.kind === 'update' ? { chain: part.toChain, text: part.toText } : part
}

interface Chain {
  /** Each is undefined where SQL says NULL. */
  readonly first: number | undefined
  readonly last: number | undefined
  /** Where the text stands. */
  readonly taken: number | undefined
}

function least(numbers: readonly number[]): number | undefined {
  return numbers.length === 0 ? undefined : Math.min(...numbers)
}

/** SELECT min(number), max(number), min(number) FILTER (WHERE the text is equal) … */
function readChain(turn: Turn, { chain, text }: Wish): Chain {
  const rows = select(turn, inChain(turn, chain))
  const numbers = rows.map(({ number }) => number)
  const last = numbers.length === 0 ? undefined : Math.max(...numbers)
  return { first: least(numbers), last, taken: least(rows.flatMap((each) => (each.text === text ? each.number : []))) }
}

function placed(turn: Turn, number: number, flag = false): Waiting {
  const insert = currentPart(self(turn)).kind === 'insert'
  go(turn, insert ? 'insert.index' : 'update.write', { number, flag, loop: 0 })
  return PROGRESS
}

/** Without the lock. That EXISTS is asked before it makes no difference: the read gives what it gives later. */
export function placeRead(turn: Turn): Waiting {
  const { first, last, taken } = readChain(turn, wish(turn))
  if (last === undefined || taken === 0) return placed(turn, 0)
  // Others but no anchor: this very statement took it, and its removal holds off all who would lock it. What it flags is
  // the anchor, or a row that the index refuses, or, if another is gone by then, one that settle looks at anyway.
  if (first !== 0) return placed(turn, taken ?? 0, true)
  const free = taken ?? last + 1
  if (turn.fault === 'naive' || (turn.fault === 'hitWithoutLock' && taken !== undefined)) return placed(turn, free)
  const number = skipsSecondRead(turn.fault, taken !== undefined) ? free : 0
  go(turn, turn.fault === 'noLock' ? 'place.readAgain' : 'place.lock', { number })
  return PROGRESS
}

function skipsSecondRead(fault: Fault | undefined, hit: boolean): boolean {
  return fault === 'noSecondRead' || fault === (hit ? 'noSecondReadAfterHit' : 'noSecondReadAfterMiss')
}

/** SELECT … FOR NO KEY UPDATE of the anchor. */
export function placeLock(turn: Turn): Waiting {
  const { number } = self(turn)
  const found = seize(turn, 'query', numbered(turn, wish(turn).chain, 0), (row) => lockRow(turn, row))
  if (found.kind === 'wait') return found.processes
  if (found.kind === 'none') again(turn, 'place.read')
  else if (found.kind === 'row' && number > 0) return placed(turn, number)
  else if (found.kind === 'row') go(turn, 'place.readAgain')
  return PROGRESS
}

export function placeReadAgain(turn: Turn): Waiting {
  const { last = -1, taken } = readChain(turn, wish(turn))
  return placed(turn, taken ?? last + 1)
}
