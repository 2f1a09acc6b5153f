import type { Digest } from '../text/digest'
import { literal, qualified, quote } from './identifier'

/** One column of the text, and what stands before it where the columns are composed (`?` before a query). */
interface TextColumn {
  readonly name: string
  /** @default '' */
  readonly prefix: string
}

/** A table with a unique text, by its database names: all that SQL needs to know of a declaration. */
export interface TextTable {
  /** What `by` calls the text. */
  readonly name: string
  /** undefined: `search_path` decides. */
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
  /** The text may be NULL, any number of times: then its hash is NULL too. */
  readonly nullable: boolean
  readonly immutable: boolean
  readonly maxChainLength: number
  /** `name@version` for each column of the text; kept in the guard's comment so that a changed one is found. */
  readonly normalizers: readonly string[]
  /** A row that has a value here, being deleted softly, does not hold its text. undefined: every row holds its own. */
  readonly deleted: string | undefined
  /** The hash decides in which part of the table a row is: no trigger may make another of it. undefined: it does not. */
  readonly spread?: SpreadBy | undefined
  /** No triggers keep it: a hash has room for one text, and whoever writes sends it. @default false */
  readonly guardless?: boolean | undefined
  /** First part of the names of the guard's functions and triggers. */
  readonly guard: string
}

/** A table that is spread by the hash: as its user makes it, by partitions of ours, or by Citus. */
export type SpreadBy = 'hash' | 'citus' | { readonly partitions: number }

/** What hash, number and flag of a row depend on, with the names of the index and the check that hold them to it. */
export type TextRows = Omit<TextTable, 'immutable' | 'maxChainLength' | 'guard'>

export const tableName = ({ schema, table }: Pick<TextTable, 'schema' | 'table'>): string => qualified(schema, table)

/** `row."name"`; without a row, `"name"`. */
export const field = (row: string, name: string): string => (row === '' ? quote(name) : `${row}.${quote(name)}`)

/**
 * Operators by their schema, in all SQL that the package generates: where `search_path` decides, one of an exact
 * signature in the table's schema beats one of pg_catalog, and would run as the table's owner. IS DISTINCT FROM, IN,
 * BETWEEN, NULLIF and CASE look theirs up too, so none of them is used.
 */
export const op = (operator: string): string => `OPERATOR(pg_catalog.${operator})`

export const EQUALS: string = op('=')

export const equal = (left: string, right: string): string => `${left} ${EQUALS} ${right}`

/** Joins a row of the catalog by its OID. */
export const joinOf = (catalog: string, row: string, oid: string): string =>
  `JOIN pg_catalog.${catalog} AS ${row} ON ${equal(`${row}.oid`, oid)}`

/** NULL is equal to NULL alone, as IS NOT DISTINCT FROM has it. */
export const alike = (left: string, right: string): string =>
  `(${equal(left, right)}\n      OR ${left} IS NULL\n        AND ${right} IS NULL)`

/** IS DISTINCT FROM. */
export const isOther = (left: string, right: string): string => `${alike(left, right)} IS NOT TRUE`

/** BETWEEN. */
export const within = (value: string, low: string, high: string): string =>
  `${value} ${op('>=')} ${low}\n    AND ${value} ${op('<=')} ${high}`

const APPENDED = op('||')

/**
 * What hash and number of a row are made by, for a comparison; which rows hold their texts is another question.
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

/** The text that is hashed. A column that is NULL leaves out its prefix too. */
export const composed = ({ text }: Pick<TextTable, 'text'>, row: string, separator?: string): string =>
  composedOf(
    text.map(({ name, prefix }) => ({ value: field(row, name), prefix })),
    separator,
  )

/** A column's value in SQL, and what stands before it. */
interface Part {
  readonly value: string
  readonly prefix: string
}

function composedOf(parts: readonly Part[], separator = ' '): string {
  const [first] = parts
  if (parts.length === 1 && first?.prefix === '') return `${first.value}::pg_catalog.text`
  return parts
    .map(({ value: given, prefix }) => {
      const value = `${given}::pg_catalog.text`
      return `coalesce(${prefix === '' ? value : `${literal(prefix)} ${APPENDED} ${value}`}, '')`
    })
    .join(` ${APPENDED}${separator}`)
}

/** The hash of a text that consists of these parts, as a literal; sorts bytewise. A part that is null leaves out its prefix. */
export function hashOfTexts(
  { text, digest }: Pick<TextTable, 'text' | 'digest'>,
  parts: readonly (string | null)[],
): string {
  let composed = ''
  for (const [index, part] of parts.entries()) if (part !== null) composed += `${text[index]?.prefix ?? ''}${part}`
  return digest.js(composed)
}

