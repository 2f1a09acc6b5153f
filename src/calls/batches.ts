import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { parameterOptions } from '../connection/wire'
import { numbersOfTable } from '../registry/registry'
import { PREPARED_ROWS } from '../sql/batch'
import { type BatchRow, insertColumns, type Statement } from '../sql/find'
import { createSpreadStatement, findSpread, scopesOf } from '../sql/spread'
import { hasObjects, parameterText } from '../sql/types'
import type { ReadyText, Updates } from './entity-text'
import type { RequestedRow, RowValues } from './row-values'
import { isChanging } from './updates'
import { batchStatementOf, rowShape, statementsOf } from './statements'

/**
 * Rows of one statement. The round trip hardly counts, and two statements at once can still share a call's work. Only
 * tests set another value.
 */
export const limits = { rows: 1_000 }
/** Characters of one statement. The limit keeps the driver's strings and the messages to the server short. */
const BATCH_CHARACTERS = 16 * 2 ** 20

/** A row that the call requests, with every input that requests it. */
export interface DistinctRow extends RequestedRow {
  /** Index of the first input, which sets the other columns. */
  readonly input: number
  /** Further inputs that share its result, if any. Empty lists for thousands of rows would cost memory. */
  repeats: GivenRow[] | undefined
}

/** An input to find or create. */
export interface GivenRow {
  readonly input: number
  readonly values: ObjectLiteral
}

/** A row as a batch sends it. */
export interface BatchItem extends DistinctRow {
  /**
   * Texts in the order of `row.all`, if that contains objects, each with a text of its own. Most rows contain none and
   * are their own items, because thousands of copies would cost memory.
   */
  readonly texts?: readonly (string | null)[]
  /** Whether a value has no text that a batch could send. @default false */
  readonly alone?: boolean
}

/** The rows of one statement, or one row that takes statements of its own. */
export interface Batch {
  readonly items: readonly BatchItem[]
  readonly alone: boolean
}

/** Compares rows for a sort by hash. In another order, two batches with the same texts would deadlock. */
export function byHash({ row: left }: DistinctRow, { row: right }: DistinctRow): number {
  return left.hash < right.hash ? -1 : Number(left.hash > right.hash)
}

export const compareTexts = (left = '', right = ''): number => (left < right ? -1 : Number(left > right))

/** The rules by which the rows of a call are divided into batches. */
export interface BatchRules {
  readonly entityText: ReadyText
  /** SQL of defaults, for rows without columns that other rows set. @default all rows set the same columns */
  readonly defaults?: ReadonlyMap<string, string> | undefined
  /** The changes of rows that are found. @default none */
  readonly updates?: Updates | undefined
  /** The rows of one statement. @default 1,000 */
  readonly batchRows?: number | undefined
}

/** Returns whether the rows set different columns. */
export function isMixed(rows: readonly DistinctRow[]): boolean {
  const first = rows[0]?.row
  for (const { row } of rows) if (first && row.others !== first.others && !sameColumns(row, first)) return true
  return false
}

/** Builds no string for each row, because nearly always all rows set the same columns. */
const sameColumns = ({ others: left }: RowValues, { others: right }: RowValues): boolean =>
  left.length === right.length && left.every((name, index) => name === right[index])

/**
 * Divides rows into batches.
 *
 * @param refuse is called for rows whose values have no text
 */
export function* inBatches(
  rules: BatchRules,
  rows: readonly DistinctRow[],
  refuse: (row: DistinctRow, error: unknown) => void,
): Generator<Batch> {
  const { defaults, updates, batchRows = limits.rows } = rules
  // An identity column has no default in SQL, so a statement sets it for all rows or for none. A statement also either
  // updates rows or only finds them.
  const groupOf = ({ row }: DistinctRow): string => {
    return `${isChanging(updates, row)}\n${row.others.filter((name) => !defaults?.has(name)).join('\n')}`
  }
  for (const group of defaults ? groupBy(rows, groupOf).values() : [rows]) {
    let items: BatchItem[] = []
    let characters = 0
    for (const row of group) {
      const item: BatchItem | undefined = hasObjects(row.row.all) ? withTexts(rules, row, refuse) : row
      if (!item) continue
      const length = lengthOf(item)
      if (length > BATCH_CHARACTERS || item.alone) {
        yield { items: [item], alone: true }
        continue
      }
      if (items.length === batchRows || characters + length > BATCH_CHARACTERS) {
        yield { items, alone: false }
        items = []
        characters = 0
      }
      items.push(item)
      characters += length
    }
    if (items.length > 0) yield { items, alone: false }
  }
}

