import { createHash } from 'node:crypto'
import { quote } from './identifier'
import { field, type TextTable, tableName } from './text-table'

/** A row as the driver gives it: values in the order of the select list. */
export type WireRow = readonly unknown[]

/** One row of a table with a unique text, as every statement of find-or-create gives it. */
export interface StoredRow {
  /** This statement inserted it. */
  readonly created: boolean
  readonly hashNumber: number
  /** In the order of `RowShape.select`. */
  readonly columns: readonly unknown[]
}

/** A stored row that answers one row of a batch. */
export interface BatchRow extends StoredRow {
  /** 0-based index of the row of the batch. */
  readonly index: number
}

/** A statement with its parser. The name is a digest of the SQL, so that equal names always mean equal statements. */
export interface Statement<Row> {
  /** `''`: not to be prepared by name. */
  readonly name: string
  readonly sql: string
  readonly parse: (row: WireRow) => Row
}

/**
 * Which columns a row brings, by their database names. The parameters of every statement are the row's values in this
 * order: scope, text, hash, then `others`.
 */
export interface RowShape {
  readonly table: TextTable
  /** Further columns of an insert. */
  readonly others: readonly string[]
  /** Columns to give back. */
  readonly select: readonly string[]
}

function named<Row>(sql: string, parse: (row: WireRow) => Row): Statement<Row> {
  return { name: `unique_text_${createHash('sha1').update(sql).digest('hex').slice(0, 16)}`, sql, parse }
}

/**
 * What every select list begins with, before the columns of the shape. A row that was found has NULL in `created`: the
 * one value that no parser of the user's own for booleans ever sees.
 */
const rowHead = (created: boolean, { table }: RowShape, row: string): string =>
  `${created ? 'true' : 'NULL::bool'} AS created, ${field(row, table.number)} AS hash_number`

const parseStoredRow = ([created, hashNumber, ...columns]: WireRow): StoredRow => ({
  created: created !== null,
  hashNumber: Number(hashNumber),
  columns,
})

const parseBatchRow = ([ordinal, ...row]: WireRow): BatchRow => ({
  index: Number(ordinal) - 1,
  ...parseStoredRow(row),
})

/** Scope, text and hash: what decides which row is meant. */
export function keyColumns({ scope, text, hash }: TextTable): string[] {
  return [...scope, ...text.map(({ name }) => name), hash]
}

/** The key, then the others: the insert's columns and the order of the parameters. */
export function insertColumns({ table, others }: RowShape): string[] {
  return [...keyColumns(table), ...others]
}

const nameList = (names: readonly string[]): string => names.map(quote).join(', ')

/** The columns of the shape, named by their position, so that two can share a name with what stands before them. */
const selectList = ({ select }: RowShape, row: string): string =>
  select.map((name, index) => `${field(row, name)} AS s${index}`).join(', ')

const listed = (...parts: readonly string[]): string => parts.filter((part) => part !== '').join(', ')

/**
 * True for every number, which the planner does not know. Of a table that was never analyzed it takes each hash for
 * that of one row in 200, and a thousand lookups for so much work that compiling them (`jit_above_cost`) pays; a range
 * it takes for one row in 200 once more.
 */
const anyNumber = ({ number }: TextTable): string => `${field('t', number)} BETWEEN -2147483648 AND 2147483647`

