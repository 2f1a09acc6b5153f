import { type Adopting, adoptions, type AdoptedTable, type Held, nextNumber, queueOf, refusedOf } from './adopt-table'
import { ownAlone } from './adopt-owned'
import { quote, unnest } from './identifier'
import { field, hashExpression, tableName, textIsNull } from './text-table'

/** Pages of a table, from the first to before the last; or, of one page, from a line to before another. */
export interface Pages {
  readonly from: number
  readonly to: number
  /** @default [0, the last] */
  readonly lines?: readonly [from: number, to: number]
}

export const own = ({ table }: Pick<Adopting, 'table'>): string => `ONLY ${tableName(table)} AS t`

function inPages({ from, to, lines }: Pages): string {
  const [first, last] = lines ? [`(${from},${lines[0]})`, `(${from},${lines[1]})`] : [`(${from},0)`, `(${to},0)`]
  return `t.ctid OPERATOR(pg_catalog.>=) '${first}'::pg_catalog.tid AND t.ctid OPERATOR(pg_catalog.<) '${last}'::pg_catalog.tid`
}

/** The row should have a hash but has none. */
function isMissing({ table }: Held): string {
  const none = `t.${quote(table.hash)} IS NULL`
  return table.nullable ? `${none} AND NOT (${textIsNull(table, 't').join(' AND ')})` : none
}

/** The row has no hash where it should, or the hash of another text: somebody may have made the column before us. */
function isWrong(on: Held): string {
  const hash = `t.${quote(on.table.hash)}`
  const textless = textIsNull(on.table, 't').join(' AND ')
  const right = `${hash} OPERATOR(pg_catalog.=) ${hashExpression(on.table, 't')}`
  return on.table.nullable
    ? `NOT (CASE WHEN ${textless} THEN ${hash} IS NULL ELSE coalesce(${right}, false) END)`
    : `NOT coalesce(${right}, false)`
}

/** Which rows a sweep writes: those without a hash, or also those whose hash is not that of their text. */
export type Wanted = 'missing' | 'wrong'

const isWanted = (on: Held, wanted: Wanted): string => (wanted === 'missing' ? isMissing(on) : isWrong(on))

/** How many pages the table has now. Rows that come later bring their hashes. */
export const countPages = ({ table }: Held): string =>
  `SELECT (pg_catalog.pg_relation_size('${tableName(table).replaceAll("'", "''")}'::pg_catalog.regclass) OPERATOR(pg_catalog./) ` +
  `pg_catalog.current_setting('block_size')::pg_catalog.int8)::pg_catalog.text AS pages`

export const texts = ({ table }: Held): string =>
  table.text.map(({ name }, index) => `${field('t', name)}::pg_catalog.text AS c${index}`).join(', ')

/** How many bytes `readTexts` would give; none of them is read for that. */
export const countBytes = (on: Held, pages: Pages, wanted: Wanted): string =>
  `SELECT coalesce(pg_catalog.sum(${on.table.text
    .map(({ name }) => `coalesce(pg_catalog.octet_length(${field('t', name)}::pg_catalog.text), 0)`)
    .join(' OPERATOR(pg_catalog.+) ')}), 0)::pg_catalog.text AS bytes FROM ${own(on)} ` +
  `WHERE ${inPages(pages)} AND ${wanted === 'missing' ? isMissing(on) : 'true'}`

/** Texts to be normalized, by `spot`; of every row where the normalizer is another one than the rows know. */
export const readTexts = (on: Held, pages: Pages, wanted: Wanted): string =>
  `SELECT t.ctid::pg_catalog.text AS spot, ${texts(on)} FROM ${own(on)} WHERE ${inPages(pages)} ` +
  `AND ${wanted === 'missing' ? isMissing(on) : 'true'}`

/**
 * Gives rows of these pages their hashes, and where the normalizer changed a text that too, if the row still has the one
 * that was read. Rows that others have locked are left for another sweep. It says how many rows wanted something, how
 * many of them got it, and stores how far the sweep is.
 *
 * @param changes there are changed texts: $3 are their spots, then come old and new texts of each column
 */
