import { UsageError } from './usage'

/**
 * Returns the row of a table of docs/errors.md for an error, a line for each column.
 *
 * @param name a code, a class or an SQLSTATE of the triggers, in any case
 * @throws UsageError where the page has no such error
 */
export function explain(page: string, name: string | undefined): string {
  let head: readonly string[] = []
  const codes: string[] = []
  for (const line of page.split('\n')) {
    const cells = cellsOf(line)
    if (cells.length === 0) head = []
    else if (head.length === 0) head = cells
    else if (cells.slice(0, 2).some((cell) => cell.toUpperCase() === name?.toUpperCase()))
      return cells.map((cell, column) => `${head[column]}: ${cell}\n`).join('')
    else if (!/^-+$/u.test(cells[0] ?? '')) codes.push(cells[head[0] === 'class' ? 1 : 0] ?? '')
  }
  throw new UsageError(`Name one of these errors: ${codes.join(', ')}.`)
}

/** The cells of a row, without what only Markdown needs. */
const cellsOf = (line: string): string[] =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.replaceAll(/`|\[(?=[^\]]+\]\()|\]\([^)]*\)/gu, '').trim())
