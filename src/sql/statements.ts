import { createHash } from 'node:crypto'
import { asStored, type ColumnTypes, fromGeoJson, type SpatialColumn, toGeoJson } from './column-type'
import { quote } from './identifier'
import { field, isLive, type TextTable, tableName } from './text-table'

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
  /** Of the scope at least, so that values are compared as they will be stored. @default compare them as given */
  readonly types?: ColumnTypes | undefined
  /** @default none */
  readonly spatial?: ReadonlyMap<string, SpatialColumn> | undefined
  /**
   * The table has a deferrable constraint, which ON CONFLICT without a target does not take (55000): then the statements
   * name our index, and a violation of any other raises. @default false
   */
  readonly deferrable?: boolean | undefined
  /** Hash columns of the table's other texts, with their types; `others` may hold some of them. */
  readonly otherHashes?: ReadonlyMap<string, string>
}

export function named<Row>(sql: string, parse: (row: WireRow) => Row): Statement<Row> {
  return { name: `unique_text_${createHash('sha1').update(sql).digest('hex').slice(0, 16)}`, sql, parse }
}

/** In SQL. NULL for a row that was found is the one value that no parser of the user's own for booleans ever sees. */
export const CREATED = { yes: 'true', no: 'NULL::bool' } as const

/** What every select list begins with, before the columns of the shape. */
export const rowHead = (created: string, { table }: RowShape, row: string): string =>
  `${created} AS created, ${field(row, table.number)} AS hash_number`

export const parseStoredRow = ([created, hashNumber, ...columns]: WireRow): StoredRow => ({
  created: created !== null,
  hashNumber: Number(hashNumber),
  columns,
})

/** Scope, text and hash: what decides which row is meant. */
export function keyColumns({ scope, text, hash }: TextTable): string[] {
  return [...scope, ...text.map(({ name }) => name), hash]
}

/** The key, then the others: the insert's columns and the order of the parameters. */
export function insertColumns({ table, others }: RowShape): string[] {
  return [...keyColumns(table), ...others]
}

export const nameList = (names: readonly string[]): string => names.map(quote).join(', ')

/** The columns of the shape, named by their position, so that two can share a name with what stands before them. */
export const selectList = ({ select, spatial }: Pick<RowShape, 'select' | 'spatial'>, row: string): string =>
  select
    .map((name, index) => {
      const column = spatial?.get(name)
      return `${column ? toGeoJson(field(row, name), column) : field(row, name)} AS s${index}`
    })
    .join(', ')

export const listed = (...parts: readonly string[]): string => parts.filter((part) => part !== '').join(', ')

/**
 * True for every number, which the planner does not know. Of a table that was never analyzed it takes each hash for
 * that of one row in 200, and a thousand lookups for so much work that compiling them (`jit_above_cost`) pays; a range
 * it takes for one row in 200 once more.
 */
export const anyNumber = ({ number }: TextTable): string => `${field('t', number)} BETWEEN -2147483648 AND 2147483647`

