import { literal, quote, unnest } from '../../sql/identifier'
import { bytewise, field, hashExpression, isFreed, isLive, rowHash, tableName, textIsNull } from '../../sql/text-table'
import { makeFunctions, type OwnedFunction } from '../../sql/trigger-set'
import {
  type AdoptedTable,
  type Adopting,
  adoptions,
  drops,
  dropTriggers,
  FIRST_TEMPORARY_NUMBER,
  type Held,
  nameOf,
  nextNumber,
  numbersOf,
  objectOf,
  own,
  ownAlone,
  queueOf,
  refusedOf,
  TRIGGERS,
  workOf,
} from './table'

/** The pages of a table from `from` up to, but without, `to`. With `lines`, a range of lines of one page. */
export interface Pages {
  readonly from: number
  readonly to: number
  /** @default [0, the last] */
  readonly lines?: readonly [from: number, to: number]
}

/** Converts the pages to integers, because the stored state of an adoption may hold other values. */
function inPages(pages: Pages): string {
  const [from, to, lines] = [Math.trunc(pages.from), Math.trunc(pages.to), pages.lines]
  const [first, last] = lines ? [`(${from},${lines[0]})`, `(${from},${lines[1]})`] : [`(${from},0)`, `(${to},0)`]
  return `t.ctid OPERATOR(pg_catalog.>=) '${first}'::pg_catalog.tid AND t.ctid OPERATOR(pg_catalog.<) '${last}'::pg_catalog.tid`
}

/** Whether the row should have a hash but has none. */
function isUnfilled({ table }: Held): string {
  const none = `t.${quote(table.hash)} IS NULL`
  return table.nullable ? `${none} AND NOT (${textIsNull(table, 't').join(' AND ')})` : none
}

/** The rows that a sweep writes: those without a hash, or also those whose hash is not that of their text. */
export type Wanted = 'missing' | 'wrong'

function isWanted(on: Held, wanted: Wanted): string {
  if (wanted === 'missing') return isUnfilled(on)
  // The column may have existed before the adoption.
  const hash = `t.${quote(on.table.hash)}`
  const textless = textIsNull(on.table, 't').join(' AND ')
  const right = `${hash} OPERATOR(pg_catalog.=) ${hashExpression(on.table, 't')}`
  return on.table.nullable
    ? `NOT (CASE WHEN ${textless} THEN ${hash} IS NULL ELSE coalesce(${right}, false) END)`
    : `NOT coalesce(${right}, false)`
}

/** Selects the current number of pages of the table. Rows that are written later have their hashes. */
export const countPages = ({ table }: Held): string =>
  `SELECT (pg_catalog.pg_relation_size('${tableName(table).replaceAll("'", "''")}'::pg_catalog.regclass) OPERATOR(pg_catalog./) ` +
  `pg_catalog.current_setting('block_size')::pg_catalog.int8)::pg_catalog.text AS pages`

export const texts = ({ table }: Held): string =>
  table.text.map(({ name }, index) => `${field('t', name)}::pg_catalog.text AS c${index}`).join(', ')

/** Counts the bytes that `readTexts` would return, without reading them. */
export const countBytes = (on: Held, pages: Pages, wanted: Wanted): string =>
  `SELECT coalesce(pg_catalog.sum(${on.table.text
    .map(({ name }) => `coalesce(pg_catalog.octet_length(${field('t', name)}::pg_catalog.text), 0)`)
    .join(' OPERATOR(pg_catalog.+) ')}), 0)::pg_catalog.text AS bytes FROM ${own(on)} ` +
  `WHERE ${inPages(pages)} AND ${wanted === 'missing' ? isUnfilled(on) : 'true'}`

/** Selects the texts to normalize, by `spot`. If the rows have another normalizer, it selects the text of every row. */
export const readTexts = (on: Held, pages: Pages, wanted: Wanted): string =>
  `SELECT t.ctid::pg_catalog.text AS spot, ${texts(on)} FROM ${own(on)} WHERE ${inPages(pages)} ` +
  `AND ${wanted === 'missing' ? isUnfilled(on) : 'true'}`

