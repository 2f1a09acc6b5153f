import { literal, qualified } from './identifier'
import { hasNamedKey, keyOf, nameField, nameText } from './name-body'
import type { HolderTable, NamesColumn, NamesTable } from './name-table'

/** A column that holds a name, and the rows of its table as SQL. */
export interface HeldName {
  readonly holder: HolderTable
  readonly column: string
  readonly namespace: string
  readonly rows: string
}

const is = (left: string, right: string): string => `${left} OPERATOR(pg_catalog.=) ${right}`

/** A column of the table of names, as text in the collation of its bytes. */
const text = (of: NamesTable, row: string, column: NamesColumn): string =>
  `${nameField(of, row, column)}::pg_catalog.text COLLATE "C"`

const isOf = ({ holder: { holder, of }, column, namespace }: HeldName, row: string): string[] => [
  is(text(of, row, 'holder'), literal(holder)),
  is(text(of, row, 'property'), literal(column)),
  is(text(of, row, 'namespace'), literal(namespace)),
]

const isHeld = (of: NamesTable, row: string): string => is(text(of, row, 'state'), `'held'`)

/** Whether the table of names agrees that the row `t` has its name; true where the row has none. */
export function isNoted(name: HeldName): string {
  const { holder, column } = name
  const { of } = holder
  const conditions = [
    is(nameField(of, 'n', 'key'), keyOf(holder, 't')),
    ...isOf(name, 'n'),
    isHeld(of, 'n'),
    is(text(of, 'n', 'text'), nameText('t', column)),
  ]
  const found = `EXISTS (SELECT FROM ${qualified(of.schema, of.table)} AS n WHERE ${conditions.join(' AND ')})`
  return `(${nameText('t', column)} IS NULL OR ${found})::pg_catalog.text`
}

/**
 * Whether the row `t` of the table of names tells the truth: who is said to hold the name does. Former names are true.
 *
 * @param names every column that holds names
 * @param among what holders the question is about. undefined: all
 */
export function isTrue(of: NamesTable, names: readonly HeldName[], among: readonly string[] | undefined): string {
  const cases = names.map((name) => {
    const holds = [
      ...hasNamedKey(name.holder, 'r', nameField(of, 't', 'key')),
      is(nameText('r', name.column), text(of, 't', 'text')),
    ]
    return `WHEN ${isOf(name, 't').join(' AND ')} THEN EXISTS (SELECT FROM ${name.rows} AS r WHERE ${holds.join(' AND ')})`
  })
  const asked = among?.map(literal).join(', ')
  const others = asked === undefined ? [] : [`WHEN ${text(of, 't', 'holder')} NOT IN (${asked}) THEN true`]
  return `(CASE WHEN NOT ${isHeld(of, 't')} THEN true ${[...others, ...cases].join(' ')} ELSE false END)::pg_catalog.text`
}
