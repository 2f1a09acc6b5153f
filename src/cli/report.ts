import type { ImportReport } from './import'

const number = (value: number): string => value.toLocaleString('en-US')

/**
 * The table at the end of an import.
 *
 * @param unit what a line holds, in the plural
 */
export function formatReport(report: ImportReport, unit = 'lines'): string {
  const { lines, created, found, rejected, blank, collisions, seconds } = report
  const rows: [string, string][] = [
    ['lines', number(lines)],
    ['created', number(created)],
    ['found', number(found)],
    ['rejected', number(rejected)],
    ...(blank > 0 ? [['blank', number(blank)] satisfies [string, string]] : []),
    ['collisions', number(collisions)],
    ['seconds', seconds.toFixed(seconds < 100 ? 2 : 0)],
    [`${unit} per second`, rate(lines, seconds)],
  ]
  const left = Math.max(...rows.map(([name]) => name.length))
  const right = Math.max(...rows.map(([, value]) => value.length))
  const table = rows.map(([name, value]) => `${name.padEnd(left)}  ${value.padStart(right)}`)
  return [...table, ...formatRejections(report)].map((line) => `${line}\n`).join('')
}

/** Whole numbers, but for a few very long texts. */
function rate(lines: number, seconds: number): string {
  const perSecond = seconds > 0 ? lines / seconds : 0
  return perSecond === 0 || perSecond >= 10 ? number(Math.round(perSecond)) : perSecond.toFixed(1)
}

function formatRejections({ rejections, rejected }: ImportReport): string[] {
  if (rejections.length === 0) return []
  const title = rejections.length < rejected ? `the first ${rejections.length} rejected lines:` : 'rejected lines:'
  return ['', title, ...rejections.map(({ line, reason }) => `  line ${number(line)}: ${reason}`)]
}
