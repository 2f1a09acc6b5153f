import { hasFaults } from '../faults'
import type { Comparison, Row } from '../measure'
import type { Facts } from '../phase'
import type { Report } from './report'

/** Text in rows and columns; the first column names the row. */
export interface Table {
  readonly title: string
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
  /** What it is made of, where that can be drawn. */
  readonly comparisons: readonly Comparison[]
  /** The same, of facts that are lines. */
  readonly lines?: Facts
}

/** Comparisons that stand side by side. */
const GROUPS: readonly (readonly [title: string, phases: readonly string[]])[] = [
  ['One call after the other', ['hit', 'look-up', 'miss']],
  ['Callers at once, of texts of which one in five is new', ['mixed', 'herd']],
  ['In a transaction', ['transaction']],
  ['Many texts', ['bulk']],
  ['Import of a list', ['import']],
  ['Long texts', ['long']],
  ['A server at some distance', ['round-trip']],
]

/** All figures of the newest release, in the order of maintainers/benchmark.md, and our ratios in each release. */
export function tablesOf(releases: ReadonlyMap<string, Report>): readonly Table[] {
  const newest = [...releases.values()].at(-1)
  return newest ? [...tablesOfRun(newest), factTable(ratiosOf(releases))] : []
}

/** A line for each comparison. */
function ratiosOf(releases: ReadonlyMap<string, Report>): Facts {
  const phases = ['hit', 'look-up', 'miss', 'mixed', 'bulk']
  const ofRelease = ({ results }: Report): readonly Comparison[] =>
    ofPhases(
      results.filter((result) => result.kind === 'comparison'),
      phases,
    )
  const titles = [...new Set([...releases.values()].flatMap(ofRelease).map(({ title }) => title))]
  const rows = [...releases].map(([name, report]) => {
    const values = titles.map((one) => {
      const ours = ofRelease(report)
        .find(({ title }) => title === one)
        ?.rows.find(({ peer }) => peer === OURS)
      return ours?.ratio ? Number(ours.ratio.toFixed(2)) : null
    })
    return { name, values }
  })
  const columns = titles.map((title) => `${OURS}, ${title}`)
  return { kind: 'facts', phase: 'releases', title: 'ratios by release', columns, lines: true, rows }
}

/** The name of our peer. */
const OURS = 'ours'

/** All figures of one run. */
export function tablesOfRun({ results }: Report): readonly Table[] {
  const comparisons = results.filter((result) => result.kind === 'comparison')
  const facts = results.filter((result) => result.kind === 'facts')
  const grouped = GROUPS.map(([title, phases]) => times(title, ofPhases(comparisons, phases)))
  const cpu = processors('CPU time of a text, µs: client + server', ofPhases(comparisons, ['hit', 'miss', 'bulk']))
  return [...grouped, cpu, faults(comparisons), ...facts.map(factTable)].filter(({ rows }) => rows.length > 0)
}

const ofPhases = (comparisons: readonly Comparison[], phases: readonly string[]): readonly Comparison[] =>
  comparisons.filter(({ phase }) => phases.includes(phase))

type Cell = (row: Row, isBaseline: boolean) => string

/** One row for each peer that has a figure anywhere. */
function matrix(title: string, comparisons: readonly Comparison[], cell: Cell): Table {
  const names = [...new Set(comparisons.flatMap(({ rows }) => rows.map(({ peer }) => peer)))]
  const rows = names.map((name) => [
    name,
    ...comparisons.map((comparison) => {
      const row = comparison.rows.find(({ peer }) => peer === name)
      return row ? cell(row, name === comparison.baseline) : ''
    }),
  ])
  return { title, head: ['', ...comparisons.map((comparison) => comparison.title)], rows, comparisons }
}

/** Ratios; the time of what they are ratios to. */
function times(title: string, comparisons: readonly Comparison[]): Table {
  return matrix(title, comparisons, (row, isBaseline) => {
    if (row.value === null || row.ratio === null) return 'refused'
    return `${isBaseline ? `1 = ${duration(row.value)}` : row.ratio.toFixed(2)}${isWrong(row) ? ' (wrong)' : ''}`
  })
}

function processors(title: string, comparisons: readonly Comparison[]): Table {
  const table = matrix(title, comparisons, ({ clientCpu, serverCpu }) => {
    return clientCpu === null ? '' : `${amount(clientCpu)} + ${serverCpu === null ? '?' : amount(serverCpu)}`
  })
  return { ...table, comparisons: [] }
}

/** An error of a peer that can do nothing of it is not counted here: its table says so. */
const isWrong = ({ value, faults }: Row): boolean => value !== null && hasFaults(faults)

function faults(comparisons: readonly Comparison[]): Table {
  const rows = comparisons.flatMap(({ title, rows: peers }) =>
    peers.filter(isWrong).map(({ peer, faults: { errors, wrongRow, wrongFlag, secondId } }) => {
      return [`${peer}: ${title}`, ...[errors, wrongRow, wrongFlag, secondId].map(String)]
    }),
  )
  return { title: 'Wrong answers', head: ['', 'errors', 'wrong row', 'wrong flag', 'second id'], rows, comparisons: [] }
}

function factTable(facts: Facts): Table {
  const { title, columns, rows, lines = false } = facts
  return {
    ...(lines ? { lines: facts } : {}),
    title: `${title.slice(0, 1).toUpperCase()}${title.slice(1)}`,
    head: ['', ...columns],
    rows: rows.map(({ name, values }) => [name, ...values.map((value) => (value === null ? '' : String(value)))]),
    comparisons: [],
  }
}

const duration = (microseconds: number): string =>
  microseconds < 1_000 ? `${amount(microseconds)} µs` : `${amount(microseconds / 1_000)} ms`

const amount = (value: number): string => String(Number(value.toPrecision(value < 1_000 ? 3 : 4)))
