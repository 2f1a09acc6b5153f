import { createHash } from 'node:crypto'
import type { DataSource, ObjectLiteral } from 'typeorm'
import { type FindOrCreateManyResult, hashNumberOf, type PreparedMany, serverError, SQLSTATE } from '../core'
import { Flow } from '../stream/flow'
import { describeError, refusalReason } from './error-messages'
import type { ImportTarget } from './import-target'
import { columnOf, type Line, type List, ListError, originalOf, readLines } from './list'
import type { RefusedLines } from './refused-lines'
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
  /** Only looks rows up. @default false */
  readonly dryRun?: boolean
  /** Takes the lines that are refused. */
  readonly refused?: RefusedLines | undefined
  readonly streams: Streams
  readonly signal: AbortSignal
  /** What the lines hold, in the plural. @default 'lines' */
  readonly unit?: string
}

/** Imports a list, shows its progress, and prints the table, even if the import was stopped. */
export async function runImport(run: ImportRun): Promise<ExitCode> {
  const { dataSource, target, list, streams, signal, dryRun = false, refused } = run
  const progress = openProgress(streams.stderr)
  // Otherwise the loop would wait for the next chunk, which never comes on a terminal.
  const close = (): void => list.close()
  signal.addEventListener('abort', close)
  const lines = new CountedLines(run)
  let report: ImportReport
  try {
    report = await importLines(dataSource, target, lines.read(), {
      signal,
      dryRun,
      onAnswers: async (areRefused) => await refused?.answered(areRefused),
      onProgress: (counts) => progress.update(counts.lines, lines.fraction(counts.lines)),
    })
  } finally {
    signal.removeEventListener('abort', close)
    progress.end()
    list.close()
    await refused?.close()
  }
  streams.stdout.write(formatReport(report, run.unit, dryRun, run.column === undefined ? 'line' : 'record'))
  if (refused && refused.lost > 0) streams.stderr.write(`\n${number(refused.lost)} ${NOT_KEPT}\n`)
  return conclude(report, dryRun, streams.stderr)
}

const NOT_KEPT = 'refused lines are too long to be kept, and do not stand in the file of --refused.'

/** Estimates what fraction of the list a number of lines is: more has been read than the server has seen. */
class CountedLines {
  private lines = 0

  constructor(private readonly run: Pick<ImportRun, 'list' | 'column' | 'refused'>) {}

  async *read(): AsyncGenerator<Line[], void, undefined> {
    const { list, column, refused } = this.run
    const lines = readLines(list.chunks)
    const texts = column === undefined ? lines : columnOf(lines, column, refused?.afterHeader())
    for await (const some of texts) {
      this.lines += some.length
      if (column === undefined) for (const line of refused ? some : []) refused?.came(originalOf(line))
      yield some
    }
  }

  fraction(done: number): number | undefined {
    const read = this.run.list.fraction()
    return read === undefined ? undefined : read * (done / this.lines)
  }
}

function conclude({ end, lines }: ImportReport, dryRun: boolean, stderr: Output): ExitCode {
  if (end.kind === 'done') return EXIT.done
  const next = dryRun
    ? 'Run the command again: it starts at the top.'
    : 'The rows counted above are stored. Run the command again: it starts at the top and finds them.'
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
  /** Called for each batch before `onProgress`: which of its lines are refused, in the order of the list. */
  readonly onAnswers?: (areRefused: readonly boolean[]) => Promise<void>
  /** Rows are looked up, and those that are missing count as created. @default false */
  readonly dryRun?: boolean
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
  const { signal, dryRun = false } = options
  const flow = new Flow<Line, ObjectLiteral>({
    dataSource,
    rules: { entityText: target.rows, eager: false, create: dryRun ? refuseToCreate : undefined },
    source: sourceOfMany(lines),
    add: adding(target, dryRun),
    progress: { signal },
  })
  await flow.open()
  const started = performance.now()
  const tally = new ImportTally()
  const end = await run(flow, tally, options)
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
  { onAnswers, onProgress }: ImportOptions,
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
      await onAnswers?.(outcome.results.map((result) => !error && isRefused(result)))
      onProgress?.(tally.counts)
    }
  } catch (error) {
    return failure ?? { kind: 'failed', error, where: `after line ${number(flow.inputs)}` }
  }
  return failure ?? { kind: 'done' }
}

