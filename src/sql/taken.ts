import type { UnusualIndex } from './catalog'
import { anyNumber, asText, nameList, parameter, type Statement } from './find'
import { literal, qualified, quote, transition, unnest } from './identifier'
import {
  alike,
  equal,
  EQUALS,
  field,
  hashExpression,
  type HolderColumns,
  isFreed,
  isLive,
  isSoftlyDeleted,
  joinOf,
  op,
  sameChain,
  sameScope,
  sameText,
  tableName,
  textIsNull,
  type TextTable,
} from './text-table'
import { asStored, type TableTraits, typeOf } from './types'

/** A unique text of which a call requests some texts. */
export interface WantedText extends HolderColumns, Pick<TableTraits, 'types' | 'crashesByPruning'> {
  readonly table: TextTable
  /** The rows exist and are to be changed. Values that a change leaves out are read from them. */
  readonly standing: boolean
}

/** Types whose equality belongs to an extension and is found in the extension's schema. */
const OF_EXTENSION = /^(?:.*\.)?"?(?:citext|cube|geography|geometry|halfvec|hstore|ltree|vector)\b/

export const equalAs = (type: string | undefined, left: string, right: string): string =>
  type !== undefined && OF_EXTENSION.test(type) ? `${left} = ${right}` : equal(left, right)

/**
 * A value to compare with a column in a statement that locks rows. If the server must not prune partitions there, it is
 * an array that the planner does not evaluate, which determines none. A server that prunes may also miss a row for which
 * it has waited.
 */
export const lockingKey = ({ crashesByPruning }: WantedText, value: string): string =>
  crashesByPruning ? `ANY (pg_catalog.array_fill(${value}, '{1}'))` : value

/** One row of the call, and the holder of its text. */
export interface TakenRow {
  /** 0-based position of the wanted text, and of the row among its rows. */
  readonly wanted: number
  readonly index: number
  /** An earlier row of the call has the same text. */
  readonly repeated: boolean
  /** The primary key of the stored row that holds the text. */
  readonly holder: readonly unknown[] | undefined
  readonly deleted: boolean
}

/**
 * Finds the texts that a stored row or an earlier row of the call has taken, in one statement for all of them. It
 * returns a row for every requested text, except for rows without a text.
 *
 * Parameters, for each wanted text: an array of texts for each column of its scope and its text. If its rows exist,
 * these follow: an array of booleans for each of these columns (the change sets it), an array of texts for each primary
 * column, and, if a deleted row frees its text, an array of booleans (the row will be live; NULL if unchanged).
 *
 * @param atOnce whether rows are changed at once, and not one after another
 */
export function takenStatement(wanted: readonly WantedText[], atOnce = false): Statement<TakenRow> {
  const parameters = wanted.map(({ table, primary, standing }) => {
    const key = keyNames(table).length
    return standing ? 2 * key + primary.length + Number(table.deleted !== undefined) : key
  })
  const inputs = wanted.map((one, nth) => wantedRows(one, wantedName(wanted, nth), sumBefore(parameters, nth)))
  const arms = wanted.map((_, nth) => arm(wanted, nth, atOnce))
  const keys = wanted.map(({ primary }) => primary.length)
  return {
    name: '',
    sql: `WITH ${inputs.join(', ')}\n${arms.join('\nUNION ALL\n')}`,
    parse: ([nth, ordinal, repeated, deleted, ...ids]) => {
      const position = Number(nth)
      const offset = sumBefore(keys, position)
      const holder = ids.slice(offset, offset + (keys[position] ?? 0))
      return {
        wanted: position,
        index: Number(ordinal) - 1,
        repeated: repeated !== null,
        holder: holder.includes(null) ? undefined : holder,
        deleted: deleted !== null,
      }
    },
  }
}

const keyNames = ({ scope, text }: TextTable): string[] => [...scope, ...text.map(({ name }) => name)]

const sumBefore = (lengths: readonly number[], position: number): number =>
  lengths.slice(0, position).reduce((sum, length) => sum + length, 0)

