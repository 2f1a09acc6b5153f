/** The function `take`, query by query: `src/names/sql/take.ts`. */
import {
  Failure,
  insert,
  isHidden,
  lock,
  remove,
  seize,
  selectHolders,
  selectNames,
  snapshotOf,
  standing,
  step,
  update,
  upsert,
  Violation,
  Wait,
  type Holder,
  type HolderValues,
  type NameValues,
  type Program,
  type Seen,
  type Snapshot,
  type Turn,
} from './heap'

/** A row of the transition table. */
export interface NewRow {
  readonly key: number
  readonly name: string | undefined
}

interface Claim {
  readonly key: number
  readonly text: string
}

const ROUNDS = 16

/** What comes of a former name: `former: 'reserve'` on one table, `'free'` on the other. */
export const RESERVES: Readonly<Record<Holder, boolean>> = { users: false, orgs: true }

const heldName = (table: Holder, { key, text }: Claim): NameValues => ({
  table: 'names',
  text,
  holder: table,
  key,
  state: 'held',
  ended: false,
})

export const byText = (one: { readonly text: string }, other: { readonly text: string }): number =>
  one.text < other.text ? -1 : Number(one.text > other.text)

/** ORDER BY age(xmin) LIMIT 1: what this transaction wrote comes first. */
function newest<T extends HolderValues | NameValues>(turn: Turn, seen: readonly Seen<T>[]): Seen<T> | undefined {
  const own = seen.find(({ version }) => version.creator === turn.me)
  return (turn.fault === 'oldRowCounts' ? undefined : own) ?? seen[0]
}

/** `standingRow`: the rows as they are by now. */
function touched(turn: Turn, snapshot: Snapshot, table: Holder, rows: readonly NewRow[]): NewRow[] {
  if (turn.fault === 'noReread') return [...rows]
  const all = selectHolders(turn, snapshot, table)
  return rows.flatMap(({ key }) => {
    const row = newest(
      turn,
      all.filter(({ version }) => version.values.key === key),
    )
    return row ? [{ key, name: row.version.values.name }] : []
  })
}

function heldByRow(turn: Turn, snapshot: Snapshot, table: Holder, key: number): Seen<NameValues> | undefined {
  const held = selectNames(turn, snapshot).filter(
    ({ version: { values } }) => values.holder === table && values.key === key && values.state === 'held',
  )
  return newest(turn, held)
}

const claimsOf = (rows: readonly NewRow[]): Claim[] =>
  rows.flatMap(({ key, name }) => (name === undefined ? [] : [{ key, text: name }]))

interface Plan {
  readonly snapshot: Snapshot
  /** DISTINCT ON, sorted. */
  readonly entries: readonly Claim[]
  /** How many names are claimed. */
  readonly given: number
  readonly freed: readonly string[]
}

function distinct(turn: Turn, table: Holder, entries: readonly Claim[]): Claim[] {
  const once = entries.filter(({ text }, index) => entries.findIndex((one) => one.text === text) === index)
  return turn.fault === 'otherOrder' && table === 'orgs' ? once.sort((a, b) => byText(b, a)) : once.sort(byText)
}

const planInsert = (turn: Turn, table: Holder, rows: readonly NewRow[]): Plan => {
  const snapshot = snapshotOf(turn)
  const entries = distinct(turn, table, claimsOf(touched(turn, snapshot, table, rows)))
  return { snapshot, entries, given: claimsOf(rows).length, freed: [] }
}

function planUpdate(turn: Turn, table: Holder, rows: readonly NewRow[]): Plan {
  const snapshot = snapshotOf(turn)
  const changed = touched(turn, snapshot, table, rows).flatMap((row) => {
    const held = heldByRow(turn, snapshot, table, row.key)
    return held?.version.values.text === row.name ? [] : [{ ...row, held }]
  })
  const claims = claimsOf(changed)
  const releases = changed.flatMap(({ key, held }) => (held ? [{ key, text: held.version.values.text }] : []))
  const freed = changed.flatMap(({ held }) => held?.id ?? [])
  return { snapshot, entries: order(turn, table, claims, releases), given: claims.length, freed }
}

