/** The BEFORE trigger's function, query by query: `placeBody` in `src/sql/guard-functions.ts`. */
import type { Fault } from './faults'
import { again, lockedRow, numbered, seize } from './flow'
import { lockRow, PROGRESS, select, type Waiting } from './mvcc'
import { currentPart, go, self, type Turn } from './process'

/** What NEW wants. */
interface Wish {
  readonly chain: number
  readonly text: number
  /** The row's number, where it stays in its chain; else -1. */
  readonly own: number
}

function wish(turn: Turn): Wish {
  const part = currentPart(self(turn))
  if (part.kind !== 'update') return { chain: part.chain, text: part.text, own: -1 }
  const stays = part.toChain === part.chain
  return { chain: part.toChain, text: part.toText, own: stays ? lockedRow(turn).old.number : -1 }
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

/** SELECT min(number), max(number), min(number) FILTER (WHERE the text is equal) … AND number <> own */
function readChain(turn: Turn, { chain, text, own }: Wish): Chain {
  const rows = select(turn, (each) => each.chain === chain && each.number !== own)
  const numbers = rows.map(({ number }) => number)
  const last = numbers.length === 0 ? undefined : Math.max(...numbers)
  return { first: least(numbers), last, taken: least(rows.flatMap((each) => (each.text === text ? each.number : []))) }
}

function placed(turn: Turn, number: number, flag = false): Waiting {
  const insert = currentPart(self(turn)).kind === 'insert'
  go(turn, insert ? 'insert.index' : 'update.write', { number, flag, loop: 0 })
  return PROGRESS
}

/** The number below which nothing is free, or the row's own. */
function otherwise({ own }: Wish, last = -1): number {
  return own === -1 ? last + 1 : own
}

export function placeRead(turn: Turn): Waiting {
  const wanted = wish(turn)
  const chain = readChain(turn, wanted)
  const number = placeAtOnce(turn, wanted, chain)
  if (number !== undefined) return placed(turn, number)
  const { first, last, taken } = chain
  // Others but no anchor: this very statement took it, and its removal holds off all who would lock it.
  if (first !== 0) return placed(turn, taken ?? otherwise(wanted), taken === undefined && wanted.own === -1)
  const unsure = skipsSecondRead(turn.fault, taken !== undefined, wanted.own !== -1)
  const choice = unsure ? (taken ?? otherwise(wanted, last)) : 0
  go(turn, turn.fault === 'noLock' ? 'place.readAgain' : 'place.lock', { number: choice })
  return PROGRESS
}

/** The number, where no lock of the anchor is needed. */
function placeAtOnce({ fault }: Turn, wanted: Wish, { last, taken }: Chain): number | undefined {
  const stays = wanted.own !== -1
  if (wanted.own === 0) return fault === 'anchorChangesBlindly' ? 0 : (taken ?? 0)
  if (!stays && (last === undefined || taken === 0)) return 0
  return skipsLock(fault, stays, taken !== undefined) ? (taken ?? otherwise(wanted, last)) : undefined
}

function skipsLock(fault: Fault | undefined, stays: boolean, hit: boolean): boolean {
  return fault === 'naive' || (fault === 'hitWithoutLock' && hit && !stays) || (fault === 'changeWithoutLock' && stays)
}

function skipsSecondRead(fault: Fault | undefined, hit: boolean, update: boolean): boolean {
  if (fault === 'noSecondRead' || (fault === 'noSecondReadByUpdate' && update)) return true
  return fault === (hit ? 'noSecondReadAfterHit' : 'noSecondReadAfterMiss')
}

/** SELECT … FOR NO KEY UPDATE of the anchor. */
export function placeLock(turn: Turn): Waiting {
  const { number } = self(turn)
  const found = seize(turn, 'query', numbered(wish(turn).chain, 0), (row) => lockRow(turn, row))
  if (found.kind === 'wait') return found.processes
  if (found.kind === 'none') again(turn, 'place.read')
  else if (found.kind === 'row' && number > 0) return placed(turn, number)
  else if (found.kind === 'row') go(turn, 'place.readAgain')
  return PROGRESS
}

export function placeReadAgain(turn: Turn): Waiting {
  const wanted = wish(turn)
  const { last, taken } = readChain(turn, wanted)
  return placed(turn, taken ?? otherwise(wanted, last))
}
