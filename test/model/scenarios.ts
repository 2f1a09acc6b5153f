/** Which transactions meet on which table. One scenario is the search over every combination it names. */
import { alone, finds, orders, pairs, successive, together, undone, type Group } from './combine'
import { begin, type State } from './process'
import {
  behind,
  change,
  clearFlag,
  copied,
  edit,
  fast,
  remove,
  restore,
  slow,
  softDelete,
  takeZero,
  twisted,
  write,
} from './script'
import { script, type Part, type Script, type Statement } from './script'
import { FREED, storedRow, type Row } from './state'

export interface Scenario {
  readonly name: string
  readonly about: string
  readonly tables: readonly (readonly Row[])[]
  readonly groups: readonly Group[]
}

const [A, B, C] = [0, 1, 2]
const RC = ['RC'] as const
const BOTH = ['RC', 'RR'] as const

export const EMPTY: readonly Row[] = []
export const ALONE = [storedRow(A, 0)]
/** The flag stays on when the chain has shrunk. */
const FLAGGED = [storedRow(A, 0, true)]
export const PAIR = [storedRow(A, 0, true), storedRow(B, 1)]
export const TRIPLE = [storedRow(A, 0, true), storedRow(B, 1), storedRow(C, 2)]
const GAP = [storedRow(A, 0, true), storedRow(C, 2)]

/** A softly deleted row, which keeps the number and flag that it had. */
export const freedRow = (text: number, number = 0, flag = false): Row => storedRow(text, number, flag, FREED)

const each = (...parts: readonly Part[]): Statement[] => parts.map((part) => write(part))

const INSERTS = each(slow('A'), slow('B'), slow('C'), fast('A'), fast('B'), fast('C'))
const DELETES = each(remove('A'), remove('B'), remove('C'))
/** In place, which is refused. */
const CHANGES = each(change('A', 'B'), change('B', 'C'))
/** One of each kind, chosen to collide. */
const FEW = each(slow('A'), slow('B'), fast('C'), remove('A'), remove('B'), fast('B'))
const BUSY = each(slow('B'), slow('C'), fast('B'), remove('A'), remove('B'))
const MOVES = each(change('A', "A'"), change('B', "A'"), change('B', "B'"), change("A'", 'A'), change("A'", 'C'))
const AROUND_MOVES = each(slow('B'), slow("C'"), fast('A'), remove('A'), remove("A'"))
/** A row that goes to another partition is deleted there and inserted here, by one statement. */
const BETWEEN_PARTITIONS = [
  write(remove('A'), slow("A'")),
  write(remove('B'), slow("B'")),
  write(remove("A'"), slow('A')),
  write(remove('A'), slow("A'"), remove('B'), slow("B'")),
]
/** A dump of a chain, in each order of its rows: by one statement, and by one for each row. */
const DUMPS = orders(['A!', 'B', 'C']).map((names) => names.map((name) => write(copied(name))))
const COPIES = orders(['A!', 'B', 'C']).map((names) => [write(...names.map(copied))])
/** Rows that go to another partition by DELETE and INSERT of what was deleted. The next row is promoted each time. */
const MOVED_TOGETHER = orders(['A!', 'B']).map((names) => [
  write(...names.flatMap((name) => [remove(name.charAt(0)), copied(name.replace(/(?<=^.)/u, "'"))])),
])
const MOVED_SINGLY = orders(['A', 'B', 'C']).map((names) =>
  names.map((name, index) => {
    const isAnchor = names.slice(index).every((other) => other >= name)
    return write(remove(name), copied(`${name}'${isAnchor ? '!' : ''}`))
  }),
)
const inOneOrMore = (...lists: readonly (readonly Statement[])[]): Script[] =>
  BOTH.flatMap((isolation) =>
    lists.flatMap((statements) => [
      script([{ isolation, statements }]),
      script(statements.map((one) => ({ isolation, statements: [one] }))),
    ]),
  )
/** Triggers of the user's change texts behind the guard's back. */
const TRIGGERED = each(twisted('A', 'B'), twisted('C', 'B'), twisted('B', 'C'), behind('A', 'B'), behind('B', 'C'))
const HOSTILE = each(takeZero('B'), takeZero('C'), clearFlag('A'), edit('A'), edit('B'))

