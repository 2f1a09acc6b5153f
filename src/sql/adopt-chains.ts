import { chainColumns, newHash, own, primaryKeyAsJson, samePrimary, texts } from './adopt-fill'
import {
  type Adopting,
  adoptions,
  type AdoptedTable,
  FIRST_TEMPORARY_NUMBER,
  type Held,
  nextNumber,
  queueOf,
  workOf,
} from './adopt-table'
import { ownAlone } from './adopt-owned'
import { qualified, quote, unnest } from './identifier'
import { bytewise, field, isLive } from './text-table'

export const isOfChain = ({ table }: Held, chain: string): string =>
  [
    ...table.scope.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) ${chain}.s${index}`),
    `${field('t', table.hash)} OPERATOR(pg_catalog.=) ${chain}.hash`,
    ...isLive(table, 't'),
  ].join(' AND ')

/**
 * Finds the rows of chains that have several rows or no anchor, and the numbers that they should have. Every chain is
 * noted too: its anchor may go before it is flagged.
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
seen AS MATERIALIZED (SELECT w.place FROM w JOIN ${own(on)} ON ${samePrimary(on, 'w')}),
held AS MATERIALIZED (
  SELECT t.ctid AS spot, w.* FROM w JOIN ${own(on)} ON ${samePrimary(on, 'w')} FOR NO KEY UPDATE OF t SKIP LOCKED),
written AS (
  UPDATE ${own(on)} SET ${number} = h.number, ${chained} = h.number OPERATOR(pg_catalog.=) 0 FROM held AS h
   WHERE ${samePrimary(on, 'h')} AND t.ctid OPERATOR(pg_catalog.=) h.spot AND ${isOfChain(on, 'h')}
     AND t.${number} OPERATOR(pg_catalog.<) ${FIRST_TEMPORARY_NUMBER}),
done AS (
  DELETE FROM ${workOf(on)} AS o USING w WHERE o.place OPERATOR(pg_catalog.=) w.place
     AND (EXISTS (SELECT FROM held AS h WHERE h.place OPERATOR(pg_catalog.=) w.place)
       OR NOT EXISTS (SELECT FROM seen AS s WHERE s.place OPERATOR(pg_catalog.=) w.place))
  RETURNING 1)
SELECT (SELECT pg_catalog.max(w.place) FROM w)::pg_catalog.text AS last, (SELECT pg_catalog.count(*) FROM w)::pg_catalog.text AS seen,
       (SELECT pg_catalog.count(*) FROM done)::pg_catalog.text AS written`
}

/** The notes after the place $1, at most $2 of them. */
export const readQueue = (on: Held): string =>
  `SELECT q.seq::pg_catalog.text AS seq FROM ${queueOf(on)} AS q WHERE q.seq OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ` +
  `ORDER BY q.seq LIMIT $2::pg_catalog.int8`

/** Notes of chains that we have numbered, whose anchor is there with its flag: should it go, that is noted anew. */
export const dropNumbered = (on: Held): string =>
  `DELETE FROM ${queueOf(on)} AS q WHERE q.numbered AND EXISTS (SELECT FROM ${own(on)} WHERE ${isOfChain(on, 'q')} ` +
  `AND t.${quote(on.table.number)} OPERATOR(pg_catalog.=) 0 AND t.${quote(on.table.chained)})`

/** How many notes there are, counted up to $1. */
export const countQueue = (on: Held): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS notes FROM ` +
  `(SELECT FROM ${queueOf(on)} LIMIT $1::pg_catalog.int8) AS q`

/**
 * Of each chain that the notes $1 name: the row of the lowest number and the rows without a real number, locked, and the
 * highest real number. A row that somebody else has locked comes without `spot`: its chain must not be touched. The
 * other rows are not read, for a text may stand in any number of them. Uses the unique index.
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

/** The chains of the notes $1 by their names in `lockChains`; a note of the same chain stands for it too. */
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

/** Gives the rows at the spots $1, which are locked, the numbers $2 and the flags $3. */
export function writeNumbers(on: Held): string {
  const { table } = on
  return `UPDATE ${own(on)} SET ${quote(table.number)} = w.number, ${quote(table.chained)} = w.chained
  FROM ${unnest(['$1::pg_catalog.tid[]', '$2::pg_catalog.int4[]', '$3::pg_catalog.bool[]'])} AS w (spot, number, chained)
 WHERE t.ctid OPERATOR(pg_catalog.=) w.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`
}

/** Gives the rows at the spots $1, which are locked, other texts: they leave their chains, and the new ones are noted. */
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

/** Rows that hold the same text: groups, surplus rows, the largest group, and the keys of the first ones. */
export function findDuplicates(on: AdoptedTable, limit: number): string {
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

/** Rows that violate NOT NULL, by key; read without a lock. */
export const findNulls = (on: Adopting, column: string, limit: number): string =>
  `SELECT ${primaryKeyAsJson(on, 't')}::pg_catalog.text AS key FROM ${own(on)} WHERE ${field('t', column)} IS NULL LIMIT ${limit}`

/** Of the adoption $1. */
export const readState = (schema: string): string =>
  `SELECT a.state::pg_catalog.text AS state FROM ${qualified(schema, 'unique_text_adoptions')} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/** Adds members $2 to it, or begins it. */
export const writeState = (on: Pick<Adopting, 'table'>): string =>
  `INSERT INTO ${adoptions(on)} AS a (guard, state) VALUES ($1::pg_catalog.text, $2::pg_catalog.jsonb)
ON CONFLICT (guard) DO UPDATE SET state = a.state OPERATOR(pg_catalog.||) excluded.state`

export const forgetState = (on: Pick<Adopting, 'table'>): string =>
  `DELETE FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`