/**
 * Writes the hashes of the rows of these pages. If the normalizer changed a text, and the row still has the old text,
 * the new text is written too. Rows that others have locked are left for another sweep. Returns how many rows needed a
 * write and how many of them were written, and stores the progress of the sweep.
 *
 * @param changes whether texts changed; $3 are their spots, and the old and new texts of each column follow
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
  UPDATE ${own(on)} SET ${hash} = ${rowHash(table, 't')}
    FROM held WHERE t.ctid OPERATOR(pg_catalog.=) held.spot AND ${inPages(pages)} RETURNING 1),
${changes ? `${fillChanged(on, pages, wanted, lock)},\n` : ''}stored AS (
  UPDATE ${adoptions(on)} AS a SET state = a.state OPERATOR(pg_catalog.||) $2::pg_catalog.jsonb
   WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text)
SELECT ((SELECT n FROM seen)${changes ? ' OPERATOR(pg_catalog.+) pg_catalog.cardinality($3::pg_catalog.tid[])' : ''})::pg_catalog.text AS seen,
       ((SELECT pg_catalog.count(*) FROM written)${changes ? ' OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM altered)' : ''})::pg_catalog.text AS written`
}

/** Writes changed texts. A row that had a hash leaves its chain and gets its own number. Its new chain is noted. */
function fillChanged(on: AdoptedTable, pages: Pages, wanted: Wanted, lock: string): string {
  const { table } = on
  const { rows, set, unchanged } = alteredTexts(on, 3)
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const moved = wanted === 'missing' ? '' : `, ${number} = ${nextNumber(on)}, ${chained} = false`
  return `changed AS (
  SELECT c.* FROM ${rows}),
open AS MATERIALIZED (
  SELECT t.ctid AS spot FROM ${own(on)} WHERE ${inPages(pages)} AND t.ctid OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.tid[])
     AND ${wanted === 'missing' ? isUnfilled(on) : 'true'} ${lock}),
altered AS (
  UPDATE ${own(on)} SET ${set}, ${hash} = ${newHash(on)}${moved}
    FROM open JOIN changed AS c ON c.spot OPERATOR(pg_catalog.=) open.spot
   WHERE t.ctid OPERATOR(pg_catalog.=) open.spot AND ${inPages(pages)} AND ${unchanged}
  RETURNING ${[...table.scope.map((name) => field('t', name)), `t.${hash}`].join(', ')})${
    wanted === 'missing' ? '' : `,\nnoted AS (INSERT INTO ${queueOf(on)} (${chainColumns(on)}) SELECT * FROM altered)`
  }`
}

/** Changed texts as rows `c` with spots, old texts `o0`, … and new texts `n0`, …, from the parameter $first on. */
function alteredTexts({ table }: Held, first: number) {
  const arrays = table.text.flatMap((_, index) => [first + 1 + 2 * index, first + 2 + 2 * index])
  const names = table.text.flatMap((_, index) => [`o${index}`, `n${index}`])
  const unchanged = table.text.map(({ name }, index) => {
    const [column, old] = [field('t', name), `c.o${index}`]
    return `coalesce(${column}::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) ${old} COLLATE pg_catalog."C", ${column} IS NULL AND ${old} IS NULL)`
  })
  return {
    rows: `${unnest([`$${first}::pg_catalog.tid[]`, ...arrays.map((one) => `$${one}::pg_catalog.text[]`)])} AS c (spot, ${names.join(', ')})`,
    set: table.text.map(({ name }, index) => `${quote(name)} = c.n${index}`).join(', '),
    unchanged: unchanged.join(' AND '),
  }
}

/** The hash of a text that is given as `n0`, …. */
const newHash = ({ table }: Held): string =>
  hashExpression(
    { digest: table.digest, text: table.text.map(({ prefix }, index) => ({ name: `n${index}`, prefix })) },
    'c',
  )

const chainColumns = ({ table }: Held): string => [...table.scope.map((_, index) => `s${index}`), 'hash'].join(', ')

