import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import {
  type EntityText,
  entityTextOf,
  type FindOrCreateManyResult,
  hashNumberOf,
  type PreparedMany,
  serverError,
  SQLSTATE,
  withKeyOnly,
} from '../core'
import { DeclarationError } from '../errors'
import { Flow } from '../stream/flow'
import { didYouMean } from './did-you-mean'
import { findEntity, textNames } from './entity'
import { type Line, type List, ListError, type Original, originalOf, readLines } from './list'
import { type Entry, hasHeader, readRecords, type RecordRules, type RecordRow } from './records'
import { formatReport, type ImportCounts, type ImportEnd, type ImportReport, ImportTally } from './report'
import { describeError, number, openProgress, refusalReason, writeEvent } from './terminal'
import { type CommandRun, EXIT, type ExitCode, UsageError } from './usage'

interface ImportRun extends Omit<CommandRun<'import'>, 'invocation'> {
  readonly invocation: Omit<CommandRun<'import'>['invocation'], 'kind' | 'dataSource' | 'list'>
}

/** Imports a list, shows its progress, and prints the table, even if the import was stopped. */
export async function runImport(run: ImportRun, list: List): Promise<ExitCode> {
  const { dataSource, invocation, streams, signal } = run
  const { dryRun, records, json } = invocation
  const { stdout, stderr } = streams
  const target = findImportTarget(dataSource, invocation)
  const rejected = invocation.rejected === undefined ? undefined : await openRejected(invocation.rejected)
  const progress = openProgress(stderr)
  // Without this, the loop would wait for the next chunk, which never arrives on a terminal.
  const close = (): void => list.close()
  signal.addEventListener('abort', close)
  const header = records && hasHeader(records)
  let linesRead = 0
  async function* entries(): AsyncGenerator<Entry[], void, undefined> {
    const came = (line: Original | undefined): void => rejected?.came(line)
    const lines = readLines(list.chunks)
    for await (const some of records ? readRecords(lines, records, header ? rejected?.afterHeader() : came) : lines) {
      linesRead += some.length
      if (!records && rejected) for (const line of some) came(originalOf(line as Line))
      yield some
    }
  }
  let report: ImportReport
  try {
    report = await importLines(dataSource, target, entries(), {
      signal,
      dryRun,
      onAnswers: async (areRejected) => await rejected?.answered(areRejected),
      onProgress: (counts) => {
        // An estimate, because more lines have been read than the server has processed.
        const read = list.fraction()
        const fraction = read === undefined ? undefined : read * (counts.lines / linesRead)
        if (json) writeEvent(stdout, { event: 'progress', ...counts, fraction })
        else progress.update(counts.lines, fraction)
      },
    })
  } finally {
    signal.removeEventListener('abort', close)
    progress.end()
    list.close()
    await rejected?.close()
  }
  const { end, ...counted } = report
  const error = end.kind === 'failed' ? { error: describeError(end.error), where: end.where } : {}
  const each = records && records.format !== 'ndjson' ? 'record' : 'line'
  if (json) writeEvent(stdout, { event: 'report', ...counted, end: end.kind, ...error })
  else stdout.write(formatReport(report, { dryRun, each, header }))
  if (rejected && rejected.lost > 0) stderr.write(`\n${number(rejected.lost)} ${NOT_KEPT}\n`)
  return conclude(report, run)
}

const NOT_KEPT = 'rejected lines are too long for the file of --rejected.'

function conclude(
  { end, lines, created, found, rejected }: ImportReport,
  { invocation: { dryRun }, streams: { stderr } }: ImportRun,
): ExitCode {
  if (end.kind === 'done') {
    const isAll = rejected > 0 && created + found === 0
    if (isAll) stderr.write('\nEvery line is rejected. Mend the list or the declaration, and run the command again.\n')
    return isAll ? EXIT.failed : EXIT.done
  }
  const next = dryRun
    ? 'Run the command again: it starts at the top.'
    : 'The rows counted above are stored. Run the command again: it starts at the top and finds them.'
  if (end.kind === 'interrupted') {
    stderr.write(`\nStopped after line ${number(lines)}. ${next}\n`)
    return EXIT.interrupted
  }
  // A ListError contains the next action.
  const advice = end.error instanceof ListError ? '' : `${next}\n`
  stderr.write(`\nFailed (${end.where}): ${describeError(end.error)}\n${advice}`)
  return EXIT.failed
}

