/** One step of a process. */
import { endOfStatement, firstStep } from './flow'
import { find, insertIndex } from './insert'
import { PROGRESS, takeSnapshot, type Waiting } from './mvcc'
import { placeLock, placeRead, placeReadAgain } from './place'
import { currentPart, go, self, type Step, type Turn } from './process'
import { settleAnchor, settleCompare, settleIndex } from './settle'
import type { Row } from './state'
import { commit, restart, rollBackToSavepoint } from './transactions'
import { deleteOne, updateIndex, updateOne, updateWrite } from './update'

/** Between two statements. */
function start(turn: Turn): Waiting {
  const { script, holdsStatement } = self(turn)
  const { statement, isolation } = script
  if (statement === 'finished') throw new TypeError('the process has finished')
  if (statement === 'commit') {
    commit(turn)
    restart(turn, script.next)
    return PROGRESS
  }
  if (statement.kind === 'rollbackTo') {
    rollBackToSavepoint(turn, script.next)
    return PROGRESS
  }
  if (statement.kind === 'savepoint') {
    restart(turn, script.next, { holdsStatement, inSavepoint: true })
    return run(turn)
  }
  const several = statement.kind === 'write' && statement.parts.length > 1
  if ((isolation === 'RR' || several) && takeSnapshot(turn, 'statement')) return PROGRESS
  go(turn, statement.kind === 'write' ? firstStep(currentPart(self(turn)), turn.fault) : 'find')
  return run(turn)
}

/** All triggers have run. A transaction that leaves no mark ends here too: nobody could tell when. */
function end(turn: Turn): void {
  endOfStatement(turn)
  if (self(turn).script.statement === 'commit' && !hasWritten(turn.rows, turn.me)) start(turn)
}

/** Whether the process has left a mark on the table. */
export function hasWritten(rows: readonly Row[], me: number): boolean {
  const who = me + 1
  return rows.some(({ versions }) => versions.some((v) => v.creator === who || v.deleter === who || v.lock === who))
}

const RUN: Readonly<Record<Exclude<Step, 'end'>, (turn: Turn) => Waiting>> = {
  start,
  find,
  'insert.index': insertIndex,
  'delete.row': deleteOne,
  'update.row': updateOne,
  'update.write': updateWrite,
  'update.index': updateIndex,
  'place.read': placeRead,
  'place.lock': placeLock,
  'place.readAgain': placeReadAgain,
  'settle.anchor': settleAnchor,
  'settle.compare': settleCompare,
  'settle.index': settleIndex,
}

/** Makes the step; or, where that must wait, says for whom, and the turn is void. */
export function run(turn: Turn): Waiting {
  const { step } = self(turn)
  const waiting = step === 'end' ? PROGRESS : RUN[step](turn)
  if (waiting === PROGRESS && self(turn).step === 'end') end(turn)
  return waiting
}