/** The key of a row as jsonb. */
export const primaryKeyAsJson = ({ primary }: Pick<Adopting, 'primary'>, row: string): string =>
  `pg_catalog.jsonb_build_object(${primary
    .map((name) => `'${name.replaceAll("'", "''")}'::pg_catalog.text, ${field(row, name)}`)
    .join(', ')})`

/** Notes rows whose texts are refused. $1 are their spots, and $2 the reasons. */
export const noteRefused = (on: AdoptedTable): string =>
  `INSERT INTO ${refusedOf(on)} (${keyParts(on)}, reason)
SELECT ${on.primary.map((name) => field('t', name)).join(', ')}, r.reason
  FROM ${unnest(['$1::pg_catalog.tid[]', '$2::pg_catalog.text[]'])} AS r (spot, reason)
  JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) r.spot
 WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])
ON CONFLICT (${keyParts(on)}) DO UPDATE SET reason = excluded.reason`

const keyParts = ({ primary }: AdoptedTable): string => primary.map((_, index) => `k${index}`).join(', ')

const refusedKey = ({ primary }: AdoptedTable): string => {
  const pairs = primary.map((name, index) => `'${name.replaceAll("'", "''")}'::pg_catalog.text, r.k${index}`)
  return `pg_catalog.jsonb_build_object(${pairs.join(', ')})`
}

/** Selects the first refused rows, and the number of all. */
export const readRefused = (on: AdoptedTable, limit: number): string => {
  return (
    `SELECT ${refusedKey(on)}::pg_catalog.text AS key, r.reason, ` +
    `pg_catalog.count(*) OVER ()::pg_catalog.text AS total FROM ${refusedOf(on)} AS r ORDER BY ${keyParts(on)} LIMIT ${limit}`
  )
}

/** Selects the current texts of the refused rows. */
export const refusedTexts = (on: AdoptedTable): string =>
  `SELECT ${refusedKey(on)}::pg_catalog.text AS key, t.ctid::pg_catalog.text AS spot, ${texts(on)} FROM ${refusedOf(on)} AS r JOIN ${own(on)} ON ${samePrimary(on, 'r.k')}`

/** Removes rows from the list of refused rows if their key is not among $1, as JSON, or if they no longer exist. */
export const keepRefused = (on: AdoptedTable): string =>
  `DELETE FROM ${refusedOf(on)} AS r WHERE NOT (${refusedKey(on)} OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.jsonb[]) ` +
  `AND EXISTS (SELECT FROM ${own(on)} WHERE ${samePrimary(on, 'r.k')}))`

/** Deletes the refused rows at the spots $1. */
export const deleteRefused = (on: AdoptedTable): string =>
  `DELETE FROM ${own(on)} USING ${refusedOf(on)} AS r WHERE ${samePrimary(on, 'r.k')} ` +
  `AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`

/** @param parts the parts of a key, without their numbers: `w.k` for `w.k0`, … */
export const samePrimary = ({ primary }: AdoptedTable, parts: string, row = 't'): string =>
  primary.map((name, index) => `${field(row, name)} OPERATOR(pg_catalog.=) ${parts}${index}`).join(' AND ')

/** Recreates the list of refused rows. */
export const createRefused = (on: AdoptedTable): string[] => [
  `DROP TABLE IF EXISTS ${refusedOf(on)}`,
  `CREATE TABLE ${refusedOf(on)} AS SELECT ${on.primary.map((name, index) => `t.${quote(name)} AS k${index}`).join(', ')}, ` +
    `''::pg_catalog.text AS reason FROM ${tableName(on.table)} AS t WITH NO DATA`,
  `ALTER TABLE ${refusedOf(on)} ADD PRIMARY KEY (${keyParts(on)})`,
  ...ownAlone(on, [refusedOf(on)]),
]

/**
 * Writes new texts to the rows at the spots $1, if they still have the old texts. The guard refuses a text that another
 * row holds. Rows that another session has locked are left out.
 */
