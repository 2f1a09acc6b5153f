import { openSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  abandon,
  adopt,
  AdoptionError,
  type AdoptionLock,
  adoptionStatus,
  type AdoptionStatus,
  type AdoptProgress,
  type AdoptReport,
  checkMerge,
  describeHolder,
  follow,
  type FollowReport,
  forgetMerges,
  mergeDuplicates,
  type MergeReport,
  type MergeRows,
  planAdoption,
  type PlannedStep,
  type RunningCommand,
  unmerge,
  type UnmergeOptions,
  type UnmergeReport,
} from '../adopt'
import { serverError, SQLSTATE } from '../core'
import { doctor } from '../doctor'
import { formatFinding } from './commands'
import { EXIT, type ExitCode, findEntity } from './import'
import { number } from './report'
import { linesOf, onlyExport, printable, printableLines, type Streams } from './terminal'
import { type Invocation, type KeptRow, UsageError } from './usage'

interface AdoptRun {
  readonly dataSource: DataSource
  readonly invocation: Extract<Invocation, { kind: 'adopt' | 'abandon' | 'unmerge' }>
  readonly streams: Streams
  readonly signal: AbortSignal
}

/** Adopts a table, or removes everything again, and prints what was locked for how long. */
export async function runAdopt(run: AdoptRun): Promise<ExitCode> {
  const reporter = new Reporter(run)
  try {
    return (await runCommand(run, reporter)) ? EXIT.done : EXIT.failed
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.diskFull) reporter.notice(DISK_FULL)
    if (!(error instanceof AdoptionError)) throw error
    reporter.error(error)
    return error.reason === 'interrupted' ? EXIT.interrupted : EXIT.failed
  } finally {
    reporter.end()
  }
}

const DISK_FULL =
  'The disk of the server is full. What is done stays. Free space there, then run the same command: it continues. ' +
  'abandon frees the space that an adoption has taken.'

/** @returns whether nothing is left to do by hand */
async function runCommand(run: AdoptRun, reporter: Reporter): Promise<boolean> {
  const { dataSource, invocation, signal } = run
  const { target }: { target: EntityTarget<ObjectLiteral> } = findEntity(dataSource, invocation.entity)
  const { pace, status } = invocation
  const { property } = pace
  const stoppable = { signal, onNotice: reporter.notice }
  const locking = { ...stoppable, onLock: reporter.lock }
  if (status) {
    const found = await adoptionStatus(dataSource, target, { property })
    reporter.report(found, () => formatStatus(found))
  } else if (invocation.kind === 'abandon') {
    const report = await abandon(dataSource, target, { property, ...locking })
    reporter.report(report, () => 'The table is abandoned. No text was changed.\n')
  } else if (invocation.kind === 'unmerge') {
    const onProgress = reporter.rowsOf('unmerge')
    const key = keyOf(invocation.key)
    const { dryRun } = invocation
    const report = await unmerge(dataSource, target, { ...pace, ...stoppable, key, dryRun, onProgress })
    reporter.report(report, () => formatUnmerge(report, dryRun))
    return report.left.length === 0
  } else if (invocation.forgetLog) {
    await forgetMerges(dataSource, target, { property })
    reporter.report({}, () => 'The log of merges is empty.\n')
  } else return await adoptAndMerge(run, reporter, target)
  return true
}

