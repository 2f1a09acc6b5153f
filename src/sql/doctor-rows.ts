import { bySchema, type ColumnType } from './column-type'
import { list, literal, qualified, unnest } from './identifier'
import { hasNamedKey, holderKey, nameField } from './name-body'
import type { HolderTable, NamesColumn, NamesTable } from './name-table'
import { allEqual, isCounted, type NumberTable, sameScopes, scopeKey, scopeOf, scopesTable } from './number-table'
import { bytewise, field, isLive, type TextTable } from './text-table'
import { TRIGGER_MARK } from './trigger-set'

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
  PLAIN.test(type) ? field(row, name) : `${field(row, name)}::pg_catalog.text COLLATE pg_catalog."C"`

/** A text as a value of the column, in the same form. */
const asColumn = ({ type, declared }: TypedColumn, value: string): string =>
  PLAIN.test(type) ? `${value}::${bySchema(declared)}` : `${value}::pg_catalog.text COLLATE pg_catalog."C"`

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
  const given = arrays.map((array) => `${parameter(values, array)}::pg_catalog.text[]`)
  return `${unnest(given, 4)} WITH ORDINALITY AS c (${arrays.map((_, index) => `${prefix}${index}`).join(', ')}, position)`
}

/** A chain by its scope, as Postgres writes it, and its hash. */
export interface ChainKey {
  readonly scope: readonly string[]
  readonly hash: string
}

