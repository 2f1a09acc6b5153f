import type { Comparison } from '../measure'
import type { Facts } from '../phase'
import { aboutOf, type Report } from './report'
import type { Table } from './tables'

/** Draw as SVG, in the colours of the page's CSS variables. */
export interface Plots {
  readonly plotRatios: (comparison: Comparison) => string
  readonly plotLines: (facts: Facts) => string
}

const STYLE = `
:root { color-scheme: light dark; --text: #1c1c1e; --faint: #8a8a8e; --line: #d8d8dc; --back: #fff;
  --ours: #0a63d1; --raw: #5b6068; --other: #b4570a; }
@media (prefers-color-scheme: dark) { :root { --text: #ececee; --faint: #98989d; --line: #3a3a3e; --back: #161618;
  --ours: #6cb2ff; --raw: #b0b5bd; --other: #f0a35e; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
tbody th { font-weight: normal; }
.scroll { overflow-x: auto; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
figure { margin: 0; }
figcaption { font-weight: 600; }
svg { max-width: 100%; height: auto; }`

/** One page that needs nothing else: figures in tables, and each comparison as a plot beside them. */
export function htmlOf(report: Report, tables: readonly Table[], plots: Plots): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>typeorm-unique-text: benchmark</title>
<style>${STYLE}
</style>
</head>
<body>
<h1>Benchmark</h1>
<p>${escaped(aboutOf(report))}</p>
<p>Ratios of time to that of the fastest statements that a person wrote for <code>pg</code>, 1 in its column: smaller is
faster. Each is the median of the rounds’ own ratios. In the plots the line is 1, and the scale is
logarithmic.</p>
${tables.map((table) => section(table, plots)).join('\n')}
</body>
</html>
`
}

function section(table: Table, { plotRatios, plotLines }: Plots): string {
  const drawn = table.comparisons.map((comparison) => [comparison.title, plotRatios(comparison)] as const)
  if (table.lines) drawn.push([table.title, plotLines(table.lines)])
  const figures = drawn.map(
    ([title, svg]) => `<figure><figcaption>${escaped(title)}</figcaption>${accessible(title, svg)}</figure>`,
  )
  const plots = figures.length > 0 ? `<div class="plots">\n${figures.join('\n')}\n</div>\n` : ''
  return `<section>\n<h2>${escaped(table.title)}</h2>\n${plots}<div class="scroll">${grid(table)}</div>\n</section>`
}

/** Inline SVG needs no namespace, whose name looks like an address. */
function accessible(title: string, svg: string): string {
  const label = escaped(`Plot of “${title}”; the table has the figures.`)
  return svg.replaceAll(/ xmlns(?::\w+)?="[^"]*"/gu, '').replace('<svg ', `<svg role="img" aria-label="${label}" `)
}

function grid({ head, rows }: Table): string {
  const first = `<tr>${head.map((cell) => `<th scope="col">${escaped(cell)}</th>`).join('')}</tr>`
  const others = rows.map(
    ([name = '', ...cells]) =>
      `<tr><th scope="row">${escaped(name)}</th>${cells.map((cell) => `<td>${escaped(cell)}</td>`).join('')}</tr>`,
  )
  return `<table>\n<thead>${first}</thead>\n<tbody>\n${others.join('\n')}\n</tbody>\n</table>`
}

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

export const escaped = (text: string): string => text.replaceAll(/[&<>"]/gu, (one) => ESCAPES[one] ?? one)