export function renormalize(on: Held): string {
  const { rows, set, unchanged } = alteredTexts(on, 1)
  return `WITH c AS (SELECT c.* FROM ${rows}),
held AS MATERIALIZED (SELECT t.ctid AS spot FROM ${own(on)} WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[]) FOR UPDATE SKIP LOCKED),
written AS (UPDATE ${own(on)} SET ${set} FROM held JOIN c ON c.spot OPERATOR(pg_catalog.=) held.spot
  WHERE t.ctid OPERATOR(pg_catalog.=) held.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[]) AND ${unchanged} RETURNING 1)
SELECT pg_catalog.count(*)::pg_catalog.text AS written FROM written`
}

export const isOfChain = ({ table }: Held, chain: string): string =>
  [
    ...table.scope.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) ${chain}.s${index}`),
    `${field('t', table.hash)} OPERATOR(pg_catalog.=) ${chain}.hash`,
    ...isLive(table, 't'),
  ].join(' AND ')

/**
 * Finds the rows of chains that have several rows or no anchor, and the numbers that they should have. Every chain is
 * noted too, because its anchor may be deleted before it is flagged.
 */
export function findChains(on: AdoptedTable): string[] {
  const { table, primary } = on
  const [hash, number] = [field('t', table.hash), field('t', table.number)]
  const chain = [...table.scope.map((name) => field('t', name)), hash]
  const known = [
    `${hash} IS NOT NULL`,
    `${number} OPERATOR(pg_catalog.<) ${FIRST_TEMPORARY_NUMBER}`,
    ...isLive(table, 't'),
  ]
  const named = [...table.scope.map((name, index) => `${field('t', name)} AS s${index}`), `${hash} AS hash`].join(', ')
  const keys = primary.map((name) => field('t', name))
  const several = `several AS MATERIALIZED (
  SELECT ${named} FROM ${own(on)} WHERE ${known.join(' AND ')} GROUP BY ${chain.join(', ')}
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1 OR pg_catalog.min(${number}) OPERATOR(pg_catalog.>) 0)`
  return [
    `DROP TABLE IF EXISTS ${workOf(on)}`,
    `CREATE TABLE ${workOf(on)} AS WITH ${several}
SELECT pg_catalog.row_number() OVER () AS place, w.* FROM (
  SELECT ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${hash} AS hash,
         (pg_catalog.row_number() OVER (PARTITION BY ${chain.join(', ')} ORDER BY ${[number, ...keys].join(', ')}) OPERATOR(pg_catalog.-) 1)::pg_catalog.int4 AS number,
         ${table.scope.map((name, index) => `${field('t', name)} AS s${index}, `).join('')}true AS due
    FROM several AS c JOIN ${own(on)} ON ${isOfChain(on, 'c')} WHERE ${known.join(' AND ')}) AS w`,
    `ALTER TABLE ${workOf(on)} ADD PRIMARY KEY (place)`,
    ...ownAlone(on, [workOf(on)]),
    `ANALYZE ${workOf(on)}`,
    `INSERT INTO ${queueOf(on)} (${chainColumns(on)}, numbered) SELECT ${chainColumns(on)}, true FROM ${workOf(on)} AS w WHERE w.number OPERATOR(pg_catalog.=) 0`,
  ]
}

/**
 * Numbers the rows of work from the place $1 on, at most $2 of them, and removes them from the work, except those that
 * others have locked. A row that has left its chain has another number already.
 */
export function numberChains(on: AdoptedTable): string {
  const { table } = on
  const [number, chained] = [quote(table.number), quote(table.chained)]
  return `WITH w AS MATERIALIZED (
  SELECT * FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8
   ORDER BY w.place LIMIT $2::pg_catalog.int8),
seen AS MATERIALIZED (SELECT w.place FROM w JOIN ${own(on)} ON ${samePrimary(on, 'w.k')}),
held AS MATERIALIZED (
  SELECT t.ctid AS spot, w.* FROM w JOIN ${own(on)} ON ${samePrimary(on, 'w.k')} FOR NO KEY UPDATE OF t SKIP LOCKED),
