import { type AdoptedTable, type Held, workOf } from './adopt-table'
import { merges, type Reference } from './adopt-merge'
import { literal, qualified, quote } from './identifier'
import { field } from './text-table'

/** A table whose rows are known by their primary key. */
export interface KeyedTable {
  readonly oid: string
  readonly schema: string
  readonly table: string
  readonly primary: readonly string[]
  /** Of the columns of the primary key, as SQL. */
  readonly types: readonly string[]
  /** Its unique indexes of plain columns, on all rows. */
  readonly indexes: readonly { readonly name: string; readonly columns: readonly string[] }[]
}

const COLUMNS = (what: string, keys: string): string =>
  `(SELECT coalesce(pg_catalog.jsonb_agg(${what} ORDER BY k.i), '[]') FROM pg_catalog.unnest(${keys}) WITH ORDINALITY AS k (n, i)
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.=) k.n)`

/** $1 is the table's name as SQL. */
export const READ_KEYED: string = `SELECT pg_catalog.jsonb_build_object('oid', c.oid::pg_catalog.text, 'schema', n.nspname, 'table', c.relname,
    'primary', ${COLUMNS('a.attname', 'p.conkey')},
    'types', ${COLUMNS('pg_catalog.format_type(a.atttypid, a.atttypmod)', 'p.conkey')},
    'indexes', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', r.relname,
        'columns', ${COLUMNS('a.attname', '(i.indkey::smallint[])[0:i.indnkeyatts OPERATOR(pg_catalog.-) 1]')})), '[]')
      FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) i.indexrelid
     WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL))::pg_catalog.text AS found
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  LEFT JOIN pg_catalog.pg_constraint AS p ON p.conrelid OPERATOR(pg_catalog.=) c.oid AND p.contype OPERATOR(pg_catalog.=) 'p'
 WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

const nameOf = ({ schema, table }: Pick<KeyedTable, 'schema' | 'table'>): string => qualified(schema, table)

/** The row of a key that is given as text[]. */
const isRow = ({ primary, types }: KeyedTable, row: string, key: string): string =>
  primary
    .map(
      (name, index) =>
        `${field(row, name)} OPERATOR(pg_catalog.=) (${key}::pg_catalog.text[])[${index + 1}]::${types[index]}`,
    )
    .join(' AND ')

const keyArray = (primary: readonly string[], row: string): string =>
  `ARRAY[${primary.map((name) => `${field(row, name)}::pg_catalog.text`).join(', ')}]`

/** The keys of the row that goes and of the one that stays, of the place $1. */
export const readPair = (on: AdoptedTable): string => {
  const key = (letter: string): string =>
    `ARRAY[${on.primary.map((_, index) => `w.${letter}${index}::pg_catalog.text`).join(', ')}]`
  return `SELECT ${key('k')} AS old, ${key('p')} AS kept FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) $1::pg_catalog.int8`
}

const refers = (reference: Reference, row: string, to: string): string =>
  reference.columns
    .map((name, index) => `${field(row, name)} OPERATOR(pg_catalog.=) ${field(to, reference.referenced[index] ?? '')}`)
    .join(' AND ')

/**
 * Rows that refer to the row $1 and would clash with another one if they referred to $2, with that one, both locked; and
 * whether they differ in nothing but key and reference.
 */
export function findConflicts(
  parent: KeyedTable,
  reference: Reference,
  child: KeyedTable,
  columns: readonly string[],
): string {
  const clash = columns.map((name) => {
    const at = reference.columns.indexOf(name)
    const value = at === -1 ? field('r', name) : field('t', reference.referenced[at] ?? '')
    return `${field('o', name)} OPERATOR(pg_catalog.=) ${value}`
  })
  const ignored = `ARRAY[${[...child.primary, ...reference.columns].map((name) => literal(name)).join(', ')}]::pg_catalog.text[]`
  const rest = (row: string): string => `(pg_catalog.to_jsonb(${row}) OPERATOR(pg_catalog.-) ${ignored})`
  return `SELECT ${keyArray(child.primary, 'r')} AS old, ${keyArray(child.primary, 'o')} AS kept,
       ${rest('r')} OPERATOR(pg_catalog.=) ${rest('o')} AS same
  FROM ${nameOf(parent)} AS l JOIN ${nameOf(parent)} AS t ON ${isRow(parent, 't', '$2')}
  JOIN ${nameOf(child)} AS r ON ${refers(reference, 'r', 'l')}
  JOIN ${nameOf(child)} AS o ON ${clash.join(' AND ')}
 WHERE ${isRow(parent, 'l', '$1')} FOR UPDATE OF r, o`
}

/** Whether the row $2 refers to the row $1. */
export const refersItself = (table: KeyedTable, reference: Reference): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM ${nameOf(table)} AS l JOIN ${nameOf(table)} AS t ON ${isRow(table, 't', '$2')} ` +
  `WHERE ${isRow(table, 'l', '$1')} AND ${refers(reference, 't', 'l')}`

/** Turns references to the row $1 to the row $2; $3 is the text, $4 the reference, for the log. */
export function turn(on: Held, parent: KeyedTable, reference: Reference): string {
  const set = reference.columns.map(
    (name, index) => `${quote(name)} = ${field('t', reference.referenced[index] ?? '')}`,
  )
  const key = reference.primary.map((name) => `${literal(name)}::pg_catalog.text, ${field('r', name)}`).join(', ')
  return `WITH u AS (UPDATE ${qualified(reference.schema, reference.table)} AS r SET ${set.join(', ')}
    FROM ${nameOf(parent)} AS l JOIN ${nameOf(parent)} AS t ON ${isRow(parent, 't', '$2')}
   WHERE ${isRow(parent, 'l', '$1')} AND ${refers(reference, 'r', 'l')} RETURNING pg_catalog.jsonb_build_object(${key}) AS key)
INSERT INTO ${merges(on)} (guard, old, kept, reference, data)
SELECT $3::pg_catalog.text, $1::pg_catalog.text[], $2::pg_catalog.text[], $4::pg_catalog.jsonb, u.key FROM u`
}

/** Keeps the row $1 whole and deletes it; $2 is the one that stays, $3 the text, $4 the table, for the log. */
export const logAndDelete = (on: Held, table: KeyedTable): string[] => [
  `INSERT INTO ${merges(on)} (guard, old, kept, reference, data)
SELECT $3::pg_catalog.text, $1::pg_catalog.text[], $2::pg_catalog.text[], $4::pg_catalog.jsonb, pg_catalog.to_jsonb(r)
  FROM ${nameOf(table)} AS r WHERE ${isRow(table, 'r', '$1')}`,
  `DELETE FROM ${nameOf(table)} AS r WHERE ${isRow(table, 'r', '$1')}`,
]
