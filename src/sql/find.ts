import { createHash } from 'node:crypto'
import { quote } from './identifier'
import { alike, bytewise, equal, field, isLive, isOther, tableName, type TextTable, within } from './text-table'
import { asStored, type ColumnTypes, fromGeoJson, type SpatialColumn, toGeoJson } from './types'

/** A row as the driver gives it: values in the order of the select list. */
export type WireRow = readonly unknown[]

/** One row of a table with a unique text, as every statement of find-or-create gives it. */
export interface StoredRow {
  /** This statement inserted it. */
  readonly created: boolean
  readonly hashNumber: number
  /** Values, ordered as `RowShape.select`. */
  readonly columns: readonly unknown[]
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
  /**
   * The text columns of `select` that a row holds as they were sent, byte for byte. The server need not return them.
   * @default none
   */
  readonly echoed?: readonly string[] | undefined
  /** The types of the scope at least, so that values are compared as they will be stored. @default compare them as given */
  readonly types?: ColumnTypes | undefined
  /** @default none */
  readonly spatial?: ReadonlyMap<string, SpatialColumn> | undefined
  /**
   * The table has a deferrable constraint, which ON CONFLICT without a target does not take (55000): then the statements
   * name our index, and a violation of any other raises. @default false
   */
  readonly deferrable?: boolean | undefined
  /** The rows lie in shards, of which a server takes simpler statements only. @default false */
  readonly distributed?: boolean | undefined
  /** The rows lie in partitions, all of which the planner looks at. @default false */
  readonly partitioned?: boolean | undefined
  /** They do, and a statement that locks rows must not choose partitions while it runs. @default false */
  readonly crashesByPruning?: boolean | undefined
  /** Rows are numbered as they are written, so that they keep the order in which a batch has them. @default false */
  readonly numbered?: boolean | undefined
  /** Columns of the hash numbers that guards give the table's other texts. */
  readonly otherNumbers?: readonly string[]
}

/** SQL. A row that was found gives NULL, because that is the only value which no boolean parser of the user ever sees. */
export const CREATED = { yes: 'true', no: 'NULL::boolean' } as const

const NO_NAMES: readonly string[] = []

/** What a select list says of texts that are sent: nothing, that they are as they were, or which ones are stored. */
interface RowNotes {
  /** SQL of the flag `created`. */
  readonly created: string
  /** The texts of a row that may hold others than were sent, if only for a trigger: as JSON, in SQL. @default it cannot */
  readonly otherTexts?: string
}

/** The column for other texts, if there are none. */
export const SAME_TEXTS = 'NULL::pg_catalog.text'

/** What every select list gives of the stored row `row`; a `Statement` parses it with `parserOf`. */
export function selectRow(shape: RowShape, row: string, { created, otherTexts }: RowNotes): string {
  const others = otherTexts === undefined || !echoes(shape) ? '' : `,\n    ${otherTexts} AS other_texts`
  const head = `${created} AS created, ${field(row, shape.table.number)} AS hash_number${others}`
  return listed(head, selectList(shape, row))
}

/** The columns of `selectRow`, where it tells of other texts. */
export const rowColumns = (shape: RowShape): string[] => [
  'created',
  'hash_number',
  ...(echoes(shape) ? ['other_texts'] : []),
  ...shape.select.flatMap((name, index) => (isEchoed(shape, name) ? [] : [`s${index}`])),
]

const echoes = ({ echoed = NO_NAMES }: RowShape): boolean => echoed.length > 0

const isEchoed = ({ echoed = NO_NAMES }: Pick<RowShape, 'echoed'>, name: string): boolean => echoed.includes(name)

/** The stored texts as JSON, or NULL where they are the sent ones. */
export function otherTexts(shape: RowShape, value: (index: number) => string): string {
  const { echoed = NO_NAMES, table } = shape
  const changed = table.text.flatMap(({ name }, index) =>
    echoed.includes(name) ? [isOther(asText(name), `${value(table.scope.length + index)}::pg_catalog.text`)] : [],
  )
  const stored = echoed.map((name) => field('t', name)).join(', ')
  return `CASE WHEN ${changed.join('\n      OR ')}
    THEN pg_catalog.json_build_array(${stored})::pg_catalog.text END`
}

