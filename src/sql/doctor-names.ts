import { literal, qualified } from './identifier'
import { hasNamedKey, holderKey, nameField } from './name-body'
import type { HolderTable, NamesColumn, NamesTable } from './name-table'
import { TRIGGER_MARK } from './trigger-set'
import { bytewise } from './text-table'

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
  `${nameField(of, row, column)}::pg_catalog.text COLLATE pg_catalog."C"`

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
    is(nameField(of, 'n', 'key'), holderKey(holder, 't')),
    ...isOf(name, 'n'),
    isHeld(of, 'n'),
    is(text(of, 'n', 'text'), bytewise('t', column)),
  ]
  const found = `EXISTS (SELECT FROM ${qualified(of.schema, of.table)} AS n WHERE ${conditions.join(' AND ')})`
  return `(${bytewise('t', column)} IS NULL OR ${found})::pg_catalog.text`
}

/**
 * Whether the row `t` of the table of names is true: the row that it names as holder really holds the name. A former name
 * has no holder, so its row is always true.
 *
 * @param names every column that holds names
 * @param among what holders the question is about. undefined: all
 */
export function isTrue(of: NamesTable, names: readonly HeldName[], among: readonly string[] | undefined): string {
  const cases = names.map((name) => {
    const holds = [
      ...hasNamedKey(name.holder, 'r', nameField(of, 't', 'key')),
      is(bytewise('r', name.column), text(of, 't', 'text')),
    ]
    return `WHEN ${isOf(name, 't').join(' AND ')} THEN EXISTS (SELECT FROM ${name.rows} AS r WHERE ${holds.join(' AND ')})`
  })
  const requested = among?.map(literal).join(', ')
  const others = requested === undefined ? [] : [`WHEN ${text(of, 't', 'holder')} NOT IN (${requested}) THEN true`]
  // Two programs may share a table of names; only the other program knows what its tables hold.
  const known = names.map(({ holder }) => `WHEN ${is(text(of, 't', 'holder'), literal(holder.holder))} THEN false`)
  return `(CASE WHEN NOT ${isHeld(of, 't')} THEN true ${[...others, ...cases, ...new Set(known)].join(' ')}
    ELSE ${isOfAnother(of)} END)::pg_catalog.text`
}

/** A table has triggers whose note says that it is the holder of the row `t`. */
const isOfAnother = (of: NamesTable): string => `coalesce(pg_catalog.strpos((
      SELECT pg_catalog.string_agg(p.prosrc, '') FROM pg_catalog.pg_proc AS p
      WHERE pg_catalog.strpos(p.prosrc, ${literal(`${TRIGGER_MARK}names`)}) OPERATOR(pg_catalog.>) 0
        AND p.oid OPERATOR(pg_catalog.=) ANY (SELECT g.tgfoid FROM pg_catalog.pg_trigger AS g)
    ), pg_catalog.concat('"holder":', pg_catalog.to_json(${nameField(of, 't', 'holder')}::pg_catalog.text))) OPERATOR(pg_catalog.>) 0, false)`