function order(turn: Turn, table: Holder, claims: readonly Claim[], releases: readonly Claim[]): Claim[] {
  if (turn.fault === 'claimsOnly') return distinct(turn, table, claims)
  const entries = distinct(turn, table, [...claims, ...releases])
  if (turn.fault !== 'releasesFirst') return entries
  const isClaim = ({ text }: Claim): boolean => claims.some((one) => one.text === text)
  return [...entries.filter((one) => !isClaim(one)), ...entries.filter(isClaim)]
}

function isFree(turn: Turn, table: Holder, key: number, of: NameValues): boolean {
  if (of.state === 'held') return false
  return turn.fault === 'reservationsDoNotCount' || of.ended || (of.holder === table && of.key === key)
}

/** The row that is said to hold the name does not have it any more. */
function isAbandoned(turn: Turn, snapshot: Snapshot, table: Holder, of: NameValues): boolean {
  if (of.state !== 'held' || of.holder !== table || turn.fault === 'nothingIsAbandoned') return false
  if (turn.fault === 'takenFromAnyone') return true
  const rows = selectHolders(turn, snapshot, table)
  return !rows.some(({ version: { values } }) => values.key === of.key && values.name === of.text)
}

const claim = (table: Holder, snapshot: Snapshot, one: Claim): Program<boolean> =>
  step((turn) =>
    upsert(
      turn,
      snapshot,
      heldName(table, one),
      (of) =>
        isFree(turn, table, one.key, of) ||
        (turn.fault === 'abandonedInOldSnapshot' && isAbandoned(turn, snapshot, table, of)),
    ),
  )

/** The one sorted pass. How many of its rows were written. */
function* pass(table: Holder, { snapshot, entries }: Plan): Program<number> {
  let done = 0
  for (const one of entries) done += Number(yield* claim(table, snapshot, one))
  return done
}

/** One row that has a name, and gets another: `src/names/sql/take.ts`. Whether it has it now. */
function* changeOne(table: Holder, row: NewRow): Program<boolean> {
  const {
    freed,
    entries,
    order: first,
  } = yield* step((turn) => {
    const plan = planUpdate(turn, table, [row])
    const [one] = claimsOf(touched(turn, plan.snapshot, table, [row]))
    const former = heldByRow(turn, plan.snapshot, table, row.key)?.version.values.text ?? ''
    const claims = one !== undefined && one.text < former && turn.fault !== 'givesUpFirst'
    return { freed: plan.freed, entries: one ? [one] : [], order: claims ? 'claim' : 'release' }
  })
  const [one, id] = [entries[0], freed[0]]
  if (one === undefined || id === undefined) return false
  if (first === 'release') yield* release(table, id, [])
  const done = yield* claim(table, yield* step(snapshotOf), one)
  if (first === 'claim') yield* release(table, id, [])
  return done
}

/** `take`: AFTER INSERT for the statement, AFTER UPDATE for each row. */
export function* take(table: Holder, event: 'insert' | 'update', rows: readonly NewRow[], row?: NewRow): Program {
  if (row && ((yield* isRight(table, row)) || (rows.length === 1 && (yield* changeOne(table, row))))) return
  const plan = yield* step((turn) =>
    event === 'insert' ? planInsert(turn, table, rows) : planUpdate(turn, table, rows),
  )
  const done = yield* pass(table, plan)
  const taken = done < plan.given ? yield* takeOneByOne(table, rows) : []
  for (const id of plan.freed) yield* release(table, id, taken)
}

const isRight = (table: Holder, row: NewRow): Program<boolean> =>
  step((turn) => {
    const snapshot = snapshotOf(turn)
    const [standingRow] = touched(turn, snapshot, table, [row])
    if (standingRow === undefined) return true
    return heldByRow(turn, snapshot, table, row.key)?.version.values.text === standingRow.name
  })

/** Claims whose name is not held for their row, as the query that lists them has it. */
function isOpen(turn: Turn, snapshot: Snapshot, table: Holder, one: Claim): boolean {
  const held = selectNames(turn, snapshot).find(({ version }) => isSame(version.values, heldName(table, one)))
  // FOR KEY SHARE: an old snapshot may show what a row that is gone held by this key.
  const version = held && turn.fault !== 'heldInOldSnapshot' ? seize(turn, held, () => true) : held
  return version === undefined
}

