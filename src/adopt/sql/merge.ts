import type { Query } from '../../sql/catalog'
import { literal, qualified, quote } from '../../sql/identifier'
import { field, isLive, tableName } from '../../sql/text-table'
import { isTrustedBy } from '../../sql/trigger-set'
import { type AdoptedTable, type Held, own, ownAlone, refusePlanted, workOf } from './table'
import { isOfChain, samePrimary } from './texts'

/** Columns of a table by which its rows refer to another one. */
export interface Reference {
  readonly schema: string
  readonly table: string
  /** In the order of those that they refer to. */
  readonly columns: readonly string[]
  readonly referenced: readonly string[]
  /** Primary key of the referring table; empty if it has none. */
  readonly primary: readonly string[]
  /** The table refers to itself. */
  readonly own: boolean
  /** The table that is referred to, in the log; undefined: the adopted one. */
  readonly parent?: Parent | undefined
}

/** A table that is referred to, with its primary key. */
interface Parent {
  readonly schema: string
  readonly table: string
  readonly primary: readonly string[]
}

/** What one entry of the log says beside the rows that went: a reference that was turned, or what befell another row. */
export type Logged =
  | Reference
  /** A row of another table that went, since it clashed with one that stayed. */
  | (Parent & { readonly gone: true })
  /** Columns of the row that stayed were given other values; the data holds what they were. */
  | (Parent & { readonly set: readonly string[] })

/**
 * By the catalog: composite ones too, of whatever action; a partition's is its parent's. Where its owner may not act as
 * the owner of the table, triggers on the referring table would run as the role that merges: `refuse` throws.
 */
export async function referencesTo(
  query: Query,
  oid: string,
  refuse: (referring: string) => never,
): Promise<Reference[]> {
  const names = (table: string, columns: string): string =>
    `(SELECT pg_catalog.jsonb_agg(a.attname ORDER BY k.i) FROM pg_catalog.unnest(${columns}) WITH ORDINALITY AS k (n, i)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) ${table} AND a.attnum OPERATOR(pg_catalog.=) k.n)`
  const [row] = (await query(
    `SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
        'schema', n.nspname, 'table', r.relname, 'trusted', ${isTrustedBy('r', 't')}, 'own', c.conrelid OPERATOR(pg_catalog.=) c.confrelid,
        'columns', ${names('c.conrelid', 'c.conkey')}, 'referenced', ${names('c.confrelid', 'c.confkey')},
        'primary', coalesce((SELECT ${names('p.conrelid', 'p.conkey')} FROM pg_catalog.pg_constraint AS p
                              WHERE p.conrelid OPERATOR(pg_catalog.=) c.conrelid AND p.contype OPERATOR(pg_catalog.=) 'p'), '[]')) ORDER BY c.oid), '[]')::pg_catalog.text AS found
       FROM pg_catalog.pg_constraint AS c
       JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) c.confrelid
       JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.conrelid
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
      WHERE c.confrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND c.contype OPERATOR(pg_catalog.=) 'f' AND c.conparentid OPERATOR(pg_catalog.=) 0`,
    [oid],
  )) as readonly { found: string }[]
  const found = JSON.parse(row?.found ?? '[]') as (Reference & { readonly trusted: boolean })[]
  return found.map(({ trusted, ...reference }) => (trusted ? reference : refuse(referring(reference))))
}

/** The primary key of a table named as SQL, for a reference that has no foreign key. */
export const READ_PRIMARY: string = `SELECT a.attname AS name FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND a.attnum OPERATOR(pg_catalog.=) ANY (i.indkey)
 WHERE i.indrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND i.indisprimary`

/** Parameters: a qualified table, a column. */
export const FIND_COLUMN: string = `SELECT a.attnum FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND a.attname OPERATOR(pg_catalog.=) $2::pg_catalog.text AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped`

/** Parameter: a table, with its schema or without. */
export const FIND_TABLE: string = `SELECT c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')
   AND $1::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[c.relname, pg_catalog.concat(n.nspname, '.', c.relname)]) LIMIT 1`

/** The log of merges. */
export const MERGES = 'unique_text_merges'

const merges = ({ table }: Held): string => qualified(table.schema, MERGES)