/** The stored row `t` has the text of the row whose key is `value(0)`, `value(1)`, … in the order of the shape. */
export function holdsText({ table }: RowShape, value: (index: number) => string): string {
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

export const parameter = (index: number): string => `$${index + 1}`

/** A parameter of the key in a look-up. */
export const keyParameter =
  ({ table, types }: RowShape) =>
  (index: number): string => {
    const name = table.scope[index]
    const type = name === undefined ? undefined : types?.get(name)
    return type && type.type !== type.declared ? asStored(parameter(index), type) : parameter(index)
  }

/** What an insert writes into a column. */
export const written = ({ spatial }: RowShape, name: string, value: string): string => {
  const column = spatial?.get(name)
  return column ? fromGeoJson(value, column) : value
}

/** ON CONFLICT DO NOTHING. */
export function doNothing({ table, deferrable }: RowShape): string {
  const key = `(${nameList([...table.scope, table.hash, table.number])})`
  const target = deferrable === true ? ['', key, ...isLive(table, '').map((live) => `WHERE ${live}`)].join(' ') : ''
  return `ON CONFLICT${target} DO NOTHING`
}

/** @param more a further column */
export const selectFound = (
  shape: RowShape,
  more?: string,
): string => `SELECT ${listed(rowHead(CREATED.no, shape, 't'), selectList(shape, 't'))}${more ? `,\n    ${more}` : ''}
  FROM ${tableName(shape.table)} AS t
  WHERE ${[holdsText(shape, keyParameter(shape)), ...isLive(shape.table, 't'), anyNumber(shape.table)].join('\n    AND ')}`

/** Rows that hold the text; more than one only where the guard was off. Takes the key's parameters only. */
export function findStatement(shape: RowShape): Statement<StoredRow> {
  return named(selectFound(shape), parseStoredRow)
}

/** The same of what stands now, whatever the snapshot; 40001 where the two differ. */
export function findStandingStatement(shape: RowShape): Statement<StoredRow> {
  return named(`${selectFound(shape)}\n  FOR KEY SHARE`, parseStoredRow)
}

/** Columns that a restore writes, by their database names. */
export interface RestoredColumns {
  readonly deleted: string
  readonly version: string | undefined
  readonly updated: string | undefined
}

/** Restores the row that holds the text, as TypeORM's `restore()` does; gives nothing where it is not deleted. */
export function restoreStatement(
  shape: RowShape,
  { deleted, version, updated }: RestoredColumns,
): Statement<StoredRow> {
  const set = [
    `${quote(deleted)} = NULL`,
    ...(version === undefined ? [] : [`${quote(version)} = ${field('t', version)} + 1`]),
    ...(updated === undefined ? [] : [`${quote(updated)} = CURRENT_TIMESTAMP`]),
  ]
  return named(
    `UPDATE ${tableName(shape.table)} AS t SET ${set.join(', ')}
WHERE ${holdsText(shape, keyParameter(shape))}
    AND ${anyNumber(shape.table)}
    AND ${field('t', deleted)} IS NOT NULL
RETURNING ${listed(rowHead(CREATED.no, shape, 't'), selectList(shape, 't'))}`,
    parseStoredRow,
  )
}

/**
 * Finds, or inserts at number 0, in one round trip; gives nothing where neither took. The sequence of a generated key
 * is asked only for a row that is inserted.
 *
 * DO NOTHING names no index: another one of the table may refuse the row, and must not raise in a transaction.
 */
export function findOrCreateStatement(shape: RowShape): Statement<StoredRow> {
  const columns = insertColumns(shape)
  const returned = listed(rowHead(CREATED.yes, shape, 't'), selectList(shape, 't'))
  return named(
    `WITH found AS (
  ${selectFound(shape)}
), created AS (
  INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
  SELECT ${columns.map((name, index) => written(shape, name, parameter(index))).join(', ')}
  WHERE NOT EXISTS (SELECT FROM found)
  ${doNothing(shape)}
  RETURNING ${returned}
)
SELECT * FROM found
UNION ALL
SELECT * FROM created`,
    parseStoredRow,
  )
}

/**
 * Inserts with the hash, and those of the table's other texts, left to the guard, which finds the numbers. It takes the
 * same parameters as the others, the hashes among them.
 */
export function createInChainStatement(shape: RowShape, onConflict: 'raise' | 'nothing'): Statement<StoredRow> {
  const { hash, digest } = shape.table
  const columns = insertColumns(shape)
  const hashTypes = new Map([...(shape.otherHashes ?? []), [hash, digest.type]])
  const values = columns.map((name, index) => (hashTypes.has(name) ? 'NULL' : written(shape, name, parameter(index))))
  // Every parameter must occur, with a type: the hashes do in conditions that always hold.
  const given = columns.flatMap((name, index) =>
    hashTypes.has(name) ? [`${parameter(index)}::${hashTypes.get(name)} IS NOT NULL`] : [],
  )
  const orNothing = onConflict === 'nothing' ? `\n${doNothing(shape)}` : ''
  return named(
    `INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
SELECT ${values.join(', ')}
WHERE ${given.join(' AND ')}${orNothing}
RETURNING ${listed(rowHead(CREATED.yes, shape, 't'), selectList(shape, 't'))}`,
    parseStoredRow,
  )
}

const SAVEPOINT = 'typeorm_unique_text'
const WHOLE_SAVEPOINT = 'typeorm_unique_text_whole'

/** What stands around statements that are to be undone together. */
export type Brackets = Readonly<Record<'set' | 'release' | 'rollBack', string>>

/** Around statements that may fail in the caller's transaction. */
export const savepoint: Brackets = {
  set: `SAVEPOINT ${SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${SAVEPOINT}`,
}

/** Around all the statements of a call. */
export const wholeSavepoint: Brackets = {
  set: `SAVEPOINT ${WHOLE_SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${WHOLE_SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${WHOLE_SAVEPOINT}`,
}

/** Around several statements outside any transaction. */
export const ownTransaction: Brackets = { set: 'START TRANSACTION', release: 'COMMIT', rollBack: 'ROLLBACK' }

/** Whether a transaction sees what others have committed since it began. */
export const seesCommitted: Statement<boolean> = {
  name: '',
  sql: `SELECT CASE WHEN pg_catalog.current_setting('transaction_isolation') LIKE 'read %' THEN 1 END AS sees`,
  parse: ([sees]) => sees !== null,
}

/** What an INSERT or an UPDATE of TypeORM gives back of each row. */
export function returningList(shape: Pick<RowShape, 'select' | 'spatial'>): string {
  return selectList(shape, '')
}

/** @param sql of TypeORM, with a `returningList` */
export function insertedStatement(sql: string): Statement<WireRow> {
  return { name: '', sql, parse: (row) => row }
}

/** The same of an UPDATE, as a query: some drivers give the rows of an UPDATE in another way. */
export function updatedStatement(sql: string): Statement<WireRow> {
  return { name: '', sql: `WITH changed AS (${sql})\nSELECT * FROM changed`, parse: (row) => row }
}

/** Gives a row inside a transaction that was begun by a statement of its own; 25P02 in one that has failed. */
export const insideTransaction = 'SELECT 1 WHERE pg_catalog.transaction_timestamp() <> pg_catalog.statement_timestamp()'
