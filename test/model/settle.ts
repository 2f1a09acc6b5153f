/** The AFTER trigger's function, query by query: `settleBody` in `src/sql/guard-functions.ts`. */
import { again, numbered, seize } from './flow'
import { PROGRESS, select, updateRow, type Waiting } from './mvcc'
import { go, self, type Event, type Turn } from './process'
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
  go(turn, events.length > 0 ? 'settle.lowest' : 'end', { events, loop: 0, number: 0 })
  return PROGRESS
}

/** SELECT min(number) … WHERE number > 0 */
export function settleLowest(turn: Turn): Waiting {
  const { chain } = event(turn)
  const rest = select(turn, (each) => each.chain === chain && each.number > 0)
  if (rest.length === 0) return settled(turn)
  go(turn, 'settle.touch', { number: Math.min(...rest.map(({ number }) => number)) })
  return PROGRESS
}

/** UPDATE … SET flag = true WHERE number = 0: always a new version. */
export function settleTouch(turn: Turn): Waiting {
  const { chain, kind } = event(turn)
  const found = seize(turn, 'query', numbered(chain, 0), ({ index, newest }) => {
    const flag = touchedFlag(turn, kind, newest.flag)
    if (flag !== undefined) updateRow(turn, index, newest, { flag })
  })
  if (found.kind === 'wait') return found.processes
  if (found.kind === 'row') go(turn, 'settle.compare', { number: 0 })
  else if (found.kind === 'none' && turn.fault === 'touchWithoutPromotion' && kind === 'touch') return settled(turn)
  else if (found.kind === 'none') go(turn, 'settle.promote')
  return PROGRESS
}

/** True, unless a fault is put in; undefined where the row is not written at all. */
function touchedFlag({ fault }: Turn, kind: Event['kind'], old: boolean): boolean | undefined {
  if (fault === 'touchOnlyLooks' || (fault === 'retakenWithoutFlag' && kind === 'promote')) return undefined
  if (fault === 'lockWithoutTouch' || (fault === 'touchSkipsFlagged' && old)) return undefined
  return fault === 'touchWithoutFlag' && kind === 'touch' ? old : true
}

/** What stands at 0 may be new in this very statement, unproven against the rest of the chain. */
export function settleCompare(turn: Turn): Waiting {
  const { chain, kind } = event(turn)
  const [anchor] = select(turn, numbered(chain, 0))
  const twins = select(turn, (each) => each.chain === chain && each.number > 0 && each.text === anchor?.text)
  const blind = turn.fault === (kind === 'touch' ? 'touchWithoutComparison' : 'promotionWithoutComparison')
  if (twins.length === 0 || blind) return settled(turn)
  fail(turn, '23505')
  return PROGRESS
}

/** UPDATE … SET number = 0, flag = true WHERE number = lowest */
export function settlePromote(turn: Turn): Waiting {
  const found = seize(turn, 'query', numbered(event(turn).chain, self(turn).number), ({ index, newest }) => {
    const flag = turn.fault === 'promotedWithoutFlag' ? newest.flag : true
    updateRow(turn, index, newest, { number: 0, flag })
  })
  if (found.kind === 'wait') return found.processes
  if (found.kind === 'row') go(turn, 'settle.index', { number: 0 })
  else if (found.kind === 'none') again(turn, 'settle.lowest')
  return PROGRESS
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
  return settled(turn)
}