/** Which row took the place of which: rows that are gone, whole, and every reference that was turned to another one. */
export const createLog = (on: AdoptedTable): string[] => [
  `CREATE TABLE IF NOT EXISTS ${merges(on)} (seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
    `guard pg_catalog.text NOT NULL, old pg_catalog.text[] NOT NULL, kept pg_catalog.text[] NOT NULL, ` +
    `reference pg_catalog.jsonb, data pg_catalog.jsonb NOT NULL)`,
  refusePlanted(on, MERGES),
  `CREATE INDEX IF NOT EXISTS unique_text_merges_old ON ${merges(on)} (guard, old) WHERE reference IS NULL`,
  ...ownAlone(on, [merges(on)], 'readable'),
]

export const forgetLog = (on: Held): string =>
  `DELETE FROM ${merges(on)} AS m WHERE m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/**
 * Finds the rows to delete (`k0`, …), each with the row that stays (`p0`, …), in the order of `place`.
 *
 * @param deleteDate a row that is deleted softly is kept last
 */
export function findSurplus(on: AdoptedTable, keep: 'oldest' | 'newest', deleteDate: string | undefined): string[] {
  const { table, primary } = on
  const keys = primary.map((name) => field('t', name))
  const by = [
    ...table.scope.map((name) => field('t', name)),
    ...table.text.map(({ name }) => `${field('t', name)}::pg_catalog.text COLLATE pg_catalog."C"`),
  ].join(', ')
  const order = [
    ...(deleteDate === undefined ? [] : [`${field('t', deleteDate)} IS NOT NULL`]),
    ...keys.map((key) => (keep === 'oldest' ? key : `${key} DESC`)),
  ].join(', ')
  const chain = [
    ...table.scope.map((name, index) => `${field('t', name)} AS s${index}`),
    `${field('t', table.hash)} AS hash`,
  ]
  const kept = keys.map((key, index) => `pg_catalog.first_value(${key}) OVER w AS p${index}`).join(', ')
  return [
    `DROP TABLE IF EXISTS ${workOf(on)}`,
    `CREATE TABLE ${workOf(on)} AS
WITH c AS MATERIALIZED (SELECT ${chain.join(', ')} FROM ${own(on)} WHERE ${[field('t', table.chained), ...isLive(table, 't')].join(' AND ')}),
r AS (SELECT ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${kept}, pg_catalog.row_number() OVER w AS rank, NULL::pg_catalog.jsonb AS data
        FROM c JOIN ${own(on)} ON ${isOfChain(on, 'c')} WINDOW w AS (PARTITION BY ${by} ORDER BY ${order}))
SELECT pg_catalog.row_number() OVER (ORDER BY ${primary.map((_, index) => `r.p${index}`).join(', ')}) AS place, r.*
  FROM r WHERE r.rank OPERATOR(pg_catalog.>) 1`,
    `ALTER TABLE ${workOf(on)} ADD PRIMARY KEY (place)`,
    ...ownAlone(on, [workOf(on)]),
    `ANALYZE ${workOf(on)}`,
  ]
}

/**
 * The next $2 groups after the place $1: places of those that are to go, and all rows of the group with their keys, in
 * the order of the key.
 */
export function readGroups(on: AdoptedTable): string {
  const names = (letter: string): string => on.primary.map((_, index) => `${letter}${index}`).join(', ')
  const key = keyArray(on.primary.map((name) => field('t', name)))
  const order = on.primary.map((name) => field('t', name)).join(', ')
  return `WITH g AS MATERIALIZED (
  SELECT ${names('w.p')}, pg_catalog.array_agg(w.place ORDER BY w.place) AS places FROM ${workOf(on)} AS w
   WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 GROUP BY ${names('w.p')} ORDER BY pg_catalog.min(w.place) LIMIT $2::pg_catalog.int8),
m AS (SELECT g.places, ${on.primary.map((_, index) => `g.p${index} AS k${index}`).join(', ')} FROM g
  UNION ALL SELECT g.places, ${names('w.k')} FROM g JOIN ${workOf(on)} AS w ON w.place OPERATOR(pg_catalog.=) ANY (g.places))
SELECT pg_catalog.to_jsonb(m.places)::pg_catalog.text AS places, pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t) ORDER BY ${order})::pg_catalog.text AS rows,
       pg_catalog.jsonb_agg(pg_catalog.to_jsonb(${key}) ORDER BY ${order})::pg_catalog.text AS keys
  FROM m JOIN ${own(on)} ON ${samePrimary(on, 'm')} GROUP BY m.places ORDER BY m.places`
}

