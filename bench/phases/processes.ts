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

/** What the guard costs a row, on a server of its own. */
export const guard: Phase = {
  name: 'guard',
  run: async ({ say }) => {
    say('guard …')
    const script = path.resolve(__dirname, '../guard.ts')
    const { stdout } = await promisify(execFile)(process.execPath, [...process.execArgv, script])
    const variants = Object.entries((JSON.parse(stdout) as GuardFigures).cpuMicrosecondsPerRow)
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
