import type { AdoptSession } from './session'
import { countBytes, countPages, noteRefused, type Pages, readTexts, type Wanted } from './sql/texts'
import { normalizeStored, type Target } from './target'

/** A text that the normalizer changes, and its row. */
export interface TextChange {
  readonly spot: string
  readonly before: readonly (string | null)[]
  readonly after: readonly (string | null)[]
}

/** The texts of a row that was read as `c0`, …. */
export const readTextsOf = ({ on }: Target, row: Readonly<Record<string, string | null>>): (string | null)[] =>
  on.table.text.map((_, index) => row[`c${index}`] ?? null)

/** Old and new texts of each column, for a statement. */
export const columnsOfChanges = ({ on }: Target, changes: readonly TextChange[]): unknown[] =>
  on.table.text.flatMap((_, index) => [
    changes.map(({ before }) => before[index] ?? null),
    changes.map(({ after }) => after[index] ?? null),
  ])

/** Normalizes the texts of some pages without writing them, and notes the refused ones. */
export async function readChanges(
  session: AdoptSession,
  target: Target,
  pages: Pages,
  wanted: Wanted,
): Promise<TextChange[]> {
  const changes: TextChange[] = []
  const refused: RefusedSpot[] = []
  for (const row of await session.query<Record<string, string | null>>(readTexts(target.on, pages, wanted))) {
    const [spot, before] = [row['spot'] ?? '', readTextsOf(target, row)]
    const normalized = normalizeStored(target.declaration.text, before)
    if ('refused' in normalized) refused.push({ spot, reason: normalized.refused })
    else if (normalized.changed) changes.push({ spot, before, after: normalized.texts })
  }
  await reportRefused(session, target, refused)
  return changes
}

/** A row whose text is refused. */
export interface RefusedSpot {
  readonly spot: string
  readonly reason: string
}

export async function reportRefused(
  { query }: AdoptSession,
  { on }: Target,
  refused: readonly RefusedSpot[],
): Promise<void> {
  if (refused.length === 0) return
  await query(noteRefused(on), [refused.map(({ spot }) => spot), refused.map(({ reason }) => reason)])
}

/** The position of a sweep over the table's pages. */
export interface Sweep {
  readonly wanted: Wanted
  /** The number of the next page to read. */
  readonly page: number
  /** The number of pages of the table when the sweep began. Rows of later pages have their hashes. */
  readonly pages: number
}

/** Committing the rows of one page costs more than writing them. */
const PAGE_BATCH = { first: 16, least: 16, fewest: 1 }

export async function pagesOf({ query }: AdoptSession, { on }: Target): Promise<number> {
  const [row] = await query<{ pages: string }>(countPages(on))
  return Number(row?.pages ?? 0)
}

/**
 * Processes the pages of a table, batch by batch.
 *
 * @param work processes some of the pages; returns how many rows another session had locked
 * @param onBatch called after each batch with the next page; returns whether to stop
 * @returns how many rows are left
 */
export async function sweepPages(
  session: AdoptSession,
  target: Target,
  { wanted, page: from, pages }: Sweep,
  work: (part: Pages) => Promise<number>,
  onBatch: (page: number) => Promise<boolean> | boolean,
): Promise<number> {
  let [page, left] = [from, 0]
  if (page >= pages) return left
  await session.inBatches(PAGE_BATCH, async (size) => {
    const to = Math.min(page + size, pages)
    const done = to - page
    for await (const part of pagePartsOf(session, target, { from: page, to }, wanted)) left += await work(part)
    page = to
    return { done, more: !(await onBatch(page)) && page < pages }
  })
  return left
}

/** The most bytes of texts to read at once. As parameters, they exist several times, with the normalized texts. */
const MOST_BYTES = 16e6
/** More lines than a page has. */
const LINES = 2_048

/** Parts of these pages, each read with few enough bytes of texts, or of one row. Rows move as they are written. */
async function* pagePartsOf(
  session: AdoptSession,
  target: Target,
  pages: Pages,
  wanted: Wanted,
): AsyncGenerator<Pages, void, undefined> {
  const { from, to, lines: [first, last] = [0, LINES] } = pages
  if (target.normalizes && last - first > 1) {
    const [row] = await session.query<{ bytes: string }>(countBytes(target.on, pages, wanted))
    if (Number(row?.bytes ?? 0) > MOST_BYTES) {
      const [middle, line] = [Math.ceil((from + to) / 2), Math.ceil((first + last) / 2)]
      const halves: readonly Pages[] =
        to - from > 1
          ? [
              { from, to: middle },
              { from: middle, to },
            ]
          : [
              { from, to, lines: [first, line] },
              { from, to, lines: [line, last] },
            ]
      for (const half of halves) yield* pagePartsOf(session, target, half, wanted)
      return
    }
  }
  yield pages
}
