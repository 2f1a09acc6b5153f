import type { EntityMetadata } from 'typeorm'
import type { Change, FilledColumn } from '../sql/alter'
import { numberRows, renumberRows } from '../sql/number-rows'
import { dropScopes, makeScopes } from '../sql/number-scopes'
import type { NumberTable } from '../sql/number-table'
import { asNumberNote, type NumberNote } from '../sql/number-triggers'
import type { RowsChange } from './registry'

/** A number, and the entity whose rows have it. */
interface Numbered {
  readonly table: NumberTable
  readonly metadata: EntityMetadata
}

/** What to do with existing rows when they are numbered for the first time, or in another way. */
export function numberedRows(numbered: Numbered): RowsChange {
  const install = scopesOf(numbered)
  return {
    filled: filledBy(numbered),
    fill: { up: [numberAll(numbered, numberRows)], down: [] },
    install,
    created: install,
    tables: { up: install.up, down: [] },
    follow: (before) => {
      const note = asNumberNote(before)
      return note
        ? followNote(numbered, note)
        : { fill: { up: [numberAll(numbered, renumberRows)], down: [] }, install }
    },
  }
}

/** @param had whose table of scopes goes */
const scopesOf = ({ table }: Numbered, had: NumberTable = table): Change => ({
  up: [makeScopes(table), ...(had.triggers === table.triggers ? [] : [dropScopes(had)])],
  down: [dropScopes(table)],
})

const filledBy = ({ table: { number, type } }: Numbered): FilledColumn[] => [{ name: number, type, nullable: false }]

const primaryOf = ({ primaryColumns }: EntityMetadata): string[] =>
  primaryColumns.map(({ databaseName }) => databaseName)

const numberAll = ({ table, metadata }: Numbered, by: typeof numberRows): string =>
  by({ table, primary: primaryOf(metadata) })

/**
 * On the way back the former index is made while columns have their new names, so rows that it would refuse are
 * corrected before it. The former table of scopes is made after it, when columns have their former names.
 */
function followNote(numbered: Numbered, note: NumberNote): RowsChange {
  const { table, metadata } = numbered
  const was = inTodaysNames(numbered, note)
  const isThere = was.scope.every(({ name }) => isColumn(metadata, name))
  const renumbered =
    isThere && !isNarrower(was, table) ? [renumberRows({ table: was, primary: primaryOf(metadata) })] : []
  const had = asItWas(table, note)
  return {
    filled: filledBy(numbered),
    fill: { up: [numberAll(numbered, isNarrower(table, was) ? numberRows : renumberRows)], down: renumbered },
    install: scopesOf(numbered, had),
    leave: { up: [], down: [makeScopes(had)] },
  }
}

/** By the names that columns had. */
const asItWas = (table: NumberTable, { scope, number, type, count, deleted, prefix }: NumberNote): NumberTable => ({
  ...table,
  scope,
  number,
  type,
  count,
  deleted,
  triggers: prefix,
})

const isColumn = ({ columns }: EntityMetadata, name: string): boolean =>
  columns.some(({ databaseName }) => databaseName === name)

/** What was, with columns that were renamed by the names that they have now. */
const inTodaysNames = ({ table, metadata }: Numbered, { scope }: NumberNote): NumberTable => ({
  ...table,
  scope: scope.map((one, position) =>
    isColumn(metadata, one.name) ? one : { ...one, name: table.scope[position]?.name ?? one.name },
  ),
})

/** Rows of which no two have one number in the wider scope have none in the narrower one. */
const isNarrower = (one: NumberTable, other: NumberTable): boolean =>
  other.scope.every(({ name }) => one.scope.some((column) => column.name === name))