/** The name of the rows of one wanted text. A table of this name would be hidden. */
export const wantedName = (wanted: readonly WantedText[], nth: number): string =>
  transition(`i${nth}`, ...wanted.map(({ table }) => table.table))

/**
 * The rows in their future state: `c0`, `c1`, … are the key, and `k0`, `k1`, … the primary key of existing rows. `live`:
 * a row will hold its text.
 *
 * @param locked whether to return only rows that will hold their texts, with their keys as they are now, `f0`, `f1`, …,
 * and to lock them
 */
export function wantedRows(wanted: WantedText, name: string, offset: number, locked = false): string {
  const { table, primary, standing } = wanted
  const live = isLive(table, 'r')
  const names = [
    ...keyNames(table).map((_, index) => `c${index}`),
    ...(standing ? keyNames(table).map((_, index) => `g${index}`) : []),
    ...(standing ? primary.map((_, index) => `k${index}`) : []),
    ...(standing ? live.map(() => 'live') : []),
  ]
  const arrays = names.map(
    (name, index) => `${parameter(offset + index)}::${/^[gl]/.test(name) ? 'boolean' : 'pg_catalog.text'}[]`,
  )
  const former = keyNames(table).map(
    (name, index) => `${field('r', name)}${index < table.scope.length ? '' : '::pg_catalog.text'}`,
  )
  const values = keyNames(table).map((name, index) => {
    const given = index < table.scope.length ? stored(wanted, name, `i.c${index}`) : `i.c${index}`
    return `${standing ? `CASE WHEN i.g${index} THEN ${given} ELSE ${former[index]} END` : given} AS c${index}`
  })
  const ids = primary.map((name, index) => `${stored(wanted, name, `i.k${index}`)} AS k${index}`)
  const same = primary.map((name, index) => {
    const value = stored(wanted, name, `i.k${index}`)
    return `${field('r', name)} ${EQUALS} ${locked ? lockingKey(wanted, value) : value}`
  })
  const willBeLive = live.map((is) => `coalesce(i.live, ${is})`)
  const standingRow = standing ? `\n  JOIN ${tableName(table)} AS r ON ${same.join('\n    AND ')}` : ''
  const more = locked
    ? former.map((value, index) => `${value} AS f${index}`)
    : standing
      ? willBeLive.map((is) => `${is} AS live`)
      : []
  const lock = `\n  ${willBeLive.map((is) => `WHERE ${is}\n  `).join('')}ORDER BY ${primary.map((key) => field('r', key)).join(', ')}
  FOR NO KEY UPDATE OF r`
  return `${name} AS MATERIALIZED (
  SELECT i.ordinal, ${[...values, ...(standing ? ids : []), ...more].join(',\n    ')}
  FROM ${unnest(arrays, 4)}
    WITH ORDINALITY AS i (${[...names, 'ordinal'].join(', ')})${standingRow}${locked ? lock : ''}
)`
}

function stored({ types }: WantedText, name: string, value: string): string {
  const type = types.get(name)
  return type ? asStored(value, type) : value
}

