import { hash } from 'node:crypto'
import { type Key, keyOfResult, type PageParts } from '../sql/doctor-rows'
import type { Page, Reader, Result } from './reader'

/** The print of a row that takes part in no group. */
export const NO_PRINT: number = Number.NaN

const PRINT_DIGITS = 12

/** 48 bits of a digest, which a number holds exactly, and never 0. What has equal prints is looked at again. */
export function printOf(identity: string): number {
  return Number.parseInt(identity.slice(0, PRINT_DIGITS), 16) + 1
}

/** What tells rows apart: equal parts give equal identities, and no others do. */
export const identityOf = (...parts: readonly unknown[]): string => hash('sha256', JSON.stringify(parts))

/** Rows whose keys are kept at once. */
const WINDOW_ROWS = 100_000

/** Finds rows of a table that belong together, by eight bytes for each row and none of its key. */
export class Prints {
  readonly #pages: { readonly after: Key | undefined; readonly upTo: Key; readonly prints: Float64Array }[] = []

  /** @param of the print of a row; negative if the row must be examined even if it is alone */
  constructor(private readonly of: (result: Result) => number) {}

  /** @param prints of the rows of the page */
  add({ after, upTo }: Page, prints: readonly number[]): void {
    this.#pages.push({ after, upTo, prints: Float64Array.from(prints) })
  }

  /**
   * Rows of equal print, and rows that must be examined, by their keys. Only pages that have such rows are read again:
   * a row that has changed meanwhile may be missing, or in the wrong group.
   */
  async *groups(reader: Reader, parts: PageParts): AsyncGenerator<readonly (readonly Key[])[], void, undefined> {
    for (const wanted of windowsOf(this.#wanted())) {
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
      yield [...groups.values()]
    }
  }

  /** Prints that several rows have, or that a row has which must be examined; with how many rows have each. */
  *#wanted(): Generator<readonly [print: number, rows: number], void, undefined> {
    const sorted = this.#sorted()
    const alone = new Set<number>()
    for (const { prints } of this.#pages) for (const print of prints) if (print < 0) alone.add(-print)
    for (let start = 0, end = 0; start < sorted.length; start = end) {
      const print = sorted[start] ?? 0
      while (end < sorted.length && sorted[end] === print) end++
      if (end - start > 1 || alone.has(print)) yield [print, end - start]
    }
  }

  #sorted(): Float64Array {
    const all = new Float64Array(this.#pages.reduce((sum, { prints }) => sum + prints.length, 0))
    let length = 0
    for (const { prints } of this.#pages)
      for (const print of prints) if (print === print) all[length++] = Math.abs(print)
    return all.subarray(0, length).sort()
  }
}

function* windowsOf(wanted: Iterable<readonly [number, number]>): Generator<ReadonlySet<number>, void, undefined> {
  let [window, rows] = [new Set<number>(), 0]
  for (const [print, count] of wanted) {
    window.add(print)
    rows += count
    if (rows < WINDOW_ROWS) continue
    yield window
    ;[window, rows] = [new Set(), 0]
  }
  if (window.size > 0) yield window
}

/** Rows that are looked at in one snapshot. */
const LOOK_ROWS = 500

/**
 * Joins groups into looks. A group that is larger than a look is divided, and its first row is in each part: so every
 * part counts one surplus row less than it has rows, whatever the parts.
 */
export function* looksOf(groups: Iterable<readonly Key[]>): Generator<readonly Key[], void, undefined> {
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
