import { setTimeout as sleep } from 'node:timers/promises'
import type { DataSource, ObjectLiteral } from 'typeorm'
import { hashNumberOf } from '../find-or-create/hydrate'
import { findOrCreateManyOf, withoutColumns } from '../find-or-create/many'
import { targetOf } from '../find-or-create/target'
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
  /** Aborted: the batch that is at the server is the last. */
  readonly signal?: AbortSignal | undefined
}

const number = (value: number): string => value.toLocaleString('en-US')

const BATCH_LINES = 1_000
const SIGNAL_MILLISECONDS = 100
/** Characters, so that the memory stays as flat for a list of long lines. */
const BATCH_CHARACTERS = 4 * 2 ** 20

/**
 * Finds or creates a row for every line, in batches that each commit by themselves. A line that is refused is counted
 * and skipped. The next batch is read and parsed while the former is at the server; no more than that is held.
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
  let atServer: Promise<ImportEnd | undefined> = Promise.resolve(undefined)
  let read = 0
  try {
    for await (const batch of batches(lines)) {
      const prepared = prepare(job.target, batch)
      read += batch.length
      const failed = await atServer
      if (failed) return failed
      if (job.signal?.aborted === true) break
      atServer = send(job, prepared)
    }
  } catch (error) {
    return (await atServer) ?? { kind: 'failed', error, place: `after line ${number(read)}` }
  }
  return (await atServer) ?? { kind: 'done' }
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
  readonly values: ObjectLiteral[]
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
  return { values, fates }
}

/** Never rejects, so that nothing is lost while the next batch is read. */
async function send(job: Job, { values, fates }: PreparedBatch): Promise<ImportEnd | undefined> {
  const { dataSource, target, tally } = job
  const { metadata, declaration } = target
  const first = tally.counts.lines + 1
  try {
    const lean = withoutColumns(targetOf(dataSource.manager, metadata.target, declaration.name))
    const results = await findOrCreateManyOf<ObjectLiteral>(dataSource.manager, lean, values)
    let place = 0
    for (const fate of fates) {
      const result = fate === SENT ? results[place++] : undefined
      if (fate === BLANK) tally.blank()
      else if (fate !== SENT) tally.rejected(fate.reason)
      else if (!result || 'error' in result) tally.rejected(refusalReason(result?.error))
      else tally.stored(result.created, hashNumberOf(result.entity))
    }
    job.onProgress?.(tally.counts)
    return undefined
  } catch (error) {
    return { kind: 'failed', error, place: `lines ${number(first)} to ${number(first + fates.length - 1)}` }
  }
}
