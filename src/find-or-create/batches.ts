import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { parameterOptions } from '../connection/pg-client'
import type { RequestedRow } from '../rows/deferred-row'
import type { ReadyText } from '../rows/entity-text'
import { rowShape, type RowValues } from '../rows/row-values'
import { updateOf, type Updates, updateShape } from '../rows/updates'
import { type BatchRow, type BatchShape, findManyStatement, findOrCreateManyStatement } from '../sql/batch-statement'
import { hasObjects, type ParameterOptions, parameterText } from '../sql/parameter-text'
import { createSpreadStatement, findSpreadStatement, scopesOf } from '../sql/spread'
import { insertColumns, type Statement } from '../sql/statements'
import { upsertManyStatement } from '../sql/upsert-statement'
import { tableNumbers } from '../registry/registry'

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
  /** It brings the same values as the first, so whatever refuses the first refuses this one too. */
  readonly isSame: boolean
}

/** A row as a batch sends it. */
export interface BatchItem extends DistinctRow {
  /**
   * In the order of `row.all`, which has objects, each with a text of its own. Nearly no row has, and is its own item:
   * of thousands, each copy would count.
   */
  readonly texts?: readonly (string | null)[]
}

/** Rows of one statement, or one that takes statements of its own. */
export interface Batch {
  readonly items: readonly BatchItem[]
  readonly alone: boolean
}

/** For a sort: in another order than by hash two batches of the same texts would deadlock. */
export function byHash({ row: left }: DistinctRow, { row: right }: DistinctRow): number {
  if (left.hash < right.hash) return -1
  return left.hash > right.hash ? 1 : 0
}

/** What decides how the rows of a call are cut into batches. */
export interface BatchRules {
  readonly entityText: ReadyText
  /** SQL of the defaults of columns that a row may leave out beside rows that bring them; empty where all bring the same. */
  readonly defaults: ReadonlyMap<string, string>
  /** What happens to the rows that are found. @default nothing */
  readonly updates?: Updates | undefined
  /** Rows in one statement. @default 1,000 */
  readonly batchRows?: number | undefined
}

/** The rows bring different columns. */
export function isMixed(rows: readonly DistinctRow[]): boolean {
  const [first] = rows
  return first !== undefined && rows.some(({ row }) => !bringsSame(row, first.row))
}

/** Without a text for each row: of thousands, nearly always all bring the same. */
const bringsSame = ({ others: left }: RowValues, { others: right }: RowValues): boolean =>
  left === right || (left.length === right.length && left.every((name, index) => name === right[index]))

export const columnSet = ({ others }: RowValues): string => others.join('\n')

/** @param refuse takes the rows whose values have no text */
export function* inBatches(
  rules: BatchRules,
  rows: readonly DistinctRow[],
  refuse: (row: DistinctRow, error: unknown) => void,
): Generator<Batch> {
  const groups = isMixed(rows) ? groupBy(rows, ({ row }) => groupOf(rules, row)).values() : [rows]
  for (const group of groups) yield* batchesOf(rules, group, refuse)
}

/**
 * What Postgres gives an identity column has no SQL: one statement brings such a column for all rows or for none. And it
 * updates rows or only finds them.
 */
function groupOf({ defaults, updates }: BatchRules, row: RowValues): string {
  const brought = defaults.size === 0 ? row.others : row.others.filter((name) => !defaults.has(name))
  const update = updates !== undefined && updateOf(updates, row).length > 0
  return `${update}\n${brought.join('\n')}`
}

