import type { ColumnType } from './column-type'
import { list } from './identifier'
import { field, isLive, type TextTable } from './text-table'

/** A column of the key or of a scope, with its type. */
export interface TypedColumn extends ColumnType {
  readonly name: string
}

/** A table as the doctor reads it: its own rows, and those of its partitions. */
export interface ReadTable {
  /** As SQL; with ONLY, where the table is not partitioned: children by INHERITS are other tables. */
  readonly rows: string
  /** The primary key. */
  readonly key: readonly TypedColumn[]
}

/** Values of a primary key as Postgres writes them, in the order of its columns. */
export type Key = readonly string[]

/** What a page reads. The row is `t`, in every expression. */
export interface PageParts {
  readonly table: ReadTable
  /** The columns that the expressions use, beside the key. */
  readonly columns: readonly string[]
  /** The columns whose length bounds a page: no more than one row begins beyond `PAGE_BYTES`. */
  readonly texts: readonly string[]
  /** Expressions of type text, by the names of the results. */
  readonly select: Readonly<Record<string, string>>
}

/** Which rows a page begins after, and ends with; and which keys it is limited to. */
export interface PageBounds {
  readonly after?: Key | undefined
  readonly upTo?: Key | undefined
  readonly among?: readonly Key[] | undefined
  readonly limit: number
}

/** SQL, and the values of its parameters. */
export interface Bound {
  readonly sql: string
  readonly values: unknown[]
}

const PAGE_BYTES = 4 * 2 ** 20

/** Types whose order and equality are Postgres' own, and which a text casts to without loss. */
const PLAIN =
  /^"?(?:smallint|integer|bigint|numeric|real|double precision|uuid|boolean|text|bytea|date|character|timestamp|time)\b/

/** A column in the form that is ordered and compared; by its text where the type may bring operators of its own. */
const compared = ({ name, type }: TypedColumn, row: string): string =>
  PLAIN.test(type) ? field(row, name) : `${field(row, name)}::pg_catalog.text COLLATE "C"`

/** A text as a value of the column, in the same form. */
const asColumn = ({ type, declared }: TypedColumn, value: string): string =>
  PLAIN.test(type) ? `${value}::${declared}` : `${value}::pg_catalog.text COLLATE "C"`

const equal = (columns: readonly TypedColumn[], row: string, value: (index: number) => string): string[] =>
  columns.map((one, index) => `${compared(one, row)} OPERATOR(pg_catalog.=) ${asColumn(one, value(index))}`)

/** The key of a result: `k0`, `k1`, and so on. */
export const keyOfResult = ({ key }: ReadTable, result: Readonly<Record<string, string | null>>): Key =>
  key.map((_, index) => result[`k${index}`] ?? '')

/** Columns as results of type text, numbered. */
export const numbered = (prefix: string, columns: readonly string[]): Readonly<Record<string, string>> =>
  Object.fromEntries(columns.map((name, index) => [`${prefix}${index}`, `${field('t', name)}::pg_catalog.text`]))

/** Reads a page of rows in the order of the key, in one snapshot. It ends early where its texts are long. */
export function page({ table, columns, texts, select }: PageParts, bounds: PageBounds): Bound {
  const { key } = table
  const values: unknown[] = []
  const order = key.map((one) => compared(one, 't')).join(', ')
  const read = [...new Set([...key.map(({ name }) => name), ...columns])].map((name) => field('t', name))
  const own = texts.map((name) => `coalesce(pg_catalog.octet_length(${field('t', name)}::pg_catalog.text), 0)`)
  const bytes = own.length === 0 ? '0' : own.join(' OPERATOR(pg_catalog.+) ')
  const results = {
    ...numbered(
      'k',
      key.map(({ name }) => name),
    ),
    ...select,
  }
  const from = `${table.rows} AS t${amongKeys(key, bounds.among, values)}`
  const sql = `SELECT ${list(
    Object.entries(results).map(([as, value]) => `${value} AS "${as}"`),
    2,
  )}
FROM (
  SELECT t.*, pg_catalog.sum(t."own bytes") OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) AS "all bytes"
  FROM (
    SELECT ${list([...read, `${bytes} AS "own bytes"`], 4)}
    FROM ${from}${within(key, bounds, values)}
    ORDER BY ${order} LIMIT ${bounds.limit}
  ) AS t
) AS t
WHERE t."all bytes" OPERATOR(pg_catalog.-) t."own bytes" OPERATOR(pg_catalog.<) ${PAGE_BYTES}
ORDER BY ${order}`
  return { sql, values }
}

/** A parameter for a value. */
const parameter = (values: unknown[], value: unknown): string => `$${values.push(value)}`

