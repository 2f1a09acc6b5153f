/** The type of a column, as SQL. */
export interface ColumnType {
  /** The type without its length or precision: `numeric`. A cast to it truncates and rounds nothing. */
  readonly type: string
  /** The type that was declared: `numeric(10,2)`. */
  readonly declared: string
}

/** Types by the database names of their columns. */
export type ColumnTypes = ReadonlyMap<string, ColumnType>

/** The properties of a table and its server that decide how statements are written. */
export interface TableTraits {
  /** The types of at least the scope, so that values are compared as they will be stored. */
  readonly types: ColumnTypes
  /**
   * The table has a deferrable unique or exclusion constraint, which ON CONFLICT without a target does not accept
   * (55000). The statements then name our index, and a violation of any other index raises an error.
   */
  readonly deferrable: boolean
  /**
   * The rows are in shards of a cluster, and the server accepts only simpler statements. If undefined, the database is
   * not in a cluster.
   */
  readonly distributed: boolean | undefined
  /**
   * Whether one statement may update many rows, although Citus gives them no order. Only on the coordinator do such
   * statements for several shards wait for each other. Elsewhere they would deadlock.
   */
  readonly updatesTogether: boolean
  /** The rows are in partitions, and the planner considers all of them. */
  readonly partitioned: boolean
  /** If a statement locks rows, the server must not prune partitions at run time in any part of it. */
  readonly crashesByPruning: boolean
}

/** Types whose names the grammar does not bind to pg_catalog, and which the server prints without the schema. */
const OF_CATALOG =
  /^(?:text|uuid|bytea|date|jsonb?|name|oid|bpchar|inet|cidr|macaddr8?|money|xml|(?:int|num|date|ts|tstz)[48]?(?:multi)?range)(?:\[\])?$/

/** Returns a type with its schema if that is pg_catalog. The server qualifies other types that another one hides. */
export const bySchema = (type: string): string => (OF_CATALOG.test(type) ? `pg_catalog.${type}` : type)

/** The type of a column for a cast, without a length. */
export const typeOf = (types: ColumnTypes, name: string): string => bySchema(types.get(name)?.type ?? 'text')

/** The data that PostGIS needs about a spatial column. */
export interface SpatialColumn {
  readonly type: string
  readonly srid: number | undefined
  /** The number of decimal digits of coordinates that are read. */
  readonly precision: number | undefined
}

/**
 * Converts a value to the form that a column will hold, for a comparison. It is rounded as by an insert. A value that
 * is too long or too large causes no error, because a look-up finds nothing by it and must not raise in a transaction.
 *
 * @param value a parameter without a type, or an expression of type text
 */
export function asStored(value: string, { type, declared }: ColumnType): string {
  const scale = /^numeric\(\d+,(-?\d+)\)$/.exec(declared)?.[1]
  if (scale !== undefined) return `pg_catalog.round(${value}::numeric, ${scale})`
  const length = /^character varying\((\d+)\)$/.exec(declared)?.[1]
  if (length !== undefined) {
    // An insert truncates spaces beyond the length, and refuses all other characters there.
    const excess = `pg_catalog.substr(${value}::pg_catalog.text, ${Number(length) + 1})`
    const cut = `pg_catalog.left(${value}::pg_catalog.text, ${length}) OPERATOR(pg_catalog.||) pg_catalog.rtrim(${excess})`
    // The number of bytes is known. Characters would have to be counted.
    return `CASE WHEN pg_catalog.octet_length(${value}::pg_catalog.text) OPERATOR(pg_catalog.<=) ${length} THEN ${value}::pg_catalog.text\n      ELSE ${cut} END`
  }
  // A cast to character(n) or bit(n) would truncate. Without the length, values compare as they are stored.
  return `${value}::${bySchema(/^(?:character|bit)\b/.test(declared) ? type : declared)}`
}

/** Writes GeoJSON as TypeORM's insert does. */
export function fromGeoJson(value: string, { type, srid }: SpatialColumn): string {
  const geometry = `ST_GeomFromGeoJSON(${value}::pg_catalog.text)`
  return `${srid === undefined ? geometry : `ST_SetSRID(${geometry}, ${srid})`}::${type}`
}

