import { asStored, type ColumnTypes } from './column-type'
import { anyNumber, parameter, type Statement, type WireRow } from './statements'
import { field, hashExpression, isLive, sameScope, sameText, tableName, textIsNull, type TextTable } from './text-table'

/** A unique text of which a call wants some texts for itself. */
export interface WantedText {
  readonly table: TextTable
  readonly types: ColumnTypes
  /** Database names of the primary key. */
  readonly primary: readonly string[]
  /** Rows that stand shall be changed: what a change leaves out is read from them. */
  readonly standing: boolean
}

/** One row of the call, and who has its text. */
export interface WantedRow {
  /** 0-based position of the wanted text, and of the row among its rows. */
  readonly wanted: number
  readonly index: number
  /** An earlier row of the call has the same text. */
  readonly repeated: boolean
  /** The primary key of the stored row that holds the text. */
  readonly holder: readonly unknown[] | undefined
}

/**
 * Which texts are taken, by a stored row or by an earlier row of the call, in one statement for all of them. It gives a
 * row for every one that was requested, but for those without a text.
 *
 * Parameters, for each wanted text: an array of texts for each column of its scope and its text; if its rows stand, an
 * array of booleans for each of these, whether the change brings it, an array of texts for each primary column, and,
 * where a deleted row frees its text, an array of booleans: whether the row will be live, NULL where it stays as it is.
 */
export function takenStatement(wanted: readonly WantedText[]): Statement<WantedRow> {
  const offsets = offsetsOf(wanted.map((one) => parametersOf(one)))
  const inputs = wanted.map((one, nth) => input(one, nth, offsets[nth] ?? 0))
  const arms = wanted.map((_, nth) => arm(wanted, nth))
  return {
    name: '',
    sql: `WITH ${inputs.join(', ')}\n${arms.join('\nUNION ALL\n')}`,
    parse: parser(wanted),
  }
}

const keyNames = ({ scope, text }: TextTable): string[] => [...scope, ...text.map(({ name }) => name)]

const parametersOf = ({ table, primary, standing }: WantedText): number =>
  standing ? 2 * keyNames(table).length + primary.length + Number(table.deleted !== undefined) : keyNames(table).length

function offsetsOf(lengths: readonly number[]): number[] {
  return lengths.map((_, nth) => lengths.slice(0, nth).reduce((sum, length) => sum + length, 0))
}

/** The rows as they shall be: `c0`, `c1`, … the key; `k0`, `k1`, … the primary key of those that stand. */
function input(wanted: WantedText, nth: number, offset: number): string {
  const { table, primary, standing } = wanted
  const live = isLive(table, 'r')
  const names = [
    ...keyNames(table).map((_, index) => `c${index}`),
    ...(standing ? keyNames(table).map((_, index) => `g${index}`) : []),
    ...(standing ? primary.map((_, index) => `k${index}`) : []),
    ...(standing ? live.map(() => 'live') : []),
  ]
  const arrays = names.map(
    (name, index) => `${parameter(offset + index)}::${/^[gl]/.test(name) ? 'boolean' : 'text'}[]`,
  )
  const values = keyNames(table).map((name, index) => `${keyValue(wanted, name, index)} AS c${index}`)
  const ids = primary.map((name, index) => `${stored(wanted, name, `i.k${index}`)} AS k${index}`)
  return `i${nth} AS MATERIALIZED (
  SELECT i.ordinal, ${[...values, ...(standing ? ids : [])].join(',\n    ')}
  FROM unnest(${arrays.join(', ')})
    WITH ORDINALITY AS i (${[...names, 'ordinal'].join(', ')})${standing ? standingRow(wanted) : ''}
)`
}

/** The row as it stands, unless it will be deleted and free its text. */
function standingRow(wanted: WantedText): string {
  const { table, primary } = wanted
  const same = primary.map((name, index) => `${field('r', name)} = ${stored(wanted, name, `i.k${index}`)}`)
  const live = isLive(table, 'r').map((is) => `coalesce(i.live, ${is})`)
  return `\n  JOIN ${tableName(table)} AS r ON ${[...same, ...live].join('\n    AND ')}`
}

function keyValue(wanted: WantedText, name: string, index: number): string {
  const isText = index >= wanted.table.scope.length
  const given = isText ? `i.c${index}` : stored(wanted, name, `i.c${index}`)
  if (!wanted.standing) return given
  return `CASE WHEN i.g${index} THEN ${given} ELSE ${field('r', name)}${isText ? '::pg_catalog.text' : ''} END`
}

function stored({ types }: WantedText, name: string, value: string): string {
  const type = types.get(name)
  return type ? asStored(value, type) : value
}

/** A row for every row of one wanted text, with the primary key of the row that holds its text. */
function arm(wanted: readonly WantedText[], nth: number): string {
  const { table, primary, standing } = wanted[nth] as WantedText
  const key = keyNames(table).map((name, index) => `i.c${index} AS ${field('', name)}`)
  const parts = keyNames(table).map((_, index) =>
    index < table.scope.length ? `i.c${index}` : `i.c${index} COLLATE "C"`,
  )
  const same = [
    ...sameScope(table, 't', 'n'),
    `${field('t', table.hash)} OPERATOR(pg_catalog.=)\n      ${hashExpression(table, 'n', '\n    ')}`,
    ...sameText(table, 't', 'n'),
    ...isLive(table, 't'),
    anyNumber(table),
    // A row that this change, or an earlier one of the call, gives another text holds the old one no longer.
    ...(standing ? [`NOT EXISTS (SELECT FROM i${nth} AS e WHERE e.ordinal <= i.ordinal AND ${sameRow(primary)})`] : []),
  ]
  return `SELECT ${nth} AS wanted, i.ordinal,
  CASE WHEN i.ordinal > min(i.ordinal)
    OVER (PARTITION BY ${parts.join(', ')}) THEN 1 END AS repeated,
  ${primaryList(wanted, nth)}
FROM i${nth} AS i
CROSS JOIN LATERAL (SELECT ${key.join(', ')}) AS n
LEFT JOIN LATERAL (
  SELECT ${primary.map((name, index) => `${field('t', name)} AS k${index}`).join(', ')}
  FROM ${tableName(table)} AS t
  WHERE ${same.join('\n    AND ')}
  LIMIT 1
) AS h ON true
WHERE NOT (${textIsNull(table, 'n').join(' AND ')})`
}

const sameRow = (primary: readonly string[]): string =>
  primary.map((name, index) => `e.k${index} = ${field('t', name)}`).join(' AND ')

/** Every arm has the columns of all, each with its own type, so that the driver parses a key as `find` would give it. */
function primaryList(wanted: readonly WantedText[], nth: number): string {
  const columns = wanted.flatMap(({ primary, types }, other) =>
    primary.map((name, index) =>
      other === nth ? `h.k${index}` : `NULL::${types.get(name)?.type ?? 'pg_catalog.text'}`,
    ),
  )
  return columns.map((column, index) => `${column} AS p${index}`).join(', ')
}

function parser(wanted: readonly WantedText[]): (row: WireRow) => WantedRow {
  const offsets = offsetsOf(wanted.map(({ primary }) => primary.length))
  return ([nth, ordinal, repeated, ...ids]) => {
    const position = Number(nth)
    const offset = offsets[position] ?? 0
    const holder = ids.slice(offset, offset + (wanted[position]?.primary.length ?? 0))
    return {
      wanted: position,
      index: Number(ordinal) - 1,
      repeated: repeated !== null,
      holder: holder.includes(null) ? undefined : holder,
    }
  }
}