/** At the places $1 the rows of the keys $2 go, the one of the key $3 stays and gets the values $4. */
export function decideGroup(on: AdoptedTable, types: readonly string[]): string {
  const set = types.flatMap((type, index) => [
    `k${index} = ($2::pg_catalog.jsonb OPERATOR(pg_catalog.->) (v.n OPERATOR(pg_catalog.-) 1)::pg_catalog.int4 OPERATOR(pg_catalog.->>) ${index})::${type}`,
    `p${index} = ($3::pg_catalog.text[])[${index + 1}]::${type}`,
  ])
  return `UPDATE ${workOf(on)} AS w SET ${set.join(', ')}, data = $4::pg_catalog.jsonb
  FROM pg_catalog.unnest($1::pg_catalog.int8[]) WITH ORDINALITY AS v (place, n) WHERE w.place OPERATOR(pg_catalog.=) v.place`
}

/** The columns that get values at the places $1. */
export const readSets = (on: Held): string =>
  `SELECT w.place::pg_catalog.text AS place, w.data::pg_catalog.text AS data FROM ${workOf(on)} AS w ` +
  `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND w.data IS NOT NULL`

/** Logs the values that the row that stays has, at the place $1, and gives it the others; $2 is the text. */
export function setValues(on: AdoptedTable, columns: readonly string[]): string[] {
  const kept = on.primary.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) w.p${index}`).join(' AND ')
  const at = `w.place OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND ${kept}`
  const { schema, table } = on.table
  const logged = literal(JSON.stringify({ schema, table, primary: on.primary, set: columns }))
  return [
    `INSERT INTO ${merges(on)} (guard, old, kept, reference, data) SELECT $2::pg_catalog.text, ${places(on, 'k')}, ${places(on, 'p')}, ` +
      `${logged}::pg_catalog.jsonb, pg_catalog.to_jsonb(t) FROM ${workOf(on)} AS w JOIN ${own(on)} ON ${at}`,
    `UPDATE ${own(on)} SET ${columns.map((name) => `${quote(name)} = v.${quote(name)}`).join(', ')} FROM ${workOf(on)} AS w ` +
      `CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::${tableName(on.table)}, w.data) AS v WHERE ${at}`,
  ]
}

export const readPlaces = (on: Held): string =>
  `SELECT w.place::pg_catalog.text AS place FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ` +
  `ORDER BY w.place LIMIT $2::pg_catalog.int8`

/** The places $1 with the row that goes as `l` and the one that stays as `t`. */
function pairs(on: AdoptedTable): string {
  const lost = on.primary.map((name, index) => `${field('l', name)} OPERATOR(pg_catalog.=) w.k${index}`).join(' AND ')
  const kept = on.primary.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) w.p${index}`).join(' AND ')
  return (
    `${workOf(on)} AS w JOIN ONLY ${tableName(on.table)} AS l ON ${lost} JOIN ${own(on)} ON ${kept} ` +
    `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`
  )
}

