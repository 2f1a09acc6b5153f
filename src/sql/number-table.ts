import { createHash } from 'node:crypto'
import { fitName, quote } from './identifier'
import { field } from './text-table'

/** A column of the scope of a number. */
export interface NumberScope {
  readonly name: string
  /** Hashed as a text: one whose collation may call different ones equal, or a type that has no hash of its own. */
  readonly textual: boolean
}

/** A table whose rows are numbered within a scope, by its database names. */
export interface NumberTable {
  /** The property. */
  readonly name: string
  /** undefined: `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  /** Empty: the rows of the whole table. */
  readonly scope: readonly NumberScope[]
  readonly number: string
  /** Of the unique index over scope and number. */
  readonly index: string
  /** The column that holds how many rows of the scope count, in one row of each. undefined: nobody counts. */
  readonly count: string | undefined
  /** A row that has a value here is deleted softly: it keeps its number, and does not count. */
  readonly deleted: string | undefined
  /** First part of the names of functions and triggers. */
  readonly triggers: string
}

/** The scope's columns, as SQL. */
export const scopeOf = ({ scope }: NumberTable, row: string): string[] => scope.map(({ name }) => field(row, name))

/** The unique index's own operator on every column of the scope, for an AND. */
export const sameScopes = ({ scope }: NumberTable, left: string, right: string): string[] =>
  scope.map(({ name }) => `${field(left, name)} OPERATOR(pg_catalog.=) ${field(right, name)}`)

/**
 * The rows of a scope, inside the functions. Without ONLY, which a partitioned table cannot have, the table's name means
 * its children by INHERITS too; `tableoid` leaves them out.
 */
export const rowsOfScope = (table: NumberTable, left: string, right: string): string[] => [
  ...sameScopes(table, left, right),
  `(${left}.tableoid = TG_RELID OR NOT plain)`,
]

/** In the order of the unique index. */
export const byNumber = (table: NumberTable, row: string, direction = ''): string =>
  [...scopeOf(table, row), field(row, table.number)].map((one) => `${one}${direction}`).join(', ')

/** Whether a row counts. */
export const isCounted = ({ deleted }: NumberTable, row: string): string =>
  deleted === undefined ? 'true' : `${field(row, deleted)} IS NULL`

/** Tells the locks of one number from those of another of the table; an int4. */
export const seedOf = ({ number }: NumberTable): number => createHash('sha256').update(number).digest().readInt32BE()

/** The column that holds the count; of a table that has one. */
export const countColumn = ({ count }: NumberTable): string => quote(count ?? '')

/** The condition of the second unique index: at most one row of a scope holds the count. */
export const holdsCount = (table: NumberTable): string => `${countColumn(table)} IS NOT NULL`

/** The second unique index. */
export const countIndex = ({ index }: NumberTable): string => fitName(`${index}_count`)
