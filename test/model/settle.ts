/** The AFTER trigger's function, query by query: the kernel's AFTER part in `src/triggers/guard.ts`. */
import { inChain, seizeLowest } from './flow'
import { type FoundRow, lockRow, PROGRESS, select, updateRow, type Waiting } from './mvcc'
import { go, isTouch, self, type Event, type Turn } from './process'
import { fail } from './transactions'
import { enterIndex, probe, unindexed } from './unique-index'

/** The trigger that runs: a touch looks after NEW's chain, a promotion after OLD's. */
function event(turn: Turn): Event {
  const [first] = self(turn).events
  if (first === undefined) throw new TypeError('no trigger is queued')
  return first
}

function settled(turn: Turn): Waiting {
  const [, ...events] = self(turn).events
  go(turn, events.length > 0 ? 'settle.anchor' : 'end', { events, number: 0 })
  return PROGRESS
}

/**
 * SELECT number … ORDER BY number LIMIT 1 FOR NO KEY UPDATE, then the UPDATE of that row. They are one step, for
 * nobody can change a locked row. A touch always makes a new version.
 */
export function settleAnchor(turn: Turn): Waiting {
  const { chain } = event(turn)
  const found = seizeLowest(turn, 'query', inChain(turn, chain), (row) => becomeAnchor(turn, row))
  if (found.kind === 'wait') return found.processes
  if (found.kind === 'none') return settled(turn)
  if (found.kind === 'serialization failure') return PROGRESS
  if (found.newest.number > 0 && keepsNumber(turn)) return settled(turn)
  go(turn, found.newest.number > 0 ? 'settle.index' : 'settle.compare')
  return PROGRESS
}

function becomeAnchor(turn: Turn, row: FoundRow): void {
  const { index, newest } = row
  const flag =
    newest.number === 0 ? touchedFlag(turn, newest.flag) : turn.fault !== 'promotedWithoutFlag' || newest.flag
  if (flag === undefined || (newest.number > 0 && keepsNumber(turn))) lockRow(turn, row)
  else updateRow(turn, index, newest, { number: 0, flag })
}

const keepsNumber = (turn: Turn): boolean => turn.fault === 'touchWithoutPromotion' && isTouch(event(turn))

/** True, unless a fault is put in; undefined where the row is not written at all. */
function touchedFlag(turn: Turn, old: boolean): boolean | undefined {
  const { fault } = turn
  const touch = isTouch(event(turn))
  if (fault === 'touchOnlyLooks' || (fault === 'retakenWithoutFlag' && !touch)) return undefined
  if (fault === 'lockWithoutTouch' || (fault === 'touchSkipsFlagged' && old)) return undefined
  return fault === 'touchWithoutFlag' && touch ? old : true
}

/**
 * The rows at number 0 and at that of the row which fired against all of the chain: what stands there may be new in
 * this very statement, or changed by a trigger after it was proven. The second is the second line.
 */
export function settleCompare(turn: Turn): Waiting {
  const { chain, number } = event(turn)
  const all = select(turn, inChain(turn, chain))
  const compared = hasSecondLine(turn) ? [0, number] : [0]
  const twice = all.some(
    (one) => compared.includes(one.number) && all.some((v) => v.text === one.text && v.number !== one.number),
  )
  if (!twice || turn.fault === 'noComparison') return settled(turn)
  fail(turn, '23505')
  return PROGRESS
}

/** Each line is mutated alone, with the other taken out. */
export function hasSecondLine({ fault }: Turn): boolean {
  return fault === undefined || fault === 'flaggedAnchorChanges'
}

/** The index's half of the promotion. */
export function settleIndex(turn: Turn): Waiting {
  const { chain, number } = unindexed(turn)
  const key = probe(turn, chain, number)
  if (key.kind === 'wait') return key.processes
  if (key.kind === 'taken') {
    fail(turn, '23505')
    return PROGRESS
  }
  enterIndex(turn)
  // What is promoted was proved when it came; a touch that found no anchor is for a row that is new.
  if (!isTouch(event(turn))) return settled(turn)
  go(turn, 'settle.compare')
  return PROGRESS
}
