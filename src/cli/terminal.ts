import { clearLine, cursorTo } from 'node:readline'

/** A terminal, or anything else that text can be written to. */
export type Output = NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number }

/** Where a command writes. */
export interface Streams {
  /** Results. */
  readonly stdout: Output
  /** Progress and errors. */
  readonly stderr: Output
}

/** Ignores that the reader has gone (`… | head`): that must neither stop the work nor print a stack trace. */
export function outliveReaders({ stdout, stderr }: Streams): void {
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') return
      // A full disk, for instance: the rows are stored, but the result cannot be printed.
      if (stream !== stderr) stderr.write(`Cannot write the report: ${error.message}\n`)
      process.exitCode = 1
      process.exit()
    })
  }
}

/** Control characters, and those that change the direction or the line of what follows. */
// oxlint-disable-next-line no-control-regex
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/**
 * Text from elsewhere, such as a stored URL or a server's message, as one line that cannot command the terminal.
 *
 * @example printable('a\x1b[2Jb') // 'a\\u001b[2Jb'
 */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}

/** How far a command has come. */
interface ProgressState {
  readonly lines: number
  /** What is counted, in the plural. */
  readonly unit: string
  readonly seconds: number
  /** 0 to 1; undefined if the length of the list is not known. */
  readonly fraction: number | undefined
}

interface ProgressDisplay {
  update(lines: number, fraction: number | undefined): void
  /** Removes the bar. */
  end(): void
}

const REDRAW_MILLISECONDS = 100
const PLAIN_MILLISECONDS = 5_000
const COLUMNS_DEFAULT = 80
const BAR_WIDTH = 24

/**
 * Opens a progress display: a bar redrawn in place on a terminal, a plain line every five seconds elsewhere.
 *
 * @param now in milliseconds. @default performance.now
 * @param unit what is counted, in the plural. @default 'lines'
 */
export function openProgress(
  output: Output,
  now: () => number = () => performance.now(),
  unit = 'lines',
): ProgressDisplay {
  const started = now()
  const terminal = output.isTTY === true
  const pause = terminal ? REDRAW_MILLISECONDS : PLAIN_MILLISECONDS
  let last = terminal ? Number.NEGATIVE_INFINITY : started
  const clear = (): void => {
    cursorTo(output, 0)
    clearLine(output, 1)
  }
  return {
    update: (lines, fraction) => {
      const at = now()
      if (at - last < pause) return
      last = at
      const state = { lines, unit, fraction, seconds: (at - started) / 1_000 }
      if (!terminal) {
        output.write(`${formatState(state)}\n`)
        return
      }
      // The last column stays free: some terminals wrap as soon as it is filled.
      const line = `${formatBar(fraction)}${formatState(state)}`.slice(0, (output.columns ?? COLUMNS_DEFAULT) - 1)
      clear()
      output.write(line)
    },
    end: () => {
      if (terminal) clear()
    },
  }
}

function formatBar(fraction: number | undefined): string {
  if (fraction === undefined) return ''
  const done = Math.round(fraction * BAR_WIDTH)
  return `[${'#'.repeat(done)}${'-'.repeat(BAR_WIDTH - done)}] `
}

/** One line without a line ending, for example `43 %  430,000 lines  41,200 per second`. */
function formatState({ lines, unit, seconds, fraction }: ProgressState): string {
  const rate = seconds > 0 ? Math.round(lines / seconds) : 0
  const percent = fraction === undefined ? [] : [`${Math.floor(fraction * 100)} %`]
  return [...percent, `${lines.toLocaleString('en-US')} ${unit}`, `${rate.toLocaleString('en-US')} per second`].join(
    '  ',
  )
}