/** Where a parser finds things: what is 0-based, counts in the row and in the parameters of the statement. */
interface Layout {
  /** Where the columns of `selectRow` begin in the row. */
  readonly start: number
  /** It tells of other texts. */
  readonly tellsOthers: boolean
}

/** The parameters that a row stands for: those of the statement, or its place in arrays of them. */
type Sent = (values: readonly unknown[], parameter: number, row: number) => unknown

export const sentInBatch: Sent = (values, parameter, row) => (values[parameter] as readonly unknown[])[row]

/** Reads the columns of the shape from a row, or from what was sent. */
export function columnsParser(
  { table, select, echoed = NO_NAMES }: RowShape,
  { start, tellsOthers }: Layout,
  sent: Sent,
): (row: WireRow, values: readonly unknown[], index: number) => unknown[] {
  const parameters = echoed.map((name) => table.scope.length + table.text.findIndex((text) => text.name === name))
  const others = tellsOthers && echoed.length > 0 ? start + 2 : undefined
  const echo = select.map((name) => echoed.indexOf(name))
  return (row, values, index) => {
    const json = others === undefined ? undefined : row[others]
    const stored = typeof json === 'string' ? (JSON.parse(json) as readonly unknown[]) : undefined
    let next = others === undefined ? start + 2 : others + 1
    const columns: unknown[] = []
    for (const nth of echo) {
      if (nth === -1) columns.push(row[next++])
      else columns.push(stored ? stored[nth] : sent(values, parameters[nth] ?? 0, index))
    }
    return columns
  }
}

/** What the two columns before them say. */
export const isCreated = (created: unknown): boolean => created !== null

/** The columns of the shape, named by their position, so that two can share a name with what stands before them. */
function selectList(shape: Pick<RowShape, 'select' | 'spatial' | 'echoed'>, row: string): string {
  const { select, spatial } = shape
  const columns = select.map((name, index) => {
    const column = spatial?.get(name)
    return isEchoed(shape, name)
      ? ''
      : `${column ? toGeoJson(field(row, name), column) : field(row, name)} AS s${index}`
  })
  return listed(...columns)
}

const listed = (...parts: readonly string[]): string => parts.filter((part) => part !== '').join(', ')

/** A text column as it is compared. */
export const asText = (name: string): string => bytewise('t', name)

/** What an INSERT or an UPDATE of TypeORM gives back of each row. */
export function returningList(shape: Pick<RowShape, 'select' | 'spatial'>, row = ''): string {
  return selectList(shape, row)
}

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

