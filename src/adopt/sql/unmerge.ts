import { literal, quote } from '../../sql/identifier'
import { alike, field, tableName } from '../../sql/text-table'
import {
  type LoggedChange,
  namesOfColumns,
  holds,
  identifyingColumns,
  keysTable,
  type MergedTable,
  merges,
  shown,
  shownRow,
  type WritableColumn,
} from './merge'
import type { Held } from './table'

/**
 * Selects the newest merged rows before the place $2 of the log, at most $3. $1 is the text, and $4 the key of the only
 * wanted row, or NULL. Each has the names of its columns, and whether the row that it became was merged later.
 */
export const readMerged = (on: Held): string => `SELECT m.seq::pg_catalog.text AS seq, m.old, m.kept,
       ARRAY(SELECT pg_catalog.jsonb_object_keys(m.data)) AS columns,
       EXISTS (SELECT FROM ${merges(on)} AS n WHERE n.guard OPERATOR(pg_catalog.=) m.guard AND n.old OPERATOR(pg_catalog.=) m.kept
         AND n.change IS NULL AND n.seq OPERATOR(pg_catalog.>) m.seq) AS later
  FROM ${merges(on)} AS m
 WHERE m.change IS NULL AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.seq OPERATOR(pg_catalog.<) $2::pg_catalog.int8
   AND coalesce(m.old OPERATOR(pg_catalog.=) $4::pg_catalog.text[], true)
 ORDER BY m.seq DESC LIMIT $3::pg_catalog.int8`

/** Selects the other changes of the merges of the rows at the places $2, the last first. $1 is the text. */
export const readLogged = (on: Held): string => `WITH r AS MATERIALIZED (SELECT r.seq, r.guard, r.old
    FROM ${merges(on)} AS r WHERE r.seq OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int8[])),
m AS MATERIALIZED (SELECT m.seq, m.change, m.data, r.seq AS of, r.guard, r.old
    FROM r JOIN ${merges(on)} AS m ON m.guard OPERATOR(pg_catalog.=) r.guard AND m.old OPERATOR(pg_catalog.=) r.old
   WHERE m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.change IS NOT NULL
     AND (m.seq OPERATOR(pg_catalog.>) r.seq) OPERATOR(pg_catalog.=) pg_catalog.jsonb_exists(m.change, 'set'))
SELECT m.seq::pg_catalog.text AS seq, m.change::pg_catalog.text AS change, m.data::pg_catalog.text AS data FROM m
 WHERE NOT EXISTS (SELECT FROM ${merges(on)} AS b
   WHERE b.guard OPERATOR(pg_catalog.=) m.guard AND b.old OPERATOR(pg_catalog.=) m.old AND b.change IS NULL
     AND (b.seq OPERATOR(pg_catalog.>) m.seq AND b.seq OPERATOR(pg_catalog.<) m.of
       OR b.seq OPERATOR(pg_catalog.>) m.of AND b.seq OPERATOR(pg_catalog.<) m.seq))
 ORDER BY m.seq DESC`

/** The record of a table that JSON of the log holds. `valueOf` reads its columns of JSON separately. */
function loggedRecord(table: MergedTable, json: string): string {
  const ofJson = table.columns.flatMap(({ name, json: type }) => (type === null ? [] : [literal(name)]))
  const others =
    ofJson.length === 0 ? json : `${json} OPERATOR(pg_catalog.-) ARRAY[${ofJson.join(', ')}]::pg_catalog.text[]`
  return `pg_catalog.jsonb_populate_record(NULL::${tableName(table)}, ${others})`
}

const valueOf = (record: string, json: string, { name, json: type }: WritableColumn): string =>
  type === null
    ? field(record, name)
    : `(${json} OPERATOR(pg_catalog.->>) ${literal(name)}::pg_catalog.text)::pg_catalog.${type}`

/** Restores the rows that the log holds at the places $1, the last first. Columns that are not logged get defaults. */
export function putBack(on: Held, table: MergedTable, logged: ReadonlySet<string>): string {
  const columns = table.columns.filter(({ name }) => logged.has(name))
  return `INSERT INTO ${tableName(table)} (${columns.map(({ name }) => quote(name)).join(', ')}) OVERRIDING SYSTEM VALUE
SELECT ${columns.map((one) => valueOf('v', 'm.data', one)).join(', ')}
  FROM ${merges(on)} AS m CROSS JOIN LATERAL ${loggedRecord(table, 'm.data')} AS v
 WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) ORDER BY m.seq DESC`
}

