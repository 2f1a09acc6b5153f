import { setImmediate } from 'node:timers/promises'
import type { DataSource, ObjectLiteral } from 'typeorm'
import { hashNumberOf } from '../rows/hydrate'
import { PreparedMany } from '../find-or-create/prepared-many'
import type { FindOrCreateManyResult } from '../find-or-create/run-batch'
import { serverError } from '../sql/sqlstate'
import { ensureReady } from '../typeorm/readiness'
import { refusalReason } from './error-messages'
import type { ImportTarget } from './import-target'
import type { Line } from './list'
import { type ImportCounts, type ImportEnd, type ImportReport, number, Tally } from './report'

export interface ImportOptions {
  /** Called after each batch. */
  readonly onProgress?: (counts: ImportCounts) => void
  /** Once aborted, no batch follows those that are at the server. */
  readonly signal?: AbortSignal | undefined
}

const BATCH_LINES = 1_000
/** The server works on one while the answer to the other is read and the next is parsed. */
const BATCHES_AT_SERVER = 2
/** The longest that parsing keeps the process from hearing a signal, but for the time of one line. */
const SLICE_MILLISECONDS = 50
/** Of all batches at the server together, so that memory stays as flat for a list of long lines. */
const CHARACTERS_AT_SERVER = 4 * 2 ** 20

/**
 * Finds or creates a row for every line, in batches that each commit by themselves. A line that is refused is counted
 * and skipped. Two batches are at the server, on two connections, while the next is read and parsed; no more is held.
 *
 * @param lines as `readLines` yields them
 * @throws SchemaDriftError, UnsupportedDatabaseError before anything is read or written
 * @throws the driver's own error if it cannot connect; a failure after that is part of the report
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
  const end = await new Import({ dataSource, target, tally, ...options }).run(lines)
  return {
    ...tally.counts,
    rejections: tally.rejections,
    seconds: (performance.now() - started) / 1_000,
    end: options.signal?.aborted === true ? { kind: 'interrupted' } : end,
  }
}

interface ImportParts extends ImportOptions {
  readonly dataSource: DataSource
  readonly target: ImportTarget
  readonly tally: Tally
}

/** Takes batches to the server, and counts what came of them in the order of the list. */
class Import {
  private readonly atServer: { readonly characters: number; readonly stored: Promise<StoredBatch> }[] = []
  private failure: ImportEnd | undefined

  constructor(private readonly parts: ImportParts) {}

  async run(lines: AsyncIterable<readonly Line[]>): Promise<ImportEnd> {
    const { signal } = this.parts
    let read = 0
    let unreadable: ImportEnd | undefined
    try {
      for await (const batch of lineBatches(lines)) {
        await this.makeRoom(({ characters }) => characters + batch.characters <= CHARACTERS_AT_SERVER)
        const parsed = await parseBatch(this.parts, batch)
        read += batch.lines.length
        await this.makeRoom(({ batches }) => batches < BATCHES_AT_SERVER)
        if (this.failure !== undefined || signal?.aborted === true) break
        this.atServer.push({ characters: batch.characters, stored: storeBatch(this.parts, parsed) })
        // Lets the batch leave before the next one takes the processor.
        await setImmediate()
      }
    } catch (error) {
      unreadable = { kind: 'failed', error, where: `after line ${number(read)}` }
    }
    while (this.atServer.length > 0) await this.awaitOldest()
    return this.failure ?? unreadable ?? { kind: 'done' }
  }

  /** Waits until what is at the server leaves room, or nothing is there. */
  private async makeRoom(suffices: (atServer: { batches: number; characters: number }) => boolean): Promise<void> {
    const sum = (): number => this.atServer.reduce((total, { characters }) => total + characters, 0)
    while (this.atServer.length > 0 && !suffices({ batches: this.atServer.length, characters: sum() })) {
      await this.awaitOldest()
    }
  }

  private async awaitOldest(): Promise<void> {
    const stored = await this.atServer.shift()?.stored
    if (!stored) return
    const failure = countBatch(this.parts, stored)
    this.failure ??= failure
  }
}

