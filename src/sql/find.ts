import { createHash } from 'node:crypto'
import { quote } from './identifier'
import { alike, bytewise, equal, field, isLive, isOther, tableName, type TextTable, within } from './text-table'
import { asStored, fromGeoJson, type SpatialColumn, type TableTraits, toGeoJson } from './types'

/** A row from the driver: values in the order of the select list. */
export type WireRow = readonly unknown[]

/** One row of a table with a unique text, as every statement of find-or-create returns it. */
export interface StoredRow {
  /** This statement inserted it. */
  readonly created: boolean
  readonly hashNumber: number
  /** Values, ordered as `RowShape.select`. */
  readonly columns: readonly unknown[]
}

/** A stored row that answers one row of a batch. */
export interface BatchRow extends StoredRow {
  /** 0-based index of the row in the batch. */
  readonly index: number
}

/**
 * The columns of a row, by their database names. The parameters of every statement are the row's values in this order:
 * scope, text, hash, then `others`.
 */
export interface RowShape extends TableTraits {
  readonly table: TextTable
  /** Further columns of an insert. */
  readonly others: readonly string[]
  /** The columns to return. */
  readonly select: readonly string[]
  /** The text columns of `select` that a row stores exactly as they were sent. The server need not return them. */
  readonly echoed: readonly string[]
  readonly spatial: ReadonlyMap<string, SpatialColumn>
  /** Rows are numbered as they are written, so they keep the order of the batch. */
  readonly numbered: boolean
  /** The columns of the hash numbers that guards assign to the table's other texts. */
  readonly otherNumbers: readonly string[]
  /** In a batch: SQL of the default of every column that some rows have no value for. */
  readonly defaults: ReadonlyMap<string, string>
  /** In a batch: scope columns with few values, which are also sent as arrays after all other parameters. */
  readonly fewScopes: readonly string[]
}

/** SQL. A row that was found returns NULL, because no boolean parser of the user ever receives NULL. */
export const CREATED = { yes: 'true', no: 'NULL::boolean' } as const

/** The notes of a select list: the flag, and the stored texts if they may differ from the sent ones. */
interface RowNotes {
  /** SQL of the flag `created`. */
  readonly created: string
  /** SQL: the row's texts as JSON, if they may differ from the sent ones, perhaps by a trigger. @default no */
  readonly otherTexts?: string
}

/** The column for other texts if there are none. */
export const SAME_TEXTS = 'NULL::pg_catalog.text'

/** Returns the select list of the stored row `row`. A `Statement` parses it with `parserOf`. */
export function selectRow(shape: RowShape, row: string, { created, otherTexts }: RowNotes): string {
  const others = otherTexts === undefined || !echoes(shape) ? '' : `,\n    ${otherTexts} AS other_texts`
  const head = `${created} AS created, ${field(row, shape.table.number)} AS hash_number${others}`
  return listed(head, returningList(shape, row, shape.echoed))
}

/** The columns of `selectRow` if it includes other texts. */
export const rowColumns = (shape: RowShape): string[] => [
  'created',
  'hash_number',
  ...(echoes(shape) ? ['other_texts'] : []),
  ...shape.select.flatMap((name, index) => (shape.echoed.includes(name) ? [] : [`s${index}`])),
]

const echoes = ({ echoed }: RowShape): boolean => echoed.length > 0

/** The stored texts as JSON, or NULL if they are the sent ones. */
export function otherTexts(shape: RowShape, value: (index: number) => string): string {
  const { echoed, table } = shape
  const changed = table.text.flatMap(({ name }, index) =>
    echoed.includes(name) ? [isOther(asText(name), `${value(table.scope.length + index)}::pg_catalog.text`)] : [],
  )
  const stored = echoed.map((name) => field('t', name)).join(', ')
  return `CASE WHEN ${changed.join('\n      OR ')}
    THEN pg_catalog.json_build_array(${stored})::pg_catalog.text END`
}

/** Reads a row of a batch: where the first column of `selectRow` is, and the index of the row in the batch. */
export interface BatchLayout {
  readonly start: number
  readonly indexOf: (row: WireRow) => number
}