export const hashExpression = (table: Pick<TextTable, 'text' | 'digest'>, row: string, separator?: string): string =>
  table.digest.sql(composed(table, row, separator))

/** The hash of a row that gets these values, in SQL, in the order of the text's columns; NULL for one without a text. */
export function hashOfValues(
  { text, digest, nullable }: Pick<TextTable, 'text' | 'digest' | 'nullable'>,
  values: readonly string[],
): string {
  const hash = digest.sql(composedOf(text.map(({ prefix }, index) => ({ value: `(${values[index]})`, prefix }))))
  const none = values.map((value) => `(${value}) IS NULL`)
  return nullable ? `CASE WHEN NOT (${none.join(' AND ')}) THEN ${hash} END` : hash
}

/** The hash of a row as `digest.js` gives it. */
export const hashAsText = ({ hash, digest }: Pick<TextTable, 'hash' | 'digest'>, row: string): string =>
  digest.type === 'uuid'
    ? `pg_catalog.replace(${field(row, hash)}::pg_catalog.text, '-', '')`
    : `${literal('\\x')} ${APPENDED} pg_catalog.encode(${field(row, hash)}, 'hex')`

/** All text columns NULL: a row without a text, outside every chain. */
export function textIsNull(table: Pick<TextTable, 'text'>, row: string): string[] {
  return table.text.map(({ name }) => `${field(row, name)} IS NULL`)
}

/** A text as it is compared: bytewise, because a nondeterministic collation calls different texts equal. */
export const bytewise = (row: string, name: string): string =>
  `${field(row, name)}::pg_catalog.text COLLATE pg_catalog."C"`

/** Equality column by column, NULL equal to NULL; one predicate each, for an AND. */
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

/** The text columns that differ, one predicate each; for an OR. */
export function differentText(table: Pick<TextTable, 'text' | 'nullable'>, left: string, right: string): string[] {
  return sameText(table, left, right).map((same) => `(${same})\n    IS NOT TRUE`)
}

/** The unique index's own operator on every scope column; the scope is NOT NULL, so `=` is enough and indexable. */
export function sameScope({ scope }: TextTable, left: string, right: string): string[] {
  return scope.map((name) => equal(field(left, name), field(right, name)))
}

/** The row holds its text, unless it is deleted softly and that frees it; one predicate at most. */
export function isLive({ deleted }: Pick<TextTable, 'deleted'>, row: string): string[] {
  return deleted === undefined ? [] : [`${field(row, deleted)} IS NULL`]
}

/** The row is deleted softly, and that frees its text; one predicate at most. */
export function isFreed({ deleted }: Pick<TextTable, 'deleted'>, row: string): string[] {
  return deleted === undefined ? [] : [`${field(row, deleted)} IS NOT NULL`]
}

/** The rows of a chain: equal scope and hash. Whether they hold their texts is another question. */
export function sameChain(table: TextTable, left: string, right: string): string[] {
  return [...sameScope(table, left, right), equal(field(left, table.hash), field(right, table.hash))]
}

/** The hash that a row should have: NULL where it has no text. */
export function rowHash(table: Pick<TextTable, 'digest' | 'text' | 'nullable'>, row: string): string {
  const hash = hashExpression(table, row)
  return table.nullable ? `CASE WHEN ${textIsNull(table, row).join(' AND ')} THEN NULL ELSE ${hash} END` : hash
}

/** The scope's columns that differ, one predicate each; for an OR. They are NOT NULL. */
export function differentScope({ scope }: Pick<TextTable, 'scope'>, left: string, right: string): string[] {
  return scope.map((name) => `(${equal(field(left, name), field(right, name))}) IS NOT TRUE`)
}

/** What the check holds a row to; it is what fails safe when another trigger changes the text after ours. */
export function checkExpression(table: Omit<TextRows, 'check'>): string {
  const hash = quote(table.hash)
  const honest = equal(hash, hashExpression(table, ''))
  const positive = `${quote(table.number)} ${op(table.guardless === true ? '=' : '>=')} 0`
  if (!table.nullable) return `${honest} AND ${positive}`
  const textless = textIsNull(table, '').join(' AND ')
  const without = `${textless} AND ${hash} IS NULL`
  return `(${without} OR NOT (${textless}) AND ${hash} IS NOT NULL AND ${honest}) AND ${positive}`
}

/** What is read of the row that holds a text, by database names. */
export interface HolderColumns {
  readonly primary: readonly string[]
  /** The delete date, where a deleted row holds its text. */
  readonly softDelete?: string | undefined
}

/** 1 if the row `t` is deleted softly, and NULL otherwise. */
export const isSoftlyDeleted = (softDelete: string | undefined): string =>
  softDelete === undefined ? 'NULL::pg_catalog.int4' : `CASE WHEN ${field('t', softDelete)} IS NOT NULL THEN 1 END`
