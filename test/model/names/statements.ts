/** What a transaction does to the tables of holders, and to the table of names. */
import {
  Failure,
  insert,
  remove,
  seize,
  selectHolders,
  selectNames,
  self,
  snapshotOf,
  step,
  update,
  Wait,
  type Holder,
  type HolderValues,
  type Program,
  type Seen,
  type Snapshot,
  type Turn,
} from './heap'
import { give } from './give'
import { take, type NewRow } from './take'

export type Statement =
  | { readonly kind: 'insert'; readonly table: Holder; readonly rows: readonly NewRow[] }
  | {
      readonly kind: 'update'
      readonly table: Holder
      /** In the order in which they are locked. */
      readonly rows: readonly NewRow[]
      /** What a trigger of the user's does that runs before ours. */
      readonly beforeOurs?: Statement
    }
  | { readonly kind: 'delete'; readonly table: Holder; readonly keys: readonly number[] }
  /** A direct DELETE of a former name. */
  | { readonly kind: 'forget'; readonly text: string }
  /** `releaseExpired` */
  | { readonly kind: 'expire' }

/** A row written by its key. At READ COMMITTED the snapshot may be as young as the attempt: the newest version counts. */
function onRow(
  table: Holder,
  key: number,
  write: (turn: Turn, snapshot: Snapshot, found: Seen<HolderValues>) => void,
): Program<boolean> {
  return step((turn) => {
    const snapshot = snapshotOf(turn)
    // The index may lead to a row that is gone, and to the one that came after it.
    for (const seen of selectHolders(turn, snapshot, table).filter(({ version }) => version.values.key === key)) {
      const version = seize(turn, seen, () => true)
      if (version instanceof Wait) return version
      if (version === undefined) continue
      write(turn, snapshot, { id: seen.id, version })
      return true
    }
    return false
  })
}

function* insertRows({ table, rows }: Extract<Statement, { kind: 'insert' }>): Program {
  for (const { key, name } of rows) {
    yield* step((turn) => {
      const taken = insert(turn, snapshotOf(turn), { table, key, name })
      if (taken !== undefined && !(taken instanceof Wait)) throw new Failure('23505')
      return taken ?? true
    })
  }
  yield* take(table, 'insert', rows)
}

function* updateRows({ table, rows, beforeOurs }: Extract<Statement, { kind: 'update' }>): Program {
  const written: NewRow[] = []
  for (const row of rows) {
    const found = yield* onRow(table, row.key, (turn, snapshot, seen) => {
      update(turn, snapshot, seen, { name: row.name })
    })
    if (found) written.push(row)
  }
  if (beforeOurs !== undefined) yield* run(beforeOurs)
  // Rows whose name does not differ fire as well: the first look of the trigger sends them away.
  for (const row of written) yield* take(table, 'update', written, row)
}

function* deleteRows({ table, keys }: Extract<Statement, { kind: 'delete' }>): Program {
  const gone: number[] = []
  for (const key of keys) {
    const found = yield* onRow(table, key, (turn, snapshot, { id, version }) => remove(turn, snapshot, id, version))
    if (found) gone.push(key)
  }
  yield* give(table, gone)
}

const forget = ({ text }: Extract<Statement, { kind: 'forget' }>): Program<boolean> =>
  step((turn) => {
    const snapshot = snapshotOf(turn)
    const seen = selectNames(turn, snapshot).find(({ version }) => version.values.text === text)
    const version = seen && seize(turn, seen, ({ state }) => state === 'reserved')
    if (version instanceof Wait) return version
    if (seen && version) remove(turn, snapshot, seen.id, version)
    return version !== undefined
  })

/** FOR UPDATE SKIP LOCKED: it never waits. */
const expire = (): Program<boolean> =>
  step((turn) => {
    const snapshot = snapshotOf(turn)
    for (const seen of selectNames(turn, snapshot)) {
      const version = seize(turn, seen, ({ state, ended }) => state === 'reserved' && ended)
      if (version !== undefined && !(version instanceof Wait)) remove(turn, snapshot, seen.id, version)
    }
    return true
  })

export function* run(statement: Statement): Program {
  yield* beginTransaction()
  if (statement.kind === 'insert') yield* insertRows(statement)
  else if (statement.kind === 'update') yield* updateRows(statement)
  else if (statement.kind === 'delete') yield* deleteRows(statement)
  else if (statement.kind === 'forget') yield* forget(statement)
  else yield* expire()
}

/** At REPEATABLE READ others may come between the snapshot and the first row. */
const beginTransaction = (): Program<boolean> =>
  step((turn) => {
    if (self(turn).isolation === 'RR' && self(turn).snapshot === undefined) snapshotOf(turn)
    return true
  })
