/**
 * Postgres as far as names see it: rows with their versions, snapshots, row locks and unique indexes, for transactions
 * that run once. SERIALIZABLE is taken as REPEATABLE READ (`maintainers/protocol.md` says why that proves no less).
 */
import type { Statement } from './statements'

export type Isolation = 'RC' | 'RR'
export type Holder = 'users' | 'orgs'

export interface HolderValues {
  readonly table: Holder
  readonly key: number
  readonly name: string | undefined
}

export interface NameValues {
  readonly table: 'names'
  readonly text: string
  readonly holder: Holder
  readonly key: number
  readonly state: 'held' | 'reserved'
  /** Its time has passed. */
  readonly ended: boolean
}

export type Values = HolderValues | NameValues

/** Stands for a process where there is none: what was there at the start, what is not deleted, not locked. */
const NOBODY = -1

export interface Version<T extends Values = Values> {
  readonly values: T
  readonly creator: number
  /** By which of its transaction's commands. */
  readonly created: number
  readonly deleter: number
  readonly deleted: number
  readonly lock: number
}

export interface Row {
  readonly id: string
  readonly versions: readonly Version[]
}

/** A transaction, and how far it is. */
export interface Process {
  readonly isolation: Isolation
  readonly statements: readonly Statement[]
  /** Index of the statement that runs; behind the last one comes COMMIT. */
  readonly at: number
  /** What the steps of this statement have answered: to go on is to play them again. */
  readonly answers: readonly unknown[]
  readonly command: number
  /** Who had committed when the transaction took its snapshot; undefined before that, and at READ COMMITTED. */
  readonly snapshot: number | undefined
  readonly ended: boolean
}

export interface State {
  readonly rows: readonly Row[]
  readonly processes: readonly Process[]
  /** Processes, as bits. */
  readonly committed: number
}

/** One step of process `me` on a copy of the state, which the step changes. */
export interface Turn {
  rows: Row[]
  processes: Process[]
  committed: number
  readonly me: number
  readonly fault: string | undefined
}

export interface Snapshot {
  readonly committed: number
  readonly command: number
}

/** A step that cannot go on before one of these processes has ended. */
export class Wait {
  constructor(readonly processes: readonly number[]) {}
}

/** The statement fails, and with it the transaction. */
export class Failure extends Error {}

/** Something that must not be, seen in the step itself. */
export class Violation extends Error {}

/** An atomic step; to wait is to try again later. */
export type Step = (turn: Turn) => unknown
export type Program<T = void> = Generator<Step, T, unknown>

export function* step<T>(run: (turn: Turn) => T | Wait): Program<T> {
  return (yield run) as T
}

export function self({ processes, me }: Turn): Process {
  const own = processes[me]
  if (own === undefined) throw new RangeError(`no process ${me}`)
  return own
}

export function set(turn: Turn, patch: Partial<Process>): void {
  turn.processes[turn.me] = { ...self(turn), ...patch }
}

/** Of a query: its own at READ COMMITTED, that of the transaction at REPEATABLE READ. */
export function snapshotOf(turn: Turn): Snapshot {
  const { isolation, command, snapshot } = self(turn)
  const committed = isolation === 'RR' ? (snapshot ?? turn.committed) : turn.committed
  set(turn, { command: command + 1, snapshot: isolation === 'RR' ? committed : undefined })
  return { committed, command: command + 1 }
}

const has = (processes: number, one: number): boolean => ((processes >> one) & 1) === 1

function isSeen(turn: Turn, snapshot: Snapshot, who: number, command: number): boolean {
  return who === turn.me ? command < snapshot.command : has(snapshot.committed, who)
}

export function isVisible(turn: Turn, snapshot: Snapshot, of: Version): boolean {
  if (of.creator !== NOBODY && !isSeen(turn, snapshot, of.creator, of.created)) return false
  return of.deleter === NOBODY || !isSeen(turn, snapshot, of.deleter, of.deleted)
}

export interface Seen<T extends Values = Values> {
  readonly id: string
  readonly version: Version<T>
}

const isName = (of: Version): of is Version<NameValues> => of.values.table === 'names'
const isHolder = (of: Version): of is Version<HolderValues> => of.values.table !== 'names'

function select<T extends Values>(turn: Turn, snapshot: Snapshot, is: (of: Version) => of is Version<T>): Seen<T>[] {
  return turn.rows.flatMap(({ id, versions }) =>
    versions.filter(is).flatMap((version) => (isVisible(turn, snapshot, version) ? [{ id, version }] : [])),
  )
}

export const selectNames = (turn: Turn, snapshot: Snapshot): Seen<NameValues>[] => select(turn, snapshot, isName)

export const selectHolders = (turn: Turn, snapshot: Snapshot, table: Holder): Seen<HolderValues>[] =>
  select(turn, snapshot, isHolder).filter(({ version }) => version.values.table === table)

/** Committed, or this process's own, and not deleted: what is really there. */
export const standing = (turn: Pick<State, 'rows' | 'committed'>, me = NOBODY): Values[] =>
  turn.rows.flatMap(({ versions }) => {
    const done = (who: number): boolean => who === me || has(turn.committed, who)
    const there = versions.filter(
      ({ creator, deleter }) => (creator === NOBODY || done(creator)) && (deleter === NOBODY || !done(deleter)),
    )
    return there.map(({ values }) => values)
  })

/** Those of them that run still. */
function waitFor(turn: Turn, ...who: readonly number[]): Wait | undefined {
  const open = who.filter((one) => one !== NOBODY && one !== turn.me && !has(turn.committed, one))
  return open.length > 0 ? new Wait(open) : undefined
}

function rowOf(turn: Turn, id: string): Row | undefined {
  return turn.rows.find((row) => row.id === id)
}

