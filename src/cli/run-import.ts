import type { DataSource, ObjectLiteral } from 'typeorm'
import type { PreparedMany } from '../find-or-create/prepared-many'
import type { FindOrCreateManyResult } from '../find-or-create/run-batch'
import { hashNumberOf } from '../rows/hydrate'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { Flow } from '../stream/flow'
import { sourceOfMany } from '../stream/source'
import type { Outcome } from '../stream/window'
import { describeError, refusalReason } from './error-messages'
import type { ImportTarget } from './import-target'
import { columnOf, type Line, type List, ListError, readLines } from './list'
import { formatReport, type ImportCounts, type ImportEnd, type ImportReport, ImportTally, number } from './report'
import { openProgress, type Output, type Streams } from './terminal'

export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 130 } as const

export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

export interface ImportRun {
  readonly dataSource: DataSource
  readonly target: ImportTarget
  readonly list: List
  /** Of a CSV list. undefined: each line is a text. */
  readonly column?: string | undefined
  readonly streams: Streams
  readonly signal: AbortSignal
  /** What the lines hold, in the plural. @default 'lines' */
  readonly unit?: string
}

/** Imports a list, shows its progress, and prints the table, even if the import was stopped. */
export async function runImport(run: ImportRun): Promise<ExitCode> {
  const { dataSource, target, list, column, streams, signal } = run
  const progress = openProgress(streams.stderr)
  // Otherwise the loop would wait for the next chunk, which never comes on a terminal.
  const close = (): void => list.close()
  signal.addEventListener('abort', close)
  const lines = new CountedLines(list, column)
  let report: ImportReport
  try {
    report = await importLines(dataSource, target, lines.read(), {
      signal,
      onProgress: (counts) => progress.update(counts.lines, lines.fraction(counts.lines)),
    })
  } finally {
    signal.removeEventListener('abort', close)
    progress.end()
    list.close()
  }
  streams.stdout.write(formatReport(report, run.unit))
  return conclude(report, streams.stderr)
}

/** Estimates what fraction of the list a number of lines is: more has been read than the server has seen. */
class CountedLines {
  private lines = 0

  constructor(
    private readonly list: List,
    private readonly column: string | undefined,
  ) {}

  async *read(): AsyncGenerator<Line[], void, undefined> {
    const lines = readLines(this.list.chunks)
    for await (const some of this.column === undefined ? lines : columnOf(lines, this.column)) {
      this.lines += some.length
      yield some
    }
  }

  fraction(done: number): number | undefined {
    const read = this.list.fraction()
    return read === undefined ? undefined : read * (done / this.lines)
  }
}

function conclude({ end, lines }: ImportReport, stderr: Output): ExitCode {
  if (end.kind === 'done') return EXIT.done
  const next = 'The rows counted above are stored. Run the command again: it starts at the top and finds them.'
  if (end.kind === 'interrupted') {
    stderr.write(`\nStopped after line ${number(lines)}. ${next}\n`)
    return EXIT.interrupted
  }
  // The error of a list that cannot be read as lines says what to do.
  const advice = end.error instanceof ListError ? '' : `${next}\n`
  stderr.write(`\nFailed (${end.where}): ${describeError(end.error)}\n${advice}`)
  return EXIT.failed
}

export interface ImportOptions {
  /** Called after each batch. */
  readonly onProgress?: (counts: ImportCounts) => void
  /** Once aborted, no batch follows those that are at the server. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Finds or creates a row for every line, as a stream does. A line that is refused is counted and skipped.
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
  const { signal, onProgress } = options
  const flow = new Flow<Line, ObjectLiteral>({
    dataSource,
    rules: { entityText: target.rows, load: undefined },
    source: sourceOfMany(lines),
    add: (rows, line) => addLine(target, rows, line),
    progress: { signal },
  })
  await flow.open()
  const started = performance.now()
  const tally = new ImportTally()
  const end = await run(flow, tally, onProgress)
  return {
    ...tally.counts,
    rejections: tally.rejections,
    seconds: (performance.now() - started) / 1_000,
    end: signal?.aborted === true ? { kind: 'interrupted' } : end,
  }
}

async function run(
  flow: Flow<Line, ObjectLiteral>,
  tally: ImportTally,
  onProgress: ImportOptions['onProgress'],
): Promise<ImportEnd> {
  let failure: ImportEnd | undefined
  try {
    for await (const outcome of flow.outcomes()) {
      const error = outcome.failure ?? wholeRefusal(outcome)
      if (error) {
        const first = tally.counts.lines + 1
        const where = `lines ${number(first)} to ${number(first + outcome.results.length - 1)}`
        failure ??= { kind: 'failed', ...error, where }
        flow.stop()
      }
      countWindow(tally, outcome, error !== undefined)
      onProgress?.(tally.counts)
    }
  } catch (error) {
    return failure ?? { kind: 'failed', error, where: `after line ${number(flow.inputs)}` }
  }
  return failure ?? { kind: 'done' }
}

/** Why a line is not a text, or not one that the declaration accepts. */
class RefusedLine extends Error {
  constructor(readonly reason: string) {
    super(reason)
  }
}

const BLANK = new RefusedLine('it is blank')

function addLine(target: ImportTarget, rows: PreparedMany<ObjectLiteral>, line: Line): void {
  if (typeof line !== 'string') return rows.refuse(new RefusedLine(line.reason))
  if (line === '') return rows.refuse(BLANK)
  try {
    const values = target.toValues(line)
    if (values) rows.add(values)
    else rows.refuse(new RefusedLine(target.refusal))
  } catch (error) {
    rows.refuse(new RefusedLine(refusalReason(error)))
  }
}

/**
 * The error of a window whose every row is refused for what the statement may not do or name: a privilege, a table, a
 * column or the value of one is missing, and the rest of the list would fare the same.
 */
function wholeRefusal({ results }: Outcome<ObjectLiteral>): { readonly error: unknown } | undefined {
  let first: { readonly error: unknown } | undefined
  for (const result of results) {
    if (!result || 'entity' in result) return undefined
    if (result.error instanceof RefusedLine) continue
    const refused = serverError(result.error)
    if (refused && !refused.code.startsWith('42') && refused.code !== SQLSTATE.notNullViolation) return undefined
    if (refused) first ??= { error: refused }
  }
  return first
}

/** @param failed only what is stored is counted: the rest of the lines has no result */
function countWindow(tally: ImportTally, { results }: Outcome<ObjectLiteral>, failed: boolean): void {
  for (const result of results) {
    if (result && 'entity' in result) tally.stored(result.created, hashNumberOf(result.entity))
    else if (!failed) countRefused(tally, result)
  }
}

function countRefused(tally: ImportTally, result: FindOrCreateManyResult<ObjectLiteral> | undefined): void {
  const error = result && 'error' in result ? result.error : undefined
  if (error === BLANK) tally.blank()
  else tally.rejected(error instanceof RefusedLine ? error.reason : refusalReason(error))
}
