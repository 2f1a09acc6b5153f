import { literal, qualified, quote } from './identifier'
import { equal, field } from './text-table'

/** A column of the scope of a number. */
interface NumberScope {
  readonly name: string
  /** SQL. The table of scopes has a column of the same type. */
  readonly type: string
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
  /** The type of the number: integer, bigint or smallint. */
  readonly type: string
  /** The name of the unique index over scope and number. */
  readonly index: string
  /** Whether the table of scopes tells how many rows of each count. */
  readonly count: boolean
  /** false: the number of a row that is gone is never given again. */
  readonly reuse?: false | undefined
  /** The lowest number that is given. undefined: 1. */
  readonly start?: number | undefined
  /** A row that has a value here is deleted softly: it keeps its number, and does not count. */
  readonly deleted: string | undefined
  /** First part of the names of functions and triggers. */
  readonly triggers: string
}

/** The scope's columns, as SQL. */
export const scopeOf = ({ scope }: Pick<NumberTable, 'scope'>, row: string): string[] =>
  scope.map(({ name }) => field(row, name))

/** The columns of the scope in the table of scopes. They have short names there, since the user's names may change. */
export const scopeKey = ({ scope }: Pick<NumberTable, 'scope'>, row = ''): string[] =>
  scope.map((_, position) => `${row === '' ? '' : `${row}.`}s${position}`)

/** The unique index's own operator on every column of the scope, for an AND. */
export const sameScopes = (table: Pick<NumberTable, 'scope'>, left: string, right: string): string[] =>
  allEqual(scopeOf(table, left), scopeOf(table, right))

/** Columns that are equal one by one, for an AND. */
export const allEqual = (left: readonly string[], right: readonly string[]): string[] =>
  left.map((one, position) => equal(one, right[position] ?? ''))

/** Orders rows as the unique index does, backwards. */
export const byNumberDown = (table: NumberTable, row: string): string =>
  [...scopeOf(table, row), field(row, table.number)].map((one) => `${one} DESC`).join(', ')

/** The highest number after which `start` comes. */
export const beforeStart = ({ start = 1 }: Pick<NumberTable, 'start'>): number => start - 1

/** Whether a row counts; a condition at most. */
export const isCounted = ({ deleted }: Pick<NumberTable, 'deleted'>, row: string): string[] =>
  deleted === undefined ? [] : [`${field(row, deleted)} IS NULL`]

/** Without a schema, as the functions name it. */
export const scopesName = ({ triggers }: Pick<NumberTable, 'triggers'>): string => `${triggers}_scopes`

/** The table of scopes, outside the functions. */
export const scopesTable = (table: Pick<NumberTable, 'schema' | 'triggers'>): string =>
  table.schema === undefined ? quote(scopesName(table)) : qualified(table.schema, scopesName(table))

/** The table inside the functions, where `search_path` is fixed to its schema, so that a dump fits another one. */
export const relation = (table: Pick<NumberTable, 'table'>): string => quote(table.table)

/** Predicates, one a line, for a place in the text that is indented so far. */
export const all = (indent: number, ...predicates: readonly string[]): string =>
  predicates.join(`\n${' '.repeat(indent)}AND `)

/** Whether the trigger runs for the table that the function names; in a partition it does not. */
export const standsOn = (table: Pick<NumberTable, 'table'>): string =>
  `TG_TABLE_NAME OPERATOR(pg_catalog.=) ${literal(table.table)}\n    AND pg_catalog.pg_table_is_visible(TG_RELID)`
