import {
  countQueue,
  dropNotes,
  dropNumbered,
  lockChains,
  numberChains,
  readQueue,
  writeNumbers,
  writeTexts,
} from '../sql/adopt-chains'
import { BY_INDEX } from '../sql/adopt-table'
import { type AdoptSession, BatchSize, Later } from './session'
import { readTextsOf, reportRefused } from './sweep'
import { normalizeTexts, type Target } from './target'

const FIRST_ROWS = 200
const LEAST_ROWS = 20

/** So few notes that the last transaction, which holds the lock, settles them at once. */
export const LAST_NOTES = 20
/** As many notes as there may still be time for, if clients write as quickly as notes are settled. */
export const MOST_NOTES = 200

type Numbered = Readonly<Record<'last' | 'seen' | 'written', string | null>>

/** Numbers the rows that wait in the table of work: 0, 1, 2 … within each chain, duplicates too. */
export async function settleNumbers(session: AdoptSession, { on }: Target): Promise<number> {
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS)
  let [last, numbered, stuck] = ['0', 0, 0]
  for (let rounds = 1; ;) {
    const started = performance.now()
    const [row] = await session.patiently(
      'number',
      async () => await session.query<Numbered>(numberChains(on), [last, size.value]),
    )
    const [seen, written] = [Number(row?.seen ?? 0), Number(row?.written ?? 0)]
    if (seen > 0) size.took(performance.now() - started, seen)
    numbered += written
    stuck += seen - written
    if (seen > 0) last = row?.last ?? last
    else if (stuck === 0) return numbered
    else {
      await session.rest(rounds)
      rounds += 1
      ;[last, stuck] = ['0', 0]
    }
    await session.breathe()
  }
}

/** By the unique index, which is not there while they are made. */
export async function forgetNumbered(session: AdoptSession, { on }: Target): Promise<void> {
  await session.patiently('index', async () => await session.query(dropNumbered(on)))
}

/** How many notes there are, of which at most so many are counted. */
export async function notesLeft(session: AdoptSession, { on }: Target, limit: number): Promise<number> {
  const [row] = await session.query<{ notes: string }>(countQueue(on), [limit])
  return Number(row?.notes ?? 0)
}

/**
 * Goes once through the notes that there are now. Notes that come meanwhile wait for the next round, or it would follow
 * its clients for ever.
 *
 * @returns how many chains somebody else had locked
 */
export async function settleAll(session: AdoptSession, target: Target): Promise<number> {
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS)
  let stuck = 0
  for (let last = '0'; ;) {
    const wanted = size.value
    const notes = await notesAfter(session, target, last, wanted)
    if (notes.length === 0) return stuck
    const started = performance.now()
    stuck += await session.patiently('number', async () => await settleNotes(session, target, notes))
    size.took(performance.now() - started, notes.length)
    if (notes.length < wanted) return stuck
    last = notes.at(-1) ?? last
    await session.breathe()
  }
}

/** Settles all notes that are left, under the lock of the transaction. @throws Later if it cannot be done now */
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

async function notesAfter(session: AdoptSession, { on }: Target, last: string, limit: number): Promise<string[]> {
  const notes = await session.query<{ seq: string }>(readQueue(on), [last, limit])
  return notes.map(({ seq }) => seq)
}

/** A row of a chain as it is read, locked; one that somebody else has locked has no spot. */
type ChainRow = Readonly<Record<string, string | null>>

/** What to write into the rows of some chains. */
interface Writes {
  readonly numbers: { readonly spot: string; readonly number: number; readonly chained: boolean }[]
  readonly texts: { readonly spot: string; readonly texts: readonly (string | null)[] }[]
  readonly refused: { readonly spot: string; readonly reason: string }[]
}

/** @returns how many chains are left as they are, because somebody has a row of theirs locked */
async function settleNotes(session: AdoptSession, target: Target, notes: readonly string[]): Promise<number> {
  const { on } = target
  const chains = new Map<string, ChainRow[]>()
  for (const row of await session.query<ChainRow>(lockChains(on), [notes])) {
    const chain = row['chain'] ?? ''
    chains.set(chain, [...(chains.get(chain) ?? []), row])
  }
  const writes: Writes = { numbers: [], texts: [], refused: [] }
  const stuck: string[] = []
  for (const [chain, rows] of chains) {
    if (rows.some(({ spot }) => spot === null) || !planChain(target, rows, writes)) stuck.push(chain)
  }
  await write(session, target, writes)
  await session.query(dropNotes(on), [notes, stuck])
  return stuck.length
}

async function write(session: AdoptSession, target: Target, { numbers, texts, refused }: Writes): Promise<void> {
  const { on } = target
  await reportRefused(session, target, refused)
  if (texts.length > 0) {
    const columns = on.table.text.map((_, index) => texts.map((one) => one.texts[index] ?? null))
    await session.query(writeTexts(on), [texts.map(({ spot }) => spot), ...columns])
  }
  if (numbers.length === 0) return
  const of = <T>(member: (one: Writes['numbers'][number]) => T): T[] => numbers.map(member)
  await session.query(writeNumbers(on), [of((one) => one.spot), of((one) => one.number), of((one) => one.chained)])
}

/**
 * Texts that are not normalized leave the chain; of the rest the first is the anchor, and each has a number.
 *
 * @returns false where the chain has to be read again: the anchor leaves rows behind that were not read
 */
function planChain(target: Target, rows: readonly ChainRow[], writes: Writes): boolean {
  const staying = rows.filter((row) => !leaves(target, row, writes))
  const highest = Number(rows[0]?.['highest'])
  const unread = highest > Number(rows[0]?.['number'])
  if (unread && staying[0] !== rows[0]) return false
  let next = Math.max(0, highest) + 1
  for (const [position, row] of staying.entries()) {
    const had = Number(row['number'])
    const number = position === 0 ? 0 : next++
    const chained = position === 0 && (staying.length > 1 || unread)
    const same = number === had && chained === (row['chained'] === 'yes')
    if (!same) writes.numbers.push({ spot: row['spot'] ?? '', number, chained })
  }
  return true
}

function leaves(target: Target, row: ChainRow, { texts, refused }: Writes): boolean {
  if (!target.normalizes) return false
  const spot = row['spot'] ?? ''
  const normalized = normalizeTexts(target.declaration, readTextsOf(target, row))
  if ('refused' in normalized) refused.push({ spot, reason: normalized.refused })
  else if (normalized.changed) texts.push({ spot, texts: normalized.texts })
  return 'changed' in normalized && normalized.changed
}