written AS (
  UPDATE ${own(on)} SET ${number} = h.number, ${chained} = h.number OPERATOR(pg_catalog.=) 0 FROM held AS h
   WHERE ${samePrimary(on, 'h.k')} AND t.ctid OPERATOR(pg_catalog.=) h.spot AND ${isOfChain(on, 'h')}
     AND t.${number} OPERATOR(pg_catalog.<) ${FIRST_TEMPORARY_NUMBER}),
done AS (
  DELETE FROM ${workOf(on)} AS o USING w WHERE o.place OPERATOR(pg_catalog.=) w.place
     AND (EXISTS (SELECT FROM held AS h WHERE h.place OPERATOR(pg_catalog.=) w.place)
       OR NOT EXISTS (SELECT FROM seen AS s WHERE s.place OPERATOR(pg_catalog.=) w.place))
  RETURNING 1)
SELECT (SELECT pg_catalog.max(w.place) FROM w)::pg_catalog.text AS last, (SELECT pg_catalog.count(*) FROM w)::pg_catalog.text AS seen,
       (SELECT pg_catalog.count(*) FROM done)::pg_catalog.text AS written`
}

/** Selects the notes after the place $1, at most $2 of them. */
export const readQueue = (on: Held): string =>
  `SELECT q.seq::pg_catalog.text AS seq FROM ${queueOf(on)} AS q WHERE q.seq OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ` +
  `ORDER BY q.seq LIMIT $2::pg_catalog.int8`

/** Deletes the notes of numbered chains whose flagged anchor exists. If it is deleted, a trigger notes it anew. */
export const dropNumbered = (on: Held): string =>
  `DELETE FROM ${queueOf(on)} AS q WHERE q.numbered AND EXISTS (SELECT FROM ${own(on)} WHERE ${isOfChain(on, 'q')} ` +
  `AND t.${quote(on.table.number)} OPERATOR(pg_catalog.=) 0 AND t.${quote(on.table.chained)})`

/** Counts the notes, up to $1. */
export const countQueue = (on: Held): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS notes FROM ` +
  `(SELECT FROM ${queueOf(on)} LIMIT $1::pg_catalog.int8) AS q`

/**
 * For each chain that the notes $1 name, locks the row with the lowest number and the rows without a real number.
 * Selects them with the highest real number. A row that another session has locked has no `spot`, and its chain must
 * not be touched. The other rows are not read, because any number of them may hold a text. Uses the unique index.
 */
export function lockChains(on: AdoptedTable): string {
  const { table, primary } = on
  const number = field('t', table.number)
  const chains = `SELECT pg_catalog.min(q.seq) AS chain, ${chainColumns(on)} FROM ${queueOf(on)} AS q
   WHERE q.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) GROUP BY ${chainColumns(on)}`
  const keys = primary.map((name) => field('t', name))
  const first = (order: string, more = ''): string =>
    `(SELECT ${number} FROM ${own(on)} WHERE ${isOfChain(on, 'c')}${more} ORDER BY ${number} ${order} LIMIT 1)`
  const real = ` AND ${number} OPERATOR(pg_catalog.<) ${FIRST_TEMPORARY_NUMBER}`
  const spots = (which: string): string =>
    `SELECT b.chain, b.highest, t.ctid AS spot FROM b JOIN ${own(on)} ON ${isOfChain(on, 'b')} AND ${which}`
  return `WITH c AS MATERIALIZED (${chains}),
b AS MATERIALIZED (SELECT c.*, ${first('ASC', real)} AS lowest, ${first('DESC', real)} AS highest FROM c),
seen AS MATERIALIZED (
  ${spots(`${number} OPERATOR(pg_catalog.=) b.lowest`)}
  UNION ALL ${spots(`${number} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`)}),
held AS MATERIALIZED (
  SELECT t.ctid AS spot, ${number} AS number, ${field('t', table.chained)} AS chained,
         ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${texts(on)}
    FROM seen AS s JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) s.spot FOR UPDATE OF t SKIP LOCKED)
SELECT s.chain::pg_catalog.text AS chain, coalesce(s.highest, -1)::pg_catalog.text AS highest, h.spot::pg_catalog.text AS spot, h.number::pg_catalog.text AS number,
       CASE WHEN h.chained THEN 'yes' ELSE 'no' END AS chained, ${table.text.map((_, index) => `h.c${index}`).join(', ')}
  FROM seen AS s LEFT JOIN held AS h ON h.spot OPERATOR(pg_catalog.=) s.spot
 ORDER BY s.chain, h.number, ${primary.map((_, index) => `h.k${index}`).join(', ')}`
}