/** With `ignoreDeleted`; two softly deleted rows can have one text. */
const SOFT = each(softDelete('A'), softDelete('B'), restore('A'), restore('B'))
const AROUND_SOFT = each(slow('B'), fast('A'), fast('B'), remove('A'), behind('B~', 'B'), remove('A~'), fast('B~'))
const SOFT_TOGETHER = [
  write(softDelete('A'), softDelete('B')),
  write(softDelete('A'), restore('B')),
  write(restore('A'), restore('B')),
  write(softDelete('A'), fast('B')),
  write(softDelete('A'), slow('C')),
  write(restore('B'), softDelete('A'), fast('B')),
]

/** What one SQL statement can do to a chain by data-modifying CTEs or several rows. */
const TOGETHER = [
  write(slow('B'), slow('C')),
  write(slow('B'), remove('A'), fast('B')),
  write(slow('B'), remove('A'), fast('C')),
  write(remove('A'), fast('B')),
  write(remove('A'), fast('C')),
  write(remove('A'), slow('C')),
  write(slow('B'), remove('A'), slow('C')),
  write(remove('A'), remove('B')),
  write(remove('B'), slow('B')),
  write(change('A', "A'"), change('B', "B'")),
  write(change('B', "B'"), remove('A'), fast('B')),
  write(remove('A'), takeZero('B')),
  write(change('A', "A'"), fast('B')),
  write(change('A', "A'"), slow('B')),
]

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'three',
    about: '3 transactions of one statement: insert, delete, change in place',
    tables: [EMPTY, ALONE, PAIR, TRIPLE],
    groups: [{ count: 3, scripts: alone(BOTH, ...INSERTS, ...DELETES, ...CHANGES) }],
  },
  {
    name: 'four',
    about: '4 transactions of one statement',
    tables: [EMPTY, ALONE, PAIR],
    groups: [{ count: 4, scripts: alone(BOTH, ...BUSY) }],
  },
  {
    name: 'transactions',
    about: '2 transactions of two statements',
    tables: [EMPTY, ALONE, PAIR, TRIPLE],
    groups: [{ count: 2, scripts: pairs(BOTH, ...BUSY, ...each(slow('A'), fast('C'), change('A', "A'"))) }],
  },
  {
    name: 'long and short',
    about: 'a transaction of two statements, and 2 of one',
    tables: [ALONE, PAIR],
    groups: [
      { count: 1, scripts: pairs(BOTH, ...FEW) },
      { count: 2, scripts: alone(RC, ...FEW) },
    ],
  },
  {
    name: 'one after another',
    about: 'a process with two transactions, and 2 with one',
    tables: [EMPTY, PAIR],
    groups: [
      { count: 1, scripts: successive(RC, ...FEW) },
      { count: 2, scripts: alone(BOTH, ...FEW) },
    ],
  },
  {
    name: 'find-or-create',
    about: '2 find-or-create, in a transaction or not, and another writer',
    tables: [EMPTY, ALONE, PAIR],
    groups: [
      { count: 2, scripts: finds(BOTH, 'A', 'B') },
      { count: 1, scripts: alone(BOTH, ...FEW) },
    ],
  },
  {
    name: 'find-or-create, busy',
    about: 'find-or-create, and 3 other writers',
    tables: [EMPTY, ALONE, PAIR],
    groups: [
      { count: 1, scripts: finds(RC, 'B') },
      { count: 3, scripts: alone(RC, ...BUSY) },
    ],
  },
  {
    name: 'moves',
    about: '3 transactions, rows moving between two chains',
    tables: [ALONE, PAIR, [...PAIR, storedRow(A, 0, false, 1)]],
    groups: [{ count: 3, scripts: alone(BOTH, ...MOVES, ...AROUND_MOVES) }],
  },
  {
    name: 'moves between partitions',
    about: '3 transactions, one of them with rows moving between two chains in two partitions',
    tables: [ALONE, PAIR, [...PAIR, storedRow(C, 0, false, 1)]],
    groups: [
      { count: 1, scripts: alone(BOTH, ...BETWEEN_PARTITIONS) },
      { count: 2, scripts: alone(BOTH, ...BETWEEN_PARTITIONS, ...AROUND_MOVES) },
    ],
  },
  {
    name: 'copies',
    about: 'the rows of a chain restored in any order',
    tables: [EMPTY],
    groups: [{ count: 1, scripts: inOneOrMore(...DUMPS, ...COPIES) }],
  },
  {
    name: 'copies between partitions',
    about: 'a chain that is moved to another partition by DELETE and INSERT, in any order',
    tables: [TRIPLE],
    groups: [{ count: 1, scripts: inOneOrMore(...MOVED_TOGETHER, ...MOVED_SINGLY) }],
  },
  {
    name: 'statements',
    about: 'a statement that writes several rows of a chain, and 2 others',
    tables: [ALONE, FLAGGED, PAIR, TRIPLE],
    groups: [
      { count: 1, scripts: alone(BOTH, ...TOGETHER) },
      { count: 2, scripts: alone(BOTH, ...BUSY) },
    ],
  },
  {
    name: 'savepoints',
    about: 'a statement undone by ROLLBACK TO, then another one; and 2 others',
    tables: [ALONE, PAIR],
    groups: [
      { count: 1, scripts: undone(BOTH, ...FEW) },
      { count: 2, scripts: alone(RC, ...FEW) },
    ],
  },
  {
    name: 'own triggers',
    about: "triggers of the user's that change texts, and 2 others",
    tables: [EMPTY, ALONE, PAIR, TRIPLE],
    groups: [
      { count: 2, scripts: alone(BOTH, ...TRIGGERED) },
      { count: 1, scripts: alone(BOTH, ...TRIGGERED, ...BUSY) },
    ],
  },
  {
    name: 'soft deletes',
    about: '3 transactions; softly deleted rows free their texts',
    tables: [
      [storedRow(A, 0), freedRow(B)],
      [...PAIR, freedRow(B, 2)],
      [storedRow(B, 0, true), freedRow(A, 0, true), storedRow(C, 1)],
    ],
    groups: [{ count: 3, scripts: alone(BOTH, ...SOFT, ...AROUND_SOFT) }],
  },
  {
    name: 'soft deletes together',
    about: 'a statement that soft deletes and restores several rows, and 2 others',
    tables: [
      [storedRow(A, 0), freedRow(B)],
      [...PAIR, freedRow(B, 2)],
      [freedRow(A, 0, true), freedRow(B, 1)],
    ],
    groups: [
      { count: 1, scripts: alone(BOTH, ...SOFT_TOGETHER) },
      { count: 2, scripts: alone(BOTH, ...SOFT, ...each(slow('B'), fast('B'), remove('A'))) },
    ],
  },
  {
    name: 'soft deletes, longer',
    about: '2 transactions of two statements, among them soft deletes and restores',
    tables: [
      [storedRow(A, 0), freedRow(B)],
      [...PAIR, freedRow(B, 2)],
    ],
    groups: [{ count: 2, scripts: pairs(BOTH, ...SOFT, ...each(slow('B'), fast('B'), remove('A'))) }],
  },
  {
    name: 'soft deletes, finding',
    about: 'find-or-create, and 2 others that soft delete and restore',
    tables: [EMPTY, [freedRow(A)], [storedRow(A, 0), freedRow(B)], [...PAIR, freedRow(B, 2)]],
    groups: [
      { count: 1, scripts: finds(BOTH, 'A', 'B') },
      { count: 2, scripts: alone(BOTH, ...SOFT, ...each(slow('B'), fast('A'), remove('A'))) },
    ],
  },
  {
    name: 'hostile',
    about: 'clients that write number or flag, or other columns; gaps in a chain; and 2 others',
    tables: [ALONE, PAIR, TRIPLE, GAP],
    groups: [
      { count: 1, scripts: alone(BOTH, ...HOSTILE) },
      { count: 2, scripts: alone(BOTH, ...FEW) },
    ],
  },
]

export function* initialStates({ tables, groups }: Scenario): Generator<State> {
  for (const rows of tables) {
    for (const scripts of together(groups)) yield { rows, processes: scripts.map((each) => begin(each)) }
  }
}
