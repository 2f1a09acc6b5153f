/** The type of a column, as SQL. */
export interface ColumnType {
  /** Without its length or precision: `numeric`. A cast to it cuts and rounds nothing. */
  readonly type: string
  /** As it was declared: `numeric(10,2)`. */
  readonly declared: string
}

/** By the database names of the columns. */
export type ColumnTypes = ReadonlyMap<string, ColumnType>

/** Those whose names the grammar does not bind to pg_catalog by itself, and which the server writes without it. */
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

/** As TypeORM's insert writes GeoJSON. */
export function fromGeoJson(value: string, { type, srid }: SpatialColumn): string {
  const geometry = `ST_GeomFromGeoJSON(${value}::pg_catalog.text)`
  return `${srid === undefined ? geometry : `ST_SetSRID(${geometry}, ${srid})`}::${type}`
}

/** As TypeORM's `find` reads it. */
export function toGeoJson(value: string, { precision }: SpatialColumn): string {
  return `ST_AsGeoJSON(${value}${precision === undefined ? '' : `, ${precision}`})::pg_catalog.json`
}
