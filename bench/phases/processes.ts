import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { peakMegabytes, peakOfResults } from '../memory'
import type { Phase } from '../phase'

const RESULTS = 20_000

/** Peak memory of processes of their own. */
export const memory: Phase = {
  name: 'memory',
  run: async ({ server, settings, say }) => {
    say('memory …')
    return [
      {
        kind: 'facts',
        phase: 'memory',
        title: 'peak memory, MB',
        columns: ['MB'],
        rows: [
          {
            name: `import of ${settings.memoryLines} lines`,
            values: [Math.round(await peakMegabytes(server.url, settings.memoryLines))],
          },
          {
            name: `findOrCreateMany of ${RESULTS} texts`,
            values: [Math.round(await peakOfResults(server.url, RESULTS))],
          },
        ],
      },
    ]
  },
}

interface GuardFigures {
  readonly cpuMicrosecondsPerRow: Readonly<Record<string, Readonly<Record<string, number>>>>
}

/** Runs a file of this folder, and returns what it prints. */
async function outputOf(file: string): Promise<string> {
  const script = path.resolve(__dirname, '..', file)
  return (await promisify(execFile)(process.execPath, [...process.execArgv, script])).stdout
}

/** What the guard costs a row, on a server of its own. */
export const guard: Phase = {
  name: 'guard',
  run: async ({ say }) => {
    say('guard …')
    const variants = Object.entries((JSON.parse(await outputOf('guard.ts')) as GuardFigures).cpuMicrosecondsPerRow)
    const steps = [...new Set(variants.flatMap(([, costs]) => Object.keys(costs)))]
    return [
      {
        kind: 'facts',
        phase: 'guard',
        title: 'CPU of the server for a row, with the guard and without, µs',
        columns: variants.map(([name]) => name),
        rows: steps.map((name) => ({ name, values: variants.map(([, costs]) => costs[name] ?? null) })),
      },
    ]
  },
}

/** A line that growth.ts prints. */
interface GrowthFigures {
  readonly size: number
  readonly side: string
  readonly window: number
  readonly rowsPerSecond: number
}

/** What a new row costs in larger and larger tables; ten minutes. */
export const growth: Phase = {
  name: 'growth',
  onlyIfNamed: true,
  run: async ({ say }) => {
    say('growth …')
    const lines = (await outputOf('growth.ts')).split('\n').filter((line) => line.startsWith('{'))
    const figures = lines.map((line) => JSON.parse(line) as GrowthFigures)
    const column = ({ side, window }: GrowthFigures): string =>
      window === 0 ? `${side}, as the stream chooses` : `${side}, ${window} sorted together`
    const columns = [...new Set(figures.map(column))]
    const cost = (size: number, wanted: string): number | null => {
      const one = figures.find((figure) => figure.size === size && column(figure) === wanted)
      return one ? Number((1e6 / one.rowsPerSecond).toPrecision(3)) : null
    }
    return [
      {
        kind: 'facts',
        phase: 'growth',
        title: 'growth: time for a new row in a table of so many, µs',
        columns,
        lines: true,
        rows: [...new Set(figures.map(({ size }) => size))].map((size) => ({
          name: String(size),
          values: columns.map((wanted) => cost(size, wanted)),
        })),
      },
    ]
  },
}
