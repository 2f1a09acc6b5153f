import { quote } from '../sql/identifier'
import { bytewise, field, hashExpression, isLive } from '../sql/text-table'
import { alterTexts, normalizeRows, type ReadRow, selectTexts, valuesOfChanges } from './pages'
import { type AdoptSession, Later } from './session'
import {
  type AdoptedTable,
  BY_INDEX,
  FIRST_TEMPORARY_NUMBER,
  makeWorklist,
  nextNumber,
  own,
  queueOf,
  samePrimary,
  worklistOf,
} from './table'
import type { Target } from './target'
import type { AdoptRun } from './work'

/** The hash of a text that is given as `n0`, …. */
export const newHash = ({ table }: AdoptedTable): string =>
  hashExpression(
    { digest: table.digest, text: table.text.map(({ prefix }, index) => ({ name: `n${index}`, prefix })) },
    'c',
  )

export const chainColumns = ({ table }: AdoptedTable): string =>
  [...table.scope.map((_, index) => `s${index}`), 'hash'].join(', ')

/** WITH queries that write changed texts. The rows leave their chains and get own numbers; the new chains are noted. */
export function moveTexts(on: AdoptedTable, first: number, lock: 'FOR UPDATE' | 'FOR NO KEY UPDATE'): string {
  const [hash, number, chained] = [on.table.hash, on.table.number, on.table.chained].map(quote)
  const set = [`${hash} = ${newHash(on)}`, `${number} = ${nextNumber(on)}`, `${chained} = false`]
  return `${alterTexts(on, first, lock, set)},
noted AS (INSERT INTO ${queueOf(on)} (${chainColumns(on)}) SELECT * FROM altered)`
}

/** The chain of a row `t`, as `s0`, … and `hash`. */
const chainFields = ({ table }: AdoptedTable): string =>
  [...table.scope.map((name, index) => `${field('t', name)} AS s${index}`), `${field('t', table.hash)} AS hash`].join(
    ', ',
  )

const isOfChain = ({ table }: AdoptedTable, chain: string): string =>
  [
    ...table.scope.map((name, index) => `${field('t', name)} OPERATOR(pg_catalog.=) ${chain}.s${index}`),
    `${field('t', table.hash)} OPERATOR(pg_catalog.=) ${chain}.hash`,
    ...isLive(table, 't'),
  ].join(' AND ')