/** @returns undefined for a row that is refused */
function withTexts(
  { entityText }: BatchRules,
  row: DistinctRow,
  refuse: (row: DistinctRow, error: unknown) => void,
): BatchItem | undefined {
  const options = parameterOptions(entityText.dataSource)
  try {
    const { all, others } = row.row
    const texts = all.map((value) => parameterText(value, options))
    if (!all.some((value) => ArrayBuffer.isView(value))) return { ...row, texts }
    // The driver sends a Buffer as bytes. For a column other than `bytea`, no text has the meaning of these bytes.
    const columns = insertColumns(rowShape(entityText, others))
    const { types } = entityText.ready
    const isBytes = (value: unknown, index: number): boolean =>
      ArrayBuffer.isView(value) && types.get(columns[index] ?? '')?.type !== 'bytea'
    return { ...row, texts, alone: all.some(isBytes) }
  } catch (error) {
    refuse(row, error)
    return undefined
  }
}

function lengthOf({ row, texts }: BatchItem): number {
  let length = 0
  for (const value of texts ?? row.all) if (typeof value === 'string') length += value.length
  return length
}

/** A batch as one statement with its parameters. */
export interface BatchQuery {
  readonly statement: Statement<BatchRow>
  readonly values: readonly ((string | null) | readonly (string | boolean | null)[])[]
}

/** @param isUnchanged in a distributed table: finds the rows that need no update */
export function batchQuery(rules: BatchRules, items: readonly BatchItem[], isUnchanged = false): BatchQuery {
  const { entityText, updates } = rules
  const [first] = items
  const sets = rules.defaults ? columnSets(items) : []
  const others = rules.defaults ? [...new Set(sets.flatMap((row) => row.others))] : (first?.row.others ?? [])
  const partial = sets.length < 2 ? [] : others.filter((name) => sets.some((row) => !row.others.includes(name)))
  const defaults = new Map(partial.map((name) => [name, rules.defaults?.get(name) ?? 'NULL']))
  const columns = columnsOf(items, others)
  const few = entityText.ready.partitioned && !updates ? fewScopes(entityText, columns) : []
  return {
    statement: batchStatementOf(
      entityText,
      { others, defaults, fewScopes: few.map(([name]) => name) },
      updates,
      items.length <= PREPARED_ROWS,
      isUnchanged,
    ),
    values: [
      ...columns,
      ...partial.map((name) => items.map(({ row }) => row.others.includes(name))),
      ...few.map(([, values]) => values),
    ],
  }
}

/** Returns the texts of each column, first those of the key. A row that does not set a column has NULL there. */
function columnsOf(items: readonly BatchItem[], others: readonly string[]): (string | null)[][] {
  let last: RowValues | undefined
  let places: readonly number[] = []
  const columns: (string | null)[][] = []
  for (const { row, texts } of items) {
    if (!last || (last.others !== row.others && !sameColumns(last, row))) {
      const { key, others: brought } = row
      places = [
        ...key.keys(),
        ...others.map((name) => (brought.includes(name) ? key.length + brought.indexOf(name) : -1)),
      ]
    }
    last = row
    const values = texts ?? row.all
    for (let nth = 0; nth < places.length; nth += 1) {
      // A value of an item without `texts` is not an object, and needs no options.
      const value = values[places[nth] ?? -1]
      const text = typeof value === 'string' ? value : parameterText(value)
      ;(columns[nth] ??= []).push(text)
    }
  }
  return columns
}

/** The most scopes for which planning only their partitions costs less than planning all partitions. */
const FEW_SCOPES = 8
/** Types whose values compare in the form in which they are given. */
const EXACT: ReadonlySet<string | undefined> = new Set(['smallint', 'integer', 'bigint', 'uuid', 'text', 'date'])