function* batchesOf(
  rules: BatchRules,
  rows: readonly DistinctRow[],
  refuse: (row: DistinctRow, error: unknown) => void,
): Generator<Batch> {
  const options = parameterOptions(rules.entityText.dataSource)
  const { batchRows = BATCH_ROWS } = rules
  let items: BatchItem[] = []
  let characters = 0
  for (const row of rows) {
    const item = tryItem(options, row, refuse)
    if (!item) continue
    const length = lengthOf(item)
    if (length > BATCH_CHARACTERS || bringsBytes(rules, item)) {
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

function lengthOf({ row, texts }: BatchItem): number {
  let length = 0
  for (const value of texts ?? row.all) if (typeof value === 'string') length += value.length
  return length
}

function tryItem(
  options: ParameterOptions,
  row: DistinctRow,
  refuse: (row: DistinctRow, error: unknown) => void,
): BatchItem | undefined {
  const { all } = row.row
  if (!hasObjects(all)) return row
  try {
    return { ...row, texts: all.map((value) => parameterText(value, options)) }
  } catch (error) {
    refuse(row, error)
    return undefined
  }
}

/** The text of a value, where the row has no object; and then it needs no options. */
function textAt({ row, texts }: BatchItem, index: number): string | null {
  const value = texts ? texts[index] : row.all[index]
  return typeof value === 'string' ? value : parameterText(value)
}

/** The driver sends a Buffer as bytes, which for a column that is no `bytea` mean what no text says. */
function bringsBytes({ entityText }: BatchRules, { row, texts }: BatchItem): boolean {
  if (!texts || !row.all.some((value) => ArrayBuffer.isView(value))) return false
  const columns = insertColumns(rowShape(entityText, row.others))
  return row.all.some(
    (value, index) => ArrayBuffer.isView(value) && entityText.ready.types.get(columns[index] ?? '')?.type !== 'bytea',
  )
}

/** A batch as one statement with its parameters. */
export interface BatchQuery {
  readonly statement: Statement<BatchRow>
  readonly values: readonly ((string | null) | readonly (string | boolean | null)[])[]
}

export function batchQuery(rules: BatchRules, items: readonly BatchItem[]): BatchQuery {
  const sets = columnSets(items)
  const others = [...new Set(sets.flatMap((row) => row.others))]
  const partial = others.filter((name) => sets.some((row) => !row.others.includes(name)))
  const shape = rowShape(rules.entityText, others)
  const defaults = new Map(partial.map((name) => [name, rules.defaults.get(name) ?? 'NULL']))
  const keyLength = insertColumns(shape).length - others.length
  const few = fewScopes(rules, items)
  const fewNames = few.map(([name]) => name)
  const statement = statementOf(rules, {
    ...shape,
    types: rules.entityText.ready.types,
    defaults,
    fewScopes: fewNames,
  })
  const rest = otherColumns(items, others, keyLength)
  const brought = partial.map((name) => items.map(({ row }) => row.others.includes(name)))
  return {
    statement,
    values: [...keyColumnsOf(items, keyLength), ...rest, ...brought, ...few.map(([, values]) => values)],
  }
}

/** So many scopes name so few partitions that planning for these costs less than a plan for all of them. */
const FEW_SCOPES = 8
/** Types whose values compare as they are given. */
const EXACT: ReadonlySet<string | undefined> = new Set(['smallint', 'integer', 'bigint', 'uuid', 'text', 'date'])

/** Columns of the scope by which a table is partitioned, with the few values that the batch brings for them. */
function fewScopes({ entityText, updates }: BatchRules, items: readonly BatchItem[]): [string, (string | null)[]][] {
  const { ready, declaration } = entityText
  if (!ready.partitioned || updates) return []
  return declaration.table.scope.flatMap((name, index): [string, (string | null)[]][] => {
    if (!EXACT.has(ready.types.get(name)?.type)) return []
    const values = new Set<string | null>()
    for (const item of items) {
      values.add(textAt(item, index))
      if (values.size > FEW_SCOPES) return []
    }
    return [[name, [...values]]]
  })
}

/** A row of each set of columns that the rows bring. */
function columnSets(items: readonly BatchItem[]): RowValues[] {
  const sets: RowValues[] = []
  for (const { row } of items) if (!sets.some((one) => bringsSame(one, row))) sets.push(row)
  return sets
}

/** The values of each of these columns, NULL where a row brings none. */
function otherColumns(items: readonly BatchItem[], others: readonly string[], keyLength: number): (string | null)[][] {
  const columns = others.map((): (string | null)[] => [])
  let last: RowValues | undefined
  let places: readonly number[] = []
  for (const item of items) {
    const { row } = item
    if (!last || !bringsSame(last, row)) places = others.map((name) => row.others.indexOf(name))
    last = row
    for (const [nth, place] of places.entries()) {
      columns[nth]?.push(place === -1 ? null : textAt(item, keyLength + place))
    }
  }
  return columns
}

/** A batch that only looks rows up, as one statement with its parameters. */
export function findQuery({ entityText }: BatchRules, items: readonly BatchItem[]): BatchQuery {
  const row = rowShape(entityText, [])
  const shape = { ...row, types: entityText.ready.types, defaults: new Map<string, string>() }
  const values = keyColumnsOf(items, insertColumns(shape).length)
  if (!entityText.ready.distributed) return { statement: findManyStatement(shape), values }
  return {
    statement: findSpreadStatement(shape, values),
    values: [...scopesOf(shape.table, values), ...values.slice(-1)],
  }
}

/** An insert into a distributed table, and the places of its rows in the batch. */
interface CreateQuery {
  readonly query: BatchQuery
  readonly places: readonly number[]
}

/** One parameter each; Postgres takes 65,535. */
const MAX_PARAMETERS = 65_535

/** Inserts of these rows of a batch; in one statement, unless they bring very many columns. */
export function* createQueries(
  { entityText }: BatchRules,
  items: readonly BatchItem[],
  missing: readonly number[],
): Generator<CreateQuery> {
  const chosen = missing.flatMap((index) => items[index] ?? [])
  const others = [...new Set(columnSets(chosen).flatMap((row) => row.others))]
  const row = rowShape(entityText, others)
  const shape = { ...row, types: entityText.ready.types, defaults: new Map<string, string>() }
  const width = insertColumns(shape).length
  const keyLength = width - others.length
  const length = Math.floor((MAX_PARAMETERS - keyLength) / width)
  for (let start = 0; start < chosen.length; start += length) {
    const part = chosen.slice(start, start + length)
    const given = keyColumnsOf(part, keyLength)
    const brings = part.map(
      ({ row: { others: brought } }) =>
        (index: number): boolean =>
          index < keyLength || brought.includes(others[index - keyLength] ?? ''),
    )
    const values = part.flatMap((item) => {
      const brought = item.row.others
      const key = Array.from({ length: keyLength }, (_, index) => textAt(item, index))
      const rest = others.filter((name) => brought.includes(name))
      return [...key, ...rest.map((name) => textAt(item, keyLength + brought.indexOf(name)))]
    })
    yield {
      query: {
        statement: createSpreadStatement(shape, given, brings),
        values: [...scopesOf(shape.table, given), ...values],
      },
      places: missing.slice(start, start + length),
    }
  }
}

function keyColumnsOf(items: readonly BatchItem[], keyLength: number): (string | null)[][] {
  return Array.from({ length: keyLength }, (_, index) => items.map((item) => textAt(item, index)))
}

function statementOf({ entityText, updates }: BatchRules, shape: BatchShape): Statement<BatchRow> {
  const update = shape.others.filter((name) => updates?.columns.has(name))
  return updates && update.length > 0
    ? upsertManyStatement(shape, updateShape(entityText, updates, update))
    : findOrCreateManyStatement(shape)
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
export function scopeOrder(metadata: EntityMetadata): (<Row>(rows: Row[], of: ValuesOf<Row>) => Row[]) | undefined {
  if (!isNumbered(metadata)) return undefined
  const scopes = tableNumbers(metadata).map((one) => one.scope)
  // The transaction that writes the first row keeps all others out, so any order is safe: the order of the input is
  // used.
  if (scopes.some((one) => one.length === 0)) return (rows) => rows
  const scope = scopes.flat()
  return (rows, of) => {
    const keys = new Map(rows.map((row) => [row, scope.map((one) => String(one.getEntityValue(of(row)))).join('\0')]))
    return rows.toSorted((left, right) => compare(keys.get(left), keys.get(right)))
  }
}

export const isNumbered = (metadata: EntityMetadata): boolean => tableNumbers(metadata).length > 0

type ValuesOf<Row> = (row: Row) => ObjectLiteral

const compare = (left = '', right = ''): number => (left < right ? -1 : Number(left > right))

/** Values that are written to a row of an entity. */
interface Written {
  readonly columns: { readonly metadata: EntityMetadata }
  readonly values: ObjectLiteral
}

/**
 * Unique indexes that may refuse rows only because others were numbered meanwhile, so that another attempt may succeed:
 * those of numbers that no row brings.
 */
export function numberIndexes(rows: readonly Written[]): ReadonlySet<string> {
  const all = rows.flatMap(({ columns, values }) =>
    tableNumbers(columns.metadata).map(({ column, table }) => ({
      index: table.index,
      isGiven: (column.getEntityValue(values) ?? null) !== null,
    })),
  )
  const given = new Set(all.filter(({ isGiven }) => isGiven).map(({ index }) => index))
  return new Set(all.map(({ index }) => index).filter((index) => !given.has(index)))
}
