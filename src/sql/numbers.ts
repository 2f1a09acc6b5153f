import { qualified, quote } from './identifier'

/** A column of the scope of a number. */
interface NumberScope {
  readonly name: string
  /** The SQL type. The table of scopes has a column of the same type. */
  readonly type: string
}

/** A table whose rows are numbered within a scope, with its database names. */
export interface NumberTable {
  /** The name of the property. */
  readonly name: string
  /** If undefined, `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  /** If empty, the rows of the whole table are numbered. */
  readonly scope: readonly NumberScope[]
  readonly number: string
  /** The type of the number: integer, bigint or smallint. */
  readonly type: string
  /** The name of the unique index over scope and number. */
  readonly index: string
  /** Whether the table of scopes stores the number of rows of each scope. */
  readonly count: boolean
  /** If false, the table of scopes stores the highest number of each scope, and no number is given again. */
  readonly reuse?: false | undefined
  /** The lowest number that is given. If undefined, 1. */
  readonly start?: number | undefined
  /** Citus keeps the rows in shards. An advisory lock on the shard replaces the table of scopes. */
  readonly citus?: true | undefined
  /** A row with a value here is soft-deleted. It keeps its number, and is not counted. */
  readonly deleted: string | undefined
  /** The first part of the names of functions and triggers. */
  readonly triggers: string
}

/**
 * The key of the table of scopes: a column for each column of the scope, with short names, because the user's names may
 * change. A number of the whole table has one scope, whose key is true.
 */
export const scopeKey = ({ scope }: Pick<NumberTable, 'scope'>, row = ''): string[] =>
  (scope.length === 0 ? ['whole'] : scope.map((_, position) => `s${position}`)).map((name) =>
    row === '' ? name : `${row}.${name}`,
  )

/** The table's name without a schema, as the functions use it. */
export const scopesName = ({ triggers }: Pick<NumberTable, 'triggers'>): string => `${triggers}_scopes`

/** The table of scopes, as SQL outside the functions uses it. */
export const scopesTable = (table: Pick<NumberTable, 'schema' | 'triggers'>): string =>
  table.schema === undefined ? quote(scopesName(table)) : qualified(table.schema, scopesName(table))
