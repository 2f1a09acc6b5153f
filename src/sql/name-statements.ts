import { qualified, quote } from './identifier'

import type { HolderTable, NamesTable } from './name-table'
import { named, nameList, parameter, type Statement, type WireRow } from './statements'
import { type RowShape, returningList } from './stored-row'
import { equal, op } from './text-table'

/** A row of a holder's table: what is read of it, and which rows are of the class that was asked for. */
export interface HolderRow {
  readonly holder: HolderTable
  /** The column that holds the name. */
  readonly name: string
  readonly row: Pick<RowShape, 'select' | 'spatial'>
  /** In single table inheritance. */
  readonly only: { readonly column: string; readonly values: readonly string[] } | undefined
}

/** The row that holds a name, by the index over the column; the name is compared byte by byte. */
export function findByNameStatement({ holder, name, row }: HolderRow): Statement<WireRow> {
  return named(
    `SELECT ${returningList(row, 't')}
FROM ${qualified(holder.schema, holder.table)} AS t
WHERE ${equal(`t.${quote(name)}`, '$1')}
  AND ${equal(`t.${quote(name)}::pg_catalog.text COLLATE pg_catalog."C"`, '$1::pg_catalog.text')}`,
    (one) => one,
  )
}

/** Columns that every change of a row sets. */
export interface ChangeColumns {
  readonly version: string | undefined
  readonly updated: string | undefined
}

const changedDates = ({ version, updated }: ChangeColumns): string[] => [
  ...(version === undefined ? [] : [`${quote(version)} = t.${quote(version)} ${op('+')} 1`]),
  ...(updated === undefined ? [] : [`${quote(updated)} = CURRENT_TIMESTAMP`]),
]

const ofClass = ({ only }: HolderRow, first: number): string =>
  only
    ? ` AND (${only.values.map((_, index) => equal(`t.${quote(only.column)}`, parameter(first + index))).join(' OR ')})`
    : ''

/**
 * A row gets other names; gives it.
 *
 * Parameters: the names, the primary key, and the values of the discriminator.
 */
export function renameStatement(
  row: HolderRow,
  columns: readonly string[],
  changes: ChangeColumns,
): Statement<WireRow> {
  const { holder } = row
  const names = columns.map((name, index) => `${quote(name)} = ${parameter(index)}`)
  const key = holder.primary.map(({ name }, index) => equal(`t.${quote(name)}`, parameter(columns.length + index)))
  return named(
    `UPDATE ${qualified(holder.schema, holder.table)} AS t SET ${[...names, ...changedDates(changes)].join(', ')}
WHERE ${key.join(' AND ')}${ofClass(row, columns.length + key.length)}
RETURNING ${returningList(row.row, 't')}`,
    (one) => one,
  )
}

/** One of two rows, by its position in what was asked; without its columns where the other is not there. */
export interface SwappedRow {
  readonly position: number
  readonly columns: WireRow
}

/**
 * Two rows swap their names; gives those that are there, which have swapped if both are. They are locked first, and so
 * have the names that are swapped. Only the server can tell which row is which: keys that differ as texts can be equal.
 *
 * Parameters: the primary keys of both, one after the other.
 */
export function swapNamesStatement(sought: HolderRow, changes: ChangeColumns): Statement<SwappedRow> {
  const { holder, name, row } = sought
  const { primary } = holder
  const table = qualified(holder.schema, holder.table)
  const keys = primary.map((one) => one.name)
  const isRow = (first: number): string =>
    `(${keys.map((key, index) => equal(`t.${quote(key)}`, parameter(first + index))).join(' AND ')})`
  const same = keys.map((key, index) => equal(`t.${quote(key)}`, `one.swapped_${index}`)).join(' AND ')
  const order = `CASE WHEN ${isRow(0)} THEN 1 ELSE 2 END AS swapped_order`
  const set = [`${quote(name)} = other.swapped_name`, ...changedDates(changes)]
  return named(
    `WITH swapped AS MATERIALIZED (
  SELECT ${keys.map((key, index) => `t.${quote(key)} AS swapped_${index}`).join(', ')}, t.${quote(name)} AS swapped_name,
    ${order}
  FROM ${table} AS t
  WHERE (${isRow(0)} OR ${isRow(keys.length)})${ofClass(sought, 2 * keys.length)}
  ORDER BY ${nameList(keys)}
  FOR NO KEY UPDATE
), changed AS (
  UPDATE ${table} AS t SET ${set.join(', ')}
  FROM swapped AS one
  JOIN swapped AS other ON other.swapped_order ${op('<>')} one.swapped_order
  WHERE ${same}
  RETURNING one.swapped_order AS changed_order, ${returningList(row, 't')}
)
SELECT swapped.swapped_order, changed.*
FROM swapped LEFT JOIN changed ON ${equal('changed.changed_order', 'swapped.swapped_order')}`,
    ([position, , ...columns]) => ({ position: Number(position) - 1, columns }),
  )
}

/**
 * Removes former names whose time is over, except those that somebody else has locked; returns how many.
 *
 * Parameter: the most of them.
 */
export function releaseExpiredStatement(names: NamesTable): Statement<number> {
  const { id, until, state } = names.columns
  const table = qualified(names.schema, names.table)
  return named(
    `WITH expired AS MATERIALIZED (
  SELECT n.${quote(id)} AS id FROM ${table} AS n
  WHERE n.${quote(until)} ${op('<=')} pg_catalog.statement_timestamp() AND n.${quote(state)} ${op('<>')} 'held'
  ORDER BY n.${quote(until)}
  LIMIT $1
  FOR UPDATE SKIP LOCKED
), removed AS (
  DELETE FROM ${table} AS n USING expired
  WHERE ${equal(`n.${quote(id)}`, 'expired.id')} RETURNING 1
)
SELECT pg_catalog.count(*) FROM removed`,
    ([count]) => Number(count),
  )
}
