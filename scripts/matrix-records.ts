import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'

const MAINTAINERS = path.resolve(__dirname, '../maintainers')
const RECORDS = path.join(MAINTAINERS, 'matrix.json')
const DOCUMENT = path.join(MAINTAINERS, 'reliability.md')

/** One run of the tests in a cell of the matrix. */
export interface MatrixRun {
  readonly typeorm: string
  readonly pg: string
  readonly postgres: string
  readonly node: string
  /** Files that were run; none: all. */
  readonly files: readonly string[]
  readonly passed: number
  readonly failed: number
  /** `2026-11-22`, and the commit's short id; neither is known of runs from before they were recorded. */
  readonly date?: string
  readonly commit?: string
}

const cellOf = ({ typeorm, pg, postgres, node, files }: MatrixRun): string =>
  [typeorm, pg, postgres, node, files.length === 0 ? 'all' : 'some'].join(' ')

export const readRuns = (): MatrixRun[] => JSON.parse(readFileSync(RECORDS, 'utf8')) as MatrixRun[]

/** Puts a run into maintainers/matrix.json, in place of an older one of its cell, and the table of all into the document. */
export function recordRun(run: MatrixRun): void {
  const others = readRuns().filter((other) => cellOf(other) !== cellOf(run))
  const runs = [...others, run].sort((one, other) => cellOf(one).localeCompare(cellOf(other), 'en', { numeric: true }))
  writeFileSync(RECORDS, `${JSON.stringify(runs, null, 2)}\n`)
  writeFileSync(DOCUMENT, withTable(readFileSync(DOCUMENT, 'utf8'), runs))
}

const [BEGIN, END] = ['<!-- matrix: made by `npm run matrix -- --record` -->', '<!-- end of the matrix -->']

/** @throws Error if the document has no place for the table */
export function withTable(document: string, runs: readonly MatrixRun[]): string {
  const [from, to] = [document.indexOf(BEGIN), document.indexOf(END)]
  if (from === -1 || to < from) throw new Error('maintainers/reliability.md has no place for the matrix.')
  return `${document.slice(0, from)}${BEGIN}\n\n${tableOf(runs)}\n\n${document.slice(to)}`
}

const HEAD = ['TypeORM', 'pg', 'Postgres', 'Node.js', 'tests', 'passed', 'failed', 'of'] as const
const NUMBERS = new Set([5, 6])

function tableOf(runs: readonly MatrixRun[]): string {
  const rows = runs.map(({ typeorm, pg, postgres, node, files, passed, failed, date, commit }) => [
    typeorm,
    pg,
    postgres,
    node,
    files.length === 0 ? 'all' : 'some',
    passed.toLocaleString('en'),
    failed.toLocaleString('en'),
    date === undefined ? 'before runs were recorded' : `${date}, ${commit}`,
  ])
  const widths = HEAD.map((head, column) => Math.max(head.length, ...rows.map((row) => row[column]?.length ?? 0)))
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => (NUMBERS.has(column) ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0))).join(' | ')} |`
  const rule = widths.map((width, column) => (NUMBERS.has(column) ? `${'-'.repeat(width - 1)}:` : '-'.repeat(width)))
  return [line(HEAD), line(rule), ...rows.map(line)].join('\n')
}
