/**
 * Postgres as far as the protocol sees it: snapshots, visibility, and row locks held to the end. Every function works
 * on the rows of a turn.
 */
import { self, set, type Turn } from './process'
import { changed, COMMITTED, isFreed, NOBODY, row, version, type Row, type Version, type VersionFields } from './state'

/** What waits: a set of processes, as bits. */
export type Waiting = number
export const PROGRESS: Waiting = 0

/** By whose snapshot a query reads: the client statement's, or its own, being a query in a trigger function. */
export type Reader = 'statement' | 'query'

export type Quals = (of: Version) => boolean

export function holder(turn: Turn): number {
  return turn.me + 1
}

/** 2 bits a process: its statement's or transaction's snapshot, and its query's. */
function slot(turn: Turn, reader: Reader): number {
  const { script, holdsQuery, holdsStatement } = self(turn)
  if (reader === 'query' && script.isolation === 'RC') return holdsQuery ? 2 << (2 * turn.me) : 0
  return holdsStatement ? 1 << (2 * turn.me) : 0
}

/** Whether the reader's snapshot shows the version; without a held snapshot it is taken at this moment. */
export function visible(turn: Turn, reader: Reader, of: Version): boolean {
  const me = holder(turn)
  const taken = slot(turn, reader)
  if (of.deleter === COMMITTED) return (of.snapshots & taken) !== 0
  const created = of.creator === COMMITTED ? (of.snapshots & taken) === 0 : of.creator === me
  if (!created || (of.createdNow && reader === 'statement')) return false
  return of.deleter !== me || (of.deletedNow && reader === 'statement')
}

/** A plain SELECT. */
export function select(turn: Turn, quals: Quals): Version[] {
  const found: Version[] = []
  for (const { versions } of turn.rows) {
    for (const each of versions) if (quals(each) && visible(turn, 'query', each)) found.push(each)
  }
  return found
}

/** Takes the snapshot unless it is held; true when it was taken just here. */
export function takeSnapshot(turn: Turn, reader: Reader): boolean {
  const { script, holdsQuery, holdsStatement } = self(turn)
  if (reader === 'statement' || script.isolation === 'RR') {
    if (holdsStatement) return false
    set(turn, { holdsStatement: true })
    return true
  }
  if (holdsQuery) return false
  set(turn, { holdsQuery: true })
  return true
}

/** Forgets snapshots, and the dead versions that only they showed. */
export function dropSnapshots(turn: Turn, reader: Reader | 'all'): void {
  const { holdsQuery, holdsStatement } = self(turn)
  const statement = reader !== 'query' && holdsStatement
  const query = reader !== 'statement' && holdsQuery
  if (!statement && !query) return
  set(turn, { holdsStatement: holdsStatement && !statement, holdsQuery: holdsQuery && !query })
  const gone = (Number(statement) | (Number(query) << 1)) << (2 * turn.me)
  mapVersions(turn, (each) => {
    if ((each.snapshots & gone) === 0) return each
    const snapshots = each.snapshots & ~gone
    return each.deleter === COMMITTED && snapshots === 0 ? undefined : changed(each, { snapshots })
  })
}

export function mapVersions(turn: Turn, map: (each: Version) => Version | undefined): void {
  const rows: Row[] = []
  for (const each of turn.rows) {
    const versions: Version[] = []
    let same = true
    for (const old of each.versions) {
      const made = map(old)
      if (made !== undefined) versions.push(made)
      if (made !== old) same = false
    }
    if (same) rows.push(each)
    else if (versions.length > 0) rows.push(row(versions))
  }
  turn.rows = rows
}

export interface FoundRow {
  readonly kind: 'row'
  readonly index: number
  readonly newest: Version
}

export type Found =
  | FoundRow
  | { readonly kind: 'none' }
  | { readonly kind: 'wait'; readonly processes: Waiting }
  | { readonly kind: 'serialization failure' }

const NONE: Found = { kind: 'none' }

/**
 * The row that an UPDATE, DELETE or SELECT FOR NO KEY UPDATE would take: found by the snapshot; waits for whoever
 * holds it; then, if it was changed, follows it to its newest version and checks the quals again (READ COMMITTED)
 * or fails (REPEATABLE READ). A row that this very command has changed is skipped.
 */
