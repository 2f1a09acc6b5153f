/** How transactions and savepoints end: commit, abort, ROLLBACK TO, and errors, which lead to one of these. */
import { dropSnapshots, holder, mapVersions } from './mvcc'
import { begin, self, type ProcessFields, type Turn } from './process'
import type { Script } from './script'
import { changed, COMMITTED, NOBODY, type Version } from './state'

const NO_SAVEPOINT = { createdInSavepoint: false, deletedInSavepoint: false, lockedInSavepoint: false }
const PAST = { ...NO_SAVEPOINT, createdNow: false, deletedNow: false }

function heldSnapshots(turn: Turn): number {
  let held = 0
  for (const [id, { holdsStatement, holdsQuery }] of turn.processes.entries()) {
    held |= (Number(holdsStatement) | (Number(holdsQuery) << 1)) << (2 * id)
  }
  return held
}

/** What was done becomes visible to every snapshot taken from here on, and hidden from those held. */
export function commit(turn: Turn): void {
  dropSnapshots(turn, 'all')
  const me = holder(turn)
  const held = heldSnapshots(turn)
  mapVersions(turn, (each) => {
    if (each.creator === me) {
      return each.deleter === me ? undefined : changed(each, { ...PAST, creator: COMMITTED, snapshots: held, lock: 0 })
    }
    if (each.deleter === me) {
      const snapshots = held & ~each.snapshots
      return snapshots === 0 ? undefined : changed(each, { ...PAST, deleter: COMMITTED, snapshots, lock: 0 })
    }
    return each.lock === me ? changed(each, { ...PAST, lock: NOBODY }) : each
  })
  turn.committed = true
}

function undo(turn: Turn, what: (each: Version) => { created: boolean; deleted: boolean; locked: boolean }): void {
  const me = holder(turn)
  mapVersions(turn, (each) => {
    if (each.creator !== me && each.deleter !== me && each.lock !== me) return each
    const { created, deleted, locked } = what(each)
    if (each.creator === me && created) return undefined
    const undeleted = each.deleter === me && deleted ? { deleter: NOBODY, deletedInSavepoint: false } : {}
    const unlocked = each.lock === me && locked ? { lock: NOBODY, lockedInSavepoint: false } : {}
    return changed(each, { ...undeleted, ...unlocked, createdNow: false, deletedNow: false })
  })
}

/** ROLLBACK, a lost connection, or an error outside a savepoint: the script goes on at its next transaction. */
export function abort(turn: Turn): void {
  dropSnapshots(turn, 'all')
  undo(turn, () => ({ created: true, deleted: true, locked: true }))
  restart(turn, self(turn).script.afterAbort)
}

/** ROLLBACK TO SAVEPOINT: also gives back the row locks taken since. */
export function rollBackToSavepoint(turn: Turn, goOn: Script | undefined): void {
  undo(turn, (each) => ({
    created: each.createdInSavepoint,
    deleted: each.deletedInSavepoint,
    locked: each.lockedInSavepoint,
  }))
  if (self(turn).script.isolation === 'RC') dropSnapshots(turn, 'all')
  restart(turn, goOn, { holdsStatement: self(turn).holdsStatement })
}

/** RELEASE SAVEPOINT. */
export function releaseSavepoint(turn: Turn): void {
  const me = holder(turn)
  mapVersions(turn, (each) =>
    each.creator === me || each.deleter === me || each.lock === me ? changed(each, NO_SAVEPOINT) : each,
  )
}

/** The statement fails; the client rolls back, to its own savepoint if it has set one. */
export function fail(turn: Turn, sqlstate: string): void {
  turn.failed = sqlstate
  const { inSavepoint, script } = self(turn)
  if (inSavepoint && script.afterSavepoint !== undefined) rollBackToSavepoint(turn, script.afterSavepoint)
  else abort(turn)
}

export function restart(turn: Turn, script: Script | undefined, keep: Partial<ProcessFields> = {}): void {
  if (script === undefined) throw new TypeError('the script ends too soon')
  turn.processes[turn.me] = begin(script, keep)
}
