/** Which transactions meet on which names. One scenario is the search over every combination that it names. */
import { together, type Group } from '../combine'
import { stored, type Holder, type Isolation, type Process, type Row, type State } from './heap'
import type { Statement } from './statements'

export interface Transaction {
  readonly isolation: Isolation
  readonly statements: readonly Statement[]
}

export interface Scenario {
  readonly name: string
  readonly about: string
  readonly deadlocks: 'none' | 'possible'
  readonly tables: readonly (readonly Row[])[]
  readonly groups: readonly Group<Transaction>[]
}

const LEVELS = ['RC', 'RR'] as const

/** A row, and the name that it holds. */
export const holding = (holder: Holder, key: number, name?: string): Row[] => [
  stored(`${holder} ${key}`, { table: holder, key, name }),
  ...(name === undefined
    ? []
    : [stored(`names ${name}`, { table: 'names', text: name, holder, key, state: 'held', ended: false })]),
]

/** A former name of a row. */
const former = (key: number, text: string, ended: boolean, holder: Holder = 'orgs'): Row =>
  stored(`names ${text}`, { table: 'names', text, holder, key, state: 'reserved', ended })

type Names = Readonly<Record<number, string | undefined>>
const rowsOf = (names: Names) => Object.entries(names).map(([key, name]) => ({ key: Number(key), name }))

export const create = (table: Holder, names: Names): Statement => ({ kind: 'insert', table, rows: rowsOf(names) })
export const rename = (table: Holder, names: Names, beforeOurs?: Statement): Statement => ({
  kind: 'update',
  table,
  rows: rowsOf(names),
  ...(beforeOurs ? { beforeOurs } : {}),
})
export const drop = (table: Holder, ...keys: readonly number[]): Statement => ({ kind: 'delete', table, keys })
const forget = (text: string): Statement => ({ kind: 'forget', text })
const expire: Statement = { kind: 'expire' }

/** Each statement as a transaction of its own, at each level. */
export const alone = (levels: readonly Isolation[], ...statements: readonly Statement[]): Transaction[] =>
  levels.flatMap((isolation) => statements.map((one) => ({ isolation, statements: [one] })))

/** Every two of them as one transaction. */
export const pairs = (levels: readonly Isolation[], ...statements: readonly Statement[]): Transaction[] =>
  levels.flatMap((isolation) =>
    statements.flatMap((one) => statements.map((two) => ({ isolation, statements: [one, two] }))),
  )

/** Users 1 and 2 have a and b; org 1 has o. */
export const PLAIN = [...holding('users', 1, 'a'), ...holding('users', 2, 'b'), ...holding('orgs', 1, 'o')]
/** Org 1 had a, which is reserved, or was. */
export const KEPT = [...holding('users', 1, 'b'), ...holding('orgs', 1, 'o'), former(1, 'a', false)]
export const ENDED = [...holding('users', 1, 'b'), ...holding('orgs', 1, 'o'), former(1, 'a', true)]

export const swap = rename('users', { 1: 'b', 2: 'a' })
const MOVES = [
  rename('users', { 1: 'b' }),
  rename('users', { 1: 'a' }),
  rename('users', { 1: 'x' }),
  rename('users', { 1: undefined, 2: 'a' }),
  swap,
  drop('users', 1),
  create('users', { 3: 'a' }),
  rename('orgs', { 1: 'a' }),
  rename('orgs', { 1: 'x' }),
  create('orgs', { 2: 'a' }),
  drop('orgs', 1),
]
const CLEANING = [forget('a'), expire]
const FEW = [
  rename('users', { 1: 'x' }),
  swap,
  drop('users', 1),
  rename('orgs', { 1: 'a' }),
  create('users', { 1: 'a' }),
]

const LONG = [...FEW, drop('orgs', 1)]
const BULKY = [...PLAIN, ...holding('orgs', 2, 'p')]

const BULK = [
  rename('users', { 2: 'a0' }),
  create('users', { 3: 'x', 4: 'y' }),
  create('users', { 3: 'y', 4: 'x' }),
  rename('users', { 1: 'y', 2: 'x' }),
  rename('users', { 1: 'o', 2: 'x' }),
  swap,
  drop('users', 1, 2),
]
const BULK_ORGS = [
  rename('orgs', { 1: 'a' }),
  create('orgs', { 3: 'a0', 4: 'b' }),
  create('orgs', { 3: 'y', 4: 'x' }),
  create('orgs', { 3: 'b', 4: 'a' }),
  rename('orgs', { 1: 'b', 2: 'a' }),
  rename('orgs', { 1: 'x', 2: 'o' }),
  drop('orgs', 1, 2),
]

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'names, two',
    about: '2 transactions of one statement: claim, rename, exchange, take back, delete, forget, expire',
    deadlocks: 'none',
    tables: [PLAIN, KEPT, ENDED],
    groups: [{ count: 2, scripts: alone(LEVELS, ...MOVES, ...CLEANING) }],
  },
  {
    name: 'names, three',
    about: '3 transactions of one statement',
    deadlocks: 'none',
    tables: [PLAIN],
    groups: [
      { count: 1, scripts: alone(LEVELS, ...FEW) },
      { count: 2, scripts: alone(['RC'], ...FEW) },
    ],
  },
  {
    name: 'names, long and short',
    about: 'a transaction of two statements, and one of one',
    deadlocks: 'possible',
    tables: [PLAIN, KEPT],
    groups: [
      { count: 1, scripts: pairs(LEVELS, ...LONG) },
      { count: 1, scripts: alone(LEVELS, ...FEW) },
    ],
  },
  {
    name: 'names in bulk',
    about: '2 bulk writes, over two tables',
    deadlocks: 'none',
    tables: [BULKY],
    groups: [
      { count: 1, scripts: alone(LEVELS, ...BULK) },
      { count: 1, scripts: alone(LEVELS, ...BULK_ORGS) },
    ],
  },
]

export function* starts({ tables, groups }: Scenario): Generator<State> {
  for (const rows of tables) {
    for (const chosen of together(groups)) yield { rows, processes: chosen.map(processOf), committed: 0 }
  }
}

const processOf = ({ isolation, statements }: Transaction): Process => ({
  isolation,
  statements,
  at: 0,
  answers: [],
  command: 0,
  snapshot: undefined,
  ended: false,
})