/** Both rows still have one text, in one scope. */
function equalPairs(on: AdoptedTable): string {
  const { table } = on
  const same = table.text.map(({ name }) => {
    const [left, right] = [field('l', name), field('t', name)]
    const text = (one: string): string => `${one}::pg_catalog.text COLLATE pg_catalog."C"`
    return `coalesce(${text(left)} OPERATOR(pg_catalog.=) ${text(right)}, ${left} IS NULL AND ${right} IS NULL)`
  })
  const scope = [...table.scope, table.hash].map(
    (name) => `${field('l', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  return `${pairs(on)} AND ${[...same, ...scope, ...isLive(table, 'l'), ...isLive(table, 't')].join(' AND ')}`
}

/** Places among $1 whose rows are still duplicates. */
export const seePairs = (on: AdoptedTable): string => `SELECT w.place::pg_catalog.text AS place FROM ${equalPairs(on)}`

/**
 * Places among $1 whose rows are still duplicates, with both rows locked, so that no new reference to them can
 * appear. Pairs of which others have locked a row are left out.
 */
export const lockPairs = (on: AdoptedTable): string => `${seePairs(on)} FOR UPDATE OF l, t SKIP LOCKED`

export const dropPlaces = (on: Held): string =>
  `DELETE FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`

/** The keys of the places $1: of the row that goes, and of the one that stays. */
export const readKeys = ({ primary, ...on }: AdoptedTable): string => {
  const key = (letter: string): string =>
    `pg_catalog.jsonb_build_object(${primary.map((name, index) => `${literal(name)}::pg_catalog.text, w.${letter}${index}`).join(', ')})`
  return (
    `SELECT ${key('k')}::pg_catalog.text AS row, ${key('p')}::pg_catalog.text AS kept FROM ${workOf(on)} AS w ` +
    `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`
  )
}

const keyArray = (columns: readonly string[]): string =>
  `ARRAY[${columns.map((one) => `${one}::pg_catalog.text`).join(', ')}]`

const places = (on: AdoptedTable, letter: string): string =>
  keyArray(on.primary.map((_, index) => `w.${letter}${index}`))

/** Keeps the rows that go, whole; $2 is the text. */
export const logRows = (on: AdoptedTable): string =>
  `INSERT INTO ${merges(on)} (guard, old, kept, data) SELECT $2::pg_catalog.text, ${places(on, 'k')}, ${places(on, 'p')}, ` +
  `pg_catalog.to_jsonb(l) FROM ${pairs(on)}`

const referring = ({ schema, table }: Reference): string => qualified(schema, table)

const sameRow = (reference: Reference, row: string, of: string): string =>
  reference.columns
    .map((name, index) => `${field(row, name)} OPERATOR(pg_catalog.=) ${field(of, reference.referenced[index] ?? '')}`)
    .join(' AND ')

/** Places of which the row that stays refers to the one that goes: it would come to refer to itself. */
export const seeSelf = (on: AdoptedTable, reference: Reference): string =>
  `SELECT w.place::pg_catalog.text AS place FROM ${pairs(on)} AND ${sameRow(reference, 't', 'l')}`

/** Turns references to the rows that go to those that stay, and logs each by the key that its row has then. */
export function repoint(on: AdoptedTable, reference: Reference): string {
  const columns = reference.referenced.flatMap((name, index) => [
    `${field('l', name)} AS o${index}`,
    `${field('t', name)} AS n${index}`,
  ])
  const key = reference.primary.map((name) => `${literal(name)}::pg_catalog.text, ${field('r', name)}`).join(', ')
  const set = reference.columns.map((name, index) => `${quote(name)} = m.n${index}`).join(', ')
  const met = reference.columns
    .map((name, index) => `${field('r', name)} OPERATOR(pg_catalog.=) m.o${index}`)
    .join(' AND ')
  return `WITH m AS MATERIALIZED (
  SELECT ${places(on, 'k')} AS old, ${places(on, 'p')} AS kept, ${columns.join(', ')} FROM ${pairs(on)}),
u AS (UPDATE ${referring(reference)} AS r SET ${set} FROM m WHERE ${met}
  RETURNING m.old, m.kept, pg_catalog.jsonb_build_object(${key}) AS key)
INSERT INTO ${merges(on)} (guard, old, kept, reference, data)
SELECT $2::pg_catalog.text, u.old, u.kept, $3::pg_catalog.jsonb, u.key FROM u`
}

/** Whether anything still refers to a row that goes, and would go with it. */
export const stillReferring = (on: AdoptedTable, reference: Reference): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM (SELECT FROM ${referring(reference)} AS r, ${pairs(on)} AND ${sameRow(reference, 'r', 'l')} LIMIT 1) AS f`

export const deleteRows = (on: AdoptedTable): string =>
  `DELETE FROM ${own(on)} USING ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${samePrimary(on, 'w')}`

/** Rows that are alone again lose the flag, by which a later DELETE would look for others. The guard must not fire. */
export function clearFlags(on: AdoptedTable): string {
  const { table } = on
  const kept = on.primary.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) w.p${index}`).join(' AND ')
  const chain = [...table.scope, table.hash].map(
    (name) => `${field('o', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const others = [...chain, ...isLive(table, 'o'), `o.${quote(table.number)} OPERATOR(pg_catalog.<>) 0`].join(' AND ')
  return `UPDATE ${own(on)} SET ${quote(table.chained)} = false FROM ${workOf(on)} AS w
 WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${kept} AND t.${quote(table.number)} OPERATOR(pg_catalog.=) 0
   AND NOT EXISTS (SELECT FROM ONLY ${tableName(table)} AS o WHERE ${others})`
}

/** The row that the row of the key $2 became, after any number of merges; $1 is the text. */
export const resolveKey = (on: Held): string =>
  `WITH RECURSIVE r (kept, n) AS (
  SELECT m.kept, 1 FROM ${merges(on)} AS m WHERE m.reference IS NULL AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.old OPERATOR(pg_catalog.=) $2::pg_catalog.text[]
  UNION ALL
  SELECT m.kept, r.n OPERATOR(pg_catalog.+) 1 FROM r JOIN ${merges(on)} AS m ON m.old OPERATOR(pg_catalog.=) r.kept
   WHERE m.reference IS NULL AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND r.n OPERATOR(pg_catalog.<) 1000)
SELECT r.kept FROM r ORDER BY r.n DESC LIMIT 1`

/** Restores the rows that were deleted; columns that the table no longer has are left out. */
export const restoreRows = (on: AdoptedTable, columns: readonly string[]): string => {
  const list = columns.map(quote).join(', ')
  return (
    `INSERT INTO ${tableName(on.table)} (${list}) OVERRIDING SYSTEM VALUE SELECT ${columns.map((name) => field('r', name)).join(', ')} ` +
    `FROM ${merges(on)} AS m CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::${tableName(on.table)}, m.data) AS r ` +
    `WHERE m.reference IS NULL AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text ORDER BY m.seq`
  )
}

/** The references that were turned, the last one first. */
export const readMoves = (on: Held): string =>
  `SELECT m.seq::pg_catalog.text AS seq, m.reference::pg_catalog.text AS reference FROM ${merges(on)} AS m ` +
  `WHERE m.reference IS NOT NULL AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text ORDER BY m.seq DESC`

/**
 * Takes back what one entry says; $1 is its place in the log.
 *
 * @param columns of a row that comes back, those that may be written
 */
export function turnBack(on: AdoptedTable, logged: Logged, columns: readonly string[]): string {
  if ('gone' in logged) return putOneBack(on, logged, columns)
  if ('set' in logged) return setBack(on, logged)
  const set = logged.columns.map((name, index) => `${quote(name)} = ${field('t', logged.referenced[index] ?? '')}`)
  const parent = logged.parent ?? { ...on.table, primary: on.primary }
  const old = `${keyArray(parent.primary.map((name) => field('t', name)))} OPERATOR(pg_catalog.=) m.old`
  return `UPDATE ${referring(logged)} AS r SET ${set.join(', ')} FROM ${merges(on)} AS m JOIN ${qualified(parent.schema, parent.table)} AS t ON ${old}
 WHERE m.seq OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND ${isLogged(logged.primary)}`
}

/** The row `r` is that whose key the log has. */
const isLogged = (primary: readonly string[]): string =>
  primary
    .map(
      (name) =>
        `${field('r', name)}::pg_catalog.text OPERATOR(pg_catalog.=) (m.data OPERATOR(pg_catalog.->>) ${literal(name)}::pg_catalog.text)`,
    )
    .join(' AND ')

function putOneBack(on: Held, { schema, table }: Parent, columns: readonly string[]): string {
  const name = qualified(schema, table)
  const values = columns.map((one) => field('r', one)).join(', ')
  return `INSERT INTO ${name} (${columns.map(quote).join(', ')}) OVERRIDING SYSTEM VALUE SELECT ${values} FROM ${merges(on)} AS m
 CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::${name}, m.data) AS r WHERE m.seq OPERATOR(pg_catalog.=) $1::pg_catalog.int8`
}

function setBack(on: Held, { schema, table, primary, set }: Parent & { readonly set: readonly string[] }): string {
  const name = qualified(schema, table)
  return `UPDATE ${name} AS r SET ${set.map((one) => `${quote(one)} = v.${quote(one)}`).join(', ')} FROM ${merges(on)} AS m
 CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::${name}, m.data) AS v
 WHERE m.seq OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND ${isLogged(primary)}`
}

/** Of the table $1, an OID or a name as SQL: those that may be written, which generated ones are not. */
export const READ_COLUMNS: string = `SELECT a.attname AS name FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped AND a.attgenerated OPERATOR(pg_catalog.=) ''`

/** A table whose rows are known by their primary key. */
export interface MergedTable {
  readonly oid: string
  readonly schema: string
  readonly table: string
  readonly primary: readonly string[]
  /** Types of the columns of the primary key, as SQL. */
  readonly types: readonly string[]
  /** Its unique indexes of plain columns, on all rows. */
  readonly indexes: readonly { readonly name: string; readonly columns: readonly string[] }[]
}

const columnsInOrder = (what: string, keys: string): string =>
  `(SELECT coalesce(pg_catalog.jsonb_agg(${what} ORDER BY k.i), '[]') FROM pg_catalog.unnest(${keys}) WITH ORDINALITY AS k (n, i)
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.=) k.n)`

/** $1 is the table's name as SQL. */
export const READ_KEYED: string = `SELECT pg_catalog.jsonb_build_object('oid', c.oid::pg_catalog.text, 'schema', n.nspname, 'table', c.relname,
    'primary', ${columnsInOrder('a.attname', 'p.conkey')},
    'types', ${columnsInOrder('pg_catalog.format_type(a.atttypid, a.atttypmod)', 'p.conkey')},
    'indexes', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', r.relname,
        'columns', ${columnsInOrder('a.attname', '(i.indkey::smallint[])[0:i.indnkeyatts OPERATOR(pg_catalog.-) 1]')})), '[]')
      FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) i.indexrelid
     WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL))::pg_catalog.text AS found
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  LEFT JOIN pg_catalog.pg_constraint AS p ON p.conrelid OPERATOR(pg_catalog.=) c.oid AND p.contype OPERATOR(pg_catalog.=) 'p'
 WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/** The row of a key that is given as text[]. */
const isRow = ({ primary, types }: MergedTable, row: string, key: string): string =>
  primary
    .map(
      (name, index) =>
        `${field(row, name)} OPERATOR(pg_catalog.=) (${key}::pg_catalog.text[])[${index + 1}]::${types[index]}`,
    )
    .join(' AND ')

const keyArrayOf = (primary: readonly string[], row: string): string =>
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
  parent: MergedTable,
  reference: Reference,
  child: MergedTable,
  columns: readonly string[],
): string {
  const clash = columns.map((name) => {
    const at = reference.columns.indexOf(name)
    const value = at === -1 ? field('r', name) : field('t', reference.referenced[at] ?? '')
    return `${field('o', name)} OPERATOR(pg_catalog.=) ${value}`
  })
  const ignored = `ARRAY[${[...child.primary, ...reference.columns].map((name) => literal(name)).join(', ')}]::pg_catalog.text[]`
  const rest = (row: string): string => `(pg_catalog.to_jsonb(${row}) OPERATOR(pg_catalog.-) ${ignored})`
  return `SELECT ${keyArrayOf(child.primary, 'r')} AS old, ${keyArrayOf(child.primary, 'o')} AS kept,
       ${rest('r')} OPERATOR(pg_catalog.=) ${rest('o')} AS same
  FROM ${tableName(parent)} AS l JOIN ${tableName(parent)} AS t ON ${isRow(parent, 't', '$2')}
  JOIN ${tableName(child)} AS r ON ${refers(reference, 'r', 'l')}
  JOIN ${tableName(child)} AS o ON ${clash.join(' AND ')}
 WHERE ${isRow(parent, 'l', '$1')} FOR UPDATE OF r, o`
}

/** Whether the row $2 refers to the row $1. */
export const refersItself = (table: MergedTable, reference: Reference): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM ${tableName(table)} AS l JOIN ${tableName(table)} AS t ON ${isRow(table, 't', '$2')} ` +
  `WHERE ${isRow(table, 'l', '$1')} AND ${refers(reference, 't', 'l')}`

/** Turns references to the row $1 to the row $2; $3 is the text, $4 the reference, for the log. */
export function turn(on: Held, parent: MergedTable, reference: Reference): string {
  const set = reference.columns.map(
    (name, index) => `${quote(name)} = ${field('t', reference.referenced[index] ?? '')}`,
  )
  const key = reference.primary.map((name) => `${literal(name)}::pg_catalog.text, ${field('r', name)}`).join(', ')
  return `WITH u AS (UPDATE ${qualified(reference.schema, reference.table)} AS r SET ${set.join(', ')}
    FROM ${tableName(parent)} AS l JOIN ${tableName(parent)} AS t ON ${isRow(parent, 't', '$2')}
   WHERE ${isRow(parent, 'l', '$1')} AND ${refers(reference, 'r', 'l')} RETURNING pg_catalog.jsonb_build_object(${key}) AS key)
INSERT INTO ${merges(on)} (guard, old, kept, reference, data)
SELECT $3::pg_catalog.text, $1::pg_catalog.text[], $2::pg_catalog.text[], $4::pg_catalog.jsonb, u.key FROM u`
}

/** Keeps the row $1 whole and deletes it; $2 is the one that stays, $3 the text, $4 the table, for the log. */
export const logAndDelete = (on: Held, table: MergedTable): string[] => [
  `INSERT INTO ${merges(on)} (guard, old, kept, reference, data)
SELECT $3::pg_catalog.text, $1::pg_catalog.text[], $2::pg_catalog.text[], $4::pg_catalog.jsonb, pg_catalog.to_jsonb(r)
  FROM ${tableName(table)} AS r WHERE ${isRow(table, 'r', '$1')}`,
  `DELETE FROM ${tableName(table)} AS r WHERE ${isRow(table, 'r', '$1')}`,
]