/** Returns a row for every row of one wanted text, with the primary key of the holder of its text. */
function arm(wanted: readonly WantedText[], nth: number, atOnce: boolean): string {
  const { table, primary, softDelete, standing, types } = wanted[nth] as WantedText
  const until = atOnce ? [] : [`e.ordinal ${op('<=')} i.ordinal`]
  const key = keyNames(table).map((name, index) => `i.c${index} AS ${field('', name)}`)
  const parts = keyNames(table).map((_, index) =>
    index < table.scope.length ? `i.c${index}` : `i.c${index} COLLATE pg_catalog."C"`,
  )
  const sameRow = primary.map((name, index) => equalAs(types.get(name)?.type, `e.k${index}`, field('t', name)))
  const same = [
    ...sameScope(table, 't', 'n'),
    `${field('t', table.hash)} ${EQUALS}\n      ${hashExpression(table, 'n', '\n    ')}`,
    ...sameText(table, 't', 'n'),
    ...isLive(table, 't'),
    anyNumber(table),
    // If a change of the call gives a row another text, the row no longer holds the old one.
    ...(standing
      ? [
          `NOT EXISTS (\n      SELECT FROM ${wantedName(wanted, nth)} AS e WHERE ${[...until, ...sameRow].join(' AND ')})`,
        ]
      : []),
  ]
  // Every arm has the columns of all arms, each with its own type, so that the driver parses a key as for `find`.
  const keys = wanted.flatMap((one, other) =>
    one.primary.map((name, index) => (other === nth ? `h.k${index}` : `NULL::${typeOf(one.types, name)}`)),
  )
  return `SELECT ${nth} AS wanted, i.ordinal,
  CASE WHEN i.ordinal ${op('>')} pg_catalog.min(i.ordinal)
    OVER (PARTITION BY ${parts.join(', ')}) THEN 1 END AS repeated,
  h.deleted, ${keys.map((column, index) => `${column} AS p${index}`).join(', ')}
FROM ${wantedName(wanted, nth)} AS i
CROSS JOIN LATERAL (SELECT ${key.join(', ')}) AS n
LEFT JOIN LATERAL (
  SELECT ${primary.map((name, index) => `${field('t', name)} AS k${index}`).join(', ')}, ${isSoftlyDeleted(softDelete)} AS deleted
  FROM ${tableName(table)} AS t
  WHERE ${same.join('\n    AND ')}
  LIMIT 1
) AS h ON true
WHERE NOT (${textIsNull(table, 'n').join(' AND ')})${isLive(table, '')
    .map(() => (standing ? ' AND i.live' : ''))
    .join('')}`
}

interface WantedKey {
  readonly columns: readonly string[]
  /** @default an ordinary index */
  readonly index?: UnusualIndex | undefined
}

/** A table with its primary key and the ordinary unique columns that rows have values for, by database names. */
interface WantedKeys extends HolderColumns {
  readonly schema: string | undefined
  readonly table: string
  readonly keys: readonly WantedKey[]
  /** The column types by column name. */
  readonly types: ReadonlyMap<string, string>
  /** The rows exist and are to be changed. Values that a change leaves out are read from them. */
  readonly standing: boolean
}

/** A value that is not available to a row. */
interface TakenKey {
  /** 0-based position among the keys, and of the row among the rows with that key. */
  readonly key: number
  readonly index: number
  /** The primary key of the row that has the value, or undefined if an earlier row of the call has it. */
  readonly holder: readonly unknown[] | undefined
  readonly deleted: boolean
}

/**
 * Finds the ordinary keys that a stored row or an earlier row of the call has taken. NULL is never taken.
 *
 * Parameters, for each key: a JSON array of the rows that have it, by column names, with every value as text. For
 * existing rows, its elements are `{ "key": …, "set": … }`.
 */
export function takenKeysStatement(wanted: WantedKeys): Statement<TakenKey> {
  return {
    name: '',
    sql: wanted.keys.map((key, nth) => keyArm(wanted, key, nth)).join('\nUNION ALL\n'),
    parse: ([key, ordinal, deleted, ...holder]) => ({
      key: Number(key),
      index: Number(ordinal) - 1,
      holder: holder.includes(null) ? undefined : holder,
      deleted: deleted !== null,
    }),
  }
}

