/** The type of a column, as SQL. */
export interface ColumnType {
  /** Without its length or precision: `numeric`. A cast to it cuts and rounds nothing. */
  readonly type: string
  /** The type that was declared: `numeric(10,2)`. */
  readonly declared: string
}

/** Types by the database names of their columns. */
export type ColumnTypes = ReadonlyMap<string, ColumnType>

/** Types whose names the grammar does not bind to pg_catalog by itself, and which the server writes without it. */
const OF_CATALOG =
  /^(?:text|uuid|bytea|date|jsonb?|name|oid|bpchar|inet|cidr|macaddr8?|money|xml|(?:int|num|date|ts|tstz)[48]?(?:multi)?range)(?:\[\])?$/

/** A type by its schema, where that is pg_catalog; of others the server writes it where another type is found first. */
export const bySchema = (type: string): string => (OF_CATALOG.test(type) ? `pg_catalog.${type}` : type)

/** The type of a column for a cast, which names no length. */
export const typeOf = (types: ColumnTypes | undefined, name: string): string =>
  bySchema(types?.get(name)?.type ?? 'text')

/** What PostGIS must know of a spatial column. */
export interface SpatialColumn {
  readonly type: string
  readonly srid: number | undefined
  /** Decimal digits of coordinates that are read. */
  readonly precision: number | undefined
}

/**
 * A value as a column will hold it, to be compared with what it holds: rounded as an insert would, and without an error
 * for one that is too long or too large, since a look-up finds nothing by it and must not raise in a transaction.
 *
 * @param value a parameter without a type, or an expression of type text
 */
export function asStored(value: string, { type, declared }: ColumnType): string {
  const scale = /^numeric\(\d+,(-?\d+)\)$/.exec(declared)?.[1]
  if (scale !== undefined) return `pg_catalog.round(${value}::numeric, ${scale})`
  const length = /^character varying\((\d+)\)$/.exec(declared)?.[1]
  if (length !== undefined) {
    // An insert drops spaces beyond the length, and refuses anything else there.
    const excess = `pg_catalog.substr(${value}::pg_catalog.text, ${Number(length) + 1})`
    const cut = `pg_catalog.left(${value}::pg_catalog.text, ${length}) OPERATOR(pg_catalog.||) pg_catalog.rtrim(${excess})`
    // Its bytes are known, its characters would be counted.
    return `CASE WHEN pg_catalog.octet_length(${value}::pg_catalog.text) OPERATOR(pg_catalog.<=) ${length} THEN ${value}::pg_catalog.text\n      ELSE ${cut} END`
  }
  // To character(n) and bit(n) a cast would cut; without the length, they compare as they are stored.
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

/** How `pg` sends a Date, by its `defaults.parseInputDatesAsUTC`. */
export interface ParameterOptions {
  /** @default false: local time with its offset */
  readonly utcDates?: boolean
}

/**
 * A parameter as the text that `pg` would send for it, so that a value in a batch is stored as it is alone. A Buffer,
 * which `pg` sends as bytes, becomes the text of a `bytea`.
 *
 * @returns null for NULL
 * @throws what `JSON.stringify` or a value's own `toPostgres` throws
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
  // What has no JSON, for instance for its toJSON(), is no value: `pg` sends NULL.
  const json: string | undefined = JSON.stringify(value)
  return json ?? null
}

interface OwnFormat {
  toPostgres(prepareValue: (value: unknown) => string | null): unknown
}

/** Whether a value's text is one that only `parameterText` or `pg` knows. */
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

/** What is escaped in an element of an array; nearly no text has any. */
const ESCAPED = /["\\]/

/**
 * Texts of which none needs escaping, as nearly always: joined twice, which takes half of the time of a test and a new
 * text for each.
 *
 * @returns undefined for any others
 */
function plainArray(values: readonly unknown[]): string | undefined {
  for (const value of values) if (typeof value !== 'string') return undefined
  const all = values.join('')
  return values.length === 0 || all.includes('"') || all.includes('\\') ? undefined : `{"${values.join('","')}"}`
}

/** A date as `pg` writes it: a column without a time zone keeps what stands before the offset. */
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