/** The rows with texts of several rows, for FROM after the WITH query `chains`, and what rows of equal texts share. */
export function rowsOfChains(on: AdoptedTable): Readonly<Record<'chains' | 'rows' | 'by', string>> {
  const { table } = on
  const flagged = [field('t', table.chained), ...isLive(table, 't')].join(' AND ')
  const by = [...table.scope.map((name) => field('t', name)), ...table.text.map(({ name }) => bytewise('t', name))]
  return {
    chains: `c AS MATERIALIZED (SELECT ${chainFields(on)} FROM ${own(on)} WHERE ${flagged})`,
    rows: `c JOIN ${own(on)} ON ${isOfChain(on, 'c')}`,
    by: by.join(', '),
  }
}

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
  const keys = primary.map((name) => field('t', name))
  const several = `several AS MATERIALIZED (
  SELECT ${chainFields(on)} FROM ${own(on)} WHERE ${known.join(' AND ')} GROUP BY ${chain.join(', ')}
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1 OR pg_catalog.min(${number}) OPERATOR(pg_catalog.>) 0)`
  return [
    ...makeWorklist(
      on,
      `WITH ${several}
SELECT pg_catalog.row_number() OVER () AS place, w.* FROM (
  SELECT ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${hash} AS hash,
         (pg_catalog.row_number() OVER (PARTITION BY ${chain.join(', ')} ORDER BY ${[number, ...keys].join(', ')}) OPERATOR(pg_catalog.-) 1)::pg_catalog.int4 AS number,
         ${table.scope.map((name, index) => `${field('t', name)} AS s${index}, `).join('')}true AS due
    FROM several AS c JOIN ${own(on)} ON ${isOfChain(on, 'c')} WHERE ${known.join(' AND ')}) AS w`,
    ),
    `INSERT INTO ${queueOf(on)} (${chainColumns(on)}, numbered) SELECT ${chainColumns(on)}, true FROM ${worklistOf(on)} AS w WHERE w.number OPERATOR(pg_catalog.=) 0`,
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
  SELECT * FROM ${worklistOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8
   ORDER BY w.place LIMIT $2::pg_catalog.int8),
seen AS MATERIALIZED (SELECT w.place FROM w JOIN ${own(on)} ON ${samePrimary(on, 'w.k')}),
held AS MATERIALIZED (
  SELECT t.ctid AS spot, w.* FROM w JOIN ${own(on)} ON ${samePrimary(on, 'w.k')} FOR NO KEY UPDATE OF t SKIP LOCKED),
written AS (
  UPDATE ${own(on)} SET ${number} = h.number, ${chained} = h.number OPERATOR(pg_catalog.=) 0 FROM held AS h
   WHERE ${samePrimary(on, 'h.k')} AND t.ctid OPERATOR(pg_catalog.=) h.spot AND ${isOfChain(on, 'h')}
     AND t.${number} OPERATOR(pg_catalog.<) ${FIRST_TEMPORARY_NUMBER}),
done AS (
  DELETE FROM ${worklistOf(on)} AS o USING w WHERE o.place OPERATOR(pg_catalog.=) w.place
     AND (EXISTS (SELECT FROM held AS h WHERE h.place OPERATOR(pg_catalog.=) w.place)
       OR NOT EXISTS (SELECT FROM seen AS s WHERE s.place OPERATOR(pg_catalog.=) w.place))
  RETURNING 1)
SELECT (SELECT pg_catalog.max(w.place) FROM w)::pg_catalog.text AS last, (SELECT pg_catalog.count(*) FROM w)::pg_catalog.text AS seen,
       (SELECT pg_catalog.count(*) FROM done)::pg_catalog.text AS written`
}

/** Selects the notes after the place $1, at most $2 of them. */
export const readQueue = (on: AdoptedTable): string =>
  `SELECT q.seq::pg_catalog.text AS seq FROM ${queueOf(on)} AS q WHERE q.seq OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ` +
  `ORDER BY q.seq LIMIT $2::pg_catalog.int8`

/** Deletes the notes of numbered chains whose flagged anchor exists. If it is deleted, a trigger notes it anew. */
export const dropNumbered = (on: AdoptedTable): string =>
  `DELETE FROM ${queueOf(on)} AS q WHERE q.numbered AND EXISTS (SELECT FROM ${own(on)} WHERE ${isOfChain(on, 'q')} ` +
  `AND t.${quote(on.table.number)} OPERATOR(pg_catalog.=) 0 AND t.${quote(on.table.chained)})`

/**
 * WITH queries that lock rows `held` of each chain `c` that the notes $1 name: the row with the lowest number, and the
 * rows without a real number. Rows that another session has locked are only `seen`. The other rows are not read, because
 * any number of them may hold a text. Uses the unique index.
 *
 * @param which the rows without a real number that may be locked
 */
function lockChains(on: AdoptedTable, which = 'true'): string {
  const { table, primary } = on
  const number = field('t', table.number)
  const real = `${number} OPERATOR(pg_catalog.<) ${FIRST_TEMPORARY_NUMBER}`
  const first = (order: string): string =>
    `(SELECT ${number} FROM ${own(on)} WHERE ${isOfChain(on, 'c')} AND ${real} ORDER BY ${number} ${order} LIMIT 1)`
  const spots = (which: string): string =>
    `SELECT b.chain, b.highest, t.ctid AS spot FROM b JOIN ${own(on)} ON ${isOfChain(on, 'b')} AND ${which}`
  return `c AS MATERIALIZED (
  SELECT pg_catalog.min(q.seq) AS chain, ${chainColumns(on)} FROM ${queueOf(on)} AS q
   WHERE q.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) GROUP BY ${chainColumns(on)}),
b AS MATERIALIZED (SELECT c.*, ${first('ASC')} AS lowest, coalesce(${first('DESC')}, -1) AS highest FROM c),
seen AS MATERIALIZED (
  ${spots(`${number} OPERATOR(pg_catalog.=) b.lowest`)}
  UNION ALL ${spots(`NOT ${real}`)}),
held AS MATERIALIZED (
  SELECT s.*, ${number} AS number, ${primary.map((name, index) => `${field('t', name)} AS k${index}`).join(', ')}, ${selectTexts(on)}
    FROM seen AS s JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) s.spot AND (${real} OR ${which})
     FOR UPDATE OF t SKIP LOCKED)`
}

/** Locks the rows of noted chains, and selects their texts. */
export const readNoted = (on: AdoptedTable): string =>
  `WITH ${lockChains(on)}
SELECT h.spot::pg_catalog.text AS spot, ${on.table.text.map((_, index) => `h.c${index}`).join(', ')} FROM held AS h`

/**
 * Makes the first row of each noted chain its anchor, numbers the others after it, and removes the notes. Returns how many
 * chains are left unchanged, because another session has locked a row, or has written one that is not at the spots $2.
 */
export function settleChains(on: AdoptedTable): string {
  const { table, primary } = on
  const [number, chained] = [table.number, table.chained].map(quote)
  const keys = ['number', ...primary.map((_, index) => `k${index}`)].map((name) => `h.${name}`)
  const sameChain = [...table.scope.map((_, index) => `s${index}`), 'hash'].map(
    (name) => `q.${name} OPERATOR(pg_catalog.=) c.${name}`,
  )
  // This transaction writes only texts that it has normalized.
  const isKnown = `coalesce(t.ctid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.tid[]), true)
       OR t.xmin OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.xid`
  return `WITH ${lockChains(on, isKnown)},
stuck AS MATERIALIZED (
  SELECT DISTINCT s.chain FROM seen AS s WHERE NOT EXISTS (SELECT FROM held AS h WHERE h.spot OPERATOR(pg_catalog.=) s.spot)),
