import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  abandon,
  adopt,
  AdoptionError,
  type AdoptionLock,
  type AdoptOptions,
  type AdoptProgress,
  type AdoptReport,
  checkMerge,
  follow,
  forgetMerges,
  mergeDuplicates,
  type MergeOptions,
  type MergeReport,
  type MergeRows,
  planAdoption,
  unmerge,
} from '../adopt'
import { findEntity } from './import-target'
import { loadModule } from './load-data-source'
import { number } from './report'
import { EXIT, type ExitCode } from './run-import'
import { printable, type Streams } from './terminal'
import { type Invocation, type Pace, UsageError } from './usage'

interface AdoptRun {
  readonly dataSource: DataSource
  readonly invocation: Extract<Invocation, { kind: 'adopt' | 'abandon' | 'unmerge' }>
  readonly streams: Streams
  readonly signal: AbortSignal
}

/** Adopts a table, or removes everything again, and prints what was locked for how long. */
export async function runAdopt({ dataSource, invocation, streams, signal }: AdoptRun): Promise<ExitCode> {
  const { stdout, stderr } = streams
  const { target } = findEntity(dataSource, invocation.entity)
  const say = (line: string): void => void stderr.write(`${printable(line)}\n`)
  const leftLines = { signal, onNotice: say }
  const [options, pace] = [
    { ...invocation.options, ...leftLines },
    { ...invocation.pace, ...leftLines },
  ]
  try {
    const print = (text: string): void => void stdout.write(text)
    await runCommand(invocation, { dataSource, target, options, pace, signal, say, print })
    return EXIT.done
  } catch (error) {
    if (!(error instanceof AdoptionError)) throw error
    stderr.write(`${error.message.split('\n').map(printable).join('\n')}\n`)
    return error.reason === 'interrupted' ? EXIT.interrupted : EXIT.failed
  }
}

interface Command {
  readonly dataSource: DataSource
  readonly target: EntityTarget<ObjectLiteral>
  readonly options: AdoptOptions
  readonly pace: Pace
  readonly signal: AbortSignal
  readonly say: (line: string) => void
  readonly print: (text: string) => void
}

async function runCommand(invocation: AdoptRun['invocation'], command: Command): Promise<void> {
  const { dataSource, target, options, say, print } = command
  const { property } = options
  if (invocation.kind === 'abandon') {
    const { locks } = await abandon(dataSource, target, { property, signal: command.signal, onNotice: say })
    print(`${formatLocks(locks)}The table is abandoned. No text was changed.\n`)
  } else if (invocation.kind === 'unmerge') {
    print(
      `${number(await unmerge(dataSource, target, { property, signal: command.signal, onNotice: say }))} rows were restored.\n`,
    )
  } else if (invocation.forgetLog) {
    await forgetMerges(dataSource, target, { property })
    print('The log of merges is empty.\n')
  } else if (invocation.dryRun) {
    for (const { step, lock, statements } of await planAdoption(dataSource, target, { property })) {
      print(`-- ${step}${lock === undefined ? '' : `, under ${lock}`}\n${statements.join(';\n')};\n\n`)
    }
  } else {
    const merge = invocation.merge && (await mergeOf(command, invocation.merge))
    const report = await adopt(dataSource, target, { ...options, onProgress: sayProgress(say) })
    print(formatAdoption(report, merge !== undefined))
    if (report.step !== 'done') return
    if (merge) print(await mergeThen(command, merge))
    if (invocation.follow) print(await followUntil(command))
  }
}

type Keep = NonNullable<AdoptRun['invocation']['merge']>['keep']
type Merge = Pick<MergeOptions, 'keep' | 'also' | 'conflict'>

/** Before the adoption, which may take hours: a file or a table that does not exist ends the command at once. */
async function mergeOf(
  { dataSource, target, options: { property } }: Command,
  { keep, also = [], conflict = {} }: NonNullable<AdoptRun['invocation']['merge']>,
): Promise<Merge> {
  const merge = { keep: await keepOf(keep), also, conflict }
  await checkMerge(dataSource, target, { property, also, conflict })
  return merge
}

async function keepOf(keep: Keep): Promise<'oldest' | 'newest' | MergeRows> {
  if (typeof keep !== 'object') return keep
  const { file } = keep
  const found = new Set((await loadModule(file)).filter((value) => typeof value === 'function'))
  const [only] = found
  if (only && found.size === 1) return only as MergeRows
  throw new UsageError(`"${file}" must export one function: export default (rows) => ({ keep: rows[0] }).`)
}