/** Deletes the notes $1, except those of the chains that the notes $2 name. */
export const dropNotes = (on: Held): string => {
  const chain = ({ table }: Held): string =>
    [...table.scope.map((_, index) => `s${index}`), 'hash']
      .map((name) => `o.${name} OPERATOR(pg_catalog.=) q.${name}`)
      .join(' AND ')
  return (
    `DELETE FROM ${queueOf(on)} AS q WHERE q.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) ` +
    `AND NOT EXISTS (SELECT FROM ${queueOf(on)} AS o WHERE o.seq OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int8[]) AND ${chain(on)})`
  )
}

/** Writes the numbers $2 and the flags $3 to the locked rows at the spots $1. */
export function writeNumbers(on: Held): string {
  const { table } = on
  return `UPDATE ${own(on)} SET ${quote(table.number)} = w.number, ${quote(table.chained)} = w.chained
  FROM ${unnest(['$1::pg_catalog.tid[]', '$2::pg_catalog.int4[]', '$3::pg_catalog.bool[]'])} AS w (spot, number, chained)
 WHERE t.ctid OPERATOR(pg_catalog.=) w.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`
}

/** Writes other texts to the locked rows at the spots $1. They leave their chains, and the new chains are noted. */
export function writeTexts(on: AdoptedTable): string {
  const { table } = on
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const names = table.text.map((_, index) => `n${index}`)
  const arrays = table.text.map((_, index) => `$${index + 2}::pg_catalog.text[]`)
  const set = table.text.map(({ name }, index) => `${quote(name)} = c.n${index}`)
  return `WITH altered AS (
  UPDATE ${own(on)} SET ${set.join(', ')}, ${hash} = ${newHash(on)}, ${number} = ${nextNumber(on)}, ${chained} = false
    FROM ${unnest(['$1::pg_catalog.tid[]', ...arrays])} AS c (spot, ${names.join(', ')})
   WHERE t.ctid OPERATOR(pg_catalog.=) c.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])
  RETURNING ${[...table.scope.map((name) => field('t', name)), `t.${hash}`].join(', ')})
INSERT INTO ${queueOf(on)} (${chainColumns(on)}) SELECT * FROM altered`
}

/** Counts rows with the same text: groups, surplus rows and the largest group. Selects the keys of the first groups. */
export function countDuplicates(on: AdoptedTable, limit: number): string {
  const { table } = on
  const by = [...table.scope.map((name) => field('t', name)), ...table.text.map(({ name }) => bytewise('t', name))]
  const named = [
    ...table.scope.map((name, index) => `${field('t', name)} AS s${index}`),
    `${field('t', table.hash)} AS hash`,
  ]
  const live = [...isLive(table, 't'), 'true'].join(' AND ')
  return `WITH c AS MATERIALIZED (SELECT ${named.join(', ')} FROM ${own(on)} WHERE t.${quote(table.chained)} AND ${live}),
g AS MATERIALIZED (
  SELECT pg_catalog.count(*) AS n, pg_catalog.jsonb_agg(${primaryKeyAsJson(on, 't')} ORDER BY ${on.primary.map((name) => field('t', name)).join(', ')}) AS keys
    FROM c JOIN ${own(on)} ON ${isOfChain(on, 'c')} GROUP BY ${by.join(', ')}
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1)
SELECT pg_catalog.count(*)::pg_catalog.text AS groups, coalesce(pg_catalog.sum(g.n) OPERATOR(pg_catalog.-) pg_catalog.count(*), 0)::pg_catalog.text AS surplus,
       coalesce(pg_catalog.max(g.n), 0)::pg_catalog.text AS largest,
       (SELECT coalesce(pg_catalog.jsonb_agg(f.keys), '[]') FROM (SELECT g.keys FROM g ORDER BY g.keys LIMIT ${limit}) AS f)::pg_catalog.text AS first
  FROM g`
}

