import { asStored, typeOf } from './types'
import { list, transition, unnest } from './identifier'
import {
  anyNumber,
  type BatchLayout,
  type BatchRow,
  CREATED,
  doNothing,
  holdsText,
  insertColumns,
  keyColumns,
  named,
  nameList,
  parameter,
  parserOf,
  type RowShape,
  selectRow,
  type Statement,
  written,
} from './find'
import { field, isLive, op, tableName, within } from './text-table'

/**
 * Finds, or inserts at number 0, many rows in one round trip. A parameter is an array of texts for each column. Then an
 * array of booleans for each column of `defaults` marks the rows that have a value for it.
 *
 * A value is sent as text and is cast individually, like a parameter of its own. An array of the column's type would
 * flatten arrays and fail as a whole. The cast has no length, which would truncate values that an insert refuses.
 *
 * The rows must be sorted by hash. Two batches that insert the same texts in different orders would deadlock.
 *
 * Many rows are not prepared, because a plan for a small table would be kept too long, and planning is cheap next to
 * them. Over many partitions, planning costs more than the batch. The prepared statement is planned anew as they grow.
 */
export function findOrCreateManyStatement(shape: RowShape, fewRows = false): Statement<BatchRow> {
  const rows = preparedRows(shape, fewRows)
  const sql = `WITH ${input(shape, rows === undefined ? undefined : unseen)}, found AS (
  ${found(shape)}
), ${createdMany(shape)}
SELECT * FROM found
UNION ALL
${selectCreated(shape)}`
  const parse = parserOf(shape, false, BY_ORDINAL)
  return rows ? named(sql, parse, rows) : { name: '', sql, parse }
}

/** The most rows of a batch that is prepared, because planning takes longer than finding or inserting so few. */
export const PREPARED_ROWS = 16

/** Returns as how many rows a use of a batch's prepared statement counts, or undefined if it is not prepared. */
export function preparedRows({ partitioned, fewScopes }: RowShape, fewRows: boolean): number | undefined {
  if (fewScopes.length > 0) return undefined
  return fewRows ? PREPARED_ROWS : partitioned ? 1 : undefined
}

/** Hides the length of a parameter from the planner, so that it keeps the plan for any length. */
export const unseen = (array: string): string => `(SELECT ${array})`

/** Finds rows with the texts of a batch. A text has several only if the guard was off. Takes the key's parameters. */
export function findManyStatement(shape: RowShape): Statement<BatchRow> {
  return { name: '', sql: findMany(shape), parse: parserOf(shape, false, BY_ORDINAL) }
}

const findMany = (shape: RowShape, givenArray?: (array: string) => string): string =>
  `WITH ${input(shape, givenArray)}\n  ${found(shape)}`

/**
 * Finds the rows of a few calls that each look for one row. It is prepared by name, because planning would cost more
 * than finding so few rows. The planner must not see their number: a plan for fewer than ten rows seems so much cheaper
 * than one for any number that it would plan every time.
 */
export function findTogetherStatement(shape: RowShape): Statement<BatchRow> {
  return named(findMany(shape, unseen), parserOf(shape, false, BY_ORDINAL))
}

/**
 * Locks the rows that hold the texts of a batch, in its order. Takes the key's parameters, and returns the 0-based index
 * of the text of each row.
 *
 * The order begins with a value of the locked row, 0 for all, so the server sorts all rows before it locks the first.
 */
export function lockManyStatement(shape: RowShape): Statement<number> {
  const { number } = shape.table
  const sql = `WITH ${input(shape, unseen)}
SELECT i.ordinal
FROM ${inputName(shape)} AS i
JOIN ${tableName(shape.table)} AS t ON ${isFound(shape)}
ORDER BY ${field('t', number)} OPERATOR(pg_catalog.-) ${field('t', number)}, ${inputOrder(shape)}
FOR NO KEY UPDATE OF t`
  return named(sql, BY_ORDINAL.indexOf)
}

/** LATERAL has a limit because a join would read the whole of a small table. A limit of 2 shows a duplicate. */
const found = (shape: RowShape): string =>
  `SELECT i.ordinal, t.*
  FROM ${inputName(shape)} AS i
  CROSS JOIN LATERAL (
    SELECT ${selectRow(shape, 't', { created: CREATED.no })}
    FROM ${tableName(shape.table)} AS t
    WHERE ${isFound(shape)}
    LIMIT 2
  ) AS t`

/** The row `t` holds the text of the row `i` of the batch. */
function isFound(shape: RowShape): string {
  const { table, fewScopes, types, defaults } = shape
  // This repeats the hash condition of `holdsText`. The planner counts it as one more condition. In a table that has
  // grown much since it was analyzed, it then expects cheap look-ups: an index scan each, with nothing to compile.
  const hash = `i.c${table.scope.length + table.text.length}`
  const firstFew = insertColumns(shape).length + defaults.size
  return [
    holdsText(shape, (index) => `i.c${index}`),
    within(field('t', table.hash), hash, hash),
    // This repeats values of the rows as constants, so that the planner excludes the partitions of all other scopes.
    ...fewScopes.map(
      (name, index) => `${field('t', name)} ${op('=')} ANY (${parameter(firstFew + index)}::${typeOf(types, name)}[])`,
    ),
    ...isLive(table, 't'),
    anyNumber(table),
  ].join('\n      AND ')
}