/** Lines that are stored together. */
interface LineBatch {
  readonly lines: readonly Line[]
  readonly characters: number
}

async function* lineBatches(lines: AsyncIterable<readonly Line[]>): AsyncGenerator<LineBatch, void, undefined> {
  let batch: Line[] = []
  let characters = 0
  for await (const some of lines) {
    for (const line of some) {
      batch.push(line)
      if (typeof line === 'string') characters += line.length
      if (batch.length < BATCH_LINES && characters < CHARACTERS_AT_SERVER / BATCHES_AT_SERVER) continue
      yield { lines: batch, characters }
      batch = []
      characters = 0
    }
  }
  if (batch.length > 0) yield { lines: batch, characters }
}

/** The rows to store, and what became of every line before that. */
interface ParsedBatch {
  readonly rows: PreparedMany<ObjectLiteral>
  readonly fates: readonly LineFate[]
}

type LineFate = typeof TO_STORE | typeof BLANK | { readonly reason: string }

const TO_STORE = 'to store'
const BLANK = 'blank'

/** Lets signals in between two lines when a normalizer, or a user's `parse`, is slow. */
async function parseBatch({ target, signal }: ImportParts, { lines }: LineBatch): Promise<ParsedBatch> {
  const rows = new PreparedMany<ObjectLiteral>(target.rows, undefined)
  const fates: LineFate[] = []
  let yielded = performance.now()
  for (const line of lines) {
    fates.push(parseLine(target, rows, line))
    if (performance.now() - yielded < SLICE_MILLISECONDS) continue
    await setImmediate()
    if (signal?.aborted === true) break
    yielded = performance.now()
  }
  return { rows, fates }
}

function parseLine(target: ImportTarget, rows: PreparedMany<ObjectLiteral>, line: Line): LineFate {
  if (typeof line !== 'string') return line
  if (line === '') return BLANK
  try {
    const values = target.toValues(line)
    if (!values) return { reason: target.refusal }
    rows.add(values)
    return TO_STORE
  } catch (error) {
    return { reason: refusalReason(error) }
  }
}

interface StoredBatch {
  readonly fates: ParsedBatch['fates']
  readonly answer: { readonly results: readonly FindOrCreateManyResult<ObjectLiteral>[] } | { readonly error: unknown }
}

/** Never rejects, so that nothing is lost while the next batch is read. */
async function storeBatch({ dataSource }: ImportParts, { rows, fates }: ParsedBatch): Promise<StoredBatch> {
  try {
    const results = await rows.run(dataSource.manager)
    const error = wholeRefusal(results)
    return { fates, answer: error === undefined ? { results } : { error } }
  } catch (error) {
    return { fates, answer: { error } }
  }
}

/**
 * The error of a batch whose every row is refused for what the statement may not do or name: a privilege, a table or a
 * column is missing, and the rest of the list would fare the same.
 */
function wholeRefusal(results: readonly FindOrCreateManyResult<ObjectLiteral>[]): unknown {
  const errors = results.flatMap((result) => ('error' in result ? [result.error] : []))
  const refused = errors.filter((error) => serverError(error) !== undefined)
  const whole = errors.length === results.length && refused.every((error) => serverError(error)?.code.startsWith('42'))
  return whole ? refused[0] : undefined
}

function countBatch({ tally, onProgress }: ImportParts, { fates, answer }: StoredBatch): ImportEnd | undefined {
  const first = tally.counts.lines + 1
  if ('error' in answer) {
    const where = `lines ${number(first)} to ${number(first + fates.length - 1)}`
    return { kind: 'failed', error: answer.error, where }
  }
  let index = 0
  for (const fate of fates) {
    const result = fate === TO_STORE ? answer.results[index++] : undefined
    if (fate === BLANK) tally.blank()
    else if (fate !== TO_STORE) tally.rejected(fate.reason)
    else if (!result || 'error' in result) tally.rejected(refusalReason(result?.error))
    else tally.stored(result.created, hashNumberOf(result.entity))
  }
  onProgress?.(tally.counts)
  return undefined
}