/** Ends as it should by the signal: that is no failure. */
async function followUntil({ dataSource, target, pace, signal, say }: Command): Promise<string> {
  const leftLines = (normalized: number): void => say(`follow  ${number(normalized)} texts normalized  Ctrl-C ends it`)
  const report = await follow(dataSource, target, { ...pace, signal, onProgress: leftLines })
  const lines = [
    `${number(report.normalized)} texts were normalized.`,
    ...formatRefused(report.refused, report.refusedTotal),
  ]
  return lines.map((line) => `${printable(line)}\n`).join('')
}

const LEFT_NEXT =
  'Where the reason is the name of a constraint or an index, --conflict TABLE=merge, with the name of its table, merges ' +
  'the rows that clash there too. Otherwise change the rows by hand. Then run the same command again.'

async function mergeThen({ dataSource, target, pace, say }: Command, merge: Merge): Promise<string> {
  const sayMerged = sayProgress(say)
  const onProgress = (rows: number): void => sayMerged({ step: 'merge', fraction: undefined, rows })
  return formatMerge(await mergeDuplicates(dataSource, target, { ...pace, ...merge, onProgress }))
}

function formatMerge({ merged, left }: MergeReport): string {
  const rows = left.map(({ row, kept, reason }) => `  ${JSON.stringify(row)}, for ${JSON.stringify(kept)}: ${reason}`)
  const leftLines = left.length === 0 ? [] : [`Rows left as they are: ${number(left.length)}`, ...rows, LEFT_NEXT]
  return [`${number(merged)} rows were merged.`, ...leftLines].map((line) => `${printable(line)}\n`).join('')
}

const PROGRESS_MILLISECONDS = 2_000

/** Of an adoption, or of the merge after it. */
type Progress = Omit<AdoptProgress, 'step'> & { readonly step: AdoptProgress['step'] | 'merge' }

/** A line every two seconds, and one for every step. */
function sayProgress(say: (line: string) => void, now = () => performance.now()): (progress: Progress) => void {
  let [step, started, last] = ['', now(), 0]
  return (progress) => {
    const at = now()
    if (progress.step === step && at - last < PROGRESS_MILLISECONDS) return
    if (progress.step !== step) [step, started] = [progress.step, at]
    last = at
    say(formatProgress(progress, (at - started) / 1_000))
  }
}

/** One line, for example `fill  43 %  430,000 rows  6,200 per second  1 min left`. */
function formatProgress({ step, fraction, rows }: Progress, seconds: number): string {
  const percent = fraction === undefined ? [] : [`${Math.floor(fraction * 100)} %`]
  const done = rows === 0 ? [] : [`${number(rows)} rows`]
  const rate = rows === 0 || seconds < 1 ? [] : [`${number(Math.round(rows / seconds))} per second`]
  const left = fraction === undefined || fraction < 0.01 || seconds < 1 ? [] : [timeLeft(seconds * (1 / fraction - 1))]
  return [step, ...percent, ...done, ...rate, ...left].join('  ')
}

const timeLeft = (seconds: number): string =>
  seconds < 90 ? `${Math.round(seconds)} s left` : `${Math.round(seconds / 60)} min left`

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
  const { step, unchanged, duplicates, refused, refusedTotal } = report
  if (unchanged) return 'The table is already adopted: nothing to do.\n'
  const end = step === 'done' ? 'The table is adopted.' : `The next step is "${step}": run this again to continue.`
  const lines = [
    formatCounts(report),
    ...formatRefused(refused, refusedTotal),
    ...formatDuplicates(duplicates, merges),
    end,
  ]
  return `${formatLocks(report.locks)}${lines.map((line) => `${printable(line)}\n`).join('')}`
}

function formatCounts({ kind, counts }: AdoptReport): string {
  const [rows, normalized] = [number(counts.filled), number(counts.normalized)]
  if (kind === 'number') return `${rows} rows got their numbers.`
  if (kind === 'names') return `The names of ${rows} rows were claimed, and those of ${normalized} rows normalized.`
  return (
    `${rows} rows got their hashes, ${normalized} texts were normalized, ` +
    `${number(counts.numbered)} rows of longer chains were numbered.`
  )
}

const formatRefused = (refused: AdoptReport['refused'], total: number): string[] =>
  total === 0
    ? []
    : [
        `${number(total)} rows keep texts that the normalizer refuses:`,
        ...refused.map(({ key, reason }) => `  ${JSON.stringify(key)}: ${reason}`),
      ]

function formatDuplicates(duplicates: AdoptReport['duplicates'], merges: boolean): string[] {
  if (duplicates === undefined || duplicates.groups === 0) return []
  const { groups, surplus, largest, first } = duplicates
  return [
    `${number(groups)} texts are held by several rows: ${number(surplus)} rows too many, at most ${number(largest)} of one text. ` +
      (merges ? 'New duplicates are refused.' : 'They stay; new duplicates are refused.'),
    ...first.map((keys) => `  ${keys.map((key) => JSON.stringify(key)).join(' ')}`),
  ]
}
