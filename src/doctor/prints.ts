import { hash } from 'node:crypto'
import type { Page, Reader, Result } from './findings'
import { type Key, keyOfResult, type PageParts } from './sql'

const PRINT_DIGITS = 12

/**
 * Returns 48 bits of a digest, never 0. A number holds them exactly. Rows with equal prints are examined again.
 *
 * @returns NaN for a row without identity, which takes part in no group
 */
export const printOf = (identity: string | undefined): number =>
  Number.parseInt(identity?.slice(0, PRINT_DIGITS) ?? '', 16) + 1

/** The identity of a row. Only equal parts have equal identities. */
export const identityOf = (...parts: readonly unknown[]): string => hash('sha256', JSON.stringify(parts))

/** The most rows whose keys are kept at once. */
const WINDOW_ROWS = 100_000

/** Finds rows of a table that belong together. It keeps eight bytes for each row, and no keys of rows. */
export class Prints {
  readonly #pages: { readonly after: Key | undefined; readonly upTo: Key; readonly prints: Float64Array }[] = []

  /** @param of returns the print of a row; negative if the row must be examined even if it is alone */
  constructor(private readonly of: (result: Result) => number) {}

  /** @param prints the prints of the rows of the page */
  add({ after, upTo }: Page, prints: readonly number[]): void {
    this.#pages.push({ after, upTo, prints: Float64Array.from(prints) })
  }

  /**
   * Examines rows together, in one snapshot: those with equal prints, and rows that must be examined.
   *
   * @param look receives the rows as they are now
   * @param afterwards called after each snapshot
   */
  async lookAgain(
    reader: Reader,
    parts: PageParts,
    look: (results: readonly Result[]) => Promise<void>,
    afterwards?: () => Promise<void>,
  ): Promise<void> {
    for await (const among of this.#looks(reader, parts)) {
      await reader.snapshot(async () => {
        const all: Result[] = []
        for await (const { results } of reader.pages(parts, { among })) all.push(...results)
        await look(all)
      })
      await afterwards?.()
    }
  }

  /**
   * Yields the keys of rows to examine together. Only pages with such rows are read again. A row that has changed
   * meanwhile may be missing, or in the wrong group.
   */
  async *#looks(reader: Reader, parts: PageParts): AsyncGenerator<readonly Key[], void, undefined> {
    for (const wanted of this.#windows()) {
      const groups = new Map<number, Key[]>()
      for (const { after, upTo, prints } of this.#pages) {
        if (!prints.some((print) => wanted.has(Math.abs(print)))) continue
        for await (const { results } of reader.pages(parts, { after, upTo })) {
          for (const result of results) {
            const print = Math.abs(this.of(result))
            if (!wanted.has(print)) continue
            groups
              .set(print, groups.get(print) ?? [])
              .get(print)
              ?.push(keyOfResult(parts.table, result))
          }
        }
      }
      yield* looksOf(groups.values())
    }
  }

  /** Yields the prints of several rows, and of rows that must be examined, for a number of rows at a time. */
  *#windows(): Generator<ReadonlySet<number>, void, undefined> {
    const all = new Float64Array(this.#pages.reduce((sum, { prints }) => sum + prints.length, 0))
    const alone = new Set(this.#pages.flatMap(({ prints }) => Array.from(prints.filter((print) => print < 0))))
    let length = 0
    for (const { prints } of this.#pages)
      for (const print of prints) if (print === print) all[length++] = Math.abs(print)
    const sorted = all.subarray(0, length).sort()
    let [window, rows] = [new Set<number>(), 0]
    for (let start = 0, end = 0; start < length; start = end) {
      const print = sorted[start] ?? 0
      while (end < length && sorted[end] === print) end++
      if (end - start === 1 && !alone.has(-print)) continue
      window.add(print)
      rows += end - start
      if (rows < WINDOW_ROWS) continue
      yield window
      ;[window, rows] = [new Set(), 0]
    }
    if (window.size > 0) yield window
  }
}

/** The most rows to examine in one snapshot. */
const LOOK_ROWS = 500

/**
 * Joins groups into looks. A group that is larger than a look is divided, and its first row is in each part. So every
 * part counts one surplus row less than it has rows, however the group is divided.
 */
function* looksOf(groups: Iterable<readonly Key[]>): Generator<readonly Key[], void, undefined> {
  let look: Key[] = []
  for (const [first, ...others] of groups) {
    if (!first) continue
    if (look.length > 0 && look.length + others.length >= LOOK_ROWS) {
      yield look
      look = []
    }
    look.push(first)
    for (const key of others) {
      if (look.length >= LOOK_ROWS) {
        yield look
        look = [first]
      }
      look.push(key)
    }
  }
  if (look.length > 0) yield look
}