/** What of a table is needed to read its chains. */
interface ChainsParts {
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
  /** An index finds the rows by these columns. */
  readonly indexed: boolean
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

/**
 * Scopes of a number in their order, and whether the count of each is right: one snapshot for all of a page. Without a
 * scope, the page is the whole table.
 */
export function countsPage(table: NumberTable, { rows, key }: ReadTable, bounds: CountsBounds): Bound {
  const scope = list(scopeOf(table, 't'), 4)
  const after = bounds.after?.map((_, index) => `$${index + 1}::${bySchema(bounds.types[index] ?? 'text')}`).join(', ')
  const begin =
    after === undefined || after === '' ? '' : `\n  WHERE ROW(${scope}) OPERATOR(pg_catalog.>) ROW(${after})`
  const ofScope = ['true', ...sameScopes(table, 't', 's')].join(' AND ')
  const firstKey = `SELECT pg_catalog.jsonb_build_array(${key
    .map(({ name }) => `${field('t', name)}::pg_catalog.text`)
    .join(', ')})::pg_catalog.text FROM ${rows} AS t WHERE ${ofScope} ORDER BY ${field('t', table.number)} LIMIT 1`
  const results = scopeOf(table, 's').map((one, index) => `${one}::pg_catalog.text AS "s${index}"`)
  const scopes =
    table.scope.length === 0
      ? 'SELECT'
      : `SELECT DISTINCT ${scope} FROM ${rows} AS t${begin}\n  ORDER BY ${scope} LIMIT ${bounds.limit}`
  const sql = `SELECT ${list([...results, 'x.*'], 2)}
FROM (
  ${scopes}
) AS s
CROSS JOIN LATERAL (
  SELECT (${firstKey}) AS "key", ${isCountRight(table)} AS "right"
  FROM ${rows} AS t WHERE ${ofScope}
) AS x${table.scope.length === 0 ? '' : `\nORDER BY ${list(scopeOf(table, 's'), 2)}`}`
  return { sql, values: [...(bounds.after ?? [])] }
}

interface CountsBounds {
  /** The scope that the page begins after, as the last result says it in `s0`, `s1`, and so on. */
  readonly after: readonly string[] | undefined
  readonly limit: number
  /** Of the scope's columns, as SQL. */
  readonly types: readonly string[]
}

/** Whether what is kept as the count of the rows `t` of the scope `s` is how many of them count. */
function isCountRight(table: NumberTable): string {
  const counted = ['true', ...isCounted(table, 't')].join(' AND ')
  const ofScope = ['true', ...allEqual(scopeKey(table, 'k'), scopeOf(table, 's'))].join(' AND ')
  return `(pg_catalog.count(*) FILTER (WHERE ${counted}) OPERATOR(pg_catalog.=) (
    SELECT coalesce(pg_catalog.sum(k.n), 0) FROM ${scopesTable(table)} AS k WHERE ${ofScope}))::pg_catalog.text`
}

/** A column that holds a name, and the rows of its table as SQL. */
export interface HeldName {
  readonly holder: HolderTable
  readonly column: string
  readonly namespace: string
  readonly rows: string
}

const is = (left: string, right: string): string => `${left} OPERATOR(pg_catalog.=) ${right}`

/** A column of the table of names, as text in the collation of its bytes. */
const text = (of: NamesTable, row: string, column: NamesColumn): string =>
  `${nameField(of, row, column)}::pg_catalog.text COLLATE pg_catalog."C"`

const isOf = ({ holder: { holder, of }, column, namespace }: HeldName, row: string): string[] => [
  is(text(of, row, 'holder'), literal(holder)),
  is(text(of, row, 'property'), literal(column)),
  is(text(of, row, 'namespace'), literal(namespace)),
]

const isHeld = (of: NamesTable, row: string): string => is(text(of, row, 'state'), `'held'`)

/** Whether the table of names agrees that the row `t` has its name; true where the row has none. */
export function isNoted(name: HeldName): string {
  const { holder, column } = name
  const { of } = holder
  const conditions = [
    is(nameField(of, 'n', 'key'), holderKey(holder, 't')),
    ...isOf(name, 'n'),
    isHeld(of, 'n'),
    is(text(of, 'n', 'text'), bytewise('t', column)),
  ]
  const found = `EXISTS (SELECT FROM ${qualified(of.schema, of.table)} AS n WHERE ${conditions.join(' AND ')})`
  return `(${bytewise('t', column)} IS NULL OR ${found})::pg_catalog.text`
}

/**
 * Whether the row `t` of the table of names is true: the row that it names as holder really holds the name. A former name
 * has no holder, so its row is always true.
 *
 * @param names every column that holds names
 * @param among what holders the question is about. undefined: all
 */
export function isTrue(of: NamesTable, names: readonly HeldName[], among: readonly string[] | undefined): string {
  const cases = names.map((name) => {
    const holds = [
      ...hasNamedKey(name.holder, 'r', nameField(of, 't', 'key')),
      is(bytewise('r', name.column), text(of, 't', 'text')),
    ]
    return `WHEN ${isOf(name, 't').join(' AND ')} THEN EXISTS (SELECT FROM ${name.rows} AS r WHERE ${holds.join(' AND ')})`
  })
  const requested = among?.map(literal).join(', ')
  const others =
    requested === undefined
      ? []
      : [`WHEN NOT (${text(of, 't', 'holder')} OPERATOR(pg_catalog.=) ANY (ARRAY[${requested}])) THEN true`]
  // Two programs may share a table of names; only the other program knows what its tables hold.
  const known = names.map(({ holder }) => `WHEN ${is(text(of, 't', 'holder'), literal(holder.holder))} THEN false`)
  return `(CASE WHEN NOT ${isHeld(of, 't')} THEN true ${[...others, ...cases, ...new Set(known)].join(' ')}
    ELSE ${isOfAnother(of)} END)::pg_catalog.text`
}

/** A table has triggers whose note says that it is the holder of the row `t`. */
const isOfAnother = (of: NamesTable): string => `coalesce(pg_catalog.strpos((
      SELECT pg_catalog.string_agg(p.prosrc, '') FROM pg_catalog.pg_proc AS p
      WHERE pg_catalog.strpos(p.prosrc, ${literal(`${TRIGGER_MARK}names`)}) OPERATOR(pg_catalog.>) 0
        AND p.oid OPERATOR(pg_catalog.=) ANY (SELECT g.tgfoid FROM pg_catalog.pg_trigger AS g)
    ), pg_catalog.concat('"holder":', pg_catalog.to_json(${nameField(of, 't', 'holder')}::pg_catalog.text))) OPERATOR(pg_catalog.>) 0, false)`