/** The stored row `t` holds the text of the row whose key is `value(0)`, `value(1)`, … in the order of the shape. */
function holdsText({ table }: RowShape, value: (index: number) => string): string {
  const { scope, text, hash } = table
  return [
    ...scope.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) ${value(index)}`),
    `${field('t', hash)} = ${value(scope.length + text.length)}`,
    ...text.map(
      ({ name }, index) =>
        `${field('t', name)}::pg_catalog.text COLLATE "C"\n` +
        `        IS NOT DISTINCT FROM ${value(scope.length + index)}::pg_catalog.text`,
    ),
  ].join('\n    AND ')
}

const parameter = (index: number): string => `$${index + 1}`

const selectFound = (shape: RowShape): string => `SELECT ${listed(rowHead(false, shape, 't'), selectList(shape, 't'))}
  FROM ${tableName(shape.table)} AS t
  WHERE ${holdsText(shape, parameter)}
    AND ${anyNumber(shape.table)}`

/** Rows that hold the text; more than one only where the guard was off. Takes the key's parameters only. */
export function findStatement(shape: RowShape): Statement<StoredRow> {
  return named(selectFound(shape), parseStoredRow)
}

/** The same of what stands now, whatever the snapshot; 40001 where the two differ. */
export function findStandingStatement(shape: RowShape): Statement<StoredRow> {
  return named(`${selectFound(shape)}\n  FOR KEY SHARE`, parseStoredRow)
}

/**
 * Finds, or inserts at number 0, in one round trip; gives nothing where neither took. The sequence of a generated key
 * is asked only for a row that is inserted.
 *
 * DO NOTHING names no index: another one of the table may refuse the row, and must not raise in a transaction.
 */
export function findOrCreateStatement(shape: RowShape): Statement<StoredRow> {
  const columns = insertColumns(shape)
  const returned = listed(rowHead(true, shape, 't'), selectList(shape, 't'))
  return named(
    `WITH found AS (
  ${selectFound(shape)}
), created AS (
  INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
  SELECT ${columns.map((_, index) => parameter(index)).join(', ')}
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING ${returned}
)
SELECT * FROM found
UNION ALL
SELECT * FROM created`,
    parseStoredRow,
  )
}

/**
 * Inserts with the hash left to the guard, which finds the number. It takes the same parameters as the others, the
 * hash among them.
 */
export function createInChainStatement(shape: RowShape, onConflict: 'raise' | 'nothing'): Statement<StoredRow> {
  const { hash, digest } = shape.table
  const columns = insertColumns(shape)
  // Every parameter must occur, with a type: the hash's does in a condition that always holds.
  const values = columns.map((name, index) => (name === hash ? 'NULL' : parameter(index)))
  const doNothing = onConflict === 'nothing' ? '\nON CONFLICT DO NOTHING' : ''
  return named(
    `INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
SELECT ${values.join(', ')}
WHERE ${parameter(columns.indexOf(hash))}::${digest.type} IS NOT NULL${doNothing}
RETURNING ${listed(rowHead(true, shape, 't'), selectList(shape, 't'))}`,
    parseStoredRow,
  )
}

/**
 * The same as `findOrCreateStatement` for many rows; every parameter is an array, of which `types` names the element
 * type.
 *
 * The rows must be sorted by hash: two batches that insert the same texts in different orders would deadlock.
 *
 * Not prepared by name: a plan that is kept from when the table was small would be kept too long, and next to a batch
 * planning costs little.
 */
export function findOrCreateManyStatement(shape: RowShape, types: ReadonlyMap<string, string>): Statement<BatchRow> {
  const columns = insertColumns(shape)
  const table = tableName(shape.table)
  const typed = columns.map((name) => types.get(name) ?? 'text')
  // unnest() would flatten an array of arrays: these come as literals, and are cast one by one.
  const arrays = typed.map((type, index) => `${parameter(index)}::${type.endsWith('[]') ? 'text' : type}[]`)
  const values = typed.map((type, index) => `i.c${index}${type.endsWith('[]') ? `::${type}` : ''}`)
  const same = holdsText(shape, (index) => `i.c${index}`)
  // LATERAL with a limit, for a join would read the whole table where it is small enough; 2 shows a duplicate.
  const sql = `WITH input AS MATERIALIZED (
  SELECT * FROM unnest(${arrays.join(', ')})
    WITH ORDINALITY AS i (${columns.map((_, index) => `c${index}`).join(', ')}, ordinal)
), found AS (
  SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT ${listed(rowHead(false, shape, 't'), selectList(shape, 't'))}
    FROM ${table} AS t
    WHERE ${same}
      AND ${anyNumber(shape.table)}
    LIMIT 2
  ) AS t
), created AS (
  INSERT INTO ${table} AS t (${nameList(columns)})
  SELECT ${values.join(', ')}
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal = i.ordinal)
  ORDER BY i.ordinal
  ON CONFLICT DO NOTHING
  RETURNING t.*
)
SELECT * FROM found
UNION ALL
SELECT i.ordinal, ${listed(rowHead(true, shape, 't'), selectList(shape, 't'))}
FROM created AS t
JOIN input AS i ON ${same}`
  return { name: '', sql, parse: parseBatchRow }
}

/** A Postgres array literal; only for arrays inside arrays, which the driver would send as one of two dimensions. */
export function arrayLiteral(values: readonly unknown[]): string {
  const element = (value: unknown): string => {
    if (value === null || value === undefined) return 'NULL'
    if (Array.isArray(value)) return arrayLiteral(value)
    if (value instanceof Date) return `"${value.toISOString()}"`
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
  }
  return `{${values.map(element).join(',')}}`
}

const SAVEPOINT = 'typeorm_unique_text'

/** Around a statement that may fail in the caller's transaction. */
export const savepoint: Readonly<Record<'set' | 'release' | 'rollBack', string>> = {
  set: `SAVEPOINT ${SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${SAVEPOINT}`,
}

/** Gives a row inside a transaction that was begun by a statement of its own; 25P02 in one that has failed. */
export const insideTransaction = 'SELECT 1 WHERE pg_catalog.transaction_timestamp() <> pg_catalog.statement_timestamp()'
