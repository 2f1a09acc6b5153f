import type { DataSource } from 'typeorm'
import { columnOf } from './csv'
import { describeError } from './error-messages'
import { importLines } from './import-lines'
import type { ImportTarget } from './import-target'
import { type Line, type List, ListError, readLines } from './list'
import { formatReport, type ImportReport, number } from './report'
import { openProgress, type Output, type Streams } from './terminal'

export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 130 } as const

export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

export interface ImportRun {
  readonly dataSource: DataSource
  readonly target: ImportTarget
  readonly list: List
  /** Of a CSV list. undefined: each line is a text. */
  readonly column?: string | undefined
  readonly streams: Streams
  readonly signal: AbortSignal
  /** What the lines hold, in the plural. @default 'lines' */
  readonly unit?: string
}

/** Imports a list, shows its progress, and prints the table, even if the import was stopped. */
export async function runImport(run: ImportRun): Promise<ExitCode> {
  const { dataSource, target, list, column, streams, signal } = run
  const progress = openProgress(streams.stderr)
  // Otherwise the loop would wait for the next chunk, which never comes on a terminal.
  const close = (): void => list.close()
  signal.addEventListener('abort', close)
  const lines = new CountedLines(list, column)
  let report: ImportReport
  try {
    report = await importLines(dataSource, target, lines.read(), {
      signal,
      onProgress: (counts) => progress.update(counts.lines, lines.fraction(counts.lines)),
    })
  } finally {
    signal.removeEventListener('abort', close)
    progress.end()
    list.close()
  }
  streams.stdout.write(formatReport(report, run.unit))
  return conclude(report, streams.stderr)
}

/** Estimates what fraction of the list a number of lines is: more has been read than the server has seen. */
class CountedLines {
  private lines = 0

  constructor(
    private readonly list: List,
    private readonly column: string | undefined,
  ) {}

  async *read(): AsyncGenerator<Line[], void, undefined> {
    const lines = readLines(this.list.chunks)
    for await (const some of this.column === undefined ? lines : columnOf(lines, this.column)) {
      this.lines += some.length
      yield some
    }
  }

  fraction(done: number): number | undefined {
    const read = this.list.fraction()
    return read === undefined ? undefined : read * (done / this.lines)
  }
}

function conclude({ end, lines }: ImportReport, stderr: Output): ExitCode {
  if (end.kind === 'done') return EXIT.done
  const next = 'The rows counted above are stored. Run the command again: it starts at the top and finds them.'
  if (end.kind === 'interrupted') {
    stderr.write(`\nStopped after line ${number(lines)}. ${next}\n`)
    return EXIT.interrupted
  }
  // The error of a list that cannot be read as lines says what to do.
  const advice = end.error instanceof ListError ? '' : `${next}\n`
  stderr.write(`\nFailed (${end.where}): ${describeError(end.error)}\n${advice}`)
  return EXIT.failed
}