function keyArm(
  { schema, table, primary, softDelete, types, standing }: WantedKeys,
  key: WantedKey,
  nth: number,
): string {
  const name = qualified(schema, table)
  const rows = (as: string): string =>
    `pg_catalog.jsonb_array_elements($${nth + 1}::pg_catalog.text::pg_catalog.jsonb) WITH ORDINALITY AS ${as} (value, ordinal)`
  const filled = (base: string, value: string): string => `pg_catalog.jsonb_populate_record(${base}, ${value})`
  // As a type, an unqualified name means the built-in one. A row of the table needs the privilege on all its columns.
  const none =
    schema === undefined && BUILT_IN.test(table)
      ? `(SELECT ${filled('o.*', 'NULL')} FROM ${name} AS o LIMIT 0)`
      : `NULL::${name}`
  const part = (of: string, what: string): string => `${of}.value ${op('->')} '${what}'`
  const same = (columns: readonly string[], left: string, right: string): string =>
    columns.map((column) => equalAs(types.get(column), field(left, column), field(right, column))).join(' AND ')
  const given = standing
    ? `CROSS JOIN LATERAL ${filled(none, part('e', 'key'))} AS k
  JOIN ${name} AS r ON ${same(primary, 'r', 'k')}
  CROSS JOIN LATERAL ${filled('r.*', part('e', 'set'))} AS n`
    : `CROSS JOIN LATERAL ${filled(none, 'e.value')} AS n`
  // If this change or an earlier one of the call gives a row another value, the row no longer has the old one.
  const stays = `\n      AND NOT EXISTS (SELECT FROM ${rows('x')}
        CROSS JOIN LATERAL ${filled(none, part('x', 'key'))} AS q
        WHERE x.ordinal ${op('<=')} e.ordinal AND ${same(primary, 'q', 't')})`
  const { values, join, held } = key.index
    ? unusual(key.index, standing)
    : {
        values: key.columns.map((column) => field('n', column)),
        join: '',
        held: key.columns.map((column) => equalAs(types.get(column), field('t', column), field('n', column))),
      }
  return `SELECT ${nth} AS key, s.ordinal, s.deleted, ${primary.map((_, index) => `s.k${index}`).join(', ')}
FROM (
  SELECT e.ordinal, h.deleted, ${primary.map((_, index) => `h.k${index}`).join(', ')},
    h.found OR e.ordinal ${op('>')} pg_catalog.min(e.ordinal) OVER (PARTITION BY ${values.join(', ')}) AS taken
  FROM ${rows('e')}
  ${given}${join}
  LEFT JOIN LATERAL (
    SELECT true AS found, ${isSoftlyDeleted(softDelete)} AS deleted, ${primary.map((column, index) => `${field('t', column)} AS k${index}`).join(', ')}
    FROM ${name} AS t
    WHERE ${held.join(' AND ')}${standing ? stays : ''}
    LIMIT 1
  ) AS h ON true
  WHERE ${values.map((value) => `${value} IS NOT NULL`).join(' AND ')}
) AS s
WHERE s.taken`
}

/** Names of types that a table may have too. */
const BUILT_IN =
  /^(?:bit|bool|box|bpchar|bytea|char|cid|cidr|circle|date|float[48]|inet|int[248]|interval|json|jsonb|jsonpath|line|lseg|macaddr8?|money|name|numeric|oid|path|point|polygon|record|(?:date|int[48]|num|ts|tstz)(?:multi)?range|text|tid|time|timestamp|timestamptz|timetz|tsquery|tsvector|uuid|varbit|varchar|void|xid8?|xml|any|trigger|unknown|cstring)$/

/** The values of the new row `n` for a key, and the conditions that the stored row `t` has them. */
interface KeyParts {
  readonly values: readonly string[]
  readonly join: string
  readonly held: readonly string[]
}

/** The server's words use unqualified column names, which resolve in the innermost FROM. */
function unusual({ keys, condition, reads }: UnusualIndex, standing: boolean): KeyParts {
  const columns = Object.entries(reads).map(([column, value]) =>
    standing || value === null
      ? field('n', column)
      : `CASE WHEN e.value ${op('?')} ${literal(column)} THEN ${field('n', column)} ELSE ${value} END AS ${quote(column)}`,
  )
  const expressions = keys.map((key, index) => `(${key}) AS x${index}`)
  return {
    values: keys.map((_, index) => `v.x${index}`),
    join: `
  CROSS JOIN LATERAL (
    SELECT ${expressions.join(', ')} FROM (SELECT ${columns.join(', ')}) AS i WHERE ${condition ?? 'true'}
  ) AS v`,
    held: [`(${condition ?? 'true'})`, ...keys.map((key, index) => `(${key}) ${EQUALS} v.x${index}`)],
  }
}