/** @returns whether nothing is left to do by hand */
async function adoptAndMerge(
  { dataSource, invocation, signal }: AdoptRun,
  reporter: Reporter,
  target: EntityTarget<ObjectLiteral>,
): Promise<boolean> {
  const { pace } = invocation
  const { property } = pace
  const stoppable = { signal, onNotice: reporter.notice }
  const locking = { ...stoppable, onLock: reporter.lock }
  // The adoption may take hours: a file or a table that does not exist ends the command at once.
  const { merge: given } = invocation
  const merge = given && { also: given.also, conflict: given.conflict, keep: await keepOf(given.keep) }
  const file = given?.list === undefined ? undefined : openList(given.list)
  if (merge) await checkMerge(dataSource, target, { property, also: merge.also, conflict: merge.conflict })
  const mergeAll = async (dryRun: boolean): Promise<boolean> => {
    if (!merge) return true
    const onProgress = reporter.rowsOf('merge')
    const options = { ...pace, ...stoppable, ...merge, dryRun, onProgress, onMerged: file }
    const merged = await mergeDuplicates(dataSource, target, options)
    file?.(merged.left)
    reporter.report(merged, () => formatMerge(merged, dryRun))
    return merged.left.length === 0
  }
  if (invocation.dryRun) {
    const steps = await planAdoption(dataSource, target, { property })
    reporter.report({ steps }, () => steps.map(formatPlanned).join('') || ADOPTED)
    if (!merge || steps.length === 0) return await mergeAll(true)
    const { findings } = await doctor(dataSource, { entities: [target], signal })
    const twice = findings.filter(({ code }) => code.startsWith('text.twice'))
    reporter.report({ findings: twice }, () => printableLines(twice.map(formatFinding).join('')) + MERGE_LATER)
    return true
  }
  const report = await adopt(dataSource, target, {
    ...invocation.options,
    ...locking,
    onProgress: reporter.progress,
  })
  reporter.report(report, () => formatAdoption(report, merge !== undefined))
  if (report.step !== 'done') return true
  const isWhole = await mergeAll(false)
  if (invocation.follow) {
    const onProgress = (texts: number): void => {
      reporter.notice(`follow  ${number(texts)} texts normalized  Ctrl-C ends it`)
    }
    const followed = await follow(dataSource, target, { ...pace, ...locking, onProgress })
    reporter.report(followed, () => formatFollowed(followed))
  }
  return isWhole
}

const ADOPTED = 'The table is already adopted: nothing to do.\n'
const MERGE_LATER =
  'adopt changes none of these rows but to normalize their texts. Once the table is adopted, the same command lists ' +
  'what a merge would do to each row.\n'

const formatPlanned = ({ step, lock, statements }: PlannedStep): string =>
  `-- ${step}${lock === undefined ? '' : `, under ${lock}`}\n${statements.join(';\n')};\n\n`

const formatFollowed = ({ normalized, refused, refusedTotal }: FollowReport): string =>
  linesOf([`${number(normalized)} texts were normalized.`, ...formatRefused(refused, refusedTotal)])

/** A key of several columns is JSON: `{"tenant":1,"id":17}`. */
function keyOf(given: string | undefined): UnmergeOptions['key'] {
  if (given?.startsWith('{') !== true) return given
  try {
    return JSON.parse(given) as ObjectLiteral
  } catch {
    throw new UsageError(`--key is a value, or JSON of several columns: --key '{"tenant":1,"id":17}'`)
  }
}

async function keepOf(keep: KeptRow): Promise<'oldest' | 'newest' | MergeRows> {
  if (typeof keep !== 'object') return keep
  const merge = await onlyExport(keep.file, (value): value is MergeRows => typeof value === 'function')
  if (merge) return merge
  throw new UsageError(`"${keep.file}" must export one function: export default (rows) => ({ keep: rows[0] }).`)
}

const CONFLICT_NEXT =
  'Where the reason is the name of a constraint or an index, --conflict TABLE=merge, with the name of its table, merges ' +
  'the rows that clash there too. '

/** Opens a new file that takes keys of rows as lines of JSON. */
function openList(name: string): (rows: readonly object[]) => void {
  let file: number
  try {
    file = openSync(name, 'wx')
  } catch (error) {
    throw new UsageError(`--list names a file that cannot be made, or that exists: ${name}`, { cause: error })
  }
  return (rows) => void writeSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
}

function formatMerge({ merged, changes, left }: MergeReport, dryRun: boolean): string {
  const rows = left.map(({ row, kept, reason }) => `  ${JSON.stringify(row)}, for ${JSON.stringify(kept)}: ${reason}`)
  // A clause is no name.
  const next = left.some(({ reason }) => !reason.includes(' ')) ? CONFLICT_NEXT : ''
  const todo = `${next}Change the ${next === '' ? '' : 'other '}rows by hand. Then run the same command again.`
  const leftLines = left.length === 0 ? [] : [`Rows left as they are: ${number(left.length)}`, ...rows, todo]
  const were = dryRun ? 'would be' : 'were'
  const turned = changes.map(({ table, columns, rows: n }) =>
    columns
      ? `  ${table} (${columns.join(', ')}): references turned: ${number(n)}`
      : `  ${table}: clashing rows merged: ${number(n)}`,
  )
  return linesOf([`${number(merged)} rows ${were} merged.`, ...turned, ...leftLines])
}

const NOT_WHOLE_NEXT =
  'A row that did not come back is in the log still: mend the reason, and run the same command again. A value or a ' +
  'reference that has changed since the merge stays as it is.'