function within(key: readonly TypedColumn[], { after, upTo }: PageBounds, values: unknown[]): string {
  const row = (cells: readonly string[]): string => (cells.length === 1 ? cells.join('') : `ROW(${cells.join(', ')})`)
  const compare = (operator: string, limit: Key | undefined): string[] => {
    if (!limit) return []
    const given = key.map((one, index) => asColumn(one, parameter(values, limit[index])))
    return [`${row(key.map((one) => compared(one, 't')))} OPERATOR(pg_catalog.${operator}) ${row(given)}`]
  }
  const conditions = [...compare('>', after), ...compare('<=', upTo)]
  return conditions.length === 0 ? '' : `\n    WHERE ${conditions.join(' AND ')}`
}

function amongKeys(key: readonly TypedColumn[], among: readonly Key[] | undefined, values: unknown[]): string {
  if (!among) return ''
  const arrays = key.map((_, index) => among.map((one) => one[index]))
  return `\n    JOIN ${unnested(arrays, 'k', values)} ON ${equal(key, 't', (index) => `c.k${index}`).join(' AND ')}`
}

/** Lists of equal length as rows `c`, with their position from 1. */
function unnested(arrays: readonly (readonly unknown[])[], prefix: string, values: unknown[]): string {
  const functions = arrays.map((array) => `pg_catalog.unnest(${parameter(values, array)}::pg_catalog.text[])`)
  return `ROWS FROM (${functions.join(', ')}) WITH ORDINALITY AS c (${arrays.map((_, index) => `${prefix}${index}`).join(', ')}, position)`
}

/** The stored hash as the digest writes it in JavaScript. */
export const hashAsText = ({ hash, digest }: Pick<TextTable, 'hash' | 'digest'>, row: string): string =>
  digest.type === 'uuid'
    ? `pg_catalog.replace(${field(row, hash)}::pg_catalog.text, '-', '')`
    : `'\\x' OPERATOR(pg_catalog.||) pg_catalog.encode(${field(row, hash)}, 'hex')`

/** A chain by its scope, as Postgres writes it, and its hash. */
export interface ChainKey {
  readonly scope: readonly string[]
  readonly hash: string
}

/** What of a table is needed to read its chains. */
export interface ChainsParts {
  readonly table: ReadTable
  readonly text: TextTable
  readonly scope: readonly TypedColumn[]
}

/** Says of each chain how it stands, in one snapshot: one result for each that has rows. */
export function readChains({ table, text, scope }: ChainsParts, chains: readonly ChainKey[]): Bound {
  const values: unknown[] = []
  const arrays = [...scope.map((_, index) => chains.map((one) => one.scope[index])), chains.map(({ hash }) => hash)]
  const hash = { name: text.hash, type: text.digest.type, declared: `pg_catalog.${text.digest.type}` }
  const [number, flag] = [field('t', text.number), field('t', text.chained)]
  const print = text.text.map(
    ({ name }) => `pg_catalog.sha256(pg_catalog.convert_to(${field('t', name)}::pg_catalog.text, 'UTF8'))`,
  )
  const key = `pg_catalog.jsonb_build_array(${table.key.map(({ name }) => `${field('t', name)}::pg_catalog.text`).join(', ')})`
  const conditions = [...equal([...scope, hash], 't', (index) => `c.c${index}`), ...isLive(text, 't')]
  const sql = `SELECT c.position::pg_catalog.text AS "position", pg_catalog.count(*)::pg_catalog.text AS "rows",
  pg_catalog.count(DISTINCT pg_catalog.jsonb_build_array(${print.join(', ')}))::pg_catalog.text AS "texts",
  pg_catalog.count(DISTINCT ${number})::pg_catalog.text AS "numbers",
  (pg_catalog.bool_or(${flag}) FILTER (WHERE ${number} OPERATOR(pg_catalog.=) 0))::pg_catalog.text AS "flagged",
  (pg_catalog.array_agg(${key} ORDER BY ${[number, ...table.key.map((one) => compared(one, 't'))].join(', ')}))[1]::pg_catalog.text AS "key"
FROM ${unnested(arrays, 'c', values)}
JOIN ${table.rows} AS t ON ${conditions.join(' AND ')}
GROUP BY c.position`
  return { sql, values }
}

/** A foreign key of another table, or of the same, that refers to the table. */
export interface Referrer {
  /** As SQL. */
  readonly table: string
  readonly columns: readonly string[]
  readonly refersTo: readonly string[]
}

/** How many rows refer to these. */
export function countReferences(
  table: ReadTable,
  { table: from, columns, refersTo }: Referrer,
  keys: readonly Key[],
): Bound {
  const values: unknown[] = []
  const joined = columns.map(
    (name, index) => `${field('r', name)} OPERATOR(pg_catalog.=) ${field('t', refersTo[index] ?? '')}`,
  )
  const sql = `SELECT pg_catalog.count(*)::pg_catalog.text AS "rows"
FROM ${table.rows} AS t${amongKeys(table.key, keys, values)}
JOIN ${from} AS r ON ${joined.join(' AND ')}`
  return { sql, values }
}

/** A short look at several rows that must be seen as one. */
export const SNAPSHOT = {
  begin: 'START TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY',
  commit: 'COMMIT',
  rollBack: 'ROLLBACK',
} as const