/** Returns scope columns of a partitioned table, with the values in the batch if these are few. */
function fewScopes(
  { ready, declaration }: ReadyText,
  columns: readonly (readonly (string | null)[])[],
): [string, (string | null)[]][] {
  return declaration.table.scope.flatMap((name, index): [string, (string | null)[]][] => {
    if (!EXACT.has(ready.types.get(name)?.type)) return []
    const values = new Set<string | null>()
    for (const value of columns[index] ?? []) {
      values.add(value)
      if (values.size > FEW_SCOPES) return []
    }
    return [[name, [...values]]]
  })
}

/** Returns one row for each set of columns that the rows set. */
function columnSets(items: readonly BatchItem[]): RowValues[] {
  const sets: RowValues[] = []
  for (const { row } of items) if (!sets.some((one) => sameColumns(one, row))) sets.push(row)
  return sets
}

/** Returns the statement and parameters of a batch that only looks rows up. */
export function findQuery({ entityText }: BatchRules, items: readonly BatchItem[]): BatchQuery {
  const values = columnsOf(items, [])
  if (!entityText.ready.distributed) return { statement: statementsOf(entityText).findMany, values }
  return findSpread(rowShape(entityText, []), values)
}

/** The most parameters that Postgres takes in one statement. */
export const MAX_PARAMETERS = 65_535

/**
 * Returns INSERTs of rows into a distributed table, each with its rows. One statement inserts all rows, unless they set
 * very many columns.
 */
export function* createQueries(
  { entityText }: BatchRules,
  items: readonly BatchItem[],
): Generator<{ readonly query: BatchQuery; readonly part: readonly BatchItem[] }> {
  const others = [...new Set(columnSets(items).flatMap((row) => row.others))]
  const shape = rowShape(entityText, others)
  const width = insertColumns(shape).length
  const keyLength = width - others.length
  const length = Math.floor((MAX_PARAMETERS - keyLength) / width)
  for (let start = 0; start < items.length; start += length) {
    const part = items.slice(start, start + length)
    const columns = columnsOf(part, others)
    const given = columns.slice(0, keyLength)
    const brings = part.map(
      ({ row: { others: brought } }) =>
        (index: number): boolean =>
          index < keyLength || brought.includes(others[index - keyLength] ?? ''),
    )
    const values = brings.flatMap((isBrought, nth) =>
      columns.flatMap((column, index) => (isBrought(index) ? [column[nth] ?? null] : [])),
    )
    const statement = createSpreadStatement(shape, given, brings)
    yield { query: { statement, values: [...scopesOf(shape.table, given), ...values] }, part }
  }
}

export function groupBy<Key, Value>(values: readonly Value[], keyOf: (value: Value) => Key): ReadonlyMap<Key, Value[]> {
  const groups = new Map<Key, Value[]>()
  for (const value of values) {
    const key = keyOf(value)
    const group = groups.get(key)
    if (group) group.push(value)
    else groups.set(key, [value])
  }
  return groups
}

/**
 * Returns a function that sorts numbered rows by the scopes of their numbers. Within a scope, rows keep the given
 * order, which is that of the numbers. Batches need no order by hash, because a transaction that has numbered a row of
 * a scope keeps others out of the scope.
 *
 * @returns undefined for an entity whose rows are not numbered
 */
export function scopeOrder(
  metadata: EntityMetadata,
): (<Row>(rows: Row[], of: (row: Row) => ObjectLiteral) => Row[]) | undefined {
  const scopes = numbersOfTable(metadata).map((one) => one.scope)
  if (scopes.length === 0) return undefined
  // The transaction that writes the first row keeps all others out, so any order is safe: the order of the input is
  // used.
  if (scopes.some((one) => one.length === 0)) return (rows) => rows
  const scope = scopes.flat()
  return (rows, of) => {
    const keys = new Map(rows.map((row) => [row, scope.map((one) => String(one.getEntityValue(of(row)))).join('\0')]))
    return rows.toSorted((left, right) => compareTexts(keys.get(left), keys.get(right)))
  }
}
