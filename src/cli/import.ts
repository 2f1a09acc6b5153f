import { setTimeout as sleep } from 'node:timers/promises'
import { setImmediate } from 'node:timers/promises'
import type { DataSource, ObjectLiteral } from 'typeorm'
import { hashNumberOf } from '../find-or-create/hydrate'
import { type FindOrCreateManyResult, type PreparedMany, prepareMany } from '../find-or-create/find-or-create-many'
import { ensureReady } from '../typeorm/readiness'
import type { ImportTarget } from './import-target'
import type { Line } from './lines'
import { refusalReason } from './reasons'
import { type ImportCounts, type RejectedLine, Tally } from './tally'

/** How an import ended. What it counts is committed. */
export interface ImportReport extends ImportCounts {
  readonly seconds: number
  /** The first five. */
  readonly rejections: readonly RejectedLine[]
  readonly end: ImportEnd
}

export type ImportEnd =
  | { readonly kind: 'done' }
  /** The signal was aborted. */
  | { readonly kind: 'interrupted' }
  /** The list could not be read on, or the server failed. The error is unchanged. */
  | { readonly kind: 'failed'; readonly error: unknown; readonly place: string }

export interface ImportOptions {
  /** Called after each batch. */
  readonly onProgress?: (counts: ImportCounts) => void
  /** Aborted: the batches that are at the server are the last. */
  readonly signal?: AbortSignal | undefined
}

const number = (value: number): string => value.toLocaleString('en-US')

const BATCH_LINES = 1_000
/** One is worked on while the answer to the other is read and the next is prepared. */
const BATCHES_AT_SERVER = 2
const SIGNAL_MILLISECONDS = 100
/** Characters, so that the memory stays as flat for a list of long lines. */
const BATCH_CHARACTERS = 4 * 2 ** 20

/**
 * Finds or creates a row for every line, in batches that each commit by themselves. A line that is refused is counted
 * and skipped. Two batches are at the server, on two connections, while the next is read and prepared; no more is held.
 *
 * @param lines as `readLines` gives them
 * @throws SchemaDriftError, UnsupportedDatabaseError before anything is read or written
 * @throws the driver's own error where it cannot connect; a failure after that is told in the report
 */
export async function importLines(
  dataSource: DataSource,
  target: ImportTarget,
  lines: AsyncIterable<readonly Line[]>,
  options: ImportOptions = {},
): Promise<ImportReport> {
  await ensureReady(target.declaration, async (sql, parameters) => await dataSource.query(sql, parameters))
  const started = performance.now()
  const tally = new Tally()
  const end = await sendAll({ dataSource, target, tally, ...options }, lines)
  // Ctrl-C also reaches a server started from the same terminal, and its farewell may come before our own signal.
  if (end.kind === 'failed') await sleep(SIGNAL_MILLISECONDS)
  return {
    ...tally.counts,
    rejections: tally.rejections,
    seconds: (performance.now() - started) / 1_000,
    end: options.signal?.aborted === true ? { kind: 'interrupted' } : end,
  }
}

interface Job extends ImportOptions {
  readonly dataSource: DataSource
  readonly target: ImportTarget
  readonly tally: Tally
}

async function sendAll(job: Job, lines: AsyncIterable<readonly Line[]>): Promise<ImportEnd> {
  const atServer: Promise<SentBatch>[] = []
  /** The oldest batch's answer, counted: batches are counted in the order of the list. */
  const next = async (): Promise<ImportEnd | undefined> => {
    const sent = await atServer.shift()
    return sent && count(job, sent)
  }
  let read = 0
  let failed: ImportEnd | undefined
  let unreadable: ImportEnd | undefined
  try {
    for await (const batch of batches(lines)) {
      const prepared = prepare(job.target, batch)
      read += batch.length
      if (atServer.length === BATCHES_AT_SERVER) failed = await next()
      if (failed !== undefined || job.signal?.aborted === true) break
      atServer.push(send(job, prepared))
      // Lets the batch leave before the next one takes the processor.
      await setImmediate()
    }
  } catch (error) {
    unreadable = { kind: 'failed', error, place: `after line ${number(read)}` }
  }
  while (atServer.length > 0) {
    const later = await next()
    failed ??= later
  }
  return failed ?? unreadable ?? { kind: 'done' }
}

async function* batches(lines: AsyncIterable<readonly Line[]>): AsyncGenerator<Line[], void, undefined> {
  let batch: Line[] = []
  let characters = 0
  for await (const some of lines) {
    for (const line of some) {
      batch.push(line)
      if (typeof line === 'string') characters += line.length
      if (batch.length < BATCH_LINES && characters < BATCH_CHARACTERS) continue
      yield batch
      batch = []
      characters = 0
    }
  }
  if (batch.length > 0) yield batch
}

/** A batch taken apart: what is sent, and of every line whether it is among that. */
interface PreparedBatch {
  readonly rows: PreparedMany<ObjectLiteral>
  readonly fates: readonly (typeof SENT | typeof BLANK | { readonly reason: string })[]
}

const SENT = 'sent'
const BLANK = 'blank'

function prepare(target: ImportTarget, lines: readonly Line[]): PreparedBatch {
  const values: ObjectLiteral[] = []
  const fates = lines.map((line): PreparedBatch['fates'][number] => {
    if (typeof line !== 'string') return line
    if (line === '') return BLANK
    try {
      const made = target.toValues(line)
      if (!made) return { reason: target.refusal }
      values.push(made)
      return SENT
    } catch (error) {
      return { reason: refusalReason(error) }
    }
  })
  return { rows: prepareMany(target.rows, values), fates }
}

interface SentBatch {
  readonly fates: PreparedBatch['fates']
  readonly answer: { readonly results: readonly FindOrCreateManyResult<ObjectLiteral>[] } | { readonly error: unknown }
}

/** Never rejects, so that nothing is lost while the next batch is read. */
async function send({ dataSource }: Job, { rows, fates }: PreparedBatch): Promise<SentBatch> {
  try {
    return { fates, answer: { results: await rows.run(dataSource.manager) } }
  } catch (error) {
    return { fates, answer: { error } }
  }
}

function count({ tally, onProgress }: Job, { fates, answer }: SentBatch): ImportEnd | undefined {
  const first = tally.counts.lines + 1
  if ('error' in answer) {
    const place = `lines ${number(first)} to ${number(first + fates.length - 1)}`
    return { kind: 'failed', error: answer.error, place }
  }
  let place = 0
  for (const fate of fates) {
    const result = fate === SENT ? answer.results[place++] : undefined
    if (fate === BLANK) tally.blank()
    else if (fate !== SENT) tally.rejected(fate.reason)
    else if (!result || 'error' in result) tally.rejected(refusalReason(result?.error))
    else tally.stored(result.created, hashNumberOf(result.entity))
  }
  onProgress?.(tally.counts)
  return undefined
}