export function fillPages(on: AdoptedTable, pages: Pages, wanted: Wanted, changes: boolean): string {
  const { table } = on
  const hash = quote(table.hash)
  const lock = 'FOR NO KEY UPDATE SKIP LOCKED'
  const other = changes ? ' AND NOT (t.ctid OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.tid[]))' : ''
  const where = `${inPages(pages)} AND ${isWanted(on, wanted)}${other}`
  return `WITH seen AS (SELECT pg_catalog.count(*) AS n FROM ${own(on)} WHERE ${where}),
held AS MATERIALIZED (SELECT t.ctid AS spot FROM ${own(on)} WHERE ${where} ${lock}),
written AS (
  UPDATE ${own(on)} SET ${hash} = ${table.nullable ? `CASE WHEN ${textIsNull(table, 't').join(' AND ')} THEN NULL ELSE ${hashExpression(table, 't')} END` : hashExpression(table, 't')}
    FROM held WHERE t.ctid OPERATOR(pg_catalog.=) held.spot AND ${inPages(pages)} RETURNING 1),
${changes ? `${fillChanged(on, pages, wanted, lock)},\n` : ''}stored AS (
  UPDATE ${adoptions(on)} AS a SET state = a.state OPERATOR(pg_catalog.||) $2::pg_catalog.jsonb
   WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text)
SELECT ((SELECT n FROM seen)${changes ? ' OPERATOR(pg_catalog.+) pg_catalog.cardinality($3::pg_catalog.tid[])' : ''})::pg_catalog.text AS seen,
       ((SELECT pg_catalog.count(*) FROM written)${changes ? ' OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM altered)' : ''})::pg_catalog.text AS written`
}

/** A changed text leaves its chain: where it had a hash, it gets a number of its own, and its new chain is noted. */
function fillChanged(on: AdoptedTable, pages: Pages, wanted: Wanted, lock: string): string {
  const { table } = on
  const arrays = table.text.flatMap((_, index) => [`$${4 + 2 * index}`, `$${5 + 2 * index}`])
  const names = table.text.flatMap((_, index) => [`o${index}`, `n${index}`])
  const unchanged = table.text.map(({ name }, index) => sameAs(field('t', name), `c.o${index}`))
  const set = table.text.map(({ name }, index) => `${quote(name)} = c.n${index}`)
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const moved = wanted === 'missing' ? '' : `, ${number} = ${nextNumber(on)}, ${chained} = false`
  return `changed AS (
  SELECT c.* FROM ${unnest(['$3::pg_catalog.tid[]', ...arrays.map((one) => `${one}::pg_catalog.text[]`)])} AS c (spot, ${names.join(', ')})),
open AS MATERIALIZED (
  SELECT t.ctid AS spot FROM ${own(on)} WHERE ${inPages(pages)} AND t.ctid OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.tid[])
     AND ${wanted === 'missing' ? isMissing(on) : 'true'} ${lock}),
altered AS (
  UPDATE ${own(on)} SET ${set.join(', ')}, ${hash} = ${newHash(on)}${moved}
    FROM open JOIN changed AS c ON c.spot OPERATOR(pg_catalog.=) open.spot
   WHERE t.ctid OPERATOR(pg_catalog.=) open.spot AND ${inPages(pages)} AND ${unchanged.join(' AND ')}
  RETURNING ${[...table.scope.map((name) => field('t', name)), `t.${hash}`].join(', ')})${
    wanted === 'missing' ? '' : `,\nnoted AS (INSERT INTO ${queueOf(on)} (${chainColumns(on)}) SELECT * FROM altered)`
  }`
}

const sameAs = (column: string, given: string): string =>
  `coalesce(${column}::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) ${given} COLLATE pg_catalog."C", ${column} IS NULL AND ${given} IS NULL)`

/** The hash of a text that is given as `n0`, …. */
export const newHash = ({ table }: Held): string =>
  hashExpression(
    { digest: table.digest, text: table.text.map(({ prefix }, index) => ({ name: `n${index}`, prefix })) },
    'c',
  )

export const chainColumns = ({ table }: Held): string =>
  [...table.scope.map((_, index) => `s${index}`), 'hash'].join(', ')

/** The key of a row as jsonb. */
export const primaryKeyAsJson = ({ primary }: Pick<Adopting, 'primary'>, row: string): string =>
  `pg_catalog.jsonb_build_object(${primary
    .map((name) => `'${name.replaceAll("'", "''")}'::pg_catalog.text, ${field(row, name)}`)
    .join(', ')})`

/** Notes rows whose texts are refused; $1 are their spots, $2 the reasons. */
export const noteRefused = (on: AdoptedTable): string =>
  `INSERT INTO ${refusedOf(on)} (${keyColumns(on)}, reason)
