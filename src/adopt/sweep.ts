import { countBytes, countPages, fillPages, noteRefused, type Pages, readTexts, type Wanted } from '../sql/adopt-fill'
import { vacuumTable } from '../sql/adopt-table'
import { type AdoptSession, BatchSize } from './session'
import { normalizeTexts, type Target } from './target'

/** How far a sweep over the table's pages has come. */
interface Sweep {
  readonly wanted: Wanted
  /** The first page that the sweep has not read. */
  readonly page: number
  /** How many pages the table had when the sweep began; rows of later pages bring their hashes. */
  readonly pages: number
}

/** Rows of one batch as they were read. */
type StoredTexts = Readonly<Record<string, string | null>> & { readonly spot: string }

/** What became of the rows of some pages: a row that somebody had locked was seen and not written. */
interface Filled {
  readonly seen: number
  readonly written: number
  readonly normalized: number
}

/** Committing the rows of one page costs more than writing them. */
const LEAST_PAGES = 16
/** How often a sweep frees the space of old row versions for new ones: otherwise the heap would double. */
const VACUUMS = 4
const VACUUM_LEAST_PAGES = 1_000

const NOTHING: Filled = { seen: 0, written: 0, normalized: 0 }

const sum = (one: Filled, other: Filled): Filled => ({
  seen: one.seen + other.seen,
  written: one.written + other.written,
  normalized: one.normalized + other.normalized,
})

export async function pagesOf(session: AdoptSession, { on }: Target): Promise<number> {
  const [row] = await session.query<{ pages: string }>(countPages(on))
  return Number(row?.pages ?? 0)
}

/**
 * Gives all rows that stand in these pages their hashes, batch by batch.
 *
 * @param onBatch notified after each, with the rows so far and the page that comes next
 */
export async function sweepPages(
  session: AdoptSession,
  target: Target,
  sweep: Sweep,
  onBatch: (filled: Filled, page: number) => void,
): Promise<Filled> {
  const size = new BatchSize(session.manners.batch, LEAST_PAGES, LEAST_PAGES)
  const vacuumed = Math.max(VACUUM_LEAST_PAGES, Math.ceil(sweep.pages / VACUUMS))
  let all = NOTHING
  for (let page = sweep.page; page < sweep.pages;) {
    const to = Math.min(page + size.value, sweep.pages)
    const started = performance.now()
    for await (const part of partsOf(session, target, { from: page, to }, sweep.wanted)) {
      all = sum(all, await fillBatch(session, target, sweep, part))
    }
    size.took(performance.now() - started, to - page)
    if (Math.floor(to / vacuumed) > Math.floor(page / vacuumed)) await session.query(vacuumTable(target.on))
    page = to
    onBatch(all, page)
    await session.breathe()
  }
  return all
}

/** So many bytes of texts are read at once. As parameters they are there several times over, with what they become. */
const MOST_BYTES = 16e6
/** More than a page has. */
const LINES = 2_048

/** Parts of these pages, each with few enough bytes of texts to be read, or a row: rows move as they are written. */
export async function* partsOf(
  session: AdoptSession,
  target: Target,
  pages: Pages,
  wanted: Wanted,
): AsyncGenerator<Pages, void, undefined> {
  const { from, to, lines: [first, last] = [0, LINES] } = pages
  if (!target.normalizes || last - first === 1 || (await bytesOf(session, target, pages, wanted)) <= MOST_BYTES) {
    yield pages
    return
  }
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
  for (const half of halves) yield* partsOf(session, target, half, wanted)
}

async function bytesOf(session: AdoptSession, { on }: Target, pages: Pages, wanted: Wanted): Promise<number> {
  const [row] = await session.query<{ bytes: string }>(countBytes(on, pages, wanted))
  return Number(row?.bytes ?? 0)
}

async function fillBatch(session: AdoptSession, target: Target, sweep: Sweep, part: Pages): Promise<Filled> {
  const { on, normalizes } = target
  const { wanted, pages } = sweep
  const changes = normalizes ? await readChanges(session, target, part, wanted) : []
  const stored = JSON.stringify({ wanted, page: part.lines ? part.from : part.to, pages })
  const [row] = await session.query<Record<'seen' | 'written', string>>(
    fillPages(on, part, wanted, changes.length > 0),
    [on.table.guard, stored, ...columnsOf(target, changes)],
  )
  return { seen: Number(row?.seen ?? 0), written: Number(row?.written ?? 0), normalized: changes.length }
}

interface TextChange {
  readonly spot: string
  readonly before: readonly (string | null)[]
  readonly after: readonly (string | null)[]
}

/** Spots, then old and new texts of each column; nothing where there are no changes. */
function columnsOf({ on }: Target, changes: readonly TextChange[]): unknown[] {
  if (changes.length === 0) return []
  const texts = on.table.text.flatMap((_, index) => [
    changes.map(({ before }) => before[index] ?? null),
    changes.map(({ after }) => after[index] ?? null),
  ])
  return [changes.map(({ spot }) => spot), ...texts]
}

async function readChanges(session: AdoptSession, target: Target, pages: Pages, wanted: Wanted): Promise<TextChange[]> {
  const rows = await session.query<StoredTexts>(readTexts(target.on, pages, wanted))
  const changes: TextChange[] = []
  const refused: { readonly spot: string; readonly reason: string }[] = []
  for (const row of rows) {
    const before = readTextsOf(target, row)
    const normalized = normalizeTexts(target.declaration, before)
    if ('refused' in normalized) refused.push({ spot: row.spot, reason: normalized.refused })
    else if (normalized.changed) changes.push({ spot: row.spot, before, after: normalized.texts })
  }
  await reportRefused(session, target, refused)
  return changes
}

/** The texts of a row that was read as `c0`, …. */
export const readTextsOf = ({ on }: Target, row: Readonly<Record<string, string | null>>): (string | null)[] =>
  on.table.text.map((_, index) => row[`c${index}`] ?? null)

export async function reportRefused(
  session: AdoptSession,
  { on }: Target,
  refused: readonly { readonly spot: string; readonly reason: string }[],
): Promise<void> {
  if (refused.length === 0) return
  await session.query(noteRefused(on), [refused.map(({ spot }) => spot), refused.map(({ reason }) => reason)])
}
