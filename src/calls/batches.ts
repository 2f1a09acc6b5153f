import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { parameterOptions } from '../connection/wire'
import { tableNumbers } from '../registry/registry'
import type { BatchRow } from '../sql/batch'
import { insertColumns, type Statement } from '../sql/find'
import { createSpreadStatement, findSpreadStatement, scopesOf } from '../sql/spread'
import { hasObjects, parameterText } from '../sql/types'
import type { ReadyText, Updates } from './entity-text'
import type { RequestedRow, RowValues } from './row-values'
import { isChanging } from './updates'
import { batchStatementOf, NO_DEFAULTS, rowShape, statementsOf } from './statements'

/** Rows in one statement: enough that the round trip does not count, few enough that two at once share a call's work. */
const BATCH_ROWS = 1_000
/** Characters in one statement, so that neither the driver's strings nor a message to the server grow too long. */
const BATCH_CHARACTERS = 16 * 2 ** 20

/** A row that the call asks for, with every input that asks for it. */
export interface DistinctRow extends RequestedRow {
  /** Index of the first input, which gives the other columns. */
  readonly input: number
  /** Further inputs that share its result, where there are any: of thousands, each list would count. */
  repeats: Repeat[] | undefined
}

/** An input whose text an earlier input has already. */
export interface Repeat {
  readonly input: number
  readonly values: ObjectLiteral
  /** An earlier input that brings the same values: what refuses that one refuses this one too, until the row is stored. */
  readonly sameAs: number | undefined
}

/** A row as a batch sends it. */
export interface BatchItem extends DistinctRow {
  /**
   * Texts in the order of `row.all`, which has objects, each with a text of its own. Nearly no row has, and is its own item:
   * of thousands, each copy would count.
   */
  readonly texts?: readonly (string | null)[]
  /** A value has no text that a batch could send. @default false */
  readonly alone?: boolean
}

/** Rows of one statement, or one that takes statements of its own. */
export interface Batch {
  readonly items: readonly BatchItem[]
  readonly alone: boolean
}

/** Compares rows for a sort: in another order than by hash two batches of the same texts would deadlock. */
export function byHash({ row: left }: DistinctRow, { row: right }: DistinctRow): number {
  return left.hash < right.hash ? -1 : Number(left.hash > right.hash)
}

export const compareTexts = (left = '', right = ''): number => (left < right ? -1 : Number(left > right))

/** What decides how the rows of a call are cut into batches. */
export interface BatchRules {
  readonly entityText: ReadyText
  /** SQL of the defaults of columns that a row may leave out beside rows that bring them. @default all bring the same */
  readonly defaults?: ReadonlyMap<string, string> | undefined
  /** What happens to the rows that are found. @default nothing */
  readonly updates?: Updates | undefined
  /** Rows in one statement. @default 1,000 */
  readonly batchRows?: number | undefined
}

/** The rows bring different columns. */
export function isMixed(rows: readonly DistinctRow[]): boolean {
  const first = rows[0]?.row
  for (const { row } of rows) if (first && row.others !== first.others && !sameColumns(row, first)) return true
  return false
}

/** Makes no text for each row: of thousands, nearly always all bring the same columns. */
const sameColumns = ({ others: left }: RowValues, { others: right }: RowValues): boolean =>
  left.length === right.length && left.every((name, index) => name === right[index])

/**
 * Cuts rows into batches.
 *
 * @param refuse takes the rows whose values have no text
 */
export function* inBatches(
  rules: BatchRules,
  rows: readonly DistinctRow[],
  refuse: (row: DistinctRow, error: unknown) => void,
): Generator<Batch> {
  const { defaults, updates, batchRows = BATCH_ROWS } = rules
  // What Postgres gives an identity column has no SQL: one statement has such a column for all rows or for none. And it
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
    // The driver sends a Buffer as bytes, which for a column that is no `bytea` mean what no text says.
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

export function batchQuery(rules: BatchRules, items: readonly BatchItem[]): BatchQuery {
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
      others,
      defaults,
      few.map(([name]) => name),
      updates,
    ),
    values: [
      ...columns,
      ...partial.map((name) => items.map(({ row }) => row.others.includes(name))),
      ...few.map(([, values]) => values),
    ],
  }
}

