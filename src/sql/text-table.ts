import type { Digest } from '../text/digest'
import { literal, qualified, quote } from './identifier'

/** One column of the text, and the prefix of its value in the text that is hashed (`?` before a query). */
interface TextColumn {
  readonly name: string
  /** @default '' */
  readonly prefix: string
}

/** A table with a unique text, with its database names. This is all that SQL needs to know about a declaration. */
export interface TextTable {
  /** The name of the text in `by`. */
  readonly name: string
  /** If undefined, `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  readonly text: readonly TextColumn[]
  readonly scope: readonly string[]
  readonly hash: string
  readonly number: string
  readonly chained: string
  readonly index: string
  readonly check: string
  readonly digest: Digest
  /** The text may be NULL in any number of rows. Then its hash is NULL too. */
  readonly nullable: boolean
  readonly immutable: boolean
  readonly maxChainLength: number
  /** `name@version` for each column of the text. The guard's comment stores it, so that a change is detected. */
  readonly normalizers: readonly string[]
  /** A row with a value here is soft-deleted and does not hold its text. If undefined, every row holds its text. */
  readonly deleted: string | undefined
  /** The hash determines the part of the table for a row, so no trigger may change it. If undefined, it does not. */
  readonly spread?: 'hash' | 'citus' | undefined
  /** The text has no triggers. A hash has room for one text, and every writer sends the hash. @default false */
  readonly guardless?: boolean | undefined
  /** The first part of the names of the guard's functions and triggers. */
  readonly guard: string
}

/** Everything that a row's hash, number and flag depend on, and the names of the index and check that enforce them. */
export type TextRows = Omit<TextTable, 'immutable' | 'maxChainLength' | 'guard'>

/** A table. Without a schema, `search_path` decides. */
export type TableName = Pick<TextTable, 'schema' | 'table'>

export const tableName = ({ schema, table }: TableName): string => qualified(schema, table)

/** `row."name"`; without a row, `"name"`. */
export const field = (row: string, name: string): string => (row === '' ? quote(name) : `${row}.${quote(name)}`)

/**
 * Qualifies operators, in all SQL that the package generates. If `search_path` decided, an operator with an exact
 * signature in the table's schema would take precedence over pg_catalog, and run as the table's owner. IS DISTINCT
 * FROM, IN, BETWEEN, NULLIF and CASE look up operators in the same way, so they are not used.
 */
export const op = (operator: string): string => `OPERATOR(pg_catalog.${operator})`

export const EQUALS: string = op('=')

export const equal = (left: string, right: string): string => `${left} ${EQUALS} ${right}`

/** Joins a row of the catalog by its OID. */
export const joinOf = (catalog: string, row: string, oid: string): string =>
  `JOIN pg_catalog.${catalog} AS ${row} ON ${equal(`${row}.oid`, oid)}`

/** NULL equals only NULL, as in IS NOT DISTINCT FROM. */
export const alike = (left: string, right: string): string =>
  `(${equal(left, right)}\n      OR ${left} IS NULL\n        AND ${right} IS NULL)`

/** The equivalent of IS DISTINCT FROM. */
export const isOther = (left: string, right: string): string => `${alike(left, right)} IS NOT TRUE`

/** The equivalent of BETWEEN. */
export const within = (value: string, low: string, high: string): string =>
  `${value} ${op('>=')} ${low}\n    AND ${value} ${op('<=')} ${high}`

const APPENDED = op('||')

/**
 * The rules for a row's hash and number, for a comparison. They do not include which rows hold their texts.
 *
 * @param digest its name
 */
export const textRules = (
  {
    text,
    scope,
    nullable,
    hash,
    number,
    chained,
  }: Pick<TextRows, 'text' | 'scope' | 'nullable' | 'hash' | 'number' | 'chained'>,
  digest: string,
): string => JSON.stringify([text, scope, nullable, hash, number, chained, digest])

/**
 * Whether the text that is hashed is its parts with their prefixes, as `Url` has it: `/path?query#fragment`. Otherwise
 * each part is preceded by its length, so that ("a", "bc") and ("ab", "c") differ.
 */
const hasPrefixes = (parts: readonly { readonly prefix: string }[]): boolean =>
  parts.slice(1).every(({ prefix }) => prefix !== '')

/** Takes the place of a part that is NULL and of its length. */
const NO_PART = '-'

/** The text that is hashed. A column that is NULL leaves out its prefix too. */
export const composed = ({ text }: Pick<TextTable, 'text'>, row: string, separator?: string): string =>
  composedOf(
    text.map(({ name, prefix }) => ({ value: field(row, name), prefix })),
    separator,
  )

/** A column's value in SQL, and its prefix. */
interface Part {
  readonly value: string
  readonly prefix: string
}

function composedOf(parts: readonly Part[], separator = ' '): string {
  const [first] = parts
  if (parts.length === 1 && first?.prefix === '') return `${first.value}::pg_catalog.text`
  const joined = (...texts: readonly string[]): string => texts.join(` ${APPENDED} `)
  const partOf = hasPrefixes(parts)
    ? (value: string, prefix: string) => `coalesce(${prefix === '' ? value : joined(literal(prefix), value)}, '')`
    : (value: string) =>
        `coalesce(${joined(`pg_catalog.octet_length(${value})::pg_catalog.text`, `':'`, value)}, ${literal(NO_PART)})`
  return parts.map(({ value, prefix }) => partOf(`${value}::pg_catalog.text`, prefix)).join(` ${APPENDED}${separator}`)
}

