/** From one part of a statement to the next, to its AFTER triggers, and to its end. */
import { dropSnapshots, endStatement, findLowest, findRow, holder, PROGRESS, takeSnapshot } from './mvcc'
import type { Found, FoundRow, Quals, Reader, Waiting } from './mvcc'
import { currentPart, go, self, set, type Event, type Step, type Turn } from './process'
import type { Fault } from './faults'
import type { Part } from './script'
import { FREED, type Version } from './state'
import { fail, releaseSavepoint, restart } from './transactions'

const FIRST_STEPS = { insert: 'place.read', delete: 'delete.row', update: 'update.row' } as const

export function firstStep(part: Part, fault: Fault | undefined): Step {
  return part.kind === 'insert' && (part.fast || keepsFlag(part, fault)) ? 'insert.index' : FIRST_STEPS[part.kind]
}

export const keepsFlag = (part: Extract<Part, { kind: 'insert' }>, fault: Fault | undefined): boolean =>
  fault === 'flaggedWithoutPlace' && part.copied === 'flagged'

/** The parts of the statement behind the one that runs. */
export function laterParts(turn: Turn): readonly Part[] {
  const { script, part } = self(turn)
  const { statement } = script
  return typeof statement === 'object' && statement.kind === 'write' ? statement.parts.slice(part + 1) : []
}

export function nextPart(turn: Turn): Waiting {
  const { part, events } = self(turn)
  const [next] = laterParts(turn)
  const fresh = { number: 0, flag: false }
  if (next !== undefined) go(turn, firstStep(next, turn.fault), { part: part + 1, ...fresh })
  else go(turn, events.length > 0 ? 'settle.anchor' : 'end', { part: 0, ...fresh })
  return PROGRESS
}

/** All triggers have run. */
export function endOfStatement(turn: Turn): void {
  const { script, holdsStatement, inSavepoint } = self(turn)
  endStatement(turn)
  if (script.isolation === 'RC') dropSnapshots(turn, 'all')
  const own = typeof script.statement === 'object' && script.statement.kind === 'findOrCreate'
  if (own && inSavepoint) releaseSavepoint(turn)
  const keep = { holdsStatement: holdsStatement && script.isolation === 'RR', inSavepoint: inSavepoint && !own }
  restart(turn, script.next, keep)
}

/** AFTER triggers wait for the end of the statement. */
export function queue(turn: Turn, ...events: readonly Event[]): void {
  if (turn.fault !== 'naive') set(turn, { events: [...self(turn).events, ...events] })
}

/**
 * The row that a query locks or updates, by `write`. Its snapshot and its attempt are two steps, so that others may
 * come between them; a query that waits keeps its snapshot, and one that is done drops it, but at REPEATABLE READ.
 */
const seizer =
  (find: typeof findRow) =>
  (turn: Turn, reader: Reader, quals: Quals, write: (found: FoundRow) => void): Found => {
    if (takeSnapshot(turn, reader)) return { kind: 'wait', processes: PROGRESS }
    const found = find(turn, reader, quals)
    if (found.kind === 'row') write(found)
    if (found.kind === 'serialization failure') fail(turn, '40001')
    else if (found.kind !== 'wait' && self(turn).script.isolation === 'RC') {
      const searches = reader === 'statement' && laterParts(turn).some(({ kind }) => kind !== 'insert')
      if (!searches) dropSnapshots(turn, reader)
    }
    return found
  }

export const seize = seizer(findRow)
/** With ORDER BY number LIMIT 1. */
export const seizeLowest = seizer(findLowest)

/** The loops of the trigger functions end. */
const LOOPS = 8
export const LOOPS_USED_UP = '40001 after all loops'

/** Some other transaction has changed the chain between two queries. */
export function again(turn: Turn, step: Step): void {
  const loop = self(turn).loop + 1
  if (loop === LOOPS) fail(turn, LOOPS_USED_UP)
  else go(turn, step, { loop, number: 0 })
}

/** The rows of a chain. */
export function inChain({ fault }: Turn, chain: number): Quals {
  if (fault === 'deletedRowsCount') return (each) => each.chain % FREED === chain
  return (each) => each.chain === chain
}

export function numbered(turn: Turn, chain: number, number: number): Quals {
  const quals = inChain(turn, chain)
  return (each) => quals(each) && each.number === number
}

/** The row that the client's UPDATE has locked before its BEFORE triggers. */
export function lockedRow(turn: Turn): { readonly index: number; readonly old: Version } {
  const { text, chain } = currentPart(self(turn))
  for (const [index, { versions }] of turn.rows.entries()) {
    const old = versions.at(-1)
    if (old?.lock === holder(turn) && !old.createdNow && old.text === text && old.chain === chain) return { index, old }
  }
  throw new TypeError('the locked row is gone')
}