/** Inserts the rows of the batch that were not found. */
export function createdMany(shape: RowShape): string {
  const { table, types, defaults, select } = shape
  const columns = insertColumns(shape)
  const values = columns.map((name, index) =>
    index < keyColumns(table).length
      ? `i.c${index}`
      : broughtOr(shape, name, `(${defaults.get(name)})::${typeOf(types, name)}`),
  )
  // Only columns that are read are returned, because a role may be allowed to read only some columns.
  const read = new Set([...keyColumns(table), table.number, ...select])
  return `created AS (
  INSERT INTO ${tableName(table)} AS t (${nameList(columns)})
  SELECT ${values.join(',\n    ')}
  FROM ${inputName(shape)} AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY ${inputOrder(shape)}
  ${doNothing(shape)}
  RETURNING ${[...read].map((name) => field('t', name)).join(', ')}
)`
}

/** The order in which rows are inserted and locked. */
export function inputOrder({ table, numbered }: RowShape): string {
  if (table.scope.length === 0 || numbered) return 'i.ordinal'
  const key = keyColumns(table).map((name, index) =>
    table.text.some((text) => text.name === name) ? `i.c${index} COLLATE pg_catalog."C"` : `i.c${index}`,
  )
  return [...key.toReversed(), 'i.ordinal'].join(', ')
}

/** The inserted rows, for each row of the batch that requested one. There is none if a trigger changed the text. */
export function selectCreated(shape: RowShape, notes: { readonly otherTexts?: string } = {}): string {
  const { table } = shape
  // Rows are compared as stored. The column's own collation may treat values as equal that differ in the batch.
  const row = [...table.scope, table.hash, table.number].map((name) => field('t', name))
  // Scopes that differ in the batch can be equal once stored. Only the first of two such rows created the row.
  const isFirst = `CASE WHEN i.ordinal OPERATOR(pg_catalog.=) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY ${row.join(', ')})
    THEN ${CREATED.yes} END`
  const created = table.scope.length === 0 ? CREATED.yes : isFirst
  return `SELECT i.ordinal, ${selectRow(shape, 't', { created, ...notes })}
FROM created AS t
JOIN ${inputName(shape)} AS i ON ${holdsText(shape, (index) => `i.c${index}`)}`
}

/** A row begins with its 1-based position in the batch. */
export const BY_ORDINAL: BatchLayout = { start: 1, indexOf: ([ordinal]) => Number(ordinal) - 1 }

/** The name of the rows of the batch. A table of this name would be hidden. */
export const inputName = ({ table }: RowShape): string => transition('input', table.table)

/**
 * The rows of the batch. The key has the types that are compared, and all other values are text.
 *
 * @param givenArray the SQL of a parameter. @default the parameter itself
 */
export function input(shape: RowShape, givenArray = (array: string): string => array): string {
  const { table, types } = shape
  const columns = insertColumns(shape).map((_, index) => `c${index}`)
  const given = [...shape.defaults.keys()].map((_, index) => `g${index}`)
  const arrays = [...columns, ...given].map((_, index) =>
    givenArray(`${parameter(index)}::${index < columns.length ? 'pg_catalog.text' : 'boolean'}[]`),
  )
  const values = [
    ...keyColumns(table).map((name, index) => {
      const type = table.scope.includes(name) ? types.get(name) : undefined
      const value = type ? asStored(`i.c${index}`, type) : `i.c${index}`
      return `${name === table.hash ? `${value}::pg_catalog.${table.digest.type}` : value} AS c${index}`
    }),
    ...columns.slice(keyColumns(table).length).map((column) => `i.${column}`),
    ...given.map((column) => `i.${column}`),
  ]
  return `${inputName(shape)} AS MATERIALIZED (
  SELECT ${list(['i.ordinal', ...values], 4)}
  FROM ${unnest(arrays, 4)}
    WITH ORDINALITY AS i (${[...columns, ...given].join(', ')}, ordinal)
)`
}

/** The value of a row of the batch for a column outside its key, or `otherwise` if the row has none. */
export function broughtOr(shape: RowShape, name: string, otherwise: string): string {
  const value = `i.c${insertColumns(shape).indexOf(name)}`
  const type = typeOf(shape.types, name)
  const brought = shape.spatial.has(name) ? written(shape, name, value) : `${value}::${type}`
  const nth = [...shape.defaults.keys()].indexOf(name)
  return nth === -1 ? brought : `CASE WHEN i.g${nth} THEN ${brought} ELSE ${otherwise} END`
}
