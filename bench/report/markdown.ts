import type { Table } from './tables'

/** Tables of Markdown, one heading each. */
export function markdownOf(tables: readonly Table[]): string {
  return tables.map(({ title, head, rows }) => `## ${title}\n\n${grid([head, ...rows])}\n`).join('\n')
}

/** As the formatter of this repository writes them. */
function grid(lines: readonly (readonly string[])[]): string {
  const cells = lines.map((line) => line.map((cell) => cell.replaceAll('|', '\\|')))
  const widths = (cells[0] ?? []).map((_, at) => Math.max(3, ...cells.map((line) => (line[at] ?? '').length)))
  const padded = cells.map((line) => widths.map((width, at) => pad(line[at] ?? '', width, at)))
  const rule = widths.map((width, at) => (at === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`))
  return [padded[0] ?? [], rule, ...padded.slice(1)].map((line) => `| ${line.join(' | ')} |`).join('\n')
}

const pad = (cell: string, width: number, at: number): string => (at === 0 ? cell.padEnd(width) : cell.padStart(width))