function formatUnmerge({ restored, left }: UnmergeReport, dryRun: boolean): string {
  const rows = left.map(({ table, row, reason }) => `  ${table} ${JSON.stringify(row)}: ${reason}`)
  const leftLines =
    left.length === 0 ? [] : [`Not as before the merge: ${number(left.length)}`, ...rows, NOT_WHOLE_NEXT]
  return linesOf([`${number(restored)} rows ${dryRun ? 'would be' : 'were'} restored.`, ...leftLines])
}

/** At most so often, and after so long a silence at the latest. */
const PROGRESS_MILLISECONDS = 2_000
const SILENCE_MILLISECONDS = 4_000
const ASKING_MILLISECONDS = 500

type Progress = Omit<AdoptProgress, 'step'> & { readonly step: AdoptProgress['step'] | 'merge' | 'unmerge' }

/**
 * Reports what a command does. Progress and notices are lines on stderr, and results are on stdout; with `json`, all of
 * them are lines of JSON on stdout. While a step is silent, it asks the server by another connection what happens.
 */
class Reporter {
  private readonly locks: AdoptionLock[] = []
  private readonly beat: NodeJS.Timeout
  private current: Progress | undefined
  /** The fraction that the step had when it was first reported, and when: a step may continue an earlier one. */
  private begun = { fraction: 0, at: 0 }
  private printed = performance.now()
  private isAsking = false
  private asked: Promise<AdoptionStatus | undefined> | undefined

  constructor(private readonly run: AdoptRun) {
    this.beat = setInterval(() => void this.breakSilence(), PROGRESS_MILLISECONDS / 2)
  }

  /** Arrow functions: they are passed on. */
  readonly notice = (message: string): void => {
    this.write({ event: 'notice', message }, () => message)
  }

  readonly lock = (lock: AdoptionLock): void => {
    this.locks.push(lock)
    if (this.run.invocation.json) this.write({ event: 'lock', ...lock }, () => '')
  }

  /** A line every two seconds, and one for every step, for example `fill  43 %  430,000 rows  1 min left`. */
  readonly progress = (progress: Progress): void => {
    const now = performance.now()
    const isNew = progress.step !== this.current?.step
    if (isNew || this.current?.fraction === undefined) this.begun = { fraction: progress.fraction ?? 0, at: now }
    this.current = progress
    if (isNew || now - this.printed >= PROGRESS_MILLISECONDS) this.writeProgress()
  }

  rowsOf(step: Progress['step']): (rows: number) => void {
    return (rows) => this.progress({ step, fraction: undefined, rows })
  }

  error(error: AdoptionError): void {
    if (!this.run.invocation.json) return void this.run.streams.stderr.write(`${printableLines(error.message)}\n`)
    this.write({ event: 'error', reason: error.reason, message: error.message }, () => '')
  }

  report(report: object, format: () => string): void {
    this.current = undefined
    this.writeLocks()
    if (this.run.invocation.json) this.write({ event: 'report', ...report }, () => '')
    else this.run.streams.stdout.write(format())
  }

  /** However the command ended. */
  end(): void {
    clearInterval(this.beat)
    this.writeLocks()
  }

  private writeLocks(): void {
    const locks = this.locks.splice(0)
    if (!this.run.invocation.json) this.run.streams.stdout.write(formatLocks(locks))
  }

  private write(event: object, line: () => string): void {
    this.printed = performance.now()
    const { stdout, stderr } = this.run.streams
    const time = new Date()
    if (this.run.invocation.json) stdout.write(`${JSON.stringify({ time: time.toISOString(), ...event })}\n`)
    else stderr.write(`${time.toTimeString().slice(0, 8)}  ${printable(line())}\n`)
  }

  private writeProgress(status?: AdoptionStatus): void {
    const { step, rows } = this.current ?? { step: 'begin', rows: 0 }
    const fraction = this.current?.fraction ?? status?.fraction ?? undefined
    const seconds = (performance.now() - this.begun.at) / 1_000
    // A share that the server reports is one of a phase, of which a step has several.
    const own = this.current?.fraction ?? 0
    const done = own - this.begun.fraction
    const left = done >= 0.01 && seconds >= 1 ? (seconds * (1 - own)) / done : undefined
    this.write({ event: 'progress', step, fraction, rows, secondsLeft: left, ...(status && { status }) }, () =>
      [
        step,
        ...(status?.phase == null ? [] : [status.phase]),
        ...(fraction === undefined ? [] : [`${Math.floor(fraction * 100)} %`]),
        ...(rows > 0 ? [`${number(rows)} rows`] : []),
        ...(left === undefined ? [] : [left < 90 ? `${Math.round(left)} s left` : `${Math.round(left / 60)} min left`]),
        ...(status ? [`${Math.round(seconds)} s in this step`] : []),
        ...(status?.command?.waitsFor === 'Lock' ? status.holders.map(describeHolder) : []),
      ].join('  '),
    )
  }

