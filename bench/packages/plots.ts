import { LineChart, ScatterChart } from 'echarts/charts'
import { GridComponent, LegendComponent, MarkLineComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'
import type { Comparison } from '../measure'
import type { Facts } from '../phase'

use([LineChart, ScatterChart, GridComponent, LegendComponent, MarkLineComponent, SVGRenderer])

const WIDTH = 560
const ROW_HEIGHT = 19
const MARGIN = 26
const LABELS_WIDTH = 215

/** What the library is told to draw with, and what the page's style sheet makes of it. */
const COLOURS: Readonly<Record<string, string>> = {
  '#010203': 'var(--text)',
  '#010204': 'var(--line)',
  '#010205': 'var(--ours)',
  '#010206': 'var(--raw)',
  '#010207': 'var(--other)',
}
const [TEXT, LINE, OURS, RAW, OTHER] = Object.keys(COLOURS)

const colourOf = (peer: string): string | undefined => {
  if (peer.startsWith('ours')) return OURS
  return peer.startsWith('pg:') ? RAW : OTHER
}

/** A dot for each peer on a logarithmic scale, with its number; 1 is a line. */
export function plotRatios({ rows }: Comparison): string {
  const drawn = rows.flatMap(({ peer, ratio }) => (ratio === null ? [] : [{ peer, ratio }]))
  const ratios = drawn.map(({ ratio }) => ratio)
  const [least, most] = [Math.min(0.5, ...ratios), Math.max(2, ...ratios)]
  const line = { lineStyle: { color: LINE } }
  const label = { color: TEXT, fontSize: 12 }
  return render(drawn.length * ROW_HEIGHT + 2 * MARGIN, {
    grid: { left: LABELS_WIDTH, right: 50, top: 8, bottom: MARGIN },
    xAxis: {
      type: 'log',
      logBase: 2,
      min: 2 ** Math.floor(Math.log2(least)),
      max: 2 ** Math.ceil(Math.log2(most)),
      axisLabel: label,
      splitLine: line,
    },
    yAxis: {
      type: 'category',
      inverse: true,
      data: drawn.map(({ peer }) => peer),
      axisLabel: { ...label, interval: 0 },
      axisLine: { show: false },
      axisTick: { show: false },
      splitLine: { show: false },
    },
    series: [
      {
        type: 'scatter',
        symbolSize: 9,
        silent: true,
        data: drawn.map(({ peer, ratio }, at) => ({
          value: [ratio, at],
          itemStyle: { color: colourOf(peer), opacity: 1 },
        })),
        label: {
          show: true,
          position: 'right',
          ...label,
          formatter: ({ value }: { value: unknown }) => (value as [number])[0].toFixed(2),
        },
        markLine: {
          silent: true,
          symbol: 'none',
          label: { show: false },
          lineStyle: { color: TEXT, type: 'solid', width: 1 },
          data: [{ xAxis: 1 }],
        },
      },
    ],
  })
}

const LINES_HEIGHT = 320
const DASHES = ['solid', 'dashed', 'dotted', [8, 3, 2, 3]] as const

/** A line for each column; ours in one colour, the other side in another. */
export function plotLines({ columns, rows }: Facts): string {
  const label = { color: TEXT, fontSize: 12 }
  return render(LINES_HEIGHT, {
    grid: { left: 60, right: 20, top: 90, bottom: MARGIN },
    legend: { top: 0, textStyle: label, itemWidth: 40 },
    xAxis: { type: 'category', data: rows.map(({ name }) => name), axisLabel: label },
    yAxis: { type: 'value', axisLabel: label, splitLine: { lineStyle: { color: LINE } } },
    series: columns.map((name, at) => {
      const color = name.startsWith('ours') ? OURS : RAW
      const dash = DASHES[columns.filter((one) => one.startsWith(name.slice(0, 4))).indexOf(name) % DASHES.length]
      const lineStyle = { color, type: dash, width: 2 }
      return {
        type: 'line',
        name,
        silent: true,
        lineStyle,
        itemStyle: { color },
        data: rows.map(({ values }) => values[at]),
      }
    }),
  })
}

function render(height: number, option: object): string {
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height })
  chart.setOption({ animation: false, ...option })
  const svg = chart.renderToSVGString()
  chart.dispose()
  return svg.replaceAll(/#01020\d/gu, (colour) => COLOURS[colour] ?? colour)
}
