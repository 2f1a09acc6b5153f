import type { DataSource } from 'typeorm'
import { importLines, type ImportReport } from './import'
import type { ImportTarget } from './import-target'
import { type Line, readLines } from './lines'
import type { List } from './list'
import type { Output, Streams } from './output'
import { openProgress } from './progress'
import { describeError } from './reasons'
import { formatReport } from './report'

export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 130 } as const

export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

export interface ImportRun {
  readonly dataSource: DataSource
  readonly target: ImportTarget
  readonly list: List
  readonly streams: Streams
  readonly signal: AbortSignal
  /** What a line holds, in the plural. @default 'lines' */
  readonly unit?: string
}

/** Imports a list, shows how far it is, and prints the table, also of an import that was stopped. */
export async function runImport(run: ImportRun): Promise<ExitCode> {
  const { dataSource, target, list, streams, signal } = run
  const progress = openProgress(streams.stderr)
  // Else the loop would wait for the next chunk, which on a terminal never comes.
  const close = (): void => list.close()
  signal.addEventListener('abort', close)
  const lines = new CountedLines(list)
  let report: ImportReport
  try {
    report = await importLines(dataSource, target, lines.read(), {
      signal,
      onProgress: (counts) => progress.update(counts, lines.fraction(counts.lines)),
    })
  } finally {
    signal.removeEventListener('abort', close)
    progress.end()
    list.close()
  }
  streams.stdout.write(formatReport(report, run.unit))
  return conclude(report, streams.stderr)
}

/** The lines of a list, and how much of it some of them are: more is read than the server has seen. */
class CountedLines {
  private lines = 0

  constructor(private readonly list: List) {}

  async *read(): AsyncGenerator<Line[], void, undefined> {
    for await (const some of readLines(this.list.chunks)) {
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
  const next = `The table holds what is counted above. Run it again: it starts at the top and finds what is there.`
  if (end.kind === 'interrupted') {
    stderr.write(`\nStopped after line ${lines.toLocaleString('en-US')}. ${next}\n`)
    return EXIT.interrupted
  }
  stderr.write(`\nFailed (${end.place}): ${describeError(end.error)}\n${next}\n`)
  return EXIT.failed
}