/** Selects the places among $1 whose rows differ from the log. */
export function findAltered(on: Held, table: MergedTable, logged: ReadonlySet<string>): string {
  const names = namesOfColumns(table).filter((name) => logged.has(name))
  const same = table.primary.map((name) => `${field('t', name)} OPERATOR(pg_catalog.=) ${field('v', name)}`)
  return `SELECT m.seq::pg_catalog.text AS seq FROM ${merges(on)} AS m CROSS JOIN LATERAL ${loggedRecord(table, 'm.data')} AS v
  LEFT JOIN ${tableName(table)} AS t ON ${same.join(' AND ')}
 WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])
   AND coalesce(${shownRow('t', names)} OPERATOR(pg_catalog.<>) m.data, true)`
}

/**
 * Restores the values that the log holds at the places $1, if the merge's values are still there. Returns the places of
 * the restored values. All values together identify a row without a primary key, so such rows take one place at a time.
 */
export function turnBack(on: Held, table: MergedTable, change: LoggedChange): string {
  const columns = table.columns.filter(({ name }) => change.columns?.includes(name))
  const json = { key: part('key'), was: part('was'), made: part('made') }
  const set = columns.map((one) => `${quote(one.name)} = ${valueOf('w', json.was, one)}`).join(', ')
  const same = (record: string, names: readonly string[]): string[] =>
    names.map((name) => `${field('r', name)} OPERATOR(pg_catalog.=) ${field(record, name)}`)
  const still = columns.map(({ name }) => {
    const made = `${json.made} OPERATOR(pg_catalog.->>) ${literal(name)}::pg_catalog.text`
    return alike(`(${shown(field('r', name))})`, `(${made})`)
  })
  const isRow =
    table.primary.length > 0
      ? [...same('k', table.primary), ...still, ...holds(change, 'r')]
      : [
          `ROW(r.tableoid, r.ctid) OPERATOR(pg_catalog.=) (SELECT x.tableoid, x.ctid FROM ${tableName(table)} AS x
      WHERE ${columns.map(({ name }) => `${field('x', name)} OPERATOR(pg_catalog.=) ${field('d', name)}`).join(' AND ')}
        AND ${shownRow('x', identifyingColumns(table))} OPERATOR(pg_catalog.@>) (${json.key}) LIMIT 1)`,
        ]
  return `WITH u AS (UPDATE ${tableName(table)} AS r SET ${set} FROM ${merges(on)} AS m
  CROSS JOIN LATERAL ${loggedRecord(table, json.key)} AS k
  CROSS JOIN LATERAL ${loggedRecord(table, json.was)} AS w
  CROSS JOIN LATERAL ${loggedRecord(table, json.made)} AS d
 WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${isRow.join(' AND ')}
RETURNING m.seq)
SELECT u.seq::pg_catalog.text AS seq FROM u`
}

const part = (name: 'key' | 'was' | 'made'): string =>
  `(m.data OPERATOR(pg_catalog.->) ${literal(name)}::pg_catalog.text)`

/** Deletes the entries of the log at the places $1. */
export const forgetEntries = (on: Held): string =>
  `DELETE FROM ${merges(on)} AS m WHERE m.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`

/** Gives the rows at the places $1 their keys again. Rows that were merged into them before resolve to them again. */
export const forgetKeys = (on: Held): readonly string[] => [
  `WITH a AS MATERIALIZED (SELECT a.old, b.old AS own, b.kept FROM ${merges(on)} AS b JOIN ${merges(on)} AS a
      ON a.guard OPERATOR(pg_catalog.=) b.guard AND a.kept OPERATOR(pg_catalog.=) b.old AND a.change IS NULL
   WHERE b.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]))
UPDATE ${keysTable(on)} AS n SET kept = a.own FROM a WHERE n.old OPERATOR(pg_catalog.=) a.old AND n.kept OPERATOR(pg_catalog.=) a.kept`,
  `DELETE FROM ${keysTable(on)} AS n USING ${merges(on)} AS b
 WHERE b.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND n.old OPERATOR(pg_catalog.=) b.old`,
]
