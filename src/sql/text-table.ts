import type { Digest } from '../text/digest'
import { qualified, quote } from './identifier'

/** One column of the text, and what stands before it where the columns are composed (`?` before a query). */
export interface TextColumn {
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
  /** First part of the names of the guard's functions and triggers. */
  readonly guard: string
}

/** What hash, number and flag of a row depend on, with the names of the index and the check that hold them to it. */
export type TextRows = Omit<TextTable, 'immutable' | 'maxChainLength' | 'guard'>

export const tableName = ({ schema, table }: Pick<TextTable, 'schema' | 'table'>): string => qualified(schema, table)

/** `row."name"`; without a row, `"name"`. */
export const field = (row: string, name: string): string => (row === '' ? quote(name) : `${row}.${quote(name)}`)

/** The text that is hashed. A column that is NULL leaves out its prefix too. */
export function composed({ text }: Pick<TextTable, 'text'>, row: string, concatenation = ' || '): string {
  const [first] = text
  if (text.length === 1 && first?.prefix === '') return `${field(row, first.name)}::pg_catalog.text`
  return text
    .map(({ name, prefix }) => {
      const value = `${field(row, name)}::pg_catalog.text`
      return `coalesce(${prefix === '' ? value : `'${prefix.replaceAll("'", "''")}' || ${value}`}, '')`
    })
    .join(concatenation)
}

/** The same in JavaScript, of the columns' values. */
export function composedText({ text }: Pick<TextTable, 'text'>, values: readonly (string | null)[]): string {
  return values.map((value, index) => (value === null ? '' : `${text[index]?.prefix ?? ''}${value}`)).join('')
}

export const hashOf = (table: Pick<TextTable, 'text' | 'digest'>, row: string, concatenation?: string): string =>
  table.digest.sql(composed(table, row, concatenation))

/** All text columns NULL: a row without a text, outside every chain. */
export function textIsNull(table: Pick<TextTable, 'text'>, row: string): string[] {
  return table.text.map(({ name }) => `${field(row, name)} IS NULL`)
}

/**
 * Equality column by column, NULL equal to NULL. COLLATE "C" because a nondeterministic collation calls different
 * texts equal, which would merge them.
 */
export function sameText({ text }: TextTable, left: string, right: string): string[] {
  return text.map(({ name }) => compareTexts(name, left, 'IS NOT DISTINCT FROM', right))
}

/** The text columns that differ, one predicate each; for an OR. */
export function differentText({ text }: TextTable, left: string, right: string): string[] {
  return text.map(({ name }) => compareTexts(name, left, 'IS DISTINCT FROM', right))
}

function compareTexts(name: string, left: string, comparison: string, right: string): string {
  const text = (row: string): string => `${field(row, name)}::pg_catalog.text COLLATE "C"`
  return `${text(left)} ${comparison} ${text(right)}`
}

/** The unique index's own operator on every scope column; the scope is NOT NULL, so `=` is enough and indexable. */
export function sameScope({ scope }: TextTable, left: string, right: string): string[] {
  return scope.map((name) => `${field(left, name)} OPERATOR(pg_catalog.=) ${field(right, name)}`)
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
  return [
    ...sameScope(table, left, right),
    `${field(left, table.hash)} OPERATOR(pg_catalog.=) ${field(right, table.hash)}`,
  ]
}

/** The scope's columns that differ, one predicate each; for an OR. */
export function differentScope({ scope }: Pick<TextTable, 'scope'>, left: string, right: string): string[] {
  return scope.map((name) => `${field(left, name)} IS DISTINCT FROM ${field(right, name)}`)
}

/** The columns that lead to another chain where they differ, one predicate each; for an OR. */
export function differentChain(table: TextTable, left: string, right: string): string[] {
  const { hash } = table
  return [...differentScope(table, left, right), `${field(left, hash)} IS DISTINCT FROM ${field(right, hash)}`]
}

/** What the check holds a row to; it is what fails safe when another trigger changes the text after ours. */
export function checkExpression(table: Omit<TextRows, 'check'>): string {
  const hash = quote(table.hash)
  const honest = `${hash} = ${hashOf(table, '')}`
  const positive = `${quote(table.number)} >= 0`
  if (!table.nullable) return `${honest} AND ${positive}`
  const textless = textIsNull(table, '').join(' AND ')
  const without = `${textless} AND ${hash} IS NULL`
  return `(${without} OR NOT (${textless}) AND ${hash} IS NOT NULL AND ${honest}) AND ${positive}`
}
