import type { ObjectLiteral } from 'typeorm'
import { TextRejectedError } from '../errors'
import { literal, quote, unnest } from '../sql/identifier'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { bytewise, field, hashExpression, tableName, textIsNull } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { AdoptionError, type AdoptSession } from './session'
import { type AdoptedTable, keyAsJson, own, ownAlone, refusedOf, same, samePrimary, type Wanted } from './table'
import { KEYS_NAMED, ownConstraint } from './refusals'
import type { Target } from './target'
import type { AdoptReport, AdoptRun } from './work'

/** More lines than a page has. */
export const LINES = 2_048

/** The lines of a table from `from` up to, but without, `to`. Those of each page begin at a multiple of LINES. */
export interface Lines {
  readonly from: number
  readonly to: number
}

/** The lines of the first batch. */
export const FIRST_LINES: Lines = { from: 0, to: 16 * LINES }

/** Only numbers become SQL, because the stored state of an adoption may hold other values. */
const spotOf = (line: number): string => `'(${Math.floor(line / LINES)},${line % LINES})'::pg_catalog.tid`

export const inLines = ({ from, to }: Lines): string =>
  `t.ctid OPERATOR(pg_catalog.>=) ${spotOf(from)} AND t.ctid OPERATOR(pg_catalog.<) ${spotOf(to)}`

/** Whether the row should have a hash but has none. */
export function isUnfilled({ table }: AdoptedTable): string {
  const none = `t.${quote(table.hash)} IS NULL`
  return table.nullable ? `${none} AND NOT (${textIsNull(table, 't').join(' AND ')})` : none
}

export function isWanted(on: AdoptedTable, wanted: Wanted): string {
  if (wanted === 'missing') return isUnfilled(on)
  // The column may have existed before the adoption.
  const hash = `t.${quote(on.table.hash)}`
  const textless = textIsNull(on.table, 't').join(' AND ')
  const right = `${hash} OPERATOR(pg_catalog.=) ${hashExpression(on.table, 't')}`
  return on.table.nullable
    ? `NOT (CASE WHEN ${textless} THEN ${hash} IS NULL ELSE coalesce(${right}, false) END)`
    : `NOT coalesce(${right}, false)`
}

export const selectTexts = ({ table }: AdoptedTable): string =>
  table.text.map(({ name }, index) => `${field('t', name)}::pg_catalog.text AS c${index}`).join(', ')

/** Selects the texts to normalize, by `spot`. If the rows have another normalizer, it selects the text of every row. */
export const readTexts = (on: AdoptedTable, lines: Lines, wanted: Wanted): string =>
  `SELECT t.ctid::pg_catalog.text AS spot, ${selectTexts(on)} FROM ${own(on)} WHERE ${isRead(on, lines, wanted)}`

const isRead = (on: AdoptedTable, lines: Lines, wanted: Wanted): string =>
  `${inLines(lines)} AND ${wanted === 'missing' ? isUnfilled(on) : 'true'}`

/**
 * WITH queries that write changed texts to rows that still have the old ones, unless another session has locked them.
 * `altered` has the chains of the rows. The parameter $first has their spots; the old and new texts of each column follow.
 *
 * @param set further assignments, of the new texts `n0`, …
 */