/** Returns the hash of a text with these parts, as a literal that sorts bytewise. The text is that of `composed`. */
export function hashOfTexts(
  { text, digest }: Pick<TextTable, 'text' | 'digest'>,
  parts: readonly (string | null)[],
): string {
  const prefixed = text.length === 1 || hasPrefixes(text)
  let composed = ''
  for (const [index, part] of parts.entries()) {
    if (part === null) composed += prefixed ? '' : NO_PART
    else composed += prefixed ? `${text[index]?.prefix ?? ''}${part}` : `${Buffer.byteLength(part)}:${part}`
  }
  return digest.js(composed)
}

export const hashExpression = (table: Pick<TextTable, 'text' | 'digest'>, row: string, separator?: string): string =>
  table.digest.sql(composed(table, row, separator))

/** The hash, in SQL, of a row with these values in the order of the text's columns. NULL for a row without a text. */
export function hashOfValues(
  { text, digest, nullable }: Pick<TextTable, 'text' | 'digest' | 'nullable'>,
  values: readonly string[],
): string {
  const hash = digest.sql(composedOf(text.map(({ prefix }, index) => ({ value: `(${values[index]})`, prefix }))))
  const none = values.map((value) => `(${value}) IS NULL`)
  return nullable ? `CASE WHEN NOT (${none.join(' AND ')}) THEN ${hash} END` : hash
}

/** The hash of a row, in the format of `digest.js`. */
export const hashAsText = ({ hash, digest }: Pick<TextTable, 'hash' | 'digest'>, row: string): string =>
  digest.type === 'uuid'
    ? `pg_catalog.replace(${field(row, hash)}::pg_catalog.text, '-', '')`
    : `${literal('\\x')} ${APPENDED} pg_catalog.encode(${field(row, hash)}, 'hex')`

/** All text columns are NULL: the row has no text and is in no chain. */
export function textIsNull(table: Pick<TextTable, 'text'>, row: string): string[] {
  return table.text.map(({ name }) => `${field(row, name)} IS NULL`)
}

/** A text in the form that is compared: bytewise, because a nondeterministic collation equates different texts. */
export const bytewise = (row: string, name: string): string =>
  `${field(row, name)}::pg_catalog.text COLLATE pg_catalog."C"`

/** Predicates for an AND: each text column is equal, and NULL equals NULL. */
export function sameText(
  { text, nullable }: Pick<TextTable, 'text' | 'nullable'>,
  left: string,
  right: string,
): string[] {
  return text.map(({ name }) => {
    const same = equal(bytewise(left, name), `${field(right, name)}::pg_catalog.text`)
    if (!nullable && text.length === 1) return same
    return `(${same}\n      OR ${field(left, name)} IS NULL AND ${field(right, name)} IS NULL)`
  })
}

/** Compares each scope column with the unique index's own operator. The scope is NOT NULL, so `=` can use the index. */
export function sameScope({ scope }: TextTable, left: string, right: string): string[] {
  return scope.map((name) => equal(field(left, name), field(right, name)))
}

/** At most one predicate: the row holds its text. It is not soft-deleted, or a soft deletion does not free the text. */
export function isLive({ deleted }: Pick<TextTable, 'deleted'>, row: string): string[] {
  return deleted === undefined ? [] : [`${field(row, deleted)} IS NULL`]
}

/** At most one predicate: the row is soft-deleted, and that frees its text. */
export function isFreed({ deleted }: Pick<TextTable, 'deleted'>, row: string): string[] {
  return deleted === undefined ? [] : [`${field(row, deleted)} IS NOT NULL`]
}

/** The rows of a chain have the same scope and hash. They need not hold their texts. */
export function sameChain(table: TextTable, left: string, right: string): string[] {
  return [...sameScope(table, left, right), equal(field(left, table.hash), field(right, table.hash))]
}

/** The hash that a row should have, or NULL if it has no text. */
export function rowHash(table: Pick<TextTable, 'digest' | 'text' | 'nullable'>, row: string): string {
  const hash = hashExpression(table, row)
  return table.nullable ? `CASE WHEN ${textIsNull(table, row).join(' AND ')} THEN NULL ELSE ${hash} END` : hash
}

/** The condition of the check. It fails safe if another trigger changes the text after ours. */
export function checkExpression(table: Omit<TextRows, 'check'>): string {
  const hash = quote(table.hash)
  const honest = equal(hash, hashExpression(table, ''))
  const positive = `${quote(table.number)} ${op(table.guardless === true ? '=' : '>=')} 0`
  if (!table.nullable) return `${honest} AND ${positive}`
  const textless = textIsNull(table, '').join(' AND ')
  const without = `${textless} AND ${hash} IS NULL`
  return `(${without} OR NOT (${textless}) AND ${hash} IS NOT NULL AND ${honest}) AND ${positive}`
}

/** The columns that are read of the row that holds a text, by database names. */
export interface HolderColumns {
  readonly primary: readonly string[]
  /** The delete date, if a deleted row holds its text. */
  readonly softDelete?: string | undefined
}

/** 1 if the row `t` is soft-deleted, and NULL otherwise. */
export const isSoftlyDeleted = (softDelete: string | undefined): string =>
  softDelete === undefined ? 'NULL::pg_catalog.int4' : `CASE WHEN ${field('t', softDelete)} IS NOT NULL THEN 1 END`
