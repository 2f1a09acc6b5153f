import { asStored, type ColumnTypes, typeOf } from './types'
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
} from './find'
import { field, isLive, op, tableName, within } from './text-table'

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
), ${createdMany(shape)}
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
  const { table, fewScopes = [], types, defaults } = shape
  // Says of the hash what `holdsText` says already. The planner takes it for one more condition, and so the look-ups of a
  // table that has grown much since it was analyzed for as cheap as they are: an index scan each, and nothing to compile.
  const hash = `i.c${table.scope.length + table.text.length}`
  const firstFew = insertColumns(shape).length + defaults.size
  const where = [
    holdsText(shape, (index) => `i.c${index}`),
    within(field('t', table.hash), hash, hash),
    // Says what the rows say already, in constants: the planner leaves out the partitions of all other scopes.
    ...fewScopes.map(
      (name, index) => `${field('t', name)} ${op('=')} ANY (${parameter(firstFew + index)}::${typeOf(types, name)}[])`,
    ),
    ...isLive(table, 't'),
    anyNumber(table),
  ]
  return `SELECT i.ordinal, t.*
  FROM input AS i
  CROSS JOIN LATERAL (
    SELECT ${selectRow(shape, 't', { created: CREATED.no })}
    FROM ${tableName(table)} AS t
    WHERE ${where.join('\n      AND ')}
    LIMIT 2
  ) AS t`
}

/** Inserts the rows of the batch that were not found. */
export function createdMany(shape: BatchShape): string {
  const { table, types, defaults, select } = shape
  const columns = insertColumns(shape)
  const values = columns.map((name, index) =>
    index < keyColumns(table).length
      ? `i.c${index}`
      : broughtOr(shape, name, `(${defaults.get(name)})::${typeOf(types, name)}`),
  )
  // No more than is read: a role may be allowed to read some columns only.
  const read = new Set([...keyColumns(table), table.number, ...select])
  return `created AS (
  INSERT INTO ${tableName(table)} AS t (${nameList(columns)})
  SELECT ${values.join(',\n    ')}
  FROM input AS i
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.ordinal OPERATOR(pg_catalog.=) i.ordinal)
  ORDER BY ${inputOrder(shape)}
  ${doNothing(shape)}
  RETURNING ${[...read].map((name) => field('t', name)).join(', ')}
)`
}

/** The order in which rows are inserted, and locked. */
export function inputOrder({ table, numbered }: BatchShape): string {
  if (table.scope.length === 0 || numbered === true) return 'i.ordinal'
  const key = keyColumns(table).map((name, index) =>
    table.text.some((text) => text.name === name) ? `i.c${index} COLLATE pg_catalog."C"` : `i.c${index}`,
  )
  return [...key.toReversed(), 'i.ordinal'].join(', ')
}

/** What was inserted, for each row of the batch that asked for it; for none where a trigger changed the text. */
export function selectCreated(shape: BatchShape, notes: { readonly otherTexts?: string } = {}): string {
  const { table } = shape
  // By what is stored: a collation of the column's own may call equal what differs in the batch.
  const row = [...table.scope, table.hash, table.number].map((name) => field('t', name))
  // Two rows of the batch may have scopes that differ as given and are stored alike: only the first created the row.
  const isFirst = `CASE WHEN i.ordinal OPERATOR(pg_catalog.=) pg_catalog.min(i.ordinal)
    OVER (PARTITION BY ${row.join(', ')})
    THEN ${CREATED.yes} END`
  const created = table.scope.length === 0 ? CREATED.yes : isFirst
  return `SELECT i.ordinal, ${selectRow(shape, 't', { created, ...notes })}
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
  return `input AS MATERIALIZED (
  SELECT ${list(['i.ordinal', ...values], 4)}
  FROM ${unnest(arrays, 4)}
    WITH ORDINALITY AS i (${[...columns, ...given].join(', ')}, ordinal)
)`
}

/** The value that a row of the batch brings for a column beside its key, or something else where it brings none. */
export function broughtOr(shape: BatchShape, name: string, otherwise: string): string {
  const value = `i.c${insertColumns(shape).indexOf(name)}`
  const type = typeOf(shape.types, name)
  const brought = shape.spatial?.has(name) ? written(shape, name, value) : `${value}::${type}`
  const nth = [...shape.defaults.keys()].indexOf(name)
  return nth === -1 ? brought : `CASE WHEN i.g${nth} THEN ${brought} ELSE ${otherwise} END`
}
