import {
  doctor,
  type DoctorFinding,
  type DoctorProgress,
  type DoctorReport,
  preview,
  type PreviewReport,
} from '../doctor'
import { declaresAnything } from '../doctor/doctor'
import { collapseWhitespace, compose, email, lowerCase, nfc, type Normalizer, trim, url } from '../text'
import { findEntity } from './entity'
import { linesOf, number, onlyExport, openProgress, printableLines } from './terminal'
import { type CommandRun, EXIT, type ExitCode, UsageError } from './usage'

/** @returns undefined, after a message, if the signal has ended the work, which only reads */
async function unlessStopped<T>(
  { streams, signal }: Pick<CommandRun<'doctor' | 'preview'>, 'streams' | 'signal'>,
  work: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (!signal.aborted) throw error
    streams.stderr.write('Stopped. Nothing was changed.\n')
    return undefined
  }
}

/**
 * Runs the doctor, shows its progress, and prints its report.
 *
 * @throws UsageError for an entity that does not exist, or declares nothing
 */
export async function runDoctor(run: CommandRun<'doctor'>): Promise<ExitCode> {
  const { dataSource, streams, signal } = run
  const { entity, table, json } = run.invocation
  const metadata = entity === undefined ? undefined : findEntity(dataSource, entity)
  if (metadata && !declaresAnything(metadata)) {
    throw new UsageError(`${metadata.name} declares no unique text, name or number. Name another entity, or none.`)
  }
  const progress = openProgress(streams.stderr, undefined, 'rows')
  // The counts restart with each property.
  const read = new Map<string, number>()
  const onProgress = ({ entity, property, rows }: DoctorProgress): void => {
    read.set(`${entity}.${property}`, rows)
    const sum = [...read.values()].reduce((sum, one) => sum + one, 0)
    progress.update(sum, undefined)
  }
  const options = { ...(metadata && { entities: [metadata.target] }), ...(table !== undefined && { table }) }
  const examine = async () => await doctor(dataSource, { ...options, signal, onProgress })
  const report = await unlessStopped(run, async () => await examine().finally(() => progress.end()))
  if (!report) return EXIT.interrupted
  streams.stdout.write(json ? `${JSON.stringify(report, undefined, 2)}\n` : formatFindings(report))
  return report.healthy ? EXIT.done : EXIT.failed
}

/** Formats the report for a person: the examined rows, then the findings with their next steps, the worst first. */
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

/** Joins findings about objects that one action fixes into one line. */
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

export function formatFinding({ code, severity, entity, property, ...finding }: DoctorFinding): string {
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

/** Prints the effect of a normalizer on the stored texts. */
export async function runPreview(run: CommandRun<'preview'>): Promise<ExitCode> {
  const { dataSource, streams, signal } = run
  const { entity, property } = run.invocation
  const { target } = findEntity(dataSource, entity)
  const normalize = await findNormalizer(run.invocation.normalize)
  const look = async () => await preview(dataSource, target, { normalize, property, signal })
  const report = await unlessStopped(run, look)
  if (!report) return EXIT.interrupted
  streams.stdout.write(formatPreview(report))
  return EXIT.done
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

/**
 * Returns the row of a table of docs/errors.md for an error, with a line for each column.
 *
 * @param name a code, a class or an SQLSTATE of the triggers, in any case
 * @throws UsageError if the page has no such error
 */
export function explainError(page: string, name: string | undefined): string {
  let head: readonly string[] = []
  const codes: string[] = []
  for (const line of page.split('\n')) {
    // Removes the syntax of Markdown.
    const cells = line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.replaceAll(/`|\[(?=[^\]]+\]\()|\]\([^)]*\)/gu, '').trim())
    if (cells.length === 0) head = []
    else if (head.length === 0) head = cells
    else if (cells.slice(0, 2).some((cell) => cell.toUpperCase() === name?.toUpperCase()))
      return cells.map((cell, column) => `${head[column]}: ${cell}\n`).join('')
    else if (!/^-+$/u.test(cells[0] ?? '')) codes.push(cells[head[0] === 'class' ? 1 : 0] ?? '')
  }
  throw new UsageError(`Name one of these errors: ${codes.join(', ')}.`)
}
