import { ScatterChart } from 'echarts/charts'
import { GridComponent, MarkLineComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'
import type { Comparison } from '../measure'

use([ScatterChart, GridComponent, MarkLineComponent, SVGRenderer])

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
export function plot({ rows }: Comparison): string {
  const drawn = rows.flatMap(({ peer, ratio }) => (ratio === null ? [] : [{ peer, ratio }]))
  const chart = init(null, null, {
    renderer: 'svg',
    ssr: true,
    width: WIDTH,
    height: drawn.length * ROW_HEIGHT + 2 * MARGIN,
  })
  const ratios = drawn.map(({ ratio }) => ratio)
  const [least, most] = [Math.min(0.5, ...ratios), Math.max(2, ...ratios)]
  const line = { lineStyle: { color: LINE } }
  const label = { color: TEXT, fontSize: 12 }
  chart.setOption({
    animation: false,
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
  const svg = chart.renderToSVGString()
  chart.dispose()
  return svg.replaceAll(/#01020\d/gu, (colour) => COLOURS[colour] ?? colour)
}