/** Selects the keys of rows that violate NOT NULL, without a lock. */
export const findNulls = (on: Adopting, column: string, limit: number): string =>
  `SELECT ${primaryKeyAsJson(on, 't')}::pg_catalog.text AS key FROM ${own(on)} WHERE ${field('t', column)} IS NULL LIMIT ${limit}`

/** Creates the objects that the transitional triggers need. Does not lock the table itself. */
export function createObjects(on: AdoptedTable): string[] {
  const { table } = on
  const scope = table.scope.map((name, index) => `t.${quote(name)} AS s${index}, `).join('')
  return [
    ...drops(on),
    `CREATE SEQUENCE ${numbersOf(on)} AS pg_catalog.int4 MINVALUE ${FIRST_TEMPORARY_NUMBER}`,
    `CREATE TABLE ${queueOf(on)} AS SELECT ${scope}NULL::pg_catalog.${table.digest.type} AS hash ` +
      `FROM ${tableName(table)} AS t WITH NO DATA`,
    `ALTER TABLE ${queueOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
      `ADD numbered pg_catalog.bool NOT NULL DEFAULT false`,
    ...createRefused(on),
    ...ownAlone(on, [numbersOf(on), queueOf(on)]),
    ...makeFunctions({ fresh: [functionOf(on, 'place', placingBody(on)), functionOf(on, 'note', noteBody(on))] }),
  ]
}

/** A function that runs as the table's owner. A role with only INSERT could not write to the queue or take a number. */
export const functionOf = (on: AdoptedTable, suffix: string, body: string): OwnedFunction => ({
  schema: on.table.schema,
  name: nameOf(on, suffix),
  body,
  relation: tableName(on.table),
})

/** Equality of two values that may be NULL, by one operator of pg_catalog. */
const same = (left: string, right: string): string =>
  `coalesce(${left} OPERATOR(pg_catalog.=) ${right}, ${left} IS NULL AND ${right} IS NULL)`

/** Predicates that are true if two rows have the same text, column by column. */
export const sameTexts = (on: Held, left: string, right: string): string[] =>
  on.table.text.map(({ name }) => same(bytewise(left, name), bytewise(right, name)))

const sameScopeColumns = ({ table }: Held): string[] =>
  table.scope.map((name) => same(field('OLD', name), field('NEW', name)))

const keepsHash = ({ table }: Held): string => same(field('OLD', table.hash), field('NEW', table.hash))

/** Gives every row that a client writes its hash at once, and a number of its own until its chain is settled. */
function placingBody(on: AdoptedTable): string {
  const { table } = on
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const set = (value: string, place: string): string =>
    `NEW.${hash} := ${value};\n  NEW.${number} := ${place};\n  NEW.${chained} := false;\n  RETURN NEW;`
  const textless = table.nullable
    ? `  IF ${textIsNull(table, 'NEW').join(' AND ')} THEN\n  ${set('NULL', '0')}\n  END IF;\n`
    : ''
  const freed = isFreed(table, 'NEW').map(
    (gone) => `  IF ${gone} THEN\n  ${set(hashExpression(table, 'NEW'), '0')}\n  END IF;\n`,
  )
  return `\nBEGIN\n${textless}${freed.join('')}  ${set(hashExpression(table, 'NEW'), nextNumber(on))}\nEND\n`
}

/** Notes the chain that a row joined, and the one that an anchor left. */
function noteBody(on: AdoptedTable): string {
  const { table } = on
  const columns = [...table.scope.map((_, index) => `s${index}`), 'hash'].join(', ')
  const note = (row: string): string => {
    const values = [...table.scope, table.hash].map((name) => field(row, name)).join(', ')
    return `INSERT INTO ${queueOf(on)} (${columns}) VALUES (${values});`
  }
  const number = (row: string): string => field(row, table.number)
  const came = [
    `TG_OP OPERATOR(pg_catalog.<>) 'DELETE'`,
    `${field('NEW', table.hash)} IS NOT NULL`,
    `${number('NEW')} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`,
    `(TG_OP OPERATOR(pg_catalog.=) 'INSERT' OR ${number('OLD')} OPERATOR(pg_catalog.<>) ${number('NEW')})`,
  ]
  const stayed = [...sameScopeColumns(on), keepsHash(on), ...isLive(table, 'NEW')]
  const left = [
    `TG_OP OPERATOR(pg_catalog.<>) 'INSERT'`,
    field('OLD', table.chained),
    `(TG_OP OPERATOR(pg_catalog.=) 'DELETE' OR NOT (${stayed.join(' AND ')}))`,
  ]
  return `
BEGIN
  IF ${came.join(' AND ')} THEN
    ${note('NEW')}
  END IF;
  IF ${left.join(' AND ')} THEN
    ${note('OLD')}
  END IF;
  RETURN NULL;
END
`
}

function createTriggers(on: AdoptedTable): string[] {
  const { table } = on
  const trigger = (suffix: (typeof TRIGGERS)[number], event: string, run: string, when?: string): string =>
    `CREATE TRIGGER ${quote(nameOf(on, suffix))} ${event} ON ${tableName(table)} FOR EACH ROW ` +
    `${when === undefined ? '' : `WHEN (${when}) `}EXECUTE FUNCTION ${objectOf(on, run)}()`
  const [oldHash, newHash] = [field('OLD', table.hash), field('NEW', table.hash)]
  const stayed = [...sameTexts(on, 'OLD', 'NEW'), ...sameScopeColumns(on), keepsHash(on)].join(' AND ')
  const restored =
    table.deleted === undefined ? [] : [[...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')]
  // The backfill sets the hash of a row that has none, and a number that it knows to be right.
  const written = `${newHash} IS NULL OR ${oldHash} IS NOT NULL AND (${[`NOT (${stayed})`, ...restored].join(' OR ')})`
  const [was, is] = [field('OLD', table.number), field('NEW', table.number)]
  const temporary = `${is} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`
  return [
    trigger('place_insert', 'BEFORE INSERT', 'place'),
    trigger('place_update', 'BEFORE UPDATE', 'place', written),
    trigger('note_insert', 'AFTER INSERT', 'note', temporary),
    trigger(
      'note_update',
      'AFTER UPDATE',
      'note',
      `${temporary} AND ${was} OPERATOR(pg_catalog.<>) ${is} OR ${field('OLD', table.chained)}`,
    ),
    trigger('note_delete', 'AFTER DELETE', 'note', field('OLD', table.chained)),
  ]
}

/** A hidden column with the comment that TypeORM expects. */
export interface HiddenComment {
  readonly name: string
  readonly comment: string
}

/**
 * Adds the hidden columns, as constants that rewrite no row, and the transitional triggers.
 *
 * @param hidden the hash, the number and the flag
 * @param standing the columns that exist already
 */
export function beginAdoption(
  on: AdoptedTable,
  hidden: readonly HiddenComment[],
  standing: ReadonlySet<string>,
): string[] {
  const types = [on.table.digest.type, 'integer NOT NULL DEFAULT 0', 'boolean NOT NULL DEFAULT false']
  const added = hidden.flatMap(({ name }, index) => (standing.has(name) ? [] : `ADD ${quote(name)} ${types[index]}`))
  return [
    ...(added.length === 0 ? [] : [`ALTER TABLE ${tableName(on.table)} ${added.join(', ')}`]),
    ...hidden.map(
      ({ name, comment }) => `COMMENT ON COLUMN ${tableName(on.table)}.${quote(name)} IS ${literal(comment)}`,
    ),
    ...dropTriggers(on),
    ...createTriggers(on),
  ]
}
