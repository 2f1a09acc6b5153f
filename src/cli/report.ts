import { number, printable } from './terminal'

/** Counts of the lines so far: `lines` = created + found + rejected + blank. */
export interface ImportCounts {
  readonly lines: number
  readonly created: number
  /** Texts that are already in the table, or in an earlier line. */
  readonly found: number
  readonly rejected: number
  /** Empty lines. A line of white space is a text like any other. */
  readonly blank: number
  /** How many created or found rows have a hash number above 0, because another text has the same hash. */
  readonly collisions: number
}

/** The result of an import. All counted rows are committed. */
export interface ImportReport extends ImportCounts {
  readonly seconds: number
  /** The first five: the number of the line, from 1, and one clause that never quotes the text. */
  readonly rejections: readonly { readonly line: number; readonly reason: string }[]
  readonly end: ImportEnd
}

export type ImportEnd =
  | { readonly kind: 'done' }
  /** The signal was aborted. */
  | { readonly kind: 'interrupted' }
  /** The list could not be read further, or the server failed. The error is unchanged. */
  | { readonly kind: 'failed'; readonly error: unknown; readonly where: string }

const REJECTIONS_KEPT = 5

/** Counts lines in the order of the list. */
export class ImportTally {
  private readonly sums = { lines: 0, created: 0, found: 0, rejected: 0, blank: 0, collisions: 0 }
  /** The first five. */
  readonly rejections: { readonly line: number; readonly reason: string }[] = []

  get counts(): ImportCounts {
    return { ...this.sums }
  }

  blank(): void {
    this.sums.lines += 1
    this.sums.blank += 1
  }

  rejected(reason: string): void {
    this.sums.lines += 1
    this.sums.rejected += 1
    if (this.rejections.length < REJECTIONS_KEPT) this.rejections.push({ line: this.sums.lines, reason })
  }

  stored(created: boolean, hashNumber: number): void {
    this.sums.lines += 1
    this.sums[created ? 'created' : 'found'] += 1
    if (hashNumber > 0) this.sums.collisions += 1
  }
}

/** How the report names the counted items. */
interface Counted {
  /** Whether rows were only looked up. @default false */
  readonly dryRun?: boolean
  /** The counted item: a line, or a record, which may have several lines. @default 'line' */
  readonly each?: string
  /** Whether the first record names the columns. @default false */
  readonly header?: boolean | undefined
}

/** Formats the table at the end of an import. */
export function formatReport(report: ImportReport, counted: Counted = {}): string {
  const { dryRun = false, each = 'line' } = counted
  const { lines, created, found, rejected, blank, collisions, seconds } = report
  const rate = seconds > 0 ? lines / seconds : 0
  const rows: [string, string][] = [
    [`${each}s`, number(lines)],
    [dryRun ? 'would be created' : 'created', number(created)],
    ['found', number(found)],
    ['rejected', number(rejected)],
    ...(blank > 0 ? [['blank', number(blank)] satisfies [string, string]] : []),
    ['collisions', number(collisions)],
    ['seconds', seconds.toFixed(seconds < 100 ? 2 : 0)],
    // A whole number, except for a few very long texts.
    [`${each}s per second`, rate === 0 || rate >= 10 ? number(Math.round(rate)) : rate.toFixed(1)],
  ]
  const left = Math.max(...rows.map(([name]) => name.length))
  const right = Math.max(...rows.map(([, value]) => value.length))
  const table = rows.map(([name, value]) => `${name.padEnd(left)}  ${value.padStart(right)}`)
  const note = dryRun ? ['', DRY_RUN] : []
  return [...table, ...formatRejections(report, counted), ...note].map((line) => `${line}\n`).join('')
}

const DRY_RUN = 'No row was written. Only an import without --dry-run shows what the database itself rejects.'

function formatRejections(
  { rejections, rejected }: ImportReport,
  { each = 'line', header = false }: Counted,
): string[] {
  if (rejections.length === 0) return []
  const first = rejections.length < rejected ? `the first ${rejections.length} ` : ''
  // An editor shows line numbers, but the header is a line too, and a record may have several lines.
  const note = header ? ' (record 1 follows the header)' : ''
  return [
    '',
    `${first}rejected ${each}s${note}:`,
    ...rejections.map(({ line, reason }) => `  ${each} ${number(line)}: ${printable(reason)}`),
  ]
}