/**
 * Parses a stored row. Texts that the server does not return are those that were sent.
 *
 * @param tellsOthers whether the row includes other texts
 * @param layout for a statement whose parameters are arrays. @default one row, and parameters of its own
 */
export function parserOf(
  { table, select, echoed }: RowShape,
  tellsOthers: boolean,
  { start, indexOf }: Partial<BatchLayout> & Pick<BatchLayout, 'start'> = { start: 0 },
): Parse<BatchRow> {
  const parameters = echoed.map((name) => table.scope.length + table.text.findIndex((text) => text.name === name))
  const others = tellsOthers && echoed.length > 0 ? start + 2 : undefined
  const echo = select.map((name) => echoed.indexOf(name))
  return (row, values) => {
    const index = indexOf?.(row) ?? 0
    const json = others === undefined ? undefined : row[others]
    const stored = typeof json === 'string' ? (JSON.parse(json) as readonly unknown[]) : undefined
    let next = others === undefined ? start + 2 : others + 1
    const columns: unknown[] = []
    for (const nth of echo) {
      if (nth === -1) columns.push(row[next++])
      else if (stored) columns.push(stored[nth])
      else {
        const sent = values[parameters[nth] ?? 0]
        columns.push(indexOf ? (sent as readonly unknown[])[index] : sent)
      }
    }
    return { index, created: row[start] !== null, hashNumber: Number(row[start + 1]), columns }
  }
}

/**
 * The columns of the shape, named by position, because a column before them may have the same name. An INSERT or an
 * UPDATE of TypeORM returns all of them.
 */
export function returningList(
  { select, spatial }: Pick<RowShape, 'select' | 'spatial'>,
  row = '',
  echoed: readonly string[] = [],
): string {
  const columns = select.map((name, index) => {
    const column = spatial.get(name)
    return echoed.includes(name)
      ? ''
      : `${column ? toGeoJson(field(row, name), column) : field(row, name)} AS s${index}`
  })
  return listed(...columns)
}

const listed = (...parts: readonly string[]): string => parts.filter((part) => part !== '').join(', ')

/** A text column in the form that is compared. */
export const asText = (name: string): string => bytewise('t', name)

/** A statement with its parser. The name is a digest of the SQL, so equal names always mean equal statements. */
export interface Statement<Row> {
  /** If `''`, the statement is not prepared by name. */
  readonly name: string
  readonly sql: string
  /** The most rows that one use inserts. @default 1 */
  readonly rows?: number
  /** @param values the statement's parameters, which supply texts that the row does not repeat */
  readonly parse: (row: WireRow, values: readonly unknown[]) => Row
}

type Parse<Row> = Statement<Row>['parse']

export function named<Row>(sql: string, parse: Parse<Row>, rows = 1): Statement<Row> {
  return { name: `unique_text_${createHash('sha1').update(sql).digest('hex').slice(0, 16)}`, sql, rows, parse }
}

/** Scope, text and hash, which identify a row. */
export function keyColumns({ scope, text, hash }: TextTable): string[] {
  return [...scope, ...text.map(({ name }) => name), hash]
}

/** The key, then the others: the columns of the insert, and the order of the parameters. */
export function insertColumns({ table, others }: RowShape): string[] {
  return [...keyColumns(table), ...others]
}

/**
 * The shape with every text in its row, if the database has Citus. A distributed table does not return other texts as
 * JSON. If a prepared statement does, and the table is distributed later, the server crashes (13.2.2).
 */
export const unechoed = (shape: RowShape): RowShape =>
  shape.distributed !== undefined && echoes(shape) ? { ...shape, echoed: [] } : shape

export const nameList = (names: readonly string[]): string => names.map(quote).join(', ')

/**
 * True for every number, but the planner does not know that. If the table was never analyzed, the planner expects each
 * hash in one row of 200. A thousand look-ups then seem so costly that it compiles them (`jit_above_cost`). A range
 * divides the estimate by 200 once more.
 */
export const anyNumber = ({ number }: TextTable): string => within(field('t', number), '-2147483648', '2147483647')