ranked AS (
  SELECT h.*, pg_catalog.row_number() OVER (PARTITION BY h.chain ORDER BY ${keys.join(', ')}) AS rank,
         pg_catalog.count(*) OVER (PARTITION BY h.chain) AS rows
    FROM held AS h WHERE h.chain OPERATOR(pg_catalog.<>) ALL (SELECT s.chain FROM stuck AS s)),
placed AS (
  SELECT r.*, r.rank OPERATOR(pg_catalog.=) 1 AND (r.rows OPERATOR(pg_catalog.>) 1 OR r.highest OPERATOR(pg_catalog.>) r.number) AS flag,
         CASE r.rank WHEN 1 THEN 0 ELSE (greatest(r.highest, 0) OPERATOR(pg_catalog.+) r.rank OPERATOR(pg_catalog.-) 1)::pg_catalog.int4 END AS place
    FROM ranked AS r),
written AS (
  UPDATE ${own(on)} SET ${number} = p.place, ${chained} = p.flag FROM placed AS p
   WHERE ${samePrimary(on, 'p.k')} AND t.ctid OPERATOR(pg_catalog.=) p.spot
     AND (t.${number} OPERATOR(pg_catalog.<>) p.place OR t.${chained} OPERATOR(pg_catalog.<>) p.flag)),
done AS (
  DELETE FROM ${queueOf(on)} AS q USING c WHERE q.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])
     AND ${sameChain.join(' AND ')} AND c.chain OPERATOR(pg_catalog.<>) ALL (SELECT s.chain FROM stuck AS s))
SELECT pg_catalog.count(*)::pg_catalog.text AS stuck FROM stuck`
}

/** Few rows, because a client may wait for them. */
export const TEXT_BATCH = { first: 200, least: 20 }

/** Few enough notes for the last transaction, which holds the lock, to settle at once. */
const LAST_NOTES = 20

/** The most notes to settle in one step, while clients write as quickly as notes are settled. */
const MOST_NOTES = 200

export type Filled = Readonly<Record<'seen' | 'written', string | null>>

/** Processes what clients write meanwhile, until the remaining rows can be processed under the lock. */
export async function settleMost({ session, options, target }: AdoptRun): Promise<void> {
  let before = Infinity
  for (let rounds = 1; ; rounds += 1) {
    let [last, stuck] = ['0', 0]
    // Reads the current notes once. Later notes wait for the next round, or this round might never end.
    await session.atPace(TEXT_BATCH, async (limit) => {
      const notes = await notesAfter(session, target, last, limit)
      if (notes.length > 0)
        stuck += await session.patiently('number', async () => await settleNotes(session, target, notes))
      last = notes.at(-1) ?? last
      return { done: notes.length, more: notes.length === limit }
    })
    const [row] = await session.query<{ notes: string }>(
      `SELECT pg_catalog.count(*)::pg_catalog.text AS notes FROM ` +
        `(SELECT FROM ${queueOf(target)} LIMIT $1::pg_catalog.int8) AS q`,
      [MOST_NOTES + 1],
    )
    const left = Number(row?.notes ?? 0)
    options.onProgress?.({ step: 'guard', fraction: undefined, rows: left })
    if (stuck === 0 && (left <= LAST_NOTES || (left >= before && left <= MOST_NOTES))) return
    before = left
    if (stuck > 0) await session.rest(rounds)
  }
}

/** Settles all remaining notes, under the lock of the transaction. @throws Later if that cannot be done now */
export async function settleRest(session: AdoptSession, target: Target): Promise<void> {
  await session.query(BY_INDEX)
  // A text that is normalized moves to another chain, which is noted.
  for (let round = 0; round < 3; round += 1) {
    const notes = await notesAfter(session, target, '0', MOST_NOTES + 1)
    if (notes.length === 0) return
    if (notes.length > MOST_NOTES || (await settleNotes(session, target, notes)) > 0) break
  }
  throw new Later('There is more to do than the lock has time for.')
}

async function notesAfter({ query }: AdoptSession, on: AdoptedTable, last: string, limit: number): Promise<string[]> {
  return (await query<{ seq: string }>(readQueue(on), [last, limit])).map(({ seq }) => seq)
}

/** @returns how many chains are left unchanged, because another session has locked a row */
async function settleNotes(session: AdoptSession, target: Target, notes: readonly string[]): Promise<number> {
  let known: (string | null | undefined)[] | undefined
  if (target.normalizes) {
    const rows = await session.query<ReadRow>(readNoted(target), [notes])
    const changes = await normalizeRows(session, target, rows)
    if (changes.length > 0) {
      const sql = `WITH ${moveTexts(target, 1, 'FOR UPDATE')} SELECT FROM altered`
      await session.query(sql, valuesOfChanges(target, changes))
    }
    // A row that another session has written since has perhaps a text that is not normalized.
    known = rows.map(({ spot }) => spot)
  }
  const [row] = await session.query<{ stuck: string }>(settleChains(target), [notes, known])
  return Number(row?.stuck ?? 0)
}
