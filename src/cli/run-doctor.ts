import type { DataSource, EntityMetadata } from 'typeorm'
import { doctor, type DoctorFinding, type DoctorReport } from '../doctor'
import { declaresAnything } from '../doctor/doctor'
import { findEntity } from './import-target'
import { number } from './report'
import { EXIT, type ExitCode } from './run-import'
import { openProgress, printable, type Streams } from './terminal'
import { UsageError } from './usage'

interface DoctorRun {
  readonly dataSource: DataSource
  /** As a person typed it. undefined: all */
  readonly entity: string | undefined
  /** A partition or shard of the entity's, as SQL. */
  readonly table: string | undefined
  readonly json: boolean
  readonly streams: Streams
  readonly signal: AbortSignal
}

/** Asks the doctor, shows how far it has come, and prints what it says. */
export async function runDoctor({ dataSource, entity, table, json, streams, signal }: DoctorRun): Promise<ExitCode> {
  const entities = entity === undefined ? undefined : [findDeclaring(dataSource, entity).target]
  const progress = openProgress(streams.stderr, undefined, 'rows')
  // The counts begin again with each property.
  const read = new Map<string, number>()
  let report: DoctorReport
  try {
    report = await doctor(dataSource, {
      ...(entities && { entities }),
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

/** @throws UsageError for an entity that is not there, or declares nothing */
function findDeclaring(dataSource: DataSource, entity: string): EntityMetadata {
  const metadata = findEntity(dataSource, entity)
  if (declaresAnything(metadata)) return metadata
  throw new UsageError(`${metadata.name} declares no unique text, name or number. Name another entity, or none.`)
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
    const some = joined(findings.filter((one) => one.severity === severity))
    return { text: some.map(toldFinding).join(''), total: count(some.length, severity) }
  })
  const totals = sections.map(({ total }) => total).join(', ')
  return printed([...looked, ''].join('\n') + sections.map(({ text }) => text).join('') + `${totals}.\n`)
}

/** Objects of one kind that are to be mended together take one line. */
function joined(findings: readonly DoctorFinding[]): readonly DoctorFinding[] {
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

function toldFinding({ code, severity, entity, property, ...finding }: DoctorFinding): string {
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

/** Names and keys come from elsewhere. */
const printed = (text: string): string => text.split('\n').map(printable).join('\n')