  private async breakSilence(): Promise<void> {
    if (!this.current || this.isAsking || performance.now() - this.printed < SILENCE_MILLISECONDS) return
    this.isAsking = true
    const { dataSource, invocation } = this.run
    const { target } = findEntity(dataSource, invocation.entity)
    this.asked ??= adoptionStatus(dataSource, target, { property: invocation.pace.property })
      .catch(() => undefined)
      .finally(() => (this.asked = undefined))
    // The pool may have no connection to spare.
    const status = await Promise.race([this.asked, sleep(ASKING_MILLISECONDS, undefined)])
    if (this.current && performance.now() - this.printed >= SILENCE_MILLISECONDS) this.writeProgress(status)
    this.isAsking = false
  }
}

const describeCommand = ({ pid, user, application, seconds, waitsFor, query }: RunningCommand): string =>
  `pid ${pid} (${user}, "${application}"), connected for ${seconds} s, ` +
  `${waitsFor === null ? 'works' : `waits for ${waitsFor}`}: ${query}`

function formatStatus({ step, phase, fraction, command, holders, ...server }: AdoptionStatus): string {
  const { tableBytes, lagMilliseconds, walBytes } = server
  const megabytes = (bytes: number): string => `${number(Math.round(bytes / 1e6))} MB`
  const share = fraction === null ? [] : [`${Math.floor(fraction * 100)} %`]
  return linesOf([
    ['step', step ?? 'none', ...(phase === null ? [] : [phase]), ...share].join('  '),
    command === null ? 'command  none works on the table' : `command  ${describeCommand(command)}`,
    ...(tableBytes === null ? [] : [`table  ${megabytes(tableBytes)}`]),
    `standbys  ${number(lagMilliseconds)} ms behind`,
    `WAL for slots and archive  ${megabytes(walBytes)}`,
    ...holders.map((holder) => `holds a lock  ${describeHolder(holder)}`),
  ])
}

function formatLocks(locks: readonly AdoptionLock[]): string {
  const milliseconds = (value: number): string => `${value.toFixed(1)} ms`
  return locks
    .map(({ step, mode, attempts, waitedMilliseconds: waited, heldMilliseconds: held }) => {
      return `${step}: ${mode}, waited ${milliseconds(waited)}, held ${milliseconds(held)}, attempt ${attempts}\n`
    })
    .join('')
}

/** @param merges duplicates are merged next */
function formatAdoption(report: AdoptReport, merges: boolean): string {
  if (report.unchanged) return ADOPTED
  const { kind, counts, step, duplicates } = report
  const [rows, normalized] = [number(counts.filled), number(counts.normalized)]
  const done = {
    number: `${rows} rows got their numbers.`,
    names: `The names of ${rows} rows were claimed, and those of ${normalized} rows normalized.`,
    text:
      `${rows} rows got their hashes, ${normalized} texts were normalized, ` +
      `${number(counts.numbered)} rows of longer chains were numbered.`,
  }
  const lines = [done[kind], ...formatRefused(report.refused, report.refusedTotal)]
  if (duplicates && duplicates.groups > 0) {
    const { groups, surplus, largest, first } = duplicates
    lines.push(
      `${number(groups)} texts are held by several rows: ${number(surplus)} rows too many, at most ${number(largest)} of one text. ` +
        (merges ? 'New duplicates are refused.' : 'They stay; new duplicates are refused.'),
      ...first.map((keys) => `  ${keys.map((key) => JSON.stringify(key)).join(' ')}`),
    )
  }
  lines.push(step === 'done' ? 'The table is adopted.' : `The next step is "${step}": run this again to continue.`)
  return linesOf(lines)
}

const formatRefused = (refused: AdoptReport['refused'], total: number): string[] =>
  total === 0
    ? []
    : [
        `${number(total)} rows keep texts that the normalizer refuses:`,
        ...refused.map(({ key, reason }) => `  ${JSON.stringify(key)}: ${reason}`),
      ]
