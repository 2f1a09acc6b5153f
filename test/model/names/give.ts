/** The function `give`, query by query: `src/names/sql/triggers.ts`. */
import {
  lock,
  remove,
  seize,
  selectHolders,
  selectNames,
  snapshotOf,
  step,
  Wait,
  type Holder,
  type NameValues,
  type Program,
  type Seen,
  type Snapshot,
  type Turn,
} from './heap'
import { byText } from './take'

/** `give`: AFTER DELETE for the statement. */
export function* give(table: Holder, keys: readonly number[]): Program {
  const gone = yield* step((turn) => {
    const snapshot = snapshotOf(turn)
    const names = selectNames(turn, snapshot).filter(
      ({ version }) => keys.includes(version.values.key) && isGone(turn, snapshot, table, version.values),
    )
    return names.sort((a, b) => byText(a.version.values, b.version.values)).map(({ id }) => id)
  })
  // In the order in which every statement locks names.
  if (gone.length > 1) for (const id of gone) yield* onGone(id, () => true, lockGone)
  const isStillTheirs = (turn: Turn, of: NameValues): boolean =>
    turn.fault === 'deletedById' || (of.holder === table && keys.includes(of.key))
  // In the order in which the rows lie: any.
  for (const id of [...gone].sort().reverse()) {
    yield* onGone(id, isStillTheirs, (turn, snapshot, { version }) => remove(turn, snapshot, id, version))
  }
}

const lockGone = (turn: Turn, _: Snapshot, { id, version }: Seen<NameValues>): void => {
  if (turn.fault !== 'deletedInAnyOrder') lock(turn, id, version)
}

function isGone(turn: Turn, snapshot: Snapshot, table: Holder, of: NameValues): boolean {
  if (of.holder !== table) return false
  return !selectHolders(turn, snapshot, table).some(
    ({ version: { values } }) => values.key === of.key && (of.state !== 'held' || values.name === of.text),
  )
}

const onGone = (
  id: string,
  where: (turn: Turn, of: NameValues) => boolean,
  write: (turn: Turn, snapshot: Snapshot, seen: Seen<NameValues>) => void,
): Program<boolean> =>
  step((turn) => {
    const snapshot = snapshotOf(turn)
    const seen = selectNames(turn, snapshot).find((one) => one.id === id)
    const version = seen && seize(turn, seen, (of) => where(turn, of))
    if (version instanceof Wait) return version
    if (version) write(turn, snapshot, { id, version })
    return true
  })
