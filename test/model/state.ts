/**
 * The state of the model: the rows of one table with their versions, and where each process stands.
 *
 * A transaction in progress is named by its process (a process runs one transaction at a time). What has
 * committed needs no name any more: all that a later step can ask of it is which of the snapshots *held at this
 * moment* see it. So versions carry a set of snapshots in place of transaction ids. That makes states canonical:
 * two histories which no later step can tell apart have one key.
 */

/** Who created, deleted or locked a version: a process (`processId + 1`), or one of these two. */
export const NOBODY = 0
export const COMMITTED = 7

export const FREED = 2

/** Deleted softly: the row is outside the chains and the index, whatever its number. */
export const isFreed = (chain: number): boolean => chain >= FREED

export interface VersionFields {
  readonly text: number
  /** 0 or 1: which (scope, hash) the row stands in. FREED more: the same, deleted softly, which frees its text. */
  readonly chain: number
  readonly number: number
  readonly flag: boolean
  /** COMMITTED, or the holder that inserts it. */
  readonly creator: number
  /** NOBODY, COMMITTED, or the holder that updates or deletes it. */
  readonly deleter: number
  /** NOBODY, or the holder of FOR NO KEY UPDATE (it conflicts with itself, so there is one at most). */
  readonly lock: number
  /**
   * A set of held snapshots. While the version is not deleted by a committed transaction: those which do not see
   * it, being older than it. Afterwards: those which still see it.
   */
  readonly snapshots: number
  readonly createdInSavepoint: boolean
  readonly deletedInSavepoint: boolean
  readonly lockedInSavepoint: boolean
  /** By the client statement that is running: its own snapshot does not show it, the triggers' snapshots do. */
  readonly createdNow: boolean
  readonly deletedNow: boolean
  /** False between the heap's and the index's part of an UPDATE that changes the key. */
  readonly indexed: boolean
}

export interface Version extends VersionFields {
  readonly key: string
}

/** One row: its versions from the oldest that a snapshot still sees to the newest. */
export interface Row {
  readonly versions: readonly Version[]
  readonly key: string
}

const interned = new Map<number, Version>()

function code(fields: VersionFields): number {
  let bits = fields.text | (fields.chain << 2) | (fields.number << 4) | (fields.creator << 7)
  bits |= (fields.deleter << 10) | (fields.lock << 13) | (fields.snapshots << 16)
  bits |= Number(fields.flag) << 24
  bits |= (Number(fields.createdInSavepoint) << 25) | (Number(fields.deletedInSavepoint) << 26)
  bits |= (Number(fields.lockedInSavepoint) << 27) | (Number(fields.indexed) << 28)
  return bits | (Number(fields.createdNow) << 29) | (Number(fields.deletedNow) << 30)
}

/** The one object for these fields. @throws RangeError when a number outgrows its bits. */
export function version(fields: VersionFields): Version {
  if (fields.text > 3 || fields.number > 7 || fields.snapshots > 255) throw new RangeError('the model is too small')
  const bits = code(fields)
  const known = interned.get(bits)
  if (known !== undefined) return known
  const { text, chain, number, flag, creator, deleter, lock, snapshots } = fields
  const { createdInSavepoint, deletedInSavepoint, lockedInSavepoint, createdNow, deletedNow, indexed } = fields
  const place = { text, chain, number, flag, indexed }
  const marks = { createdInSavepoint, deletedInSavepoint, lockedInSavepoint, createdNow, deletedNow }
  const key = String.fromCharCode(bits & 0x7fff, bits >>> 15)
  const made: Version = { creator, deleter, lock, snapshots, ...place, ...marks, key }
  interned.set(bits, made)
  return made
}

export function changed(old: Version, patch: Partial<VersionFields>): Version {
  return version({ ...old, ...patch })
}

const internedRows = new Map<string, Row>()

export function row(versions: readonly Version[]): Row {
  let key = String.fromCharCode(versions.length)
  for (const each of versions) key += each.key
  const known = internedRows.get(key)
  if (known !== undefined) return known
  const made = { versions, key }
  internedRows.set(key, made)
  return made
}

const BLANK: VersionFields = {
  text: 0,
  chain: 0,
  number: 0,
  flag: false,
  creator: COMMITTED,
  deleter: NOBODY,
  lock: NOBODY,
  snapshots: 0,
  createdInSavepoint: false,
  deletedInSavepoint: false,
  lockedInSavepoint: false,
  createdNow: false,
  deletedNow: false,
  indexed: true,
}

/** A committed row that every snapshot sees. */
export function storedRow(text: number, number: number, flag = false, chain = 0): Row {
  return row([version({ ...BLANK, text, chain, number, flag })])
}

/** The row with which `key` goes on at `start`. */
export function rowAt(key: string, start: number): Row {
  const known = internedRows.get(key.slice(start, start + 1 + 2 * key.charCodeAt(start)))
  if (known === undefined) throw new TypeError('not the key of a row')
  return known
}
