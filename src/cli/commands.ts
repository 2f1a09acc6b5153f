import { doctor, type DoctorFinding, type DoctorProgress, type DoctorReport } from '../doctor'
import { declaresAnything } from '../doctor/doctor'
import { didYouMean } from './did-you-mean'
import { findEntity } from './entity'
import { number, openProgress, printableLines } from './terminal'
import { type CommandRun, EXIT, type ExitCode, UsageError } from './usage'

/**
 * Runs the doctor, shows its progress, and prints its report.
 *
 * @throws UsageError for an entity that does not exist, or declares nothing
 */
export async function runDoctor({ dataSource, streams, signal, invocation }: CommandRun<'doctor'>): Promise<ExitCode> {
  const { entity, json } = invocation
  const { metadata, property } = entity === undefined ? {} : findEntity(dataSource, entity)
  if (metadata && property !== undefined)
    throw new UsageError(`doctor examines a whole entity: --entity ${metadata.name}`)
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
  let report: DoctorReport
  try {
    report = await doctor(dataSource, { ...(metadata && { entities: [metadata.target] }), signal, onProgress })
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
    ...(keys.length === 0 ? [] : ['  --json prints the keys of the first rows.']),
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
  throw new UsageError(`${didYouMean(name ?? '', codes).trim()} Name one of these errors: ${codes.join(', ')}.`.trim())
}
