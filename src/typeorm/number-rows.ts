import type { EntityMetadata } from 'typeorm'
import type { FilledColumn } from '../sql/alter'
import { clearCounts, countRows, numberRows, renumberRows } from '../sql/number-rows'
import type { NumberTable } from '../sql/number-table'
import { asNumberNote, type NumberNote } from '../sql/number-triggers'
import type { RowsChange } from './registry'

/** A number, and the entity whose rows have it. */
interface Numbered {
  readonly table: NumberTable
  readonly metadata: EntityMetadata
  /** Of the number, as SQL. */
  readonly type: string
}

/** What becomes of rows that are there when they are to be numbered, or to be numbered in another way. */
export function numberedRows(numbered: Numbered): RowsChange {
  return {
    filled: filledBy(numbered),
    fill: { up: numberAll(numbered, numberRows), down: [] },
    follow: (before) => {
      const note = asNumberNote(before)
      return note ? followNote(numbered, note) : { fill: { up: numberAll(numbered, renumberRows), down: [] } }
    },
  }
}

const filledBy = ({ table: { number, count }, type }: Numbered): FilledColumn[] => [
  { name: number, type, nullable: false },
  ...(count === undefined ? [] : [{ name: count, type: 'integer', nullable: true }]),
]

const primaryOf = ({ primaryColumns }: EntityMetadata): string[] =>
  primaryColumns.map(({ databaseName }) => databaseName)

const numberAll = ({ table, metadata }: Numbered, by: typeof numberRows): string[] => [
  by({ table, primary: primaryOf(metadata) }),
  ...(table.count === undefined ? [] : countRows(table)),
]

/**
 * On the way back the former index is made while columns have their new names. What it would refuse is put right before
 * it, and what is counted is counted after it, when columns have their former names.
 */
function followNote(numbered: Numbered, note: NumberNote): RowsChange {
  const { table, metadata } = numbered
  const was = inTodaysNames(numbered, note)
  const isThere = was.scope.every(({ name }) => isColumn(metadata, name))
  const renumbered =
    isThere && !isNarrower(was, table) ? [renumberRows({ table: was, primary: primaryOf(metadata) })] : []
  const dropped = was.count !== undefined && table.count === undefined
  return {
    filled: filledBy(numbered),
    fill: {
      up: numberAll(numbered, isNarrower(table, was) ? numberRows : renumberRows),
      down: [...renumbered, ...(table.count === undefined ? [] : [clearCounts(table)])],
    },
    ...(dropped
      ? { dropped: { filled: [{ name: was.count ?? '', type: 'integer', nullable: true }], fill: countRows(was) } }
      : {
          leave: {
            up: [],
            down: note.count === undefined ? [] : countRows(asItWas(table, note)),
          },
        }),
  }
}

/** By the names that columns had. */
const asItWas = (table: NumberTable, { scope, number, count, deleted }: NumberNote): NumberTable => ({
  ...table,
  scope,
  number,
  count,
  deleted,
})

const isColumn = ({ columns }: EntityMetadata, name: string): boolean =>
  columns.some(({ databaseName }) => databaseName === name)

/** What was, with columns that were renamed by the names that they have now. */
function inTodaysNames({ table, metadata }: Numbered, note: NumberNote): NumberTable {
  const scope = note.scope.map((one, position) =>
    isColumn(metadata, one.name) ? one : { ...one, name: table.scope[position]?.name ?? one.name },
  )
  const { deleted, count } = note
  return {
    ...table,
    scope,
    deleted: deleted === undefined || isColumn(metadata, deleted) ? deleted : (table.deleted ?? deleted),
    count: count === undefined ? undefined : (table.count ?? count),
  }
}

/** Rows of which no two have one number in the wider scope have none in the narrower one. */
const isNarrower = (one: NumberTable, other: NumberTable): boolean =>
  other.scope.every(({ name }) => one.scope.some((column) => column.name === name))