/** The position in the chain of a refused text. */
interface RefusedPlace {
  /** The values of the scope, as Postgres prints them. */
  readonly scope: readonly string[]
  readonly hash: string
  readonly hashNumber: number
}

/**
 * Finds the row that holds a text and the row at its place in the chain. The two differ only if another text with the
 * same hash was faster. Returns the primary key as `k0`, `k1`, …, `deleted`, and `same`: NULL for another text.
 *
 * @param texts the values of its columns. Undefined for the text of a row that was to be restored, which no statement
 * contains. It is assumed to be the text of the row at its place if every soft-deleted row with this hash has that text
 */
export function holderQuery(
  table: TextTable,
  { primary, softDelete }: HolderColumns,
  { scope, hash, hashNumber }: RefusedPlace,
  texts: readonly (string | null)[] | undefined,
): { readonly sql: string; readonly values: readonly unknown[] } {
  const at = (index: number): string => parameter(scope.length + index)
  const isAtPlace = `${field('t', table.number)} ${EQUALS} ${at(1)}`
  const isSame = table.text
    .map(({ name }, index) => alike(asText(name), `${at(2 + index)}::pg_catalog.text`))
    .join(' AND ')
  const given = [`CASE WHEN ${isSame} THEN 1 END AS same`, `${isSoftlyDeleted(softDelete)} AS deleted`]
  const ofDeleted = `(
  SELECT CASE WHEN pg_catalog.bool_and(${sameText(table, 'd', 't').join('\n    AND ')}) THEN 1 END
  FROM ${tableName(table)} AS d
  WHERE ${[...sameChain(table, 'd', 't'), ...isFreed(table, 'd')].join(' AND ')}
) AS same`
  const where = [
    ...table.scope.map((name, index) => `${field('t', name)} ${EQUALS} ${parameter(index)}`),
    `${field('t', table.hash)} ${EQUALS} ${at(0)}`,
    texts ? `(${isSame} OR ${isAtPlace})` : isAtPlace,
    ...isLive(table, 't'),
  ]
  const keys = primary.map((name, index) => `${field('t', name)} AS k${index}`)
  return {
    sql: `SELECT ${[...keys, ...(texts ? given : [ofDeleted])].join(', ')}
FROM ${tableName(table)} AS t
WHERE ${where.join('\n  AND ')}`,
    values: [...scope, hash, hashNumber, ...(texts ?? [])],
  }
}

/** The DETAIL of a unique violation in any language: `Key (columns)=(values)`, followed by prose. */
const DETAIL = /\((?<columns>.*?)\)=\((?:(?<scope>.*), )?(?<hash>[^,]+), (?<number>\d+)\)[^)]*$/su

/** Returns the columns and values of a unique violation of our index, or undefined for another or an empty DETAIL. */
export function refusedPlace(table: TextTable, detail: string | undefined): RefusedPlace | undefined {
  const { columns, scope, hash, number } = DETAIL.exec(detail ?? '')?.groups ?? {}
  const wanted = [...table.scope, table.hash, table.number]
  // Postgres quotes a name only if necessary.
  const isOurs = columns?.replaceAll('"', '') === nameList(wanted).replaceAll('"', '')
  if (hash === undefined || !isOurs) return undefined
  // A value may contain the separator.
  const values = scope === undefined ? [] : table.scope.length === 1 ? [scope] : scope.split(', ')
  return values.length === table.scope.length ? { scope: values, hash, hashNumber: Number(number) } : undefined
}

/** The table that a partition belongs to, as `schema` and `table`. */
export const PARTITION_ROOT: string = `SELECT n.nspname AS schema, r.relname AS table
FROM pg_catalog.pg_class AS r
${joinOf('pg_namespace', 'n', 'r.relnamespace')}
WHERE r.oid ${EQUALS} pg_catalog.pg_partition_root(pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::pg_catalog.text, $2::pg_catalog.text)))`
