import { createHash } from 'node:crypto'
import { asStored, fromGeoJson } from './column-type'
import { quote } from './identifier'
import {
  asText,
  columnsParser,
  CREATED,
  isCreated,
  otherTexts,
  type RowShape,
  SAME_TEXTS,
  selectRow,
  sentAlone,
  type StoredRow,
  type WireRow,
} from './stored-row'
import { field, isLive, type TextTable, tableName } from './text-table'

export type { RowShape, StoredRow, WireRow } from './stored-row'

/** A statement with its parser. The name is a digest of the SQL, so that equal names always mean equal statements. */
export interface Statement<Row> {
  /** `''`: not to be prepared by name. */
  readonly name: string
  readonly sql: string
  /** @param values the statement's own parameters, of which a row may stand for some */
  readonly parse: (row: WireRow, values: readonly unknown[]) => Row
}

type Parse<Row> = Statement<Row>['parse']

export function named<Row>(sql: string, parse: Parse<Row>): Statement<Row> {
  return { name: `unique_text_${createHash('sha1').update(sql).digest('hex').slice(0, 16)}`, sql, parse }
}

/** Of a statement for one row. */
export function parserOf(shape: RowShape, tellsOthers: boolean): Parse<StoredRow> {
  const columnsOf = columnsParser(shape, { start: 0, tellsOthers }, sentAlone)
  return (row, values) => {
    const [created, hashNumber] = row
    return { created: isCreated(created), hashNumber: Number(hashNumber), columns: columnsOf(row, values, 0) }
  }
}

/** Scope, text and hash: what decides which row is meant. */
export function keyColumns({ scope, text, hash }: TextTable): string[] {
  return [...scope, ...text.map(({ name }) => name), hash]
}

/** The key, then the others: the insert's columns and the order of the parameters. */
export function insertColumns({ table, others }: RowShape): string[] {
  return [...keyColumns(table), ...others]
}

/** The shape with every text in its row: other texts would come as JSON, which a distributed table does not return. */
export const unechoed = (shape: RowShape): RowShape =>
  shape.distributed === true && shape.echoed !== undefined ? { ...shape, echoed: undefined } : shape

export const nameList = (names: readonly string[]): string => names.map(quote).join(', ')

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
        `${asText(name)}\n        IS NOT DISTINCT FROM ${value(scope.length + index)}::pg_catalog.text`,
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

/**
 * @param tellsOthers for a statement that can give rows with other texts too
 * @param more a further column
 */
export const selectFound = (shape: RowShape, tellsOthers: boolean, more?: string): string =>
  `SELECT ${selectRow(shape, 't', { created: CREATED.no, ...(tellsOthers ? { otherTexts: SAME_TEXTS } : {}) })}${more ? `,\n    ${more}` : ''}
  FROM ${tableName(shape.table)} AS t
  WHERE ${[holdsText(shape, keyParameter(shape)), ...isLive(shape.table, 't'), anyNumber(shape.table)].join('\n    AND ')}`

/** Rows that hold the text; more than one only where the guard was off. Takes the key's parameters only. */
export function findStatement(shape: RowShape): Statement<StoredRow> {
  return named(selectFound(shape, false), parserOf(shape, false))
}

/** Finds the rows that hold the text now, whatever the snapshot shows; 40001 where the two differ. */
export function findStandingStatement(shape: RowShape): Statement<StoredRow> {
  return named(`${selectFound(shape, false)}\n  FOR KEY SHARE`, parserOf(shape, false))
}

/** What an INSERT or an UPDATE of the statement gives of its row: a trigger may have changed the text. */
export const returnedRow = (shape: RowShape, created: string): string =>
  selectRow(shape, 't', { created, otherTexts: otherTexts(shape, parameter) })

/** Columns that a restore writes, by their database names. */
export interface RestoredColumns {
  readonly deleted: string
  readonly version: string | undefined
  readonly updated: string | undefined
}

/** Restores the row that holds the text, as TypeORM's `restore()` does; gives nothing where it is not deleted. */
export function restoreStatement(
  given: RowShape,
  { deleted, version, updated }: RestoredColumns,
): Statement<StoredRow> {
  const shape = unechoed(given)
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
RETURNING ${returnedRow(shape, CREATED.no)}`,
    parserOf(shape, true),
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
  return named(
    `WITH found AS (
  ${selectFound(shape, true)}
), created AS (
  INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
  SELECT ${columns.map((name, index) => written(shape, name, parameter(index))).join(', ')}
  WHERE NOT EXISTS (SELECT FROM found)
  ${doNothing(shape)}
  RETURNING ${returnedRow(shape, CREATED.yes)}
)
SELECT * FROM found
UNION ALL
SELECT * FROM created`,
    parserOf(shape, true),
  )
}

/**
 * Inserts with the numbers of all texts left to the guard. The hashes are the right ones, for where the table is spread
 * by a hash no trigger may set it: the row would stay where another hash belongs. Takes the same parameters as the others.
 */
export function createInChainStatement(given: RowShape, onConflict: 'raise' | 'nothing'): Statement<StoredRow> {
  const shape = unechoed(given)
  const columns = insertColumns(shape)
  const numbers = [shape.table.number, ...(shape.otherNumbers ?? [])]
  const values = [...columns.map((name, index) => written(shape, name, parameter(index))), ...numbers.map(() => 'NULL')]
  const orNothing = onConflict === 'nothing' ? `\n${doNothing(shape)}` : ''
  return named(
    `INSERT INTO ${tableName(shape.table)} AS t (${nameList([...columns, ...numbers])})
VALUES (${values.join(', ')})${orNothing}
RETURNING ${returnedRow(shape, CREATED.yes)}`,
    parserOf(shape, true),
  )
}

const SAVEPOINT = 'typeorm_unique_text'
const WHOLE_SAVEPOINT = 'typeorm_unique_text_whole'

/** Statements around others that must be undone together. */
export type SavepointCommands = Readonly<Record<'set' | 'release' | 'rollBack', string>>

/** Around statements that may fail in the caller's transaction. */
export const savepoint: SavepointCommands = {
  set: `SAVEPOINT ${SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${SAVEPOINT}`,
}

/** Around all the statements of a call. */
export const wholeSavepoint: SavepointCommands = {
  set: `SAVEPOINT ${WHOLE_SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${WHOLE_SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${WHOLE_SAVEPOINT}`,
}

/** Around several statements outside any transaction. */
export const ownTransaction: SavepointCommands = { set: 'START TRANSACTION', release: 'COMMIT', rollBack: 'ROLLBACK' }

/** Whether a transaction sees what others have committed since it began. */
export const seesCommitted: Statement<boolean> = {
  name: '',
  sql: `SELECT CASE WHEN pg_catalog.current_setting('transaction_isolation') LIKE 'read %' THEN 1 END AS sees`,
  parse: ([sees]) => sees !== null,
}

/** @param sql of TypeORM, with a `returningList` */
export function insertedStatement(sql: string): Statement<WireRow> {
  return { name: '', sql, parse: (row) => row }
}

/**
 * An UPDATE of TypeORM's as a query that returns its rows: some drivers return the rows of a bare UPDATE in another
 * form.
 */
export function updatedStatement(sql: string): Statement<WireRow> {
  return { name: '', sql: `WITH changed AS (${sql})\nSELECT * FROM changed`, parse: (row) => row }
}

/** Gives a row inside a transaction that was begun by a statement of its own; 25P02 in one that has failed. */
export const seesOpenTransaction =
  'SELECT 1 WHERE pg_catalog.transaction_timestamp() <> pg_catalog.statement_timestamp()'