/** Reads GeoJSON as TypeORM's `find` does. */
export function toGeoJson(value: string, { precision }: SpatialColumn): string {
  return `ST_AsGeoJSON(${value}${precision === undefined ? '' : `, ${precision}`})::pg_catalog.json`
}

/** The format in which `pg` sends a Date, by its `defaults.parseInputDatesAsUTC`. */
export interface ParameterOptions {
  /** @default false: local time with its offset */
  readonly utcDates?: boolean
}

/**
 * Converts a parameter to the text that `pg` would send for it, so that a value in a batch is stored as it would be
 * alone. A Buffer, which `pg` sends as bytes, becomes the text of a `bytea`.
 *
 * @returns null for NULL
 * @throws an error of `JSON.stringify` or of the value's own `toPostgres`
 */
export function parameterText(value: unknown, options: ParameterOptions = {}): string | null {
  if (value === null || value === undefined) return null
  if (typeof value !== 'object') return (value as { toString(): string }).toString()
  if (ArrayBuffer.isView(value))
    return `\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')}`
  if (value instanceof Date) return dateText(value, options.utcDates ?? false)
  if (Array.isArray(value)) return arrayText(value, options)
  const own = value as Partial<OwnFormat>
  if (typeof own.toPostgres === 'function') {
    const formatted = own.toPostgres((part) => parameterText(part, options))
    return parameterText(formatted, options)
  }
  // A value without JSON, for instance because of its toJSON(), is not a value: `pg` sends NULL.
  const json: string | undefined = JSON.stringify(value)
  return json ?? null
}

interface OwnFormat {
  toPostgres(prepareValue: (value: unknown) => string | null): unknown
}

/** Whether only `parameterText` or `pg` can convert one of the values to text. */
export function hasObjects(values: readonly unknown[]): boolean {
  for (const value of values) if (typeof value === 'object' && value !== null) return true
  return false
}

function arrayText(values: readonly unknown[], options: ParameterOptions): string {
  const plain = plainArray(values)
  if (plain !== undefined) return plain
  const element = (value: unknown): string => {
    if (Array.isArray(value)) return arrayText(value, options)
    const text = parameterText(value, options)
    if (text === null) return 'NULL'
    return `"${ESCAPED.test(text) ? text.replaceAll('\\', '\\\\').replaceAll('"', '\\"') : text}"`
  }
  return `{${values.map(element).join(',')}}`
}

/** The characters that are escaped in an element of an array. Almost no text has one. */
const ESCAPED = /["\\]/

/**
 * Joins texts that need no escaping, which is nearly every array. Joining twice takes half the time of testing each
 * text and creating a new one.
 *
 * @returns undefined for all other values
 */
function plainArray(values: readonly unknown[]): string | undefined {
  for (const value of values) if (typeof value !== 'string') return undefined
  const all = values.join('')
  return values.length === 0 || all.includes('"') || all.includes('\\') ? undefined : `{"${values.join('","')}"}`
}

/** A date in the format of `pg`. A column without a time zone keeps the part before the offset. */
function dateText(date: Date, utc: boolean): string {
  const [year, month, day, hours, minutes, seconds, milliseconds] = utc
    ? [
        date.getUTCFullYear(),
        date.getUTCMonth(),
        date.getUTCDate(),
        date.getUTCHours(),
        date.getUTCMinutes(),
        date.getUTCSeconds(),
        date.getUTCMilliseconds(),
      ]
    : [
        date.getFullYear(),
        date.getMonth(),
        date.getDate(),
        date.getHours(),
        date.getMinutes(),
        date.getSeconds(),
        date.getMilliseconds(),
      ]
  const offset = utc ? 0 : -date.getTimezoneOffset()
  const minutesOff = Math.abs(offset)
  return [
    `${padded(year < 1 ? 1 - year : year, 4)}-${padded(month + 1)}-${padded(day)}`,
    `T${padded(hours)}:${padded(minutes)}:${padded(seconds)}.${padded(milliseconds, 3)}`,
    `${offset < 0 ? '-' : '+'}${padded(Math.floor(minutesOff / 60))}:${padded(minutesOff % 60)}`,
    year < 1 ? ' BC' : '',
  ].join('')
}

const padded = (value: number, length = 2): string => String(value).padStart(length, '0')
