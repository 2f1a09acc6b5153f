import type { DataSource, ObjectLiteral } from 'typeorm'
import {
  abandon,
  adopt,
  AdoptionError,
  type AdoptionLock,
  type AdoptProgress,
  type AdoptReport,
  checkMerge,
  follow,
  forgetMerges,
  mergeDuplicates,
  type MergeReport,
  type MergeRows,
  planAdoption,
  unmerge,
  type UnmergeOptions,
  type UnmergeReport,
} from '../adopt'
import { doctor, type DoctorFinding, type DoctorReport, preview, type PreviewReport } from '../doctor'
import { declaresAnything } from '../doctor/doctor'
import { collapseWhitespace, compose, email, lowerCase, nfc, type Normalizer, trim, url } from '../text'
import { EXIT, type ExitCode, findEntity } from './import'
import { number } from './report'
import { loadModule, openProgress, printable, printableLines, type Streams } from './terminal'
import { type Invocation, type KeptRow, UsageError } from './usage'

interface AdoptRun {
  readonly dataSource: DataSource
  readonly invocation: Extract<Invocation, { kind: 'adopt' | 'abandon' | 'unmerge' }>
  readonly streams: Streams
  readonly signal: AbortSignal
}

/** Adopts a table, or removes everything again, and prints what was locked for how long. */
export async function runAdopt(run: AdoptRun): Promise<ExitCode> {
  const { stderr } = run.streams
  try {
    return (await runCommand(run)) ? EXIT.done : EXIT.failed
  } catch (error) {
    if (!(error instanceof AdoptionError)) throw error
    stderr.write(`${printableLines(error.message)}\n`)
    return error.reason === 'interrupted' ? EXIT.interrupted : EXIT.failed
  }
}

/** @returns whether nothing is left to do by hand */
async function runCommand({ dataSource, invocation, streams, signal }: AdoptRun): Promise<boolean> {
  const { target } = findEntity(dataSource, invocation.entity)
  const print = (text: string): void => void streams.stdout.write(text)
  const notice = (line: string): void => void streams.stderr.write(`${printable(line)}\n`)
  const stoppable = { signal, onNotice: notice }
  const { property } = invocation.options
  const { pace } = invocation
  let isWhole = true
  if (invocation.kind === 'abandon') {
    const { locks } = await abandon(dataSource, target, { property, ...stoppable })
    print(`${formatLocks(locks)}The table is abandoned. No text was changed.\n`)
  } else if (invocation.kind === 'unmerge') {
    const progress = printProgress(notice)
    const onProgress = (rows: number): void => progress({ step: 'unmerge', fraction: undefined, rows })
    const key = keyOf(invocation.key)
    const report = await unmerge(dataSource, target, { ...pace, ...stoppable, key, onProgress })
    print(formatUnmerge(report))
    return report.left.length === 0
  } else if (invocation.forgetLog) {
    await forgetMerges(dataSource, target, { property })
    print('The log of merges is empty.\n')
  } else if (invocation.dryRun) {
    for (const { step, lock, statements } of await planAdoption(dataSource, target, { property })) {
      print(`-- ${step}${lock === undefined ? '' : `, under ${lock}`}\n${statements.join(';\n')};\n\n`)
    }
  } else {
    const progress = printProgress(notice)
    // The adoption may take hours: a file or a table that does not exist ends the command at once.
    const merge = invocation.merge && {
      also: [],
      conflict: {},
      ...invocation.merge,
      keep: await keepOf(invocation.merge.keep),
    }
    if (merge) await checkMerge(dataSource, target, { property, also: merge.also, conflict: merge.conflict })
    const report = await adopt(dataSource, target, { ...invocation.options, ...stoppable, onProgress: progress })
    print(formatAdoption(report, merge !== undefined))
    if (report.step !== 'done') return true
    if (merge) {
      const onProgress = (rows: number): void => progress({ step: 'merge', fraction: undefined, rows })
      const merged = await mergeDuplicates(dataSource, target, { ...pace, ...stoppable, ...merge, onProgress })
      print(formatMerge(merged))
      isWhole = merged.left.length === 0
    }
    if (invocation.follow) {
      const onProgress = (texts: number): void => notice(`follow  ${number(texts)} texts normalized  Ctrl-C ends it`)
      const { normalized, refused, refusedTotal } = await follow(dataSource, target, {
        ...pace,
        ...stoppable,
        onProgress,
      })
      print(linesOf([`${number(normalized)} texts were normalized.`, ...formatRefused(refused, refusedTotal)]))
    }
  }
  return isWhole
}

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

/** What a file exports, where only one of its values is of this kind. */
async function onlyExport<Value>(
  file: string,
  isOfKind: (value: unknown) => value is Value,
): Promise<Value | undefined> {
  const found = new Set((await loadModule(file)).filter(isOfKind))
  return found.size === 1 ? [...found][0] : undefined
}

/** Text whose names, keys and values come from elsewhere, a line each. */
const linesOf = (lines: readonly string[]): string => lines.map((line) => `${printable(line)}\n`).join('')