export function findRow(turn: Turn, reader: Reader, quals: Quals): Found {
  for (const [index, { versions }] of turn.rows.entries()) {
    for (const seen of versions) {
      if (quals(seen) && visible(turn, reader, seen)) return newestOf(turn, index, seen, quals)
    }
  }
  return NONE
}

/** The first by number, as an ORDER BY … LIMIT 1 with a row lock finds it: a row that is gone by now is passed over. */
export function findLowest(turn: Turn, reader: Reader, quals: Quals): Found {
  const shown = turn.rows.flatMap(({ versions }, index) =>
    versions.filter((seen) => quals(seen) && visible(turn, reader, seen)).map((seen) => ({ index, seen })),
  )
  for (const { index, seen } of shown.sort((a, b) => a.seen.number - b.seen.number)) {
    const found = newestOf(turn, index, seen, quals)
    if (found.kind !== 'none') return found
  }
  return NONE
}

function newestOf(turn: Turn, index: number, seen: Version, quals: Quals): Found {
  if (seen.deleter === COMMITTED && self(turn).script.isolation === 'RR') return { kind: 'serialization failure' }
  const newest = turn.rows[index]?.versions.at(-1)
  if (newest === undefined) return NONE
  const processes = others(turn, newest.creator) | others(turn, newest.deleter) | others(turn, newest.lock)
  if (processes !== 0) return { kind: 'wait', processes }
  return newest.deleter === NOBODY && quals(newest) && (seen === newest || newest.creator === COMMITTED)
    ? { kind: 'row', index, newest }
    : NONE
}

/** As a set to wait for; nobody where it is the process itself. */
export function others(turn: Turn, who: number): Waiting {
  return who === NOBODY || who === COMMITTED || who === holder(turn) ? 0 : 1 << (who - 1)
}

function replaceNewest(turn: Turn, index: number, ...versions: readonly Version[]): void {
  const old = turn.rows[index]
  if (old !== undefined) turn.rows[index] = row([...old.versions.slice(0, -1), ...versions])
}

export function lockRow(turn: Turn, { index, newest }: FoundRow): void {
  if (newest.lock === holder(turn)) return
  const lockedInSavepoint = self(turn).inSavepoint
  replaceNewest(turn, index, changed(newest, { lock: holder(turn), lockedInSavepoint }))
}

export function deleteRow(turn: Turn, index: number, newest: Version): void {
  const deletedInSavepoint = self(turn).inSavepoint
  replaceNewest(turn, index, changed(newest, { deleter: holder(turn), deletedInSavepoint, deletedNow: true }))
}

type Values = Pick<VersionFields, 'text' | 'chain' | 'number' | 'flag'>

/** The heap's half of an UPDATE. A new version with another key stays out of the index until `enterIndex`. */
export function updateRow(turn: Turn, index: number, newest: Version, values: Partial<Values>): void {
  const created = { creator: holder(turn), createdInSavepoint: self(turn).inSavepoint, createdNow: true }
  const unlocked = { lock: NOBODY, lockedInSavepoint: false, snapshots: 0 }
  const next = changed(newest, { ...values, ...created, ...unlocked })
  const indexed = isFreed(next.chain) || (next.chain === newest.chain && next.number === newest.number)
  deleteRow(turn, index, newest)
  const versions = turn.rows[index]?.versions ?? []
  turn.rows[index] = row([...versions, changed(next, { indexed })])
}

export function insertRow(turn: Turn, values: Values): void {
  const created = { creator: holder(turn), createdInSavepoint: self(turn).inSavepoint, createdNow: true }
  const rest = { deleter: NOBODY, lock: NOBODY, snapshots: 0, deletedInSavepoint: false, lockedInSavepoint: false }
  turn.rows.push(row([version({ ...values, ...created, ...rest, deletedNow: false, indexed: true })]))
}

/** The end of a client statement: its changes are the transaction's own past from here on. */
export function endStatement(turn: Turn): void {
  const now = (who: number): boolean => who === holder(turn)
  mapVersions(turn, (each) => {
    if (!(each.createdNow && now(each.creator)) && !(each.deletedNow && now(each.deleter))) return each
    const deletedNow = each.deletedNow && !now(each.deleter)
    return changed(each, { createdNow: each.createdNow && !now(each.creator), deletedNow })
  })
}