/** Parses the answer of a statement for one row. */
export function parserOf(shape: RowShape, tellsOthers: boolean): Parse<StoredRow> {
  const columnsOf = columnsParser(shape, { start: 0, tellsOthers }, (values, nth) => values[nth])
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
export const anyNumber = ({ number }: TextTable): string => within(field('t', number), '-2147483648', '2147483647')

/** The stored row `t` has the text of the row whose key is `value(0)`, `value(1)`, … in the order of the shape. */
export function holdsText({ table }: RowShape, value: (index: number) => string): string {
  const { scope, text, hash, nullable } = table
  return [
    ...scope.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) ${value(index)}`),
    `${field('t', hash)} OPERATOR(pg_catalog.=) ${value(scope.length + text.length)}`,
    ...text.map(({ name }, index) => {
      const [stored, given] = [asText(name), `${value(scope.length + index)}::pg_catalog.text`]
      return nullable || text.length > 1 ? alike(stored, given) : equal(stored, given)
    }),
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

/**
 * Finds the rows that hold the text now, whatever the snapshot shows; 40001 where the two differ. Not FOR KEY SHARE: an
 * index with a condition, as with `ignoreDeleted`, makes no key, so that lock lets a change of the text pass unseen.
 */
export function findStandingStatement(shape: RowShape): Statement<StoredRow> {
  return named(`${selectFound(shape, false)}\n  FOR SHARE`, parserOf(shape, false))
}

/** What an INSERT or an UPDATE of the statement gives of its row: a trigger may have changed the text. */
export const returnedRow = (shape: RowShape, created: string): string =>
  selectRow(shape, 't', { created, otherTexts: otherTexts(shape, parameter) })

/** Columns that a restore writes, by their database names. */
interface RestoredColumns {
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
    ...(version === undefined ? [] : [`${quote(version)} = ${field('t', version)} OPERATOR(pg_catalog.+) 1`]),
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
 * Inserts with the numbers of all texts left to their guards; a text without one has number 0 or none. The hashes are the right ones, for where the table is spread
 * by a hash no trigger may set it: the row would stay where another hash belongs. Takes the same parameters as the others.
 */
export function createInChainStatement(given: RowShape, onConflict: 'raise' | 'nothing'): Statement<StoredRow> {
  const shape = unechoed(given)
  const columns = insertColumns(shape)
  const numbers = [...guardedNumbers([shape.table]), ...(shape.otherNumbers ?? [])]
  const values = [...columns.map((name, index) => written(shape, name, parameter(index))), ...numbers.map(() => 'NULL')]
  const orNothing = onConflict === 'nothing' ? `\n${doNothing(shape)}` : ''
  return named(
    `INSERT INTO ${tableName(shape.table)} AS t (${nameList([...columns, ...numbers])})
VALUES (${values.join(', ')})${orNothing}
RETURNING ${returnedRow(shape, CREATED.yes)}`,
    parserOf(shape, true),
  )
}

/** The columns of the hash numbers that a guard gives. */
export const guardedNumbers = (tables: readonly Pick<TextTable, 'number' | 'guardless'>[]): string[] =>
  tables.flatMap(({ number, guardless }) => (guardless === true ? [] : [number]))

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

/**
 * Equality with a text that no row can hold, as SQL means it: false, and NULL where the column is NULL, so that its
 * negation gives the rows that the negation of any other equality gives.
 *
 * @param column as SQL, or as a query builder names it
 */
export const equalsNoText = (column: string): string => `(${column} IS NULL AND NULL)`

/** True for no row; only for conditions that are not negated. The planner knows that there is nothing to look for. */
export const NOTHING = '1 = 0'

/**
 * Columns that hold these values, all of them.
 *
 * @param values by the columns, as a query builder names them; null: the column is NULL
 * @param parameter of a query builder, for a value
 */
export function holdsValues(values: ReadonlyMap<string, string | null>, parameter: (value: string) => string): string {
  return [...values]
    .map(([column, value]) => (value === null ? `${column} IS NULL` : `${column} = :${parameter(value)}`))
    .join(' AND ')
}

/**
 * Beside an equality with a hash: right for rows that have none yet, too. While nobody has seen the table, a condition
 * is made with a mark; `decided` takes it back when the statement is sent.
 *
 * @param column as SQL, or as a query builder names it
 * @param mark of `markOf`; undefined: it is never decided
 */
export const orNoHash = (column: string, mark: string | undefined): string =>
  `${column} IS NULL${mark === undefined ? '' : ` ${mark}`}`

/**
 * A comment by which a statement tells what it waits for.
 *
 * @param secret of the process: a text may hold anything, and stands in SQL that somebody has composed
 */
export const markOf = (secret: string, number: number): string => `${beginOf(secret)}${number} */`

const beginOf = (secret: string): string => `/* typeorm-unique-text ${secret}: not seen yet, `

export const isUndecided = (sql: string, secret: string): boolean => sql.includes(beginOf(secret))

/** The numbers of the marks that a statement has. */
export const undecided = (sql: string, secret: string): readonly number[] => [
  ...new Set([...sql.matchAll(marks(secret))].map(([, number]) => Number(number))),
]

const marks = (secret: string): RegExp => new RegExp(`/[*]${beginOf(secret).slice(2)}(\\d+) [*]/`, 'gu')

/**
 * The statement when it is known what stands. Postgres folds either constant before it plans.
 *
 * @param ready the marks of tables whose every row has the hash of its text; of the others any hash may be wrong, and the
 *   text alone decides
 */
export const decided = (sql: string, secret: string, ready: ReadonlySet<number>): string =>
  sql.replaceAll(marks(secret), (_, number: string) => (ready.has(Number(number)) ? 'AND FALSE' : 'OR TRUE'))
