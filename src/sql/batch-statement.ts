import { asStored, type ColumnTypes, typeOf } from './column-type'
import { list, unnest } from './identifier'
import {
  anyNumber,
  columnsParser,
  CREATED,
  doNothing,
  holdsText,
  insertColumns,
  isCreated,
  keyColumns,
  named,
  nameList,
  parameter,
  type RowShape,
  selectRow,
  sentInBatch,
  type Statement,
  type StoredRow,
  written,
} from './statements'
import { field, isLive, op, tableName, type TextTable, within } from './text-table'

/** A stored row that answers one row of a batch. */
export interface BatchRow extends StoredRow {
  /** 0-based index of the row of the batch. */
  readonly index: number
}

/** Which columns the rows of a batch bring. */
export interface BatchShape extends RowShape {
  readonly types: ColumnTypes
  /** SQL of the default of every column that not all of the rows bring. */
  readonly defaults: ReadonlyMap<string, string>
  /** Columns of the scope whose few values come once more, each in an array, behind all other parameters. @default none */
  readonly fewScopes?: readonly string[]
}

/**
 * Finds, or inserts at number 0, many rows in one round trip. A parameter is an array of texts for each column, and
 * after these, for each column of `defaults`, an array of booleans: whether the row brings it.
 *
 * A value comes as text and is cast one by one, as a parameter of its own would be: an array of the column's type would
 * flatten arrays, and fail as a whole. The cast names no length, or it would cut what an insert refuses.
 *
 * The rows must be sorted by hash: two batches that insert the same texts in different orders would deadlock.
 *
 * Not prepared by name: a plan that is kept from when the table was small would be kept too long, and next to a batch
 * planning costs little. Over many partitions it costs more than the batch, and each of them is planned anew as it grows.
 */
export function findOrCreateManyStatement(shape: BatchShape): Statement<BatchRow> {
  const { fewScopes = [], partitioned } = shape
  const isKept = partitioned === true && fewScopes.length === 0
  const sql = `WITH ${input(shape, isKept ? unseen : undefined)}, found AS (
  ${found(shape)}
), ${created(shape)}
SELECT * FROM found
UNION ALL
${selectCreated(shape)}`
  const parse = batchParser(shape, false)
  return isKept ? named(sql, parse) : { name: '', sql, parse }
}

/** A parameter of whose length the planner knows nothing: the plan for any length is the one that it keeps. */
const unseen = (array: string): string => `(SELECT ${array})`

/** Rows that hold the texts of a batch; several of one text only where the guard was off. Takes the key's parameters. */
export function findManyStatement(shape: BatchShape): Statement<BatchRow> {
  return { name: '', sql: findMany(shape), parse: batchParser(shape, false) }
}

const findMany = (shape: BatchShape, givenArray?: (array: string) => string): string =>
  `WITH ${input(shape, givenArray)}\n  ${found(shape)}`

/**
 * Finds the rows of a few calls that look for one each. Prepared by name, because planning would cost more than finding
 * so few rows. The planner must not see how many there are: a plan for fewer than ten looks so much cheaper than one
 * for any number that it would plan anew each time.
 */
export function findTogetherStatement(shape: BatchShape): Statement<BatchRow> {
  return named(findMany(shape, unseen), batchParser(shape, false))
}

/** LATERAL with a limit, for a join would read the whole table where it is small enough; 2 shows a duplicate. */
function found(shape: BatchShape): string {
  const same = holdsText(shape, (index) => `i.c${index}`)
  return `SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT ${selectRow(shape, 't', { created: CREATED.no })}
    FROM ${tableName(shape.table)} AS t
    WHERE ${[same, oneHash(shape.table), ...oneOfFew(shape), ...isLive(shape.table, 't'), anyNumber(shape.table)].join('\n      AND ')}
    LIMIT 2
  ) AS t`
}

/**
 * Says of the hash what `holdsText` says already. The planner takes it for one more condition, and so the look-ups of a
 * table that has grown much since it was analyzed for as cheap as they are: an index scan each, and nothing to compile.
 */
function oneHash({ scope, text, hash }: TextTable): string {
  const value = `i.c${scope.length + text.length}`
  return within(field('t', hash), value, value)
}

/** Says what the rows say already, in constants: the planner leaves out the partitions of all other scopes. */
function oneOfFew(shape: BatchShape): string[] {
  const { fewScopes = [], types, defaults } = shape
  const first = insertColumns(shape).length + defaults.size
  return fewScopes.map(
    (name, index) => `${field('t', name)} ${op('=')} ANY (${parameter(first + index)}::${typeOf(types, name)}[])`,
  )
}