/** What a flow reads. */
function sourceOfMany<Item>(lists: AsyncIterable<Iterable<Item>>): {
  readonly next: () => Promise<Iterable<Item> | undefined>
  readonly end: () => Promise<void>
} {
  const iterator = lists[Symbol.asyncIterator]()
  return {
    next: async () => {
      const { done, value } = await iterator.next()
      return done === true ? undefined : value
    },
    end: async () => void (await iterator.return?.()),
  }
}

/** Why a line is not a text, or not one that the declaration accepts. */
class RefusedLine extends Error {
  constructor(readonly reason: string) {
    super(reason)
  }
}

const BLANK = new RefusedLine('it is blank')
/** In a dry run: the row of a line is not there, or an earlier line has the same text. */
const MISSING = new RefusedLine('its row would be created')
const REPEATED = new RefusedLine('its row would be found')

const COUNTED: ReadonlySet<unknown> = new Set([BLANK, MISSING, REPEATED])

function refuseToCreate(): never {
  throw MISSING
}

type Add = (rows: PreparedMany<ObjectLiteral>, values: ObjectLiteral) => void

function adding(target: ImportTarget, dryRun: boolean): (rows: PreparedMany<ObjectLiteral>, line: Line) => void {
  const add: Add = dryRun ? onceEach() : (rows, values) => rows.add(values)
  return (rows, line) => addLine(target, rows, line, add)
}

/** A text that would be created in one batch is not found by the next, so all of the list are remembered, by a digest. */
function onceEach(): Add {
  const known = new Set<string>()
  return (rows, values) => {
    const digest = createHash('md5').update(rows.identityOf(values)).digest('base64')
    if (known.has(digest)) return rows.refuse(REPEATED)
    known.add(digest)
    rows.add(values)
  }
}

function addLine(target: ImportTarget, rows: PreparedMany<ObjectLiteral>, line: Line, add: Add): void {
  if (typeof line !== 'string') return rows.refuse(new RefusedLine(line.reason))
  if (line === '') return rows.refuse(BLANK)
  try {
    const values = target.toValues(line)
    if (values) add(rows, values)
    else rows.refuse(new RefusedLine(target.refusal))
  } catch (error) {
    rows.refuse(new RefusedLine(refusalReason(error)))
  }
}

/**
 * The error of a window whose every row is refused for what the statement may not do or name: a privilege, a table, a
 * column or the value of one is missing, and the rest of the list would fare the same.
 */
function wholeRefusal({ results }: Outcome): { readonly error: unknown } | undefined {
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
function countWindow(tally: ImportTally, { results }: Outcome, failed: boolean): void {
  for (const result of results) {
    if (result && 'entity' in result) tally.stored(result.created, hashNumberOf(result.entity))
    else if (!failed) countRefused(tally, result)
  }
}

type LineResult = FindOrCreateManyResult<ObjectLiteral> | undefined

/** Of one window. */
interface Outcome {
  readonly results: readonly LineResult[]
}

const errorOf = (result: LineResult): unknown => (result && 'error' in result ? result.error : undefined)

const isRefused = (result: LineResult): boolean => !(result && 'entity' in result) && !COUNTED.has(errorOf(result))

function countRefused(tally: ImportTally, result: LineResult): void {
  const error = errorOf(result)
  if (error === BLANK) tally.blank()
  else if (error === MISSING || error === REPEATED) tally.stored(error === MISSING, 0)
  else tally.rejected(error instanceof RefusedLine ? error.reason : refusalReason(error))
}
