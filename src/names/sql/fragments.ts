import { literal, plainName, qualified, quote } from '../../sql/identifier'
import type { FormerPolicy, NamesColumn, NamesTable } from '../../sql/names-table'
import { equal } from '../../sql/text-table'

/** A column that holds a name. */
export interface NameColumn {
  readonly column: string
  readonly namespace: string
  readonly former: FormerPolicy
  /** The normalizer of the stored texts, as `name@version`. @default none@1 */
  readonly normalizer?: string
}

/** A table whose rows hold names, with its database names. */
export interface HolderTable {
  /** If undefined, `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  /** Its name in the table of names. The schema is part of it only if the table of names is in another schema. */
  readonly holder: string
  /** The primary key, in the order of the values of `key`. Types are written as in PostgreSQL (`character varying`). */
  readonly primary: readonly { readonly name: string; readonly type: string }[]
  readonly names: readonly NameColumn[]
  readonly of: NamesTable
  /** Whether the table may be a local table of Citus. */
  readonly citus?: 'local' | undefined
}

/** Returns the name of a function or trigger of names on a table. */
export const namedSet = (table: string, suffix = ''): string =>
  `${plainName('unique_name', table)}${suffix === '' ? '' : `_${suffix}`}`

/** A column of the table of names, with a row if one is given. */
export function nameField({ columns }: Pick<NamesTable, 'columns'>, row: string, column: NamesColumn): string {
  const name = quote(columns[column])
  return row === '' ? name : `${row}.${name}`
}

/** PostgreSQL's own types that the table of names stores as JSON, or as texts if JavaScript would round them. */
const KNOWN =
  /^(?:(?:smallint|integer|uuid|boolean|text|date|character|timestamp|inet|cidr|macaddr)|(?<exact>bigint|numeric))\b(?!.*\[)/

/** Types whose names the grammar does not bind to `pg_catalog`. */
const BY_NAME = /^(?:uuid|text|date|inet|cidr|macaddr)$/

/** Types that JSON shows in the time zone of the session. */
const ZONED = /^timestamp(?:\(\d\))? with time zone$/

/** A value as its type's output function writes it. A cast to JSON or to text could run code of the type's owner. */
const formatted = (value: string): string => `pg_catalog.format('%s', ${value})`

/**
 * The primary key of a row, as the table of names holds it. The JSON is the same in every session, and JavaScript reads
 * it exactly.
 */
export function holderKey({ primary }: HolderTable, row: string): string {
  const values = primary.map(({ name, type }) => {
    const value = `${row}.${quote(name)}`
    if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value})`
    const known = KNOWN.exec(type)
    if (known === null) return formatted(value)
    return known.groups?.exact === undefined ? value : `${value}::pg_catalog.text`
  })
  return `pg_catalog.jsonb_build_array(${values.join(', ')})`
}

/** A value of the primary key, taken from a key that the table of names holds. */
export function keyPart({ primary }: HolderTable, key: string, index: number): string {
  const { type = '' } = primary[index] ?? {}
  const value = `(${key} OPERATOR(pg_catalog.->>) ${index})`
  if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value}::pg_catalog.timestamp)`
  if (!KNOWN.test(type)) return value
  if (BY_NAME.test(type)) return `${value}::pg_catalog.${type}`
  // `character` without a length holds one character.
  return `${value}::${type === 'character' ? 'pg_catalog.bpchar' : type}`
}

/** Predicates for an AND: the row has this key. */
export const hasKey = (
  { primary }: HolderTable,
  row: string,
  value: (name: string, index: number) => string,
): string[] =>
  primary.map(({ name, type }, index) => {
    const [left, right] = [`${row}.${quote(name)}`, value(name, index)]
    return KNOWN.test(type) ? equal(left, right) : equal(formatted(left), formatted(right))
  })

/** Predicates for an AND: the row has a key that the table of names holds. */
export const hasNamedKey = (holder: HolderTable, row: string, key: string): string[] =>
  hasKey(holder, row, (_, index) => keyPart(holder, key, index))

/** The table, by its OID. */
export const holderOid = ({ schema, table }: Pick<HolderTable, 'schema' | 'table'>): string =>
  `${literal(qualified(schema, table))}::pg_catalog.regclass`