export function alterTexts(
  on: AdoptedTable,
  first: number,
  lock: 'FOR UPDATE' | 'FOR NO KEY UPDATE',
  set: readonly string[] = [],
  where = 'true',
): string {
  const { table } = on
  const arrays = table.text.flatMap((_, index) => [first + 1 + 2 * index, first + 2 + 2 * index])
  const names = table.text.flatMap((_, index) => [`o${index}`, `n${index}`])
  const texts = table.text.map(({ name }, index) => `${quote(name)} = c.n${index}`)
  const unchanged = table.text.map(({ name }, index) => same(bytewise('t', name), `c.o${index} COLLATE pg_catalog."C"`))
  const here = `t.ctid OPERATOR(pg_catalog.=) ANY ($${first}::pg_catalog.tid[])`
  return `changed AS (
  SELECT c.* FROM ${unnest([`$${first}::pg_catalog.tid[]`, ...arrays.map((one) => `$${one}::pg_catalog.text[]`)])} AS c (spot, ${names.join(', ')})),
open AS MATERIALIZED (SELECT t.ctid AS spot FROM ${own(on)} WHERE ${here} AND ${where} ${lock} SKIP LOCKED),
altered AS (
  UPDATE ${own(on)} SET ${[...texts, ...set].join(', ')}
    FROM open JOIN changed AS c ON c.spot OPERATOR(pg_catalog.=) open.spot
   WHERE t.ctid OPERATOR(pg_catalog.=) open.spot AND ${here} AND ${unchanged.join(' AND ')}
  RETURNING ${[...table.scope, table.hash].map((name) => field('t', name)).join(', ')})`
}

/** The key of a row `r` of the list of refused rows. */
export const refusedKey = (on: AdoptedTable): string => keyAsJson(on, (_, index) => `r.k${index}`)

const keyParts = ({ primary }: AdoptedTable): string => primary.map((_, index) => `k${index}`).join(', ')

/** Selects the current texts of the refused rows. */
export const refusedTexts = (on: AdoptedTable): string =>
  `SELECT ${refusedKey(on)}::pg_catalog.text AS key, t.ctid::pg_catalog.text AS spot, ${selectTexts(on)} FROM ${refusedOf(on)} AS r JOIN ${own(on)} ON ${samePrimary(on, 'r.k')}`

/** Recreates the list of refused rows. */
export const createRefused = (on: AdoptedTable): string[] => [
  `DROP TABLE IF EXISTS ${refusedOf(on)}`,
  `CREATE TABLE ${refusedOf(on)} AS SELECT ${on.primary.map((name, index) => `t.${quote(name)} AS k${index}`).join(', ')}, ` +
    `''::pg_catalog.text AS reason FROM ${tableName(on.table)} AS t WITH NO DATA`,
  `ALTER TABLE ${refusedOf(on)} ADD PRIMARY KEY (${keyParts(on)})`,
  ownAlone(on, [refusedOf(on)]),
]

/** Writes new texts to the rows at the spots $1. The guard refuses a text that another row holds. */
export const renormalize = (on: AdoptedTable): string =>
  `WITH ${alterTexts(on, 1, 'FOR UPDATE')}
SELECT pg_catalog.count(*)::pg_catalog.text AS written FROM altered`

/** A text that the normalizer changes, and its row. */
export interface TextChange {
  readonly spot: string
  readonly before: readonly (string | null)[]
  readonly after: readonly (string | null)[]
}

/** A row as it was read, with its texts as `c0`, …. */
export type ReadRow = Readonly<Record<string, string | null>>

/** The texts of a row, as they are stored and normalized, or the reason why one of them is refused. */
type NormalizedRow = Omit<TextChange, 'spot'> & { readonly changed: boolean }

export function normalizeRow({ declaration }: Target, row: ReadRow): NormalizedRow | { readonly refused: string } {
  const before = declaration.text.map((_, index) => row[`c${index}`] ?? null)
  try {
    const after = declaration.text.map(({ normalizer, column }, index) => {
      const text = before[index] ?? null
      return text === null ? null : normalizeText(normalizer, column.propertyPath, text)
    })
    return { before, after, changed: after.some((text, index) => text !== before[index]) }
  } catch (error) {
    if (error instanceof TextRejectedError) return { refused: error.reason }
    throw error
  }
}

/** The parameters of a statement that writes changes: spots, and old and new texts of each column. */
export const valuesOfChanges = ({ declaration }: Target, changes: readonly TextChange[]): unknown[] => [
  changes.map(({ spot }) => spot),
  ...declaration.text.flatMap((_, index) => [
    changes.map(({ before }) => before[index] ?? null),
    changes.map(({ after }) => after[index] ?? null),
  ]),
]

