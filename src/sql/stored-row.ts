import { type ColumnTypes, type SpatialColumn, toGeoJson } from './column-type'
import { field, type TextTable } from './text-table'

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
   * Of these, text columns that a row gives back as they were sent: what it holds is equal, byte for byte, and need not
   * come over the wire. @default none
   */
  readonly echoed?: readonly string[] | undefined
  /** Of the scope at least, so that values are compared as they will be stored. @default compare them as given */
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
  /** Rows are numbered as they are written, so that they keep the order in which a batch has them. @default false */
  readonly numbered?: boolean | undefined
  /** Columns of the hash numbers of the table's other texts. */
  readonly otherNumbers?: readonly string[]
}

/** In SQL. NULL for a row that was found is the one value that no parser of the user's own for booleans ever sees. */
export const CREATED = { yes: 'true', no: 'NULL::bool' } as const

const NO_NAMES: readonly string[] = []

/** What a select list says of texts that are sent: nothing, that they are as they were, or which ones are stored. */
interface RowNotes {
  /** In SQL. */
  readonly created: string
  /** Of a row that may hold other texts than were sent, if only for a trigger: as JSON, in SQL. @default it cannot */
  readonly otherTexts?: string
}

/** In a column for other texts: there are none. */
export const SAME_TEXTS = 'NULL::pg_catalog.text'

/** What every select list gives of the stored row `row`; a `Statement` parses it with `rowParser`. */
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
  const differ = table.text.flatMap(({ name }, index) =>
    echoed.includes(name)
      ? [`${asText(name)} IS DISTINCT FROM ${value(table.scope.length + index)}::pg_catalog.text`]
      : [],
  )
  const stored = echoed.map((name) => field('t', name)).join(', ')
  return `CASE WHEN ${differ.join('\n      OR ')}
    THEN pg_catalog.json_build_array(${stored})::pg_catalog.text END`
}

/** Where a parser finds things: what is 0-based, counts in the row and in the parameters of the statement. */
interface Layout {
  /** Of `selectRow` in the row. */
  readonly start: number
  /** It tells of other texts. */
  readonly tellsOthers: boolean
}

/** The parameters that a row stands for: those of the statement, or its place in arrays of them. */
type Sent = (values: readonly unknown[], parameter: number, row: number) => unknown

export const sentAlone: Sent = (values, parameter) => values[parameter]
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
    const stored = others === undefined ? undefined : storedTexts(row[others])
    let next = others === undefined ? start + 2 : others + 1
    return echo.map((nth) => {
      if (nth === -1) return row[next++]
      return stored ? stored[nth] : sent(values, parameters[nth] ?? 0, index)
    })
  }
}

const storedTexts = (json: unknown): readonly unknown[] | undefined =>
  typeof json === 'string' ? (JSON.parse(json) as readonly unknown[]) : undefined

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
export const asText = (name: string): string => `${field('t', name)}::pg_catalog.text COLLATE "C"`

/** What an INSERT or an UPDATE of TypeORM gives back of each row. */
export function returningList(shape: Pick<RowShape, 'select' | 'spatial'>, row = ''): string {
  return selectList(shape, row)
}
