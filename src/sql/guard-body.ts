import { literal, quote } from './identifier'
import { SQLSTATE } from './sqlstate'
import type { TextTable } from './text-table'

/**
 * The table inside the functions, where `search_path` is fixed to the table's schema: no schema is named, so a dump
 * restored into another one still works.
 */
export const relation = (table: Pick<TextTable, 'table'>): string => quote(table.table)

/** Predicates, one a line, for a place in the text that is indented so far. */
export const all = (indent: number, ...predicates: readonly string[]): string =>
  predicates.join(`\n${' '.repeat(indent)}AND `)

/**
 * Whether the trigger runs for the table that the function names; in a partition it does not. The same as a comparison
 * with `to_regclass`, which takes twice as long, and runs for every row that brings no hash.
 */
export const standsOn = (table: Pick<TextTable, 'table'>): string =>
  `TG_TABLE_NAME OPERATOR(pg_catalog.=) ${literal(table.table)}\n    AND pg_catalog.pg_table_is_visible(TG_RELID)`

export interface Refusal {
  readonly sqlstate: string
  /** As SQL. */
  readonly message: string
  readonly hint?: string
}

export const renamed: Refusal = {
  sqlstate: SQLSTATE.objectNotInPrerequisiteState,
  message: literal('the guard names another table or column than its own'),
  hint: 'Something was renamed: create the guard again, for instance by a new migration.',
}

/** A name that another table has taken would have the guard read the chains of that one. */
export function refuseOtherTable(table: Pick<TextTable, 'table' | 'index'>): string {
  return `
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid
    ) THEN${raise(table, 6, renamed)}
    END IF;
  END IF;`
}

/** An error with our index as its constraint, so that a client can tell it from others; never with the text. */
export function raise(table: Pick<TextTable, 'index'>, indent: number, { sqlstate, message, hint }: Refusal): string {
  const lines = [
    `RAISE EXCEPTION USING ERRCODE = '${sqlstate}',`,
    `  MESSAGE = ${message},`,
    ...(hint === undefined ? [] : [`  HINT = ${literal(hint)},`]),
    `  CONSTRAINT = ${literal(table.index)}, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;`,
  ]
  return lines.map((line) => `\n${' '.repeat(indent)}${line}`).join('')
}