const CONFLICT_NEXT =
  'Where the reason is the name of a constraint or an index, --conflict TABLE=merge, with the name of its table, merges ' +
  'the rows that clash there too. '

function formatMerge({ merged, left }: MergeReport): string {
  const rows = left.map(({ row, kept, reason }) => `  ${JSON.stringify(row)}, for ${JSON.stringify(kept)}: ${reason}`)
  // A clause is no name.
  const next = left.some(({ reason }) => !reason.includes(' ')) ? CONFLICT_NEXT : ''
  const todo = `${next}Change the ${next === '' ? '' : 'other '}rows by hand. Then run the same command again.`
  const leftLines = left.length === 0 ? [] : [`Rows left as they are: ${number(left.length)}`, ...rows, todo]
  return linesOf([`${number(merged)} rows were merged.`, ...leftLines])
}

const NOT_WHOLE_NEXT =
  'A row that did not come back is in the log still: mend the reason, and run the same command again. A value or a ' +
  'reference that has changed since the merge stays as it is.'

function formatUnmerge({ restored, left }: UnmergeReport): string {
  const rows = left.map(({ table, row, reason }) => `  ${table} ${JSON.stringify(row)}: ${reason}`)
  const leftLines =
    left.length === 0 ? [] : [`Not as before the merge: ${number(left.length)}`, ...rows, NOT_WHOLE_NEXT]
  return linesOf([`${number(restored)} rows were restored.`, ...leftLines])
}

const PROGRESS_MILLISECONDS = 2_000

type StepProgress = Omit<AdoptProgress, 'step'> & { readonly step: AdoptProgress['step'] | 'merge' | 'unmerge' }

/**
 * A line every two seconds, and one for every step of an adoption or of the merge after it, for example
 * `fill  43 %  430,000 rows  6,200 per second  1 min left`.
 */
function printProgress(notice: (line: string) => void): (progress: StepProgress) => void {
  let [last, started, printed] = ['', performance.now(), 0]
  return ({ step, fraction, rows }) => {
    const now = performance.now()
    if (step === last && now - printed < PROGRESS_MILLISECONDS) return
    if (step !== last) [last, started] = [step, now]
    printed = now
    const seconds = (now - started) / 1_000
    const parts: string[] = [step]
    if (fraction !== undefined) parts.push(`${Math.floor(fraction * 100)} %`)
    if (rows > 0) parts.push(`${number(rows)} rows`)
    if (rows > 0 && seconds >= 1) parts.push(`${number(Math.round(rows / seconds))} per second`)
    if (fraction !== undefined && fraction >= 0.01 && seconds >= 1) {
      const left = seconds * (1 / fraction - 1)
      parts.push(left < 90 ? `${Math.round(left)} s left` : `${Math.round(left / 60)} min left`)
    }
    notice(parts.join('  '))
  }
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
  if (report.unchanged) return 'The table is already adopted: nothing to do.\n'
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
  return formatLocks(report.locks) + linesOf(lines)
}

const formatRefused = (refused: AdoptReport['refused'], total: number): string[] =>
  total === 0
    ? []
    : [
        `${number(total)} rows keep texts that the normalizer refuses:`,
        ...refused.map(({ key, reason }) => `  ${JSON.stringify(key)}: ${reason}`),
      ]

interface DoctorRun {
  readonly dataSource: DataSource
  /** The name that a person typed. undefined: all entities */
  readonly entity: string | undefined
  /** A partition or shard of the entity's, as SQL. */
  readonly table: string | undefined
  readonly json: boolean
  readonly streams: Streams
  readonly signal: AbortSignal
}

/**
 * Asks the doctor, shows how far it has come, and prints its report.
 *
 * @throws UsageError for an entity that does not exist, or declares nothing
 */
export async function runDoctor({ dataSource, entity, table, json, streams, signal }: DoctorRun): Promise<ExitCode> {
  const metadata = entity === undefined ? undefined : findEntity(dataSource, entity)
  if (metadata && !declaresAnything(metadata)) {
    throw new UsageError(`${metadata.name} declares no unique text, name or number. Name another entity, or none.`)
  }
  const progress = openProgress(streams.stderr, undefined, 'rows')
  // The counts begin again with each property.
  const read = new Map<string, number>()
  let report: DoctorReport
  try {
    report = await doctor(dataSource, {
      ...(metadata && { entities: [metadata.target] }),
      ...(table !== undefined && { table }),
      signal,
      onProgress: ({ entity, property, rows }) => {
        read.set(`${entity}.${property}`, rows)
        progress.update(
          [...read.values()].reduce((sum, one) => sum + one, 0),
          undefined,
        )
      },
    })
  } catch (error) {
    if (!signal.aborted) throw error
    streams.stderr.write('Stopped. Nothing was changed.\n')
    return EXIT.interrupted
  } finally {
    progress.end()
  }
  streams.stdout.write(json ? `${JSON.stringify(report, undefined, 2)}\n` : formatFindings(report))
  return report.healthy ? EXIT.done : EXIT.failed
}