/** The texts of each column, those of the key first; NULL where a row does not bring it. */
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
      // One without a text of its own is no object, and needs no options.
      const value = values[places[nth] ?? -1]
      const text = typeof value === 'string' ? value : parameterText(value)
      ;(columns[nth] ??= []).push(text)
    }
  }
  return columns
}

/** So many scopes name so few partitions that planning for these costs less than a plan for all of them. */
const FEW_SCOPES = 8
/** Types whose values compare as they are given. */
const EXACT: ReadonlySet<string | undefined> = new Set(['smallint', 'integer', 'bigint', 'uuid', 'text', 'date'])

/** Columns of the scope by which a table is partitioned, with the few values that the batch brings for them. */
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

/** A row of each set of columns that the rows bring. */
function columnSets(items: readonly BatchItem[]): RowValues[] {
  const sets: RowValues[] = []
  for (const { row } of items) if (!sets.some((one) => sameColumns(one, row))) sets.push(row)
  return sets
}

/** A batch that only looks rows up, as one statement with its parameters. */
export function findQuery({ entityText }: BatchRules, items: readonly BatchItem[]): BatchQuery {
  const values = columnsOf(items, [])
  if (!entityText.ready.distributed) return { statement: statementsOf(entityText).findMany, values }
  const shape = { ...rowShape(entityText, []), types: entityText.ready.types, defaults: NO_DEFAULTS }
  return {
    statement: findSpreadStatement(shape, values),
    values: [...scopesOf(shape.table, values), ...values.slice(-1)],
  }
}

/** Parameters that Postgres takes in one statement. */
export const MAX_PARAMETERS = 65_535

/**
 * Inserts of these rows of a batch into a distributed table, with their places in the batch; in one statement, unless
 * they bring very many columns.
 */
export function* createQueries(
  { entityText }: BatchRules,
  items: readonly BatchItem[],
  missing: readonly number[],
): Generator<{ readonly query: BatchQuery; readonly places: readonly number[] }> {
  const chosen = missing.flatMap((index) => items[index] ?? [])
  const others = [...new Set(columnSets(chosen).flatMap((row) => row.others))]
  const row = rowShape(entityText, others)
  const shape = { ...row, types: entityText.ready.types, defaults: NO_DEFAULTS }
  const width = insertColumns(shape).length
  const keyLength = width - others.length
  const length = Math.floor((MAX_PARAMETERS - keyLength) / width)
  for (let start = 0; start < chosen.length; start += length) {
    const part = chosen.slice(start, start + length)
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
    yield {
      query: {
        statement: createSpreadStatement(shape, given, brings),
        values: [...scopesOf(shape.table, given), ...values],
      },
      places: missing.slice(start, start + length),
    }
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
 * The order in which numbered rows are written: by the scopes of their numbers, and within a scope in the order given,
 * which is the order of the numbers. Batches need not be sorted by hash: a transaction that has numbered a row of a
 * scope keeps others out of the scope.
 *
 * @returns undefined for an entity whose rows are not numbered
 */
export function scopeOrder(
  metadata: EntityMetadata,
): (<Row>(rows: Row[], of: (row: Row) => ObjectLiteral) => Row[]) | undefined {
  const scopes = tableNumbers(metadata).map((one) => one.scope)
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

/**
 * Unique indexes that may refuse rows only because others were numbered meanwhile, so that another attempt may succeed:
 * those of numbers that no row brings.
 */
export function numberIndexes(
  rows: readonly { readonly columns: { readonly metadata: EntityMetadata }; readonly values: ObjectLiteral }[],
): ReadonlySet<string> {
  const all = new Set<string>()
  const given = new Set<string>()
  for (const { columns, values } of rows) {
    for (const { column, table } of tableNumbers(columns.metadata)) {
      all.add(table.index)
      if ((column.getEntityValue(values) ?? null) !== null) given.add(table.index)
    }
  }
  return new Set([...all].filter((index) => !given.has(index)))
}