/** The stored row `t` has the text of the row whose key is `value(0)`, `value(1)`, … in the order of the shape. */
export function holdsText({ table }: Pick<RowShape, 'table'>, value: (index: number) => string): string {
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

/** The row `t` holds the text, which is not freed by a soft deletion. @param value the key, as for `holdsText` */
export const isTheRow = (shape: RowShape, value: (index: number) => string = keyParameter(shape)): string =>
  [holdsText(shape, value), ...isLive(shape.table, 't'), anyNumber(shape.table)].join('\n    AND ')

export const parameter = (index: number): string => `$${index + 1}`

/** A parameter of the key in a look-up. */
export const keyParameter =
  ({ table, types }: RowShape) =>
  (index: number): string => {
    const name = table.scope[index]
    const type = name === undefined ? undefined : types.get(name)
    return type && type.type !== type.declared ? asStored(parameter(index), type) : parameter(index)
  }

/** The value that an insert writes into a column. */
export const written = ({ spatial }: RowShape, name: string, value: string): string => {
  const column = spatial.get(name)
  return column ? fromGeoJson(value, column) : value
}

/** ON CONFLICT DO NOTHING. */
export function doNothing({ table, deferrable }: RowShape): string {
  const key = `(${nameList([...table.scope, table.hash, table.number])})`
  const target = deferrable ? ['', key, ...isLive(table, '').map((live) => `WHERE ${live}`)].join(' ') : ''
  return `ON CONFLICT${target} DO NOTHING`
}

/**
 * @param tellsOthers true for a statement that can also return rows with other texts
 * @param more a further column
 */
export const selectFound = (shape: RowShape, tellsOthers: boolean, more?: string): string =>
  `SELECT ${selectRow(shape, 't', { created: CREATED.no, ...(tellsOthers ? { otherTexts: SAME_TEXTS } : {}) })}${more ? `,\n    ${more}` : ''}
  FROM ${tableName(shape.table)} AS t
  WHERE ${isTheRow(shape)}`

/** Finds rows that hold the text. There are several only if the guard was off. Takes only the key's parameters. */
export function findStatement(shape: RowShape): Statement<StoredRow> {
  return named(selectFound(shape, false), parserOf(shape, false))
}

/**
 * Finds the rows that hold the text now, regardless of the snapshot. If the two differ, it raises 40001. FOR KEY SHARE
 * would miss a change of the text, because an index with a condition, as with `ignoreDeleted`, is not a key.
 */
export function findStandingStatement(shape: RowShape): Statement<StoredRow> {
  return named(`${selectFound(shape, false)}\n  FOR SHARE`, parserOf(shape, false))
}

/** The returned columns of an INSERT or an UPDATE. A trigger may have changed the text. */
export const returnedRow = (shape: RowShape, created: string): string =>
  selectRow(shape, 't', { created, otherTexts: otherTexts(shape, parameter) })

/** Columns that a restore writes, by their database names. */
interface RestoredColumns {
  readonly deleted: string
  readonly version: string | undefined
  readonly updated: string | undefined
}

/** Restores the row that holds the text, as TypeORM's `restore()` does. Returns no row if it is not deleted. */
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
 * Finds a row, or inserts one at number 0, in one round trip. Returns no row if both failed. The sequence of a
 * generated key is used only for an inserted row.
 *
 * DO NOTHING names no index, because another index may refuse the row and must not raise an error in a transaction.
 */
export function findOrCreateStatement(shape: RowShape): Statement<StoredRow> {
  return named(
    `WITH found AS (
  ${selectFound(shape, true)}
), ${createdRow(shape)}
SELECT * FROM found
UNION ALL
SELECT * FROM created`,
    parserOf(shape, true),
  )
}

/** Inserts the row if it was not found. */
export function createdRow(shape: RowShape): string {
  const columns = insertColumns(shape)
  return `created AS (
  INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
  SELECT ${columns.map((name, index) => written(shape, name, parameter(index))).join(', ')}
  WHERE NOT EXISTS (SELECT FROM found)
  ${doNothing(shape)}
  RETURNING ${returnedRow(shape, CREATED.yes)}
)`
}

/** Inserts one row at number 0. Returns nothing if a row conflicts. It takes the same parameters as the others. */
export const createStatement = (shape: RowShape): Statement<StoredRow> => insertStatement(shape, [], 'nothing')

/**
 * Inserts a row whose guards assign the numbers. A text without a guard has number 0 or none. The hashes are final,
 * because no trigger may set a hash that distributes the table. Takes the same parameters as the others.
 */
export const createInChainStatement = (shape: RowShape, onConflict: 'raise' | 'nothing'): Statement<StoredRow> =>
  insertStatement(shape, [...guardedNumbers([shape.table]), ...shape.otherNumbers], onConflict)

/** @param numbers columns that a guard fills */
function insertStatement(
  given: RowShape,
  numbers: readonly string[],
  onConflict: 'raise' | 'nothing',
): Statement<StoredRow> {
  const shape = unechoed(given)
  const columns = insertColumns(shape)
  const values = [...columns.map((name, index) => written(shape, name, parameter(index))), ...numbers.map(() => 'NULL')]
  const orNothing = onConflict === 'nothing' ? `\n${doNothing(shape)}` : ''
  return named(
    `INSERT INTO ${tableName(shape.table)} AS t (${nameList([...columns, ...numbers])})
VALUES (${values.join(', ')})${orNothing}
RETURNING ${returnedRow(shape, CREATED.yes)}`,
    parserOf(shape, true),
  )
}

/** The columns of the hash numbers that a guard assigns. */
export const guardedNumbers = (tables: readonly Pick<TextTable, 'number' | 'guardless'>[]): string[] =>
  tables.flatMap(({ number, guardless }) => (guardless === true ? [] : [number]))

/** @param sql an INSERT of TypeORM, with a `returningList` */
export function insertedStatement(sql: string): Statement<WireRow> {
  return { name: '', sql, parse: (row) => row }
}

/** Wraps an UPDATE of TypeORM in a query, because some drivers return the rows of a bare UPDATE in another form. */
export function updatedStatement(sql: string): Statement<WireRow> {
  return { name: '', sql: `WITH changed AS (${sql})\nSELECT * FROM changed`, parse: (row) => row }
}

/**
 * Equality with a text that no row can hold, with the meaning of SQL: false, or NULL if the column is NULL. Its
 * negation then finds the same rows as the negation of any other equality.
 *
 * @param column as SQL, or as a query builder names it
 */
export const equalsNoText = (column: string): string => `(${column} IS NULL AND NULL)`

/** True for no row, and only for conditions that are not negated. The planner knows that no row matches. */
export const NOTHING = '1 = 0'

/**
 * A condition that all columns hold these values.
 *
 * @param values by column, as a query builder names them; null means that the column is NULL
 * @param parameter returns a query builder's parameter for a value
 */
export function holdsValues(values: ReadonlyMap<string, string | null>, parameter: (value: string) => string): string {
  return [...values]
    .map(([column, value]) => (value === null ? `${column} IS NULL` : `${column} = :${parameter(value)}`))
    .join(' AND ')
}

/**
 * Complements an equality with a hash for rows without a hash. As long as the table was not checked, the condition has
 * a mark, and `decided` resolves it when the statement is sent.
 *
 * @param column as SQL, or as a query builder names it
 * @param mark from `markOf`; if undefined, the condition is never resolved
 */
export const orNoHash = (column: string, mark: string | undefined): string =>
  `${column} IS NULL${mark === undefined ? '' : ` ${mark}`}`

/**
 * A comment in a statement that depends on the check of a table.
 *
 * @param secret of the process, because a text in SQL that a user has composed may contain anything
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
 * Resolves the marks of a statement once its tables were checked. Postgres folds either constant before planning.
 *
 * @param ready the marks of tables where every row has the hash of its text. In the other tables any hash may be wrong,
 * and only the text decides.
 */
export const decided = (sql: string, secret: string, ready: ReadonlySet<number>): string =>
  sql.replaceAll(marks(secret), (_, number: string) => (ready.has(Number(number)) ? 'AND FALSE' : 'OR TRUE'))
