import { clearLine, cursorTo } from 'node:readline'
import type { Output } from './output'
import type { ImportCounts } from './tally'

/** How far an import is. */
export interface ProgressState {
  readonly counts: ImportCounts
  readonly seconds: number
  /** 0 to 1; undefined where the length of the list is not known. */
  readonly fraction: number | undefined
}

export interface Progress {
  update(counts: ImportCounts, fraction: number | undefined): void
  /** Removes the bar. */
  end(): void
}

const REDRAW_MILLISECONDS = 100
const PLAIN_MILLISECONDS = 5_000
const COLUMNS_DEFAULT = 80
const BAR_WIDTH = 24

/**
 * A bar that is redrawn in place on a terminal, and a plain line every five seconds elsewhere.
 *
 * @param now milliseconds. @default performance.now
 */
export function openProgress(output: Output, now: () => number = () => performance.now()): Progress {
  const started = now()
  const terminal = output.isTTY === true
  const pause = terminal ? REDRAW_MILLISECONDS : PLAIN_MILLISECONDS
  let last = terminal ? Number.NEGATIVE_INFINITY : started
  const clear = (): void => {
    cursorTo(output, 0)
    clearLine(output, 1)
  }
  return {
    update: (counts, fraction) => {
      const at = now()
      if (at - last < pause) return
      last = at
      const state = { counts, fraction, seconds: (at - started) / 1_000 }
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

/** One line without its end, for instance `43 %  430,000 lines  41,200 per second`. */
export function formatState({ counts, seconds, fraction }: ProgressState): string {
  const rate = seconds > 0 ? Math.round(counts.lines / seconds) : 0
  const percent = fraction === undefined ? [] : [`${Math.floor(fraction * 100)} %`]
  return [
    ...percent,
    `${counts.lines.toLocaleString('en-US')} lines`,
    `${rate.toLocaleString('en-US')} per second`,
  ].join('  ')
}