/** Inserts the rows of the batch that were not found. */
export function created(shape: BatchShape): string {
  return `created AS (
  INSERT INTO ${tableName(shape.table)} AS t (${nameList(insertColumns(shape))})
  SELECT ${insertColumns(shape)
    .map((name, index) => insertedValue(shape, name, index))
    .join(',\n    ')}
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY ${inputOrder(shape)}
  ${doNothing(shape)}
  RETURNING ${readColumns(shape)
    .map((name) => field('t', name))
    .join(', ')}
)`
}

/** What comes back of an inserted row, and no more: a role may be allowed to read some columns only. */
const readColumns = ({ table, select }: BatchShape): string[] => [
  ...new Set([...keyColumns(table), table.number, ...select]),
]

/** The order in which rows are inserted, and locked. */
export function inputOrder(shape: BatchShape): string {
  return [...(shape.table.scope.length > 0 && shape.numbered !== true ? key(shape) : []), 'i.ordinal'].join(', ')
}

/** What was inserted, for each row of the batch that asked for it; for none where a trigger changed the text. */
export function selectCreated(shape: BatchShape, notes: { readonly otherTexts?: string } = {}): string {
  return `SELECT i.ordinal, ${selectRow(shape, 't', { created: isFirst(shape), ...notes })}
FROM created AS t
JOIN input AS i ON ${holdsText(shape, (index) => `i.c${index}`)}`
}

/** @param tellsOthers the statement tells of other texts */
export function batchParser(shape: BatchShape, tellsOthers: boolean): Statement<BatchRow>['parse'] {
  const columnsOf = columnsParser(shape, { start: 1, tellsOthers }, sentInBatch)
  return (row, values) => {
    const [ordinal, created, hashNumber] = row
    const index = Number(ordinal) - 1
    return {
      index,
      created: isCreated(created),
      hashNumber: Number(hashNumber),
      columns: columnsOf(row, values, index),
    }
  }
}

/**
 * The rows of the batch: the key in the types that are compared, everything else as text.
 *
 * @param givenArray what stands for a parameter. @default itself
 */
export function input(shape: BatchShape, givenArray = (array: string): string => array): string {
  const columns = insertColumns(shape).map((_, index) => `c${index}`)
  const given = [...shape.defaults.keys()].map((_, index) => `g${index}`)
  const arrays = [...columns, ...given].map((_, index) =>
    givenArray(`${parameter(index)}::${index < columns.length ? 'pg_catalog.text' : 'boolean'}[]`),
  )
  const values = [
    ...keyColumns(shape.table).map((name, index) => `${keyValue(shape, name, index)} AS c${index}`),
    ...columns.slice(keyColumns(shape.table).length).map((column) => `i.${column}`),
    ...given.map((column) => `i.${column}`),
  ]
  return `input AS MATERIALIZED (
  SELECT ${list(['i.ordinal', ...values], 4)}
  FROM ${unnest(arrays, 4)}
    WITH ORDINALITY AS i (${[...columns, ...given].join(', ')}, ordinal)
)`
}

function keyValue({ table, types }: BatchShape, name: string, index: number): string {
  const value = `i.c${index}`
  if (name === table.hash) return `${value}::pg_catalog.${table.digest.type}`
  const type = table.scope.includes(name) ? types.get(name) : undefined
  return type ? asStored(value, type) : value
}

function insertedValue(shape: BatchShape, name: string, index: number): string {
  if (index < keyColumns(shape.table).length) return `i.c${index}`
  return broughtOr(shape, name, `(${shape.defaults.get(name)})::${typeOf(shape.types, name)}`)
}

/** The value that a row of the batch brings for a column beside its key, or something else where it brings none. */
export function broughtOr(shape: BatchShape, name: string, otherwise: string): string {
  const value = `i.c${insertColumns(shape).indexOf(name)}`
  const type = typeOf(shape.types, name)
  const brought = shape.spatial?.has(name) ? written(shape, name, value) : `${value}::${type}`
  const nth = [...shape.defaults.keys()].indexOf(name)
  return nth === -1 ? brought : `CASE WHEN i.g${nth} THEN ${brought} ELSE ${otherwise} END`
}

/** The key of a row of the batch, by which equal rows are recognized and sorted. */
function key({ table }: BatchShape): string[] {
  const values = keyColumns(table).map((name, index) =>
    table.text.some((text) => text.name === name) ? `i.c${index} COLLATE pg_catalog."C"` : `i.c${index}`,
  )
  return values.toReversed()
}

/** Two rows of the batch may have scopes that differ as given and are stored alike: only the first created the row. */
function isFirst({ table }: BatchShape): string {
  if (table.scope.length === 0) return CREATED.yes
  // By what is stored: a collation of the column's own may call equal what differs in the batch.
  const row = [...table.scope, table.hash, table.number].map((name) => field('t', name))
  return `CASE WHEN i.ordinal OPERATOR(pg_catalog.=) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY ${row.join(', ')})
    THEN ${CREATED.yes} END`
}
