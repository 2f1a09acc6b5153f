/** DELETE and UPDATE around their triggers. */
import { lockedRow, nextPart, queue, seize } from './flow'
import { deleteRow, lockRow, PROGRESS, updateRow, type Quals, type Waiting } from './mvcc'
import { currentPart, go, self, type Turn } from './process'
import type { Part } from './script'
import { hasSecondLine } from './settle'
import { isFreed, type Version } from './state'
import { fail } from './transactions'
import { enterIndex, probe, unindexed } from './unique-index'

/** WHERE text = … : the index finds it by scope and hash. */
function meant({ text, chain }: Part): Quals {
  return (each) => each.chain === chain && each.text === text
}

/** WHEN (OLD.number = 0 AND OLD.flag), of a row that is not deleted softly */
function queuePromotion(turn: Turn, { number, flag, chain }: Version): void {
  if (isFreed(chain)) return
  if (number === 0 && (flag || turn.fault === 'lockWithoutTouch')) queue(turn, { chain, number })
}

export function deleteOne(turn: Turn): Waiting {
  const found = seize(turn, 'statement', meant(currentPart(self(turn))), ({ index, newest }) => {
    deleteRow(turn, index, newest)
    if (turn.fault !== 'noPromotionAfterDelete') queuePromotion(turn, newest)
  })
  if (found.kind === 'wait') return found.processes
  return found.kind === 'serialization failure' ? PROGRESS : nextPart(turn)
}

type Update = Extract<Part, { kind: 'update' }>

function currentUpdate(turn: Turn): Update {
  const part = currentPart(self(turn))
  if (part.kind !== 'update') throw new TypeError(`not an update: ${part.kind}`)
  return part
}

/** The executor locks the row before its BEFORE triggers run. */
export function updateOne(turn: Turn): Waiting {
  const part = currentUpdate(turn)
  const found = seize(turn, 'statement', meant(part), (row) => lockRow(turn, row))
  if (found.kind === 'wait') return found.processes
  if (found.kind === 'serialization failure') return PROGRESS
  if (found.kind === 'none') return nextPart(turn)
  const stays = part.toChain === part.chain
  const { number, flag } = found.newest
  if (part.behind || isFreed(part.toChain) || isRestoredWithoutPlace(turn, part)) {
    go(turn, 'update.write', { number, flag })
  } else if (stays && part.toText === part.text) {
    go(turn, 'update.write', { number: part.toZero ? 0 : number })
  } else if (stays) fail(turn, '40001')
  else go(turn, 'place.read')
  return PROGRESS
}

const isRestoredWithoutPlace = ({ fault }: Turn, { chain }: Update): boolean =>
  fault === 'restoreWithoutPlace' && isFreed(chain)

/** The heap's half. The index has its say next, if the key is another. */
export function updateWrite(turn: Turn): Waiting {
  const part = currentUpdate(turn)
  const { number, flag } = self(turn)
  const { index, old } = lockedRow(turn)
  const moves = part.toChain !== part.chain
  const kept = old.flag && !(part.clearFlag && turn.fault === 'clientClearsFlag')
  updateRow(turn, index, old, { text: part.toText, chain: part.toChain, number, flag: moves ? flag : kept })
  queueAfterUpdate(turn, part, old)
  if (isFreed(part.toChain) || (!moves && number === old.number)) return nextPart(turn)
  go(turn, 'update.index', { number: 0, flag: false })
  return PROGRESS
}

/** A promotion first, then a touch, as settle has them; that it looks at the flag is the second line. */
function queueAfterUpdate(turn: Turn, part: Update, old: Version): void {
  const moves = part.toChain !== part.chain
  const unseen = isFreed(part.toChain) ? 'noPromotionAfterSoftDelete' : 'noPromotionAfterMove'
  if (moves && turn.fault !== unseen) queuePromotion(turn, old)
  const unlooked = isFreed(part.chain) ? 'noTouchAfterRestore' : 'noTouchAfterUpdate'
  if (isTouched(turn, part, old) && turn.fault !== unlooked) {
    queue(turn, { chain: part.toChain, number: self(turn).number })
  }
}

function isTouched(turn: Turn, part: Update, old: Version): boolean {
  if (isFreed(part.toChain)) return false
  const { number } = self(turn)
  const moves = part.toChain !== part.chain
  const changes = moves || part.toText !== part.text
  return number > 0 ? changes || number !== old.number : !moves && changes && looksAtFlag(turn) && old.flag
}

const looksAtFlag = (turn: Turn): boolean => hasSecondLine(turn) && turn.fault !== 'flaggedAnchorChanges'

export function updateIndex(turn: Turn): Waiting {
  const { chain, number } = unindexed(turn)
  const key = probe(turn, chain, number)
  if (key.kind === 'wait') return key.processes
  if (key.kind === 'taken') {
    fail(turn, '23505')
    return PROGRESS
  }
  enterIndex(turn)
  return nextPart(turn)
}