export interface ImportOptions {
  /** Called after each batch. */
  readonly onProgress?: (counts: ImportCounts) => void
  /** Called for each batch before `onProgress`, with whether each line is rejected, in the order of the list. */
  readonly onAnswers?: (areRejected: readonly boolean[]) => Promise<void>
  /** Whether rows are only looked up. Missing rows count as created. @default false */
  readonly dryRun?: boolean
  /** Once aborted, no batch is sent after the current ones. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Finds or creates a row for every line, as a stream does. A rejected line is counted and skipped.
 *
 * @param lines as `readLines` or `readRecords` yields them
 * @throws SchemaDriftError, UnsupportedDatabaseError before anything is read or written
 * @throws the driver's own error if it cannot connect; the report contains a later failure
 */
export async function importLines(
  dataSource: DataSource,
  target: ImportTarget,
  lines: AsyncIterable<readonly Entry[]>,
  options: ImportOptions = {},
): Promise<ImportReport> {
  const { signal, dryRun = false, onAnswers, onProgress } = options
  const refuseToCreate = (): never => {
    throw MISSING
  }
  const iterator = lines[Symbol.asyncIterator]()
  const flow = new Flow<Entry, ObjectLiteral>({
    dataSource,
    rules: { entityText: target.rows, eager: false, create: dryRun ? refuseToCreate : undefined },
    source: {
      next: async () => {
        const { done, value } = await iterator.next()
        return done === true ? undefined : value
      },
      end: async () => void (await iterator.return?.()),
    },
    add: adding(target, dryRun),
    progress: { signal },
  })
  await flow.open()
  const started = performance.now()
  const tally = new ImportTally()
  let end: ImportEnd = { kind: 'done' }
  const fail = (error: unknown, where: string): void => {
    if (end.kind === 'done') end = { kind: 'failed', error, where }
  }
  try {
    for await (const { failure, results } of flow.outcomes()) {
      const failed = failure ?? wholeRefusal(results)
      if (failed) {
        const first = tally.counts.lines + 1
        fail(failed.error, `lines ${number(first)} to ${number(first + results.length - 1)}`)
        flow.stop()
      }
      const areRejected = results.map((result) => countLine(tally, result, failed !== undefined))
      await onAnswers?.(areRejected)
      onProgress?.(tally.counts)
    }
  } catch (error) {
    fail(error, `after line ${number(flow.inputs)}`)
  }
  return {
    ...tally.counts,
    rejections: tally.rejections,
    seconds: (performance.now() - started) / 1_000,
    end: signal?.aborted === true ? { kind: 'interrupted' } : end,
  }
}

/** The reason why a line is not a text, or why the declaration does not accept it. */
class RefusedLine extends Error {
  constructor(readonly reason: string) {
    super(reason)
  }
}

const BLANK = new RefusedLine('it is blank')
/** In a dry run, the row of a line does not exist, or an earlier line has the same text. */
const MISSING = new RefusedLine('its row would be created')
const REPEATED = new RefusedLine('its row would be found')

/** Adds a line to the rows of a window. A dry run adds each text of the list once. */
function adding(target: ImportTarget, dryRun: boolean): (rows: PreparedMany<ObjectLiteral>, entry: Entry) => void {
  // A later batch does not find a text that an earlier one would create, so a digest of every text is kept.
  const known = new Set<string>()
  return (rows, entry) => {
    if (entry === '') return rows.refuse(BLANK)
    if (typeof entry !== 'string' && 'reason' in entry) return rows.refuse(new RefusedLine(entry.reason))
    try {
      const values = target.toValues(typeof entry === 'string' ? entry : entry.row)
      if (!values) return rows.refuse(new RefusedLine(target.refusal))
      if (dryRun) {
        const digest = createHash('md5').update(rows.identityOf(values)).digest('base64')
        if (known.has(digest)) return rows.refuse(REPEATED)
        known.add(digest)
      }
      rows.add(values)
    } catch (error) {
      rows.refuse(new RefusedLine(refusalReason(error)))
    }
  }
}

/**
 * Returns the error of a window if every row is refused because a privilege, a table, a column or a column's value is
 * missing. The rest of the list would be refused too.
 */
function wholeRefusal(results: readonly LineResult[]): { readonly error: unknown } | undefined {
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

type LineResult = FindOrCreateManyResult<ObjectLiteral> | undefined

/** @returns whether the line is rejected */
function countLine(tally: ImportTally, result: LineResult, failed: boolean): boolean {
  const error = result && 'error' in result ? result.error : undefined
  if (result && 'entity' in result) tally.stored(result.created, hashNumberOf(result.entity))
  // In a failed batch, only stored rows are counted, because the other lines have no result.
  else if (failed) return false
  else if (error === BLANK) tally.blank()
  else if (error === MISSING || error === REPEATED) tally.stored(error === MISSING, 0)
  else {
    tally.rejected(error instanceof RefusedLine ? error.reason : refusalReason(error))
    return true
  }
  return false
}

/** The entity of the imported rows, and the conversion of lines. */
export interface ImportTarget {
  readonly metadata: EntityMetadata
  /** For find-or-create, selecting no more columns than counting needs. */
  readonly rows: EntityText
  /**
   * Returns the properties of a row for a text, or for the values of a record. If the declaration's `parse` refuses the
   * text, it returns undefined.
   *
   * @throws the error of the user's own `parse`
   */
  readonly toValues: (given: string | RecordRow) => ObjectLiteral | undefined
  /** The reason if `parse` gives none, as one clause. */
  readonly refusal: string
}

/** The names that a person typed. */
export interface TargetNames {
  /** An entity's class name, or its table name with or without the schema, perhaps with a unique text: `Page.url`. */
  readonly entity: string
  /** How records fill properties; if undefined, each line is a text. */
  readonly records?: RecordRules | undefined
  /** Constant values for every row, by property. @default none */
  readonly set?: ReadonlyMap<string, string>
}

/**
 * Finds the entity and the unique text that a person named.
 *
 * @throws UsageError if nothing has this name, or values are missing; the message lists the names that exist
 * @throws DeclarationError if a line is not enough to make a row
 */
export function findImportTarget(dataSource: DataSource, names: TargetNames): ImportTarget {
  const { metadata, property } = findEntity(dataSource, names.entity)
  const texts = textNames(dataSource, metadata)
  const [only, ...more] = texts
  if (only === undefined) {
    throw new DeclarationError(`${metadata.name} declares no unique text. Put @UniqueText() on a property of it.`)
  }
  if (property === undefined ? more.length > 0 : !texts.includes(property)) {
    const known = texts.map((name) => `${metadata.name}.${name}`).join(', ')
    throw new UsageError(`Choose a unique text of ${metadata.name}: --entity ${known}.`)
  }
  const rows = withKeyOnly(entityTextOf(dataSource.manager, metadata.target, property ?? only))
  return {
    metadata,
    rows,
    toValues: valuesMaker(rows, names),
    refusal: `it is not a "${property ?? only}" that ${metadata.name} accepts`,
  }
}

/** The property that a name sets: for a relation, the relation, which takes the key of its row. */
const settable = ({ propertyPath, relationMetadata }: EntityMetadata['columns'][number]): string =>
  relationMetadata?.propertyPath ?? propertyPath

function valuesMaker(
  { metadata, declaration }: EntityText,
  { records, set = new Map() }: TargetNames,
): ImportTarget['toValues'] {
  const { name, text, scope, parse } = declaration
  const what = `"${name}" of ${metadata.name}`
  const [only] = text
  if (!parse && !records && (!only || text.length > 1)) {
    throw new DeclarationError(
      `${what} consists of several columns. Give its @UniqueText() the option "parse", which fills them from a text, ` +
        `or import records: --format csv with --map for each of them.`,
    )
  }
  const textual = parse ? [name] : text.map(({ column }) => column.propertyPath)
  const known = new Set([
    ...textual,
    ...metadata.columns.filter(({ embeddedMetadata }) => !embeddedMetadata).map(settable),
  ])
  const given = [...(records ? records.map.keys() : textual), ...set.keys()]
  const other = given.find((one) => !known.has(one))
  if (other !== undefined) {
    throw new UsageError(
      `${metadata.name} has no property "${other}".${didYouMean(other, [...known])} It has: ${[...known].join(', ')}.`,
    )
  }
  const needed = parse ? textual : [...textual, ...scope.map(settable)]
  const missing = needed.find((one) => !given.includes(one))
  if (missing !== undefined) {
    throw new UsageError(
      `A row needs "${missing}" for ${what}: --set ${missing}=VALUE, or --format csv --map ${missing}=COLUMN.`,
    )
  }
  const constants = Object.fromEntries(set)
  return (value) => {
    const row: RecordRow = typeof value === 'string' ? { [textual[0] ?? '']: value } : value
    if (!parse) return { ...constants, ...row }
    const { [name]: unparsed, ...rest } = row
    const parsed = typeof unparsed === 'string' ? parse(unparsed) : null
    return parsed ? { ...constants, ...rest, ...parsed } : undefined
  }
}

/**
 * Opens the file for the lines that an import rejects. A file that is not empty is not changed.
 *
 * @throws UsageError if it is not empty
 * @throws Error if it cannot be written
 */
async function openRejected(name: string): Promise<RejectedLines> {
  let file: FileHandle | undefined
  let size: number
  try {
    file = await open(name, 'a')
    ;({ size } = await file.stat())
  } catch (error) {
    await file?.close()
    throw unwritable(error)
  }
  if (size === 0) return new RejectedLines(file)
  await file.close()
  throw new UsageError(`--rejected names a file that is not empty: ${name}. Name another file, or remove it.`)
}

/** Writes the rejected lines of a list to a file, unchanged. Each ends with LF. */
class RejectedLines {
  /** How many rejected lines were too long to be kept. */
  lost = 0
  private header: Original | undefined
  /** Lines that have no answer yet. */
  private waiting: (Original | undefined)[] = []

  constructor(private readonly file: FileHandle) {}

  /** Receives a line of the list. */
  came(line: Original | undefined): void {
    this.waiting.push(line)
  }

  /** Receives the records of a CSV list. The first is the header, which is written before the first rejected record. */
  afterHeader(): (record: Original | undefined) => void {
    let first = true
    return (record) => {
      if (first) this.header = record
      else this.came(record)
      first = false
    }
  }

  /**
   * Writes the rejected lines among the next lines.
   *
   * @throws Error if the file cannot be written
   */
  async answered(areRejected: readonly boolean[]): Promise<void> {
    const parts: Original[] = []
    for (const [index, line] of this.waiting.splice(0, areRejected.length).entries()) {
      if (areRejected[index] !== true) continue
      if (line === undefined) this.lost += 1
      else parts.push(line)
    }
    if (parts.length === 0) return
    if (this.header !== undefined) parts.unshift(this.header)
    this.header = undefined
    const bytes = parts.flatMap((part) => [typeof part === 'string' ? Buffer.from(part) : part, Buffer.from('\n')])
    try {
      await this.file.writeFile(Buffer.concat(bytes))
    } catch (error) {
      throw unwritable(error)
    }
  }

  async close(): Promise<void> {
    await this.file.close()
  }
}

const unwritable = (error: unknown): Error =>
  new Error(`Cannot write the rejected lines: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
  })