/** Normalizes texts without writing them, and notes the refused ones. */
export async function normalizeRows(
  session: AdoptSession,
  target: Target,
  rows: readonly ReadRow[],
): Promise<TextChange[]> {
  const changes: TextChange[] = []
  const refused: RefusedSpot[] = []
  for (const row of rows) {
    const spot = row['spot'] ?? ''
    const normalized = normalizeRow(target, row)
    if ('refused' in normalized) refused.push({ spot, reason: normalized.refused })
    else if (normalized.changed) changes.push({ spot, ...normalized })
  }
  await reportRefused(session, target, refused)
  return changes
}

/** A row whose text is refused. */
interface RefusedSpot {
  readonly spot: string
  readonly reason: string
}

/** Notes rows whose texts are refused. */
async function reportRefused(
  { query }: AdoptSession,
  on: AdoptedTable,
  refused: readonly RefusedSpot[],
): Promise<void> {
  if (refused.length === 0) return
  await query(
    `INSERT INTO ${refusedOf(on)} (${keyParts(on)}, reason)
SELECT ${on.primary.map((name) => field('t', name)).join(', ')}, r.reason
  FROM ${unnest(['$1::pg_catalog.tid[]', '$2::pg_catalog.text[]'])} AS r (spot, reason)
  JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) r.spot
 WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])
ON CONFLICT (${keyParts(on)}) DO UPDATE SET reason = excluded.reason`,
    [refused.map(({ spot }) => spot), refused.map(({ reason }) => reason)],
  )
}

/** The position of a sweep over the table's pages. */
interface Sweep {
  readonly wanted: Wanted
  /** The number of the next page to read. */
  readonly page: number
  /** The number of pages of the table when the sweep began. Rows of later pages have their hashes. */
  readonly pages: number
}

/** Committing the rows of one page costs more than writing them. */
const PAGE_BATCH = { first: 16, least: 16, fewest: 1 }

/** The pages that a sweep reads. One look at the size is enough, because rows that are written later have their hashes. */
export async function pagesOf({ query }: AdoptSession, { table }: AdoptedTable): Promise<number> {
  const [row] = await query<{ pages: string }>(
    `SELECT (pg_catalog.pg_relation_size(${literal(tableName(table))}::pg_catalog.regclass) OPERATOR(pg_catalog./) ` +
      `pg_catalog.current_setting('block_size')::pg_catalog.int8)::pg_catalog.text AS pages`,
  )
  return Number(row?.pages ?? 0)
}

/**
 * Processes the pages of a table, batch by batch.
 *
 * @param work processes some of the pages; returns how many rows another session had locked
 * @param onBatch called after each batch with the next page
 * @returns how many rows are left
 */
export async function sweepPages(
  session: AdoptSession,
  target: Target,
  { wanted, page: from, pages }: Sweep,
  work: (part: Lines) => Promise<number>,
  onBatch: (page: number) => Promise<void>,
): Promise<number> {
  let [page, left] = [from, 0]
  if (page >= pages) return left
  await session.atPace(PAGE_BATCH, async (size) => {
    const to = Math.min(page + size, pages)
    const done = to - page
    const lines = { from: page * LINES, to: to * LINES }
    for await (const part of partsOf(session, target, lines, wanted)) left += await work(part)
    page = to
    await onBatch(page)
    return { done, more: page < pages }
  })
  return left
}

/** The most bytes of texts to read at once. As parameters, they exist several times, with the normalized texts. */
const MOST_BYTES = 16e6

/** Parts of these lines, each with few enough bytes of texts, or of one line. Rows move as they are written. */
async function* partsOf(
  session: AdoptSession,
  target: Target,
  lines: Lines,
  wanted: Wanted,
): AsyncGenerator<Lines, void, undefined> {
  const { from, to } = lines
  if (target.normalizes && to - from > 1) {
    const bytes = target.table.text.map(
      ({ name }) => `coalesce(pg_catalog.octet_length(${field('t', name)}::pg_catalog.text), 0)`,
    )
    // The server counts the bytes without reading them.
    const [row] = await session.query<{ bytes: string }>(
      `SELECT coalesce(pg_catalog.sum(${bytes.join(' OPERATOR(pg_catalog.+) ')}), 0)::pg_catalog.text AS bytes ` +
        `FROM ${own(target)} WHERE ${isRead(target, lines, wanted)}`,
    )
    if (Number(row?.bytes ?? 0) > MOST_BYTES) {
      const middle = Math.ceil((from + to) / 2)
      yield* partsOf(session, target, { from, to: middle }, wanted)
      yield* partsOf(session, target, { from: middle, to }, wanted)
      return
    }
  }
  yield lines
}