/**
 * The newest version of a row that an UPDATE, DELETE or SELECT FOR NO KEY UPDATE has found by its snapshot: waits for
 * whoever holds it; if it was changed, the condition is asked again (RC), or the statement fails (RR).
 */
export function seize<T extends Values>(
  turn: Turn,
  seen: Seen<T>,
  where: (of: T) => boolean,
): Version<T> | Wait | undefined {
  const { deleter } = seen.version
  const changed = deleter !== NOBODY && deleter !== turn.me && has(turn.committed, deleter)
  if (changed && self(turn).isolation === 'RR') throw new Failure('40001')
  const newest = rowOf(turn, seen.id)?.versions.at(-1) as Version<T> | undefined
  if (newest === undefined) return undefined
  const wait = waitFor(turn, newest.creator, newest.deleter, newest.lock)
  if (wait) return wait
  return newest.deleter === NOBODY && where(newest.values) ? newest : undefined
}

function replace(turn: Turn, id: string, ...versions: readonly Version[]): void {
  turn.rows = turn.rows.map((row) =>
    row.id === id ? { id, versions: [...row.versions.slice(0, -1), ...versions] } : row,
  )
}

export function lock(turn: Turn, id: string, newest: Version): void {
  replace(turn, id, { ...newest, lock: turn.me })
}

const dead = (turn: Turn, { command }: Snapshot, newest: Version): Version => ({
  ...newest,
  deleter: turn.me,
  deleted: command,
})

export function remove(turn: Turn, snapshot: Snapshot, id: string, newest: Version): void {
  replace(turn, id, dead(turn, snapshot, newest))
}

const fresh = (turn: Turn, { command }: Snapshot, values: Values): Version => ({
  values,
  creator: turn.me,
  created: command,
  deleter: NOBODY,
  deleted: 0,
  lock: NOBODY,
})

export function update<T extends Values>(
  turn: Turn,
  snapshot: Snapshot,
  { id, version }: Seen<T>,
  patch: Partial<T>,
): void {
  replace(turn, id, dead(turn, snapshot, version), fresh(turn, snapshot, { ...version.values, ...patch }))
}

const keyOf = (values: Values): string =>
  values.table === 'names' ? `names ${values.text}` : `${values.table} ${values.key}`

/** Adds the row; or who has its key in the unique index, which goes by no snapshot and waits for inserts and deletes. */
export function insert<T extends Values>(turn: Turn, snapshot: Snapshot, values: T): Seen<T> | Wait | undefined {
  for (const { id, versions } of turn.rows) {
    for (const version of versions) {
      if (keyOf(version.values) !== keyOf(values)) continue
      const isDead = version.deleter === turn.me || has(turn.committed, version.deleter)
      if (version.deleter !== NOBODY && isDead) continue
      const wait = waitFor(turn, version.creator, version.deleter)
      if (wait) return wait
      return { id, version: version as Version<T> }
    }
  }
  const id = `${keyOf(values)} ${turn.me}.${snapshot.command}`
  turn.rows = [...turn.rows, { id, versions: [fresh(turn, snapshot, values)] }]
  return undefined
}

/** INSERT … ON CONFLICT DO UPDATE … WHERE: true where it wrote; locks the row in its way also where it did not. */
export function upsert(
  turn: Turn,
  snapshot: Snapshot,
  values: NameValues,
  where: (of: NameValues) => boolean,
): boolean | Wait {
  const taken = insert(turn, snapshot, values)
  if (taken === undefined) return true
  if (taken instanceof Wait) return taken
  const { id, version } = taken
  const wait = waitFor(turn, version.lock)
  if (wait) return wait
  if (version.creator === turn.me && version.created === snapshot.command) throw new Failure('21000')
  if (isHidden(turn, snapshot, version)) throw new Failure('40001')
  if (where(version.values)) update(turn, snapshot, taken, values)
  else if (turn.fault !== 'noLock') lock(turn, id, version)
  return where(version.values)
}

/** A row in the way that the snapshot of a transaction does not show. */
export const isHidden = (turn: Turn, snapshot: Snapshot, version: Version): boolean =>
  self(turn).isolation === 'RR' && version.creator !== turn.me && !isVisible(turn, snapshot, version)

/** Deletes and row locks of its own vanish, and what it made. */
export function abort(turn: Turn): void {
  const { me } = turn
  turn.rows = turn.rows.flatMap((row) => {
    if (!isOf(row, me)) return row
    const kept = row.versions
      .filter(({ creator }) => creator !== me)
      .map((of) => (of.deleter === me ? { ...of, deleter: NOBODY, deleted: 0 } : of))
    return kept.length > 0 ? [unlockedRow({ id: row.id, versions: kept }, me)] : []
  })
  end(turn)
}

export function commit(turn: Turn): void {
  const { me } = turn
  turn.rows = turn.rows.map((row) => unlockedRow(row, me))
  turn.committed |= 1 << me
  end(turn)
}

const unlockedRow = (row: Row, me: number): Row =>
  row.versions.some((of) => of.lock === me)
    ? { id: row.id, versions: row.versions.map((of) => (of.lock === me ? { ...of, lock: NOBODY } : of)) }
    : row

function end(turn: Turn): void {
  set(turn, { ended: true, answers: [], snapshot: undefined, command: 0, at: self(turn).statements.length })
}

const isOf = ({ versions }: Row, me: number): boolean =>
  versions.some((of) => of.creator === me || of.deleter === me || of.lock === me)

export const hasWritten = ({ rows }: Pick<State, 'rows'>, me: number): boolean => rows.some((row) => isOf(row, me))

export const stored = (id: string, values: Values): Row => ({
  id,
  versions: [{ values, creator: NOBODY, created: 0, deleter: NOBODY, deleted: 0, lock: NOBODY }],
})