const isSame = (one: NameValues, { text, holder, key, state }: NameValues): boolean =>
  one.text === text && one.holder === holder && one.key === key && one.state === state

function* takeOneByOne(table: Holder, rows: readonly NewRow[]): Program<string[]> {
  const open = yield* step((turn) => {
    const snapshot = snapshotOf(turn)
    const claims = claimsOf(touched(turn, snapshot, table, rows))
    return claims.filter((one) => isOpen(turn, snapshot, table, one)).sort(byText)
  })
  const taken: string[] = []
  let refused = false
  for (const one of open) {
    const id = yield* takeOne(table, one)
    if (id === '') refused = true
    else taken.push(id)
  }
  if (refused) {
    yield* step((): boolean => {
      throw new Failure('23505')
    })
  }
  return taken
}

/** The id of the name that is this row's now; '' where it was refused. */
function* takeOne(table: Holder, one: Claim): Program<string> {
  for (let round = 0; round < ROUNDS; round++) {
    const looked = yield* step(snapshotOf)
    const id = yield* step((turn) => lookAgain(turn, looked, one.text))
    const snapshot = yield* step(snapshotOf)
    if (id === '') {
      if (yield* step((turn) => insertNothing(turn, snapshot, heldName(table, one)))) return 'new'
    } else return (yield* step((turn) => takeFound(turn, snapshot, table, one))) ? id : ''
  }
  return yield* step((): string => {
    throw new Violation('a name is looked for and never found')
  })
}

/** SELECT … FOR NO KEY UPDATE of the name. */
function lookAgain(turn: Turn, snapshot: Snapshot, text: string): string | Wait {
  const seen = selectNames(turn, snapshot).find(({ version }) => version.values.text === text)
  if (turn.fault === 'noLock' || seen === undefined) return seen?.id ?? ''
  const version = seize(turn, seen, () => true)
  if (version instanceof Wait) return version
  if (version) lock(turn, seen.id, version)
  return version ? seen.id : ''
}

/** INSERT … ON CONFLICT DO NOTHING */
function insertNothing(turn: Turn, snapshot: Snapshot, values: NameValues): boolean | Wait {
  const taken = insert(turn, snapshot, values)
  if (taken instanceof Wait) return taken
  if (taken && isHidden(turn, snapshot, taken.version)) throw new Failure('40001')
  return taken === undefined
}

function takeFound(turn: Turn, snapshot: Snapshot, table: Holder, one: Claim): boolean | Wait {
  const seen = selectNames(turn, snapshot).find(({ version }) => version.values.text === one.text)
  if (seen === undefined) return false
  const version = seize(turn, seen, (of) => isFree(turn, table, one.key, of) || isAbandoned(turn, snapshot, table, of))
  if (version instanceof Wait) return version
  if (version) update(turn, snapshot, { id: seen.id, version }, heldName(table, one))
  else expectReason(turn, table, one)
  return version !== undefined
}

/** A refusal is right only where somebody else has the name. */
function expectReason(turn: Turn, table: Holder, { key, text }: Claim): void {
  const isReason = standing(turn, turn.me).some((of) => {
    if (of.table === 'names') return of.text === text && of.state !== 'held' && !of.ended
    return of.name === text && (of.table !== table || of.key !== key)
  })
  if (!isReason) throw new Violation('a name is refused that nobody has')
}

/** `releaseNames`, of one name: by its id, which this statement has locked, alone. */
function* release(table: Holder, id: string, taken: readonly string[]): Program<boolean> {
  return yield* step((turn) => {
    if (turn.fault === 'nothingIsReleased' || (taken.includes(id) && turn.fault !== 'noLook')) return true
    const snapshot = snapshotOf(turn)
    const seen = selectNames(turn, snapshot).find((one) => one.id === id)
    const version = seen && seize(turn, seen, () => true)
    if (version instanceof Wait) return version
    if (version && RESERVES[table]) update(turn, snapshot, { id, version }, { state: 'reserved', ended: false })
    else if (version) remove(turn, snapshot, id, version)
    return true
  })
}
