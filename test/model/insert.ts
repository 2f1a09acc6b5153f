/** INSERT behind its BEFORE trigger, and find-or-create, which is made of inserts. */
import { firstStep, keepsFlag, nextPart, queue } from './flow'
import { endStatement, holder, insertRow, PROGRESS, select, updateRow, visible, type Waiting } from './mvcc'
import { currentPart, go, PASSES, self, set, type Turn } from './process'
import type { Part } from './script'
import { COMMITTED, type Version } from './state'
import { abort, commit, fail, restart, rollBackToSavepoint } from './transactions'
import { probe } from './unique-index'

/** More than all other writers of a scenario can cause. */
const ROUNDS = 2 * PASSES

export function insertIndex(turn: Turn): Waiting {
  const part = currentPart(self(turn))
  if (part.kind !== 'insert') throw new TypeError(`not an insert: ${part.kind}`)
  const { number } = self(turn)
  const flag = self(turn).flag || keepsFlag(part, turn.fault)
  const { becomes, chain } = part
  const key = probe(turn, chain, number)
  if (key.kind === 'wait') return key.processes
  if (key.kind === 'taken') return conflict(turn, part, key.by)
  insertRow(turn, { text: becomes, chain, number, flag })
  if (number > 0 && turn.fault !== 'noTouchAfterInsert') queue(turn, { chain, number })
  return nextPart(turn)
}

function conflict(turn: Turn, part: Extract<Part, { kind: 'insert' }>, taken: Version): Waiting {
  const { statement, isolation } = self(turn).script
  const finding = typeof statement === 'object' && statement.kind === 'findOrCreate'
  if (part.onConflict === 'error') {
    if (finding) return nothingInserted(turn)
    fail(turn, '23505')
  } else if (isolation === 'RR' && taken.creator === COMMITTED && !visible(turn, 'statement', taken)) {
    fail(turn, '40001')
  } else if (part.onConflict === 'nothing') return finding ? nothingInserted(turn) : nextPart(turn)
  else return upsert(turn, part, taken)
  return PROGRESS
}

/** ON CONFLICT DO UPDATE of a column of the user's, or of the text: that of another text's row is refused. */
function upsert(turn: Turn, part: Extract<Part, { kind: 'insert' }>, taken: Version): Waiting {
  if (taken.lock !== 0 && taken.lock !== holder(turn)) return 1 << (taken.lock - 1)
  if (taken.createdNow) {
    fail(turn, '21000')
    return PROGRESS
  }
  if (part.onConflict === 'set text' && taken.text !== part.text) {
    fail(turn, '40001')
    return PROGRESS
  }
  if (taken.text !== part.text) turn.violation = "an upsert writes into another text's row"
  const index = turn.rows.findIndex(({ versions }) => versions.at(-1) === taken)
  updateRow(turn, index, taken, {})
  return nextPart(turn)
}

/**
 * Find-or-create, as `tryOnce` in `src/calls/one-row.ts`: find; insert by hash and number 0, DO NOTHING; find;
 * insert in the chain, DO NOTHING; find; insert in the chain, inside a savepoint, so that a violation can be told from
 * that of another index; and again from the start. That find and first insert are one statement there makes no
 * difference: the index goes by no snapshot.
 */
export function find(turn: Turn): Waiting {
  const part = currentPart(self(turn))
  const { round, script } = self(turn)
  if (select(turn, (each) => each.chain === part.chain && each.text === part.text).length > 0) {
    go(turn, 'end')
    return PROGRESS
  }
  go(turn, firstStep(part, turn.fault))
  if (round % PASSES === 2 && !script.autocommit) set(turn, { inSavepoint: true })
  return PROGRESS
}

/** Outside a transaction, locks and snapshot of that statement are gone now. */
function nothingInserted(turn: Turn): Waiting {
  const { script, inSavepoint } = self(turn)
  const round = self(turn).round + 1
  if (round === ROUNDS) {
    turn.violation = 'find-or-create does not end'
    abort(turn)
  } else if (script.autocommit) {
    commit(turn)
    restart(turn, script, { round })
  } else {
    endStatement(turn)
    if (inSavepoint) rollBackToSavepoint(turn, script)
    go(turn, 'find', { round, number: 0, flag: false })
  }
  return PROGRESS
}