/** How many rows were written, and how many were refused and noted. The others are locked, or have another text now. */
type WrittenRows = Readonly<Record<'rows' | 'refused', number>>

/** Writes all changes at once, or one by one if one of them is refused. */
export async function writeChanges(
  session: AdoptSession,
  target: Target,
  changes: readonly TextChange[],
): Promise<WrittenRows> {
  const [first] = changes
  if (!first) return { rows: 0, refused: 0 }
  try {
    const [sql, values] = [renormalize(target), valuesOfChanges(target, changes)]
    const [row] = await session.together(async () => await session.query<{ written: string }>(sql, values))
    return { rows: Number(row?.written ?? 0), refused: 0 }
  } catch (error) {
    if (isBusyError(error)) return { rows: 0, refused: 0 }
    const reason = refusalOfText(error)
    if (reason === undefined) throw error
    if (changes.length === 1) {
      await reportRefused(session, target, [{ spot: first.spot, reason }])
      return { rows: 0, refused: 1 }
    }
    let [rows, refused] = [0, 0]
    for (const one of changes) {
      const written = await writeChanges(session, target, [one])
      rows += written.rows
      refused += written.refused
    }
    return { rows, refused }
  }
}

/** The reason why the database refuses a text; undefined if the error does not concern the row. */
function refusalOfText(error: unknown): string | undefined {
  const { code, constraint = '' } = serverError(error) ?? {}
  if (code === SQLSTATE.uniqueViolation) return `another row holds its normalized text (${quote(constraint)})`
  if (code === SQLSTATE.immutableText) return 'it is immutable'
  const refuses = ownConstraint(error, []) ?? 'the database'
  // P0 is an error of the user's trigger.
  return /^(?:23|P0)/.test(code ?? '') ? `${refuses} refuses it normalized (SQLSTATE ${code})` : undefined
}

/** Reads the first rows whose texts are refused, and the number of all. */
export async function refusedRows(
  { query }: AdoptSession,
  on: AdoptedTable,
): Promise<Pick<AdoptReport, 'rejected' | 'rejectedTotal'>> {
  const rows = await query<Record<'key' | 'reason' | 'total', string>>(
    `SELECT ${refusedKey(on)}::pg_catalog.text AS key, r.reason, ` +
      `pg_catalog.count(*) OVER ()::pg_catalog.text AS total FROM ${refusedOf(on)} AS r ORDER BY ${keyParts(on)} LIMIT ${KEYS_NAMED}`,
  )
  const rejected = rows.map(({ key, reason }) => ({ key: JSON.parse(key) as ObjectLiteral, reason }))
  return { rejected, rejectedTotal: Number(rows[0]?.total ?? 0) }
}

/** @throws AdoptionError if texts are refused, unless the caller keeps them */
export async function refuseListed({ session, options, target }: AdoptRun): Promise<void> {
  if (options.rejected === 'keep') return
  const { rejected, rejectedTotal } = await refusedRows(session, target)
  if (rejectedTotal === 0) return
  const reasons = [...new Set(rejected.map(({ reason }) => reason))].join('; ')
  throw new AdoptionError(
    'rejected',
    `The normalizer rejects the texts of ${rejectedTotal} rows of ${tableName(target.table)}: ${reasons}. ` +
      `Correct or delete them, or keep them as they are with --rejected keep. --json prints the keys of the first.`,
    undefined,
    rejected.map(({ key }) => key),
  )
}
