import { parameter, returningList, type RowShape, type Statement, type WireRow } from './find'
import { list, quote, transition, unnest } from './identifier'
import { equalAs, lockingKey, wantedName, wantedRows, type WantedText } from './taken'
import { alike, equal, field, hashOfValues, type TableName, tableName } from './text-table'
import { fromGeoJson, typeOf } from './types'
import { assignments, isOfClass, type UpdateShape } from './upsert'

/** Rows of a table that are changed at once, each in its own way. */
interface ManyChanges extends Pick<RowShape, 'types' | 'spatial' | 'select'> {
  readonly table: TableName
  readonly primary: readonly string[]
  /** `update` has every column that one of the rows sets. */
  readonly changes: UpdateShape
}

/**
 * Changes many rows by their primary keys. Returns the position of each row that exists, 1-based, and its columns.
 *
 * Parameters: an array of texts for each primary column and each column of `update`, then an array of booleans for each
 * column of `update`, which marks the rows that set it.
 */
export function updateManyStatement({
  table,
  primary,
  types,
  spatial,
  select,
  changes,
}: ManyChanges): Statement<WireRow> {
  const { update } = changes
  const rows = transition('input', table.table)
  const names = [...primary.map((_, nth) => `k${nth}`), ...update.map((_, nth) => `c${nth}`)]
  const marks = update.map((_, nth) => `g${nth}`)
  const arrays = [...names, ...marks].map(
    (name, nth) => `${parameter(nth)}::${name.startsWith('g') ? 'boolean' : 'pg_catalog.text'}[]`,
  )
  const given = (name: string, otherwise = field('t', name)): string => {
    const nth = update.indexOf(name)
    const column = spatial.get(name)
    const value = column ? fromGeoJson(`i.c${nth}`, column) : `i.c${nth}::${typeOf(types, name)}`
    return `CASE WHEN i.g${nth} THEN ${value} ELSE ${otherwise} END`
  }
  const same = primary.map((name, nth) =>
    equalAs(types.get(name)?.type, field('t', name), `i.k${nth}::${typeOf(types, name)}`),
  )
  return {
    name: '',
    sql: `WITH ${rows} AS MATERIALIZED (
  SELECT * FROM ${unnest(arrays, 4)}
    WITH ORDINALITY AS i (${list([...names, ...marks, 'ordinal'], 4)})
), changed AS (
  UPDATE ${tableName(table)} AS t
  SET ${assignments(changes, given)}
  FROM ${rows} AS i
  WHERE ${same.join('\n    AND ')}${isOfClass(changes)}
  RETURNING i.ordinal, ${returningList({ select, spatial }, 't')}
)
SELECT * FROM changed`,
    parse: (row) => row,
  }
}

/** The end of a text that is set aside: a hyphen and 32 hexadecimal digits. */
const END = `'-', pg_catalog.replace(pg_catalog.gen_random_uuid()::pg_catalog.text, '-', '')`
const END_LENGTH = 33

/**
 * Gives rows of the call a text of their own if another row of the call gets their text. The index checks each row by
 * itself, so two rows could not swap their texts otherwise. The same applies to a row that changes to another text of
 * equal hash, because no text becomes another one of its chain in place.
 *
 * It locks all rows in the order of their keys. Nobody else changes them until the call ends, and two calls with the
 * same rows wait for each other. Takes the parameters of `takenStatement`. Returns the position of each row that it sets
 * aside, 1-based, and its text.
 */
export function setAsideStatement(wanted: WantedText): Statement<WireRow> {
  const { table, primary, types } = wanted
  const rows = wantedName([wanted], 0)
  const aside = transition('aside', table.table)
  const first = table.scope.length
  const columns = (row: string): string[] => table.text.map((_, nth) => `${row}${first + nth}`)
  const hashOf = (row: string): string => hashOfValues({ ...table, nullable: true }, columns(row))
  const same = (left: string, right: string): { scope: string[]; text: string[] } => ({
    scope: table.scope.map((_, nth) => equal(`${left}${nth}`, `${right}${nth}`)),
    text: columns(left).map((one, nth) => alike(`${one} COLLATE pg_catalog."C"`, columns(right)[nth] ?? '')),
  })
  const unchanged = same('e.c', 'e.f')
  const wantedBy = same('i.c', 'e.f')
  const placeholders = columns('e.f').map((text, nth) => {
    const declared = types.get(table.text[nth]?.name ?? '')?.declared ?? ''
    const length = Number(/^character(?: varying)?\((\d+)\)$/.exec(declared)?.[1] ?? 0)
    const start = length === 0 ? text : `pg_catalog.left(${text}, ${Math.max(0, length - END_LENGTH)})`
    const whole = `pg_catalog.concat(${start}, ${END})`
    const fitting = length === 0 || length >= END_LENGTH ? whole : `pg_catalog.right(${whole}, ${length})`
    return `CASE WHEN ${text} IS NOT NULL THEN ${fitting} END AS p${nth}`
  })
  const keyOf = (nth: number): string => lockingKey(wanted, `a.k${nth}`)
  const values = table.text.map((_, nth) => `a.p${nth}`)
  const set = [
    ...table.text.map(({ name }, nth) => `${quote(name)} = ${values[nth]}::${typeOf(types, name)}`),
    ...(table.guardless === true ? [`${quote(table.hash)} = ${hashOfValues(table, values)}`] : []),
  ]
  return {
    name: '',
    sql: `WITH ${wantedRows(wanted, rows, 0, true)}, ${aside} AS MATERIALIZED (
  SELECT e.*, ${placeholders.join(',\n    ')}
  FROM ${rows} AS e
  WHERE (${[...unchanged.scope, ...unchanged.text].join('\n    AND ')}) IS NOT TRUE
    AND EXISTS (
      SELECT FROM ${rows} AS i
      WHERE ${[equal(hashOf('i.c'), hashOf('e.f')), ...wantedBy.scope].join('\n        AND ')}
        AND (${equal('i.ordinal', 'e.ordinal')} OR ${wantedBy.text.join('\n        AND ')}))
), changed AS (
  UPDATE ${tableName(table)} AS t
  SET ${set.join(',\n    ')}
  FROM ${aside} AS a
  WHERE ${primary.map((name, nth) => equalAs(types.get(name)?.type, field('t', name), keyOf(nth))).join('\n    AND ')}
  RETURNING ${['a.ordinal', ...columns('a.f')].join(', ')}
)
SELECT * FROM changed`,
    parse: (row) => row,
  }
}
