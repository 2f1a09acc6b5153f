import { list, literal, quote, unnest } from './identifier'
import { refuse } from './library'
import { SQLSTATE } from './sqlstate'
import { equal, EQUALS, field, op, type TableName, tableName } from './text-table'

/** Refuses rows that hold NULL in a column that is about to be NOT NULL, and names them. */
export const raiseIfNulls = (table: TableName, column: string): string =>
  refuse(
    table,
    'rows',
    `${quote(column)} IS NULL`,
    SQLSTATE.notNullViolation,
    `rows of table ${quote(table.table)} hold NULL in ${quote(column)}. ` +
      `Give them a value or delete them, then run this again.`,
  )

/** A column whose texts were normalized in another way than the one that is declared now. */
export interface Renormalized {
  readonly column: string
  /** `name@version`. */
  readonly from: string
  readonly to: string
}

/** The text by which a statement marks work that needs JavaScript. */
export const NORMALIZE_BY_HAND = 'SQL cannot normalize them'

/** Fails outside of a transaction (25P01), where a later failure would leave the table without its guard. */
export const REQUIRE_TRANSACTION: readonly string[] = [
  `-- This migration takes the guard away meanwhile, so it must run in a transaction.\nSAVEPOINT unique_text`,
  'RELEASE SAVEPOINT unique_text',
]

/**
 * Refuses rows whose texts another normalizer made, because SQL cannot normalize as JavaScript does. find-or-create
 * does not find a text that is not normalized, and stores it again. The SQL begins with its replacement.
 *
 * @param name the name of the entity's class
 */
export function raiseIfUnnormalized(table: TableName, name: string, { column, from, to }: Renormalized): string {
  const call = `await normalizeTexts(queryRunner, ${/^\w+$/.test(name) ? name : JSON.stringify(name)})`
  const refusal = refuse(
    table,
    'rows',
    `${quote(column)} IS NOT NULL`,
    SQLSTATE.wrongState,
    `column ${quote(column)} of table ${quote(table.table)} has texts normalized by ${from}, not yet by ${to}. ` +
      `${NORMALIZE_BY_HAND}: in the migration, replace this statement by ${call} (docs/changing-a-declaration.md).`,
  )
  return `-- Replace this statement by:  ${call}  of the package typeorm-unique-text\n${refusal}`
}

/** A table with texts, and with the columns of its primary key as they are stored. */
interface StoredTable extends TableName {
  readonly primary: readonly StoredColumn[]
  readonly texts: readonly string[]
}

/** A column of a table in the database, with its type as SQL. */
export interface StoredColumn {
  readonly name: string
  readonly type: string
}

/** Selects the columns that a table has in the database. A missing table has none. */
export const storedColumns = (table: TableName): string =>
  `SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid ${EQUALS} pg_catalog.to_regclass(${literal(tableName(table))})
  AND a.attnum ${op('>')} 0 AND NOT a.attisdropped`

const CURSOR = 'unique_text_rows'

/**
 * Returns the statements that read all rows in batches. Each row has its table and its primary key as texts, and its
 * texts. The cursor outlasts its transaction, because a migration may have none.
 */
export function readStoredTexts(
  { primary, texts, ...table }: StoredTable,
  rows: number,
): { readonly open: string; readonly next: string; readonly close: string } {
  const keys = ['t.tableoid', ...primary.map(({ name }) => field('t', name))].map((one) => `${one}::pg_catalog.text`)
  const values = texts.map((name) => `${field('t', name)}::pg_catalog.text`)
  return {
    open: `DECLARE ${CURSOR} CURSOR WITH HOLD FOR
SELECT ARRAY[${list(keys, 2)}] AS keys,
  ARRAY[${list(values, 2)}]::pg_catalog.text[] AS texts
FROM ${tableName(table)} AS t`,
    next: `FETCH ${rows} FROM ${CURSOR}`,
    close: `CLOSE ${CURSOR}`,
  }
}

/** Writes the texts of some rows. The parameters are arrays of what `readStoredTexts` reads, one for each column. */
export function writeStoredTexts({ primary, texts, ...table }: StoredTable): string {
  const columns = [...primary.map((_, index) => `key_${index}`), ...texts.map((_, index) => `text_${index}`)]
  const arrays = ['part', ...columns].map((_, index) => `$${index + 1}::pg_catalog.text[]`)
  const same = primary.map(({ name, type }, index) => equal(field('t', name), `n.key_${index}::${type}`))
  return `UPDATE ${tableName(table)} AS t
SET ${list(
    texts.map((name, index) => `${quote(name)} = n.text_${index}`),
    2,
  )}
FROM ${unnest(arrays)} AS n (${['part', ...columns].join(', ')})
WHERE ${[equal('t.tableoid', 'n.part::pg_catalog.oid'), ...same].join('\n  AND ')}`
}

/** @param what the entity and the property that are adopted */
export const adoptInstead = (what: { readonly entity: string; readonly property: string }): string => {
  const command = `npx typeorm-unique-text adopt -d ormconfig.ts --entity ${what.entity}.${what.property}`
  return (
    `Run ${literal(`${command} --fake NAME`)} with the name of this migration: it does the same while others use the ` +
    `table, and marks this migration alone as run. First move its other statements into another migration.`
  )
}

/**
 * Refuses a large table at the start of a migration that works on every row, because that locks everybody out.
 *
 * @param gives the values that the rows get
 * @param online the alternative while others use the table, as a sentence. Only texts have one
 */
export const raiseIfLarge = (table: TableName, gives: 'hashes' | 'names' | 'numbers', online?: string): string =>
  refuse(table, 'large', gives, online === undefined ? '' : `${online} `)

/** Whether a statement is `raiseIfLarge`'s, which changes nothing. */
export const isRefusalOfLarge = (query: string): boolean => /^SELECT .*"unique_text_refuse_large_v1"\(/.test(query)
