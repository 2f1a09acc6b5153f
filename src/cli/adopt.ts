import { setTimeout as sleep } from 'node:timers/promises'
import type { EntityTarget, ObjectLiteral } from 'typeorm'
import {
  abandon,
  adopt,
  AdoptionError,
  type AdoptionLock,
  adoptionStatus,
  type AdoptionStatus,
  type AdoptOptions,
  type AdoptProgress,
  type AdoptReport,
  checkMerge,
  describeHolder,
  mergeDuplicates,
  type MergeProgress,
  type MergeReport,
  planAdoption,
} from '../adopt'
import { serverError, SQLSTATE } from '../core'
import type { DoctorCode, DoctorFinding } from '../doctor'
import { examine } from '../doctor/doctor'
import { formatFinding } from './commands'
import { findEntity } from './entity'
import { linesOf, number, printable, printableLines, writeEvent } from './terminal'
import { type CommandRun, EXIT, type ExitCode } from './usage'

type AdoptRun = CommandRun<'adopt' | 'abandon'>

/** A command with its entity and its reporter. */
interface Command extends AdoptRun {
  readonly target: EntityTarget<ObjectLiteral>
  readonly property: string | undefined
  readonly reporter: Reporter
}

/** Runs adopt or abandon, and prints how long each lock was held. */
export async function runAdopt(run: AdoptRun): Promise<ExitCode> {
  const { metadata, property } = findEntity(run.dataSource, run.invocation.entity)
  const { target } = metadata
  const reporter = new Reporter(run, target, property)
  try {
    return (await runCommand({ ...run, target, property, reporter })) ? EXIT.done : EXIT.failed
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
async function runCommand(command: Command): Promise<boolean> {
  const { dataSource, invocation, target, property, reporter } = command
  if (invocation.kind === 'adopt') return await adoptAndMerge(command)
  const report = await abandon(dataSource, target, { property, ...reporter.locking })
  reporter.report(report, () => 'The table is abandoned. No text was changed.\n')
  return true
}

/** @returns whether nothing is left to do by hand */
async function adoptAndMerge(command: Command): Promise<boolean> {
  const { dataSource, invocation, signal, target, property, reporter } = command
  const { merge } = invocation
  const pace = { ...invocation.pace, property }
  const { stoppable, locking } = reporter
  // The adoption may take hours, so what prevents the merge ends the command at once.
  if (merge) await checkMerge(dataSource, target, { property, also: merge.also, list: merge.list })
  const mergeAll = async (dryRun: boolean): Promise<boolean> => {
    if (!merge) return true
    let fraction = 0
    const onProgress = ({ rows, total }: MergeProgress): void => {
      // A further round finds more rows.
      fraction = Math.max(fraction, rows / total)
      reporter.progress({ step: 'merge', fraction, rows, total })
    }
    const merged = await mergeDuplicates(dataSource, target, { ...pace, ...stoppable, ...merge, dryRun, onProgress })
    reporter.report(merged, () => formatMerge(merged, dryRun, merge.list))
    return merged.kept.length === 0
  }
  if (invocation.dryRun) {
    const steps = await planAdoption(dataSource, target, { property })
    const planned = steps.map(({ step, lock, statements }) => {
      const shown = statements.filter((one) => !CREATES_LIBRARY.test(one))
      const library = shown.length < statements.length ? ', with what "typeorm-unique-text sql" prints' : ''
      return `-- ${step}${library}${lock === undefined ? '' : `, under ${lock}`}\n${shown.join(';\n')};\n\n`
    })
    reporter.report({ steps }, () => planned.join('') || 'The table is already adopted.\n')
    if (merge && steps.length === 0) return await mergeAll(true)
    const found = await lookAtTexts({ dataSource, target, signal }, property)
    reporter.report(found, () => formatTexts(found) + (merge ? MERGE_LATER : ''))
    return true
  }
  const report = await adopt(dataSource, target, {
    ...invocation.options,
    property,
    ...locking,
    onProgress: reporter.progress,
  })
  reporter.report(report, () => formatAdoption(report, merge !== undefined))
  if (report.step !== 'done') return true
  return await mergeAll(false)
}

const ADOPTED = 'The table is already adopted: nothing to do.\n'
/** The functions are hundreds of lines. */
const CREATES_LIBRARY = /CREATE FUNCTION \S*"unique_text_/u
const MERGE_LATER =
  'adopt changes none of these rows but to normalize their texts. Once the table is adopted, the same command lists ' +
  'what a merge would do to each row.\n'

const FOUND: ReadonlySet<string> = new Set([
  'text.twice',
  'text.twiceNormalized',
  'text.unnormalized',
  'text.rejected',
] satisfies DoctorCode[])

const GROUPS_SHOWN = 20
const TEXTS_SHOWN = 10
const SHOWN_CHARACTERS = 200

/** What a dry run finds in the stored texts. */
interface FoundTexts {
  readonly findings: readonly DoctorFinding[]
  /** The different texts of the first groups that normalizing makes equal, each cut after 200 characters. */
  readonly equal: readonly (readonly string[])[]
}

/** Finds equal texts, and those that the normalizer changes, rejects or makes equal. Reads all rows in batches. */
async function lookAtTexts(
  { dataSource, target, signal }: Pick<Command, 'dataSource' | 'target' | 'signal'>,
  property: string | undefined,
): Promise<FoundTexts> {
  const isChosen = (name: string | null): boolean => property === undefined || name === property
  const equal: string[][] = []
  const onEqual = (name: string, texts: readonly (readonly (string | null)[])[]): void => {
    if (!isChosen(name) || equal.length === GROUPS_SHOWN) return
    const all = new Set(texts.map((one) => one.map((text) => text?.slice(0, SHOWN_CHARACTERS) ?? 'NULL').join(', ')))
    equal.push([...all].slice(0, TEXTS_SHOWN))
  }
  try {
    const { findings } = await examine(dataSource, { entities: [target], signal }, onEqual)
    return { findings: findings.filter((one) => FOUND.has(one.code) && isChosen(one.property)), equal }
  } catch (error) {
    if (signal.aborted) throw new AdoptionError('interrupted', 'Stopped. Nothing was changed.', error)
    throw error
  }
}

const formatTexts = ({ findings, equal }: FoundTexts): string =>
  printableLines(findings.map(formatFinding).join('')) +
  (equal.length === 0 ? '' : '--json prints a sample of the texts that would become equal.\n')

function formatMerge({ merged, redirected, kept }: MergeReport, dryRun: boolean, list: string): string {
  const reasons = new Set(kept.map(({ reason }) => reason))
  const todo = `The list has all of them: ${list}. Change them by hand, and run the same command again.`
  return linesOf([
    `${number(merged)} rows ${dryRun ? 'would be' : 'were'} merged.`,
    ...redirected.map(({ table, column, rows: n }) => `  ${table} (${column}): references redirected: ${number(n)}`),
    ...(kept.length === 0
      ? []
      : [`Rows kept unchanged: ${number(kept.length)}`, ...[...reasons].map((reason) => `  ${reason}`), todo]),
  ])
}

/** The shortest interval between progress lines, and the longest silence. */
const PROGRESS_MILLISECONDS = 2_000
const SILENCE_MILLISECONDS = 4_000
const ASKING_MILLISECONDS = 500

interface StepProgress extends Omit<AdoptProgress, 'step'> {
  readonly step: AdoptProgress['step'] | 'merge'
  /** How many rows there are, if it is known. */
  readonly total?: number
}

type Stoppable = Pick<AdoptOptions, 'onNotice'> & Pick<AdoptRun, 'signal'>

/**
 * Reports the work of a command. Progress and notices are lines on stderr, and results are on stdout. With `json`, all
 * are lines of JSON on stdout. While a step is silent, it queries the server's status on another connection.
 */
class Reporter {
  /** Options of every command, and of those that lock the table. */
  readonly stoppable: Stoppable
  readonly locking: Stoppable & Pick<AdoptOptions, 'onLock'>
  private readonly json: boolean
  private readonly locks: AdoptionLock[] = []
  private readonly beat: NodeJS.Timeout
  private current: StepProgress | undefined
  /** When the step began. */
  private begun = 0
  private printed = performance.now()
  private asked: Promise<AdoptionStatus | undefined> | undefined

  constructor(
    private readonly run: AdoptRun,
    private readonly target: EntityTarget<ObjectLiteral>,
    private readonly property: string | undefined,
  ) {
    this.json = run.invocation.json
    this.stoppable = { signal: run.signal, onNotice: this.notice }
    this.locking = { ...this.stoppable, onLock: this.lock }
    this.beat = setInterval(() => void this.breakSilence(), PROGRESS_MILLISECONDS / 2)
  }

  /** Arrow functions, because they are passed on. */
  readonly notice = (message: string): void => {
    if (this.json) this.writeEvent({ event: 'notice', message })
    else this.writeLine(message)
  }

  private readonly lock = (lock: AdoptionLock): void => {
    if (this.json) this.writeEvent({ event: 'lock', ...lock })
    else this.locks.push(lock)
  }

  /** Writes a line every two seconds and for every step, for example `fill  43 %  430,000 rows`. */
  readonly progress = (progress: StepProgress): void => {
    const now = performance.now()
    const isNew = progress.step !== this.current?.step
    if (isNew) this.begun = now
    this.current = progress
    if (isNew || now - this.printed >= PROGRESS_MILLISECONDS) this.writeProgress(progress)
  }

  error({ reason, message, keys }: AdoptionError): void {
    if (this.json) this.writeEvent({ event: 'error', reason, message, keys })
    else this.run.streams.stderr.write(`${printableLines(message)}\n`)
  }

  report(report: object, format: () => string): void {
    this.current = undefined
    if (this.json) return this.writeEvent({ event: 'report', ...report })
    this.writeLocks()
    this.run.streams.stdout.write(format())
  }

  /** Called however the command ended. */
  end(): void {
    clearInterval(this.beat)
    this.writeLocks()
  }

  private writeLocks(): void {
    for (const { step, mode, attempts, waitedMilliseconds: waited, heldMilliseconds: held } of this.locks.splice(0)) {
      const times = `waited ${waited.toFixed(1)} ms, held ${held.toFixed(1)} ms`
      this.run.streams.stdout.write(`${step}: ${mode}, ${times}, attempt ${attempts}\n`)
    }
  }

  private writeEvent(event: object): void {
    this.printed = performance.now()
    writeEvent(this.run.streams.stdout, event)
  }

  private writeLine(line: string): void {
    this.printed = performance.now()
    this.run.streams.stderr.write(`${new Date().toTimeString().slice(0, 8)}  ${printable(line)}\n`)
  }

  /** @param status the server's status of a step that reports nothing itself */
  private writeProgress(own: StepProgress, status?: AdoptionStatus): void {
    const progress = { ...own, fraction: own.fraction ?? status?.fraction ?? undefined }
    if (this.json) return this.writeEvent({ event: 'progress', ...progress, ...(status && { status }) })
    const silent = status && describeSilence(status, (performance.now() - this.begun) / 1_000)
    this.writeLine([...describeProgress(progress), ...(silent ?? [])].join('  '))
  }

  private async breakSilence(): Promise<void> {
    const isSilent = (): boolean => performance.now() - this.printed >= SILENCE_MILLISECONDS
    if (!this.current || !isSilent()) return
    this.asked ??= adoptionStatus(this.run.dataSource, this.target, { property: this.property })
      .catch(() => undefined)
      .finally(() => (this.asked = undefined))
    // The pool may have no free connection.
    const status = await Promise.race([this.asked, sleep(ASKING_MILLISECONDS, undefined)])
    // The step may have ended or reported meanwhile.
    if (this.current && isSilent()) this.writeProgress(this.current, status)
  }
}

const describeProgress = ({ step, fraction, rows, total }: StepProgress): string[] => [
  step,
  ...(fraction === undefined ? [] : [`${Math.floor(fraction * 100)} %`]),
  ...(rows === 0 ? [] : [`${number(rows)}${total === undefined ? '' : ` of ${number(total)}`} rows`]),
]

const describeSilence = ({ phase, command, holders }: AdoptionStatus, seconds: number): string[] => [
  ...(phase === null ? [] : [phase]),
  `${Math.round(seconds)} s in this step`,
  ...(command?.waitsFor === 'Lock' ? holders.map(describeHolder) : []),
]

/** @param merges whether duplicates are merged next */
function formatAdoption(report: AdoptReport, merges: boolean): string {
  if (report.unchanged) return ADOPTED
  const { counts, step, duplicates } = report
  const lines = [
    `${number(counts.filled)} rows got their hashes, ${number(counts.normalized)} texts were normalized, ` +
      `${number(counts.numbered)} rows of longer chains were numbered.`,
    ...formatRejected(report),
  ]
  if (duplicates && duplicates.groups > 0) {
    const { groups, surplus, largest } = duplicates
    lines.push(
      `${number(groups)} texts are held by several rows: ${number(surplus)} rows too many, at most ${number(largest)} of one text. ` +
        (merges
          ? 'New duplicates are rejected.'
          : 'They are kept; new duplicates are rejected. --json prints their first keys.'),
    )
  }
  lines.push(step === 'done' ? 'The table is adopted.' : `The next step is "${step}": run this again to continue.`)
  return linesOf(lines)
}

const formatRejected = ({ rejected, rejectedTotal }: Pick<AdoptReport, 'rejected' | 'rejectedTotal'>): string[] =>
  rejectedTotal === 0
    ? []
    : [
        `${number(rejectedTotal)} rows keep texts that the normalizer rejects. --json prints the first keys:`,
        ...[...new Set(rejected.map(({ reason }) => reason))].map((reason) => `  ${reason}`),
      ]
