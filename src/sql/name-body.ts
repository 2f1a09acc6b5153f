import { literal, qualified, quote } from './identifier'
import type { Relation } from './trigger-ddl'
import type { HolderTable, NamesColumn, NamesTable } from './name-table'
import { SQLSTATE } from './sqlstate'

/** Columns of the type varchar. */
const VARCHARS: ReadonlySet<NamesColumn> = new Set(['namespace', 'holder', 'property', 'state'])

/**
 * A column of the table of names, perhaps of a row. Texts are compared by Postgres' own operators, whereas anybody who may
 * create objects in the schema could put one for varchar in their way, which would run as the owner.
 */
export function nameField({ columns }: Pick<NamesTable, 'columns'>, row: string, column: NamesColumn): string {
  const name = quote(columns[column])
  if (row === '') return name
  return `${row}.${name}${VARCHARS.has(column) ? '::pg_catalog.text' : ''}`
}

/** Columns of the table of names, with and without a row. */
export const fieldsOf =
  ({ of }: HolderTable) =>
  (row: string, ...columns: readonly NamesColumn[]): string =>
    columns.map((column) => nameField(of, row, column)).join(', ')

/**
 * Functions find names in the schema of the holder's table, and name the table of names with its schema where that is
 * another one. Where only `search_path` knows that schema, it is the other way round: this is the table to find it by.
 */
export const pathOf = ({ schema, of }: HolderTable): Relation | undefined =>
  of.schema === undefined && schema !== undefined ? { schema: undefined, name: of.table } : undefined

/** The table of names, inside the functions of a holder's table. */
export const namesOf = ({ schema, of }: HolderTable): string =>
  qualified(of.schema === schema ? undefined : of.schema, of.table)

/** The holder's table, inside its functions. */
const holderOf = (holder: HolderTable): string =>
  qualified(pathOf(holder) === undefined ? undefined : holder.schema, holder.table)

/** The rows of the holder's table as `t`. Rows of children by INHERITS hold nothing. */
export const holderRows = (holder: HolderTable): string => `ONLY ${holderOf(holder)} AS t`

/** Types whose JSON is the same in every session, and whose `=` is Postgres' own. */
const PLAIN =
  /^(?:smallint|integer|bigint|numeric|uuid|boolean|text|date|character varying|timestamp(?:\(\d\))? with)\b/

/** Types that JSON writes in the time zone of the session. */
const ZONED = /^timestamp(?:\(\d\))? with time zone$/

/** As JSON that is the same in every session, and that JavaScript reads exactly. */
function keyValue({ name, type }: HolderTable['primary'][number], row: string): string {
  const value = `${row}.${quote(name)}`
  if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value})`
  return /^(?:bigint|numeric)$/.test(type) ? `${value}::pg_catalog.text` : value
}

/** The primary key of a row, as the table of names holds it. */
export const keyOf = ({ primary }: HolderTable, row: string): string =>
  `pg_catalog.jsonb_build_array(${primary.map((one) => keyValue(one, row)).join(', ')})`

/** A value of the primary key, out of a key that the table of names holds. */
export function keyPart({ primary }: HolderTable, key: string, index: number): string {
  const { type = '' } = primary[index] ?? {}
  const value = `(${key} OPERATOR(pg_catalog.->>) ${index})`
  if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value}::pg_catalog.timestamp)`
  // `character` alone is of one character.
  return `${value}::${type === 'character' ? 'pg_catalog.bpchar' : type}`
}

/** The row has this key; for an AND. */
export const hasKey = (
  { primary }: HolderTable,
  row: string,
  value: (name: string, index: number) => string,
): string[] =>
  primary.map(({ name, type }, index) => {
    const equals = PLAIN.test(type) ? 'OPERATOR(pg_catalog.=)' : '='
    return `${row}.${quote(name)} ${equals} ${value(name, index)}`
  })

/** The row has a key that the table of names holds; for an AND. */
export const hasNamedKey = (holder: HolderTable, row: string, key: string): string[] =>
  hasKey(holder, row, (_, index) => keyPart(holder, key, index))

/** Columns that differ, as JSON tells keys apart, and by their bytes whatever a collation calls equal; for an OR. */
export const differentKey = ({ primary }: HolderTable, left: string, right: string): string[] =>
  primary.map(({ name, type }) => {
    const plain = /^(?:smallint|integer|bigint|uuid|boolean|date|timestamp)\b/.test(type)
    const value = (row: string): string => `${row}.${quote(name)}${plain ? '' : '::pg_catalog.text COLLATE "C"'}`
    return `${value(left)} IS DISTINCT FROM ${value(right)}`
  })

export const nameText = (row: string, column: string): string => `${row}.${quote(column)}::pg_catalog.text COLLATE "C"`

/** Names that differ; for an OR. */
export const differentNames = ({ names }: HolderTable, left: string, right: string): string[] =>
  names.map(({ column }) => `${nameText(left, column)} IS DISTINCT FROM ${nameText(right, column)}`)

/** At the end of a subquery: the planner leaves it one, and does not read a whole index for a join. */
export const NO_JOIN = 'OFFSET 0'

/** The names of the row `t`, as rows `v`. */
export const namesOfRow = ({ names }: HolderTable): string =>
  `CROSS JOIN LATERAL (VALUES ${names
    .map(({ column, namespace }) => `(${literal(namespace)} COLLATE "C", ${literal(column)}, ${nameText('t', column)})`)
    .join(', ')}) AS v (namespace, property, text)`

/** At the end of a query. */
export const newest = (row: string): string => `ORDER BY pg_catalog.age(${row}.xmin) LIMIT 1`

/**
 * The row `t` that stands in the holder's table with the key of `row`: triggers of the user may have changed it since.
 * At REPEATABLE READ an old snapshot may show another row that had this key and is gone; ours is the newest.
 *
 * A limit keeps the planner from a join, which would read all of a table that was small when the plan was made. Rows of
 * children by INHERITS hold nothing.
 */
export function standingRow(holder: HolderTable, row: string): string {
  const columns = [...holder.primary.map(({ name }) => name), ...holder.names.map(({ column }) => column)]
  const same = hasKey(holder, 't', (name) => `${row}.${quote(name)}`)
  return `(
        SELECT ${[...new Set(columns)].map((name) => `t.${quote(name)}`).join(', ')}
        FROM ${holderRows(holder)} WHERE ${same.join(' AND ')}
        ${newest('t')}
      ) AS t`
}

/** The table that the functions name is the one that the trigger is on. */
export const refuseOtherTable = (holder: HolderTable): string => `
  IF NOT (TG_TABLE_NAME OPERATOR(pg_catalog.=) ${literal(holder.table)} AND ${isAtHome(holder)}) THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.objectNotInPrerequisiteState}',
      MESSAGE = 'the triggers of names name another table than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;`

const isAtHome = (holder: HolderTable): string =>
  pathOf(holder) === undefined
    ? 'pg_catalog.pg_table_is_visible(TG_RELID)'
    : `TG_TABLE_SCHEMA OPERATOR(pg_catalog.=) ${literal(holder.schema ?? '')}`