/** The report for a person: what was examined, then what was found, the worst first, with what to do. */
function formatFindings({ findings, tables }: DoctorReport): string {
  const looked = tables.flatMap(({ entity, declarations }) =>
    declarations.map(({ property, rows, nulls }) => {
      const without = nulls === 0 ? '' : `, ${number(nulls)} without`
      return `${entity}.${property}: ${count(rows, 'row')}${without}`
    }),
  )
  const sections = (['error', 'warning', 'information'] as const).map((severity) => {
    const some = ofOneKind(findings.filter((one) => one.severity === severity))
    return { text: some.map(formatFinding).join(''), total: count(some.length, severity) }
  })
  const totals = sections.map(({ total }) => total).join(', ')
  return printableLines([...looked, ''].join('\n') + sections.map(({ text }) => text).join('') + `${totals}.\n`)
}

/** Objects of one kind that are to be mended together take one line. */
function ofOneKind(findings: readonly DoctorFinding[]): readonly DoctorFinding[] {
  const found = new Map<string, DoctorFinding>()
  for (const [index, one] of findings.entries()) {
    const { count, detail, keys, groups, ...rest } = one
    const isObject = keys.length === 0 && groups === undefined && detail !== undefined && !detail.includes(': ')
    const id = isObject ? JSON.stringify(rest) : String(index)
    const known = found.get(id)
    found.set(id, known ? { ...known, count: known.count + count, detail: `${known.detail}, ${detail}` } : one)
  }
  return [...found.values()]
}

function formatFinding({ code, severity, entity, property, ...finding }: DoctorFinding): string {
  const { groups, keys, detail, next } = finding
  const where = property === null ? entity : `${entity}.${property}`
  const size = groups ? ` (${count(groups.groups, 'group')}, the largest of ${number(groups.largest)})` : ''
  const lines = [
    `${severity} ${code} of ${where}: ${number(finding.count)}${size}${detail === undefined ? '' : `; ${detail}`}`,
    ...(keys.length === 0 ? [] : [`  first keys: ${keys.map((key) => JSON.stringify(key)).join(' ')}`]),
    ...(groups?.references ?? []).map(
      ({ table, columns, rows, indexed }) =>
        `  referred to by ${count(rows, 'row')} of ${table} (${columns.join(', ')})` +
        (indexed ? '' : ', without an index: make one before you merge'),
    ),
    `  ${next}`,
  ]
  return lines.map((line) => `${line}\n`).join('')
}

const count = (amount: number, noun: string): string =>
  `${number(amount)} ${noun}${amount === 1 || noun === 'information' ? '' : 's'}`

interface PreviewRun {
  readonly dataSource: DataSource
  readonly invocation: Extract<Invocation, { kind: 'preview' }>
  readonly streams: Streams
  readonly signal: AbortSignal
}

/** Prints what a normalizer would make of the stored texts. */
export async function runPreview({ dataSource, invocation, streams, signal }: PreviewRun): Promise<ExitCode> {
  const { entity, property } = invocation
  const { target } = findEntity(dataSource, entity)
  const normalize = await findNormalizer(invocation.normalize)
  try {
    streams.stdout.write(formatPreview(await preview(dataSource, target, { normalize, property, signal })))
    return EXIT.done
  } catch (error) {
    if (!signal.aborted) throw error
    streams.stderr.write('Stopped. Nothing was changed.\n')
    return EXIT.interrupted
  }
}

const NORMALIZERS: Readonly<Record<string, () => Normalizer>> = { collapseWhitespace, email, lowerCase, nfc, trim, url }

/** Finds normalizers by their names, joined by commas, or the normalizer that a file exports. */
async function findNormalizer(given: string): Promise<Normalizer> {
  if (/[/\\.]/.test(given)) {
    const exported = await onlyExport(
      given,
      (value): value is Normalizer =>
        typeof value === 'object' && value !== null && 'normalize' in value && 'version' in value,
    )
    if (exported) return exported
    throw new UsageError(`"${given}" must export one normalizer: export default normalizer('name', 1, (text) => …).`)
  }
  const names = given.split(',')
  const all = names.flatMap((name) => NORMALIZERS[name]?.() ?? [])
  if (all.length < names.length) {
    const known = Object.keys(NORMALIZERS).join(', ')
    throw new UsageError(`--normalize is one of: ${known}; several joined by commas; or a file that exports one.`)
  }
  const [only, ...others] = all
  return only && others.length === 0 ? only : compose(...all)
}

function formatPreview({ rows, changed, refused, sample, groups, surplus, first }: PreviewReport): string {
  const part = sample === 1 ? '' : ` in a sample of 1/${number(1 / sample)} of all texts`
  const json = (keys: readonly unknown[]): string => keys.map((key) => JSON.stringify(key)).join(' ')
  return linesOf([
    `${number(rows)} rows; ${number(changed)} texts would be changed.`,
    ...refused.map((one) => `${number(one.rows)} would be refused: ${one.reason}; first keys: ${json(one.keys)}`),
    `${number(groups)} groups of different texts would become one${part}: ${number(surplus)} rows too many.`,
    ...first.flatMap(({ rows: held, texts, keys }) => [
      `  ${number(held)} rows, first keys: ${json(keys)}`,
      ...texts.map((text) => `    ${text}`),
    ]),
  ])
}