SELECT ${on.primary.map((name) => field('t', name)).join(', ')}, r.reason
  FROM ${unnest(['$1::pg_catalog.tid[]', '$2::pg_catalog.text[]'])} AS r (spot, reason)
  JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) r.spot
 WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])
ON CONFLICT (${keyColumns(on)}) DO UPDATE SET reason = excluded.reason`

const keyColumns = ({ primary }: AdoptedTable): string => primary.map((_, index) => `k${index}`).join(', ')

const refusedKey = ({ primary }: AdoptedTable): string => {
  const pairs = primary.map((name, index) => `'${name.replaceAll("'", "''")}'::pg_catalog.text, r.k${index}`)
  return `pg_catalog.jsonb_build_object(${pairs.join(', ')})`
}

/** The first rows that are refused, and how many there are in all. */
export const readRefused = (on: AdoptedTable, limit: number): string => {
  return (
    `SELECT ${refusedKey(on)}::pg_catalog.text AS key, r.reason, ` +
    `pg_catalog.count(*) OVER ()::pg_catalog.text AS total FROM ${refusedOf(on)} AS r ORDER BY ${keyColumns(on)} LIMIT ${limit}`
  )
}

/** The current texts of the rows that were refused. */
export const refusedTexts = (on: AdoptedTable): string =>
  `SELECT ${refusedKey(on)}::pg_catalog.text AS key, t.ctid::pg_catalog.text AS spot, ${texts(on)} FROM ${refusedOf(on)} AS r JOIN ${own(on)} ON ${samePrimary(on, 'r')}`

/** Removes rows from the list of refused ones that have none of the keys $1, as JSON, or are gone. */
export const keepRefused = (on: AdoptedTable): string =>
  `DELETE FROM ${refusedOf(on)} AS r WHERE NOT (${refusedKey(on)} OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.jsonb[]) ` +
  `AND EXISTS (SELECT FROM ${own(on)} WHERE ${samePrimary(on, 'r')}))`

/** Deletes the refused rows at the spots $1. */
export const deleteRefused = (on: AdoptedTable): string =>
  `DELETE FROM ${own(on)} USING ${refusedOf(on)} AS r WHERE ${samePrimary(on, 'r')} ` +
  `AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`

export const samePrimary = ({ primary }: AdoptedTable, work: string): string =>
  primary.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) ${work}.k${index}`).join(' AND ')

/** Makes the list of refused rows anew. */
export const createRefused = (on: AdoptedTable): string[] => [
  `DROP TABLE IF EXISTS ${refusedOf(on)}`,
  `CREATE TABLE ${refusedOf(on)} AS SELECT ${on.primary.map((name, index) => `t.${quote(name)} AS k${index}`).join(', ')}, ` +
    `''::pg_catalog.text AS reason FROM ${tableName(on.table)} AS t WITH NO DATA`,
  `ALTER TABLE ${refusedOf(on)} ADD PRIMARY KEY (${keyColumns(on)})`,
  ...ownAlone(on, [refusedOf(on)]),
]

/**
 * Gives rows at the spots $1 their new texts, if they still have the old ones, under the guard: it refuses one that
 * stands in another row. Rows that somebody has locked are left out.
 */
export function renormalize(on: Held): string {
  const { table } = on
  const arrays = table.text.flatMap((_, index) => [`$${2 + 2 * index}`, `$${3 + 2 * index}`])
  const names = table.text.flatMap((_, index) => [`o${index}`, `n${index}`])
  const set = table.text.map(({ name }, index) => `${quote(name)} = c.n${index}`)
  const unchanged = table.text.map(({ name }, index) => sameAs(field('t', name), `c.o${index}`))
  return `WITH c AS (SELECT c.* FROM ${unnest(['$1::pg_catalog.tid[]', ...arrays.map((one) => `${one}::pg_catalog.text[]`)])} AS c (spot, ${names.join(', ')})),
held AS MATERIALIZED (SELECT t.ctid AS spot FROM ${own(on)} WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[]) FOR UPDATE SKIP LOCKED),
written AS (UPDATE ${own(on)} SET ${set.join(', ')} FROM held JOIN c ON c.spot OPERATOR(pg_catalog.=) held.spot
  WHERE t.ctid OPERATOR(pg_catalog.=) held.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[]) AND ${unchanged.join(' AND ')} RETURNING 1)
SELECT pg_catalog.count(*)::pg_catalog.text AS written FROM written`
}
