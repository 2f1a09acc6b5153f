import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { parseArgs } from 'node:util'
import type { Settings } from './measure'
import { url } from './support'

const EXAMPLES = path.resolve(__dirname, '../examples/urls.txt')

/** What `npm run bench --` takes. */
export interface Options {
  /** @default all, but for those that run only where they are named */
  readonly phases: readonly string[] | undefined
  /** Run the phase of that name too. */
  readonly growth: boolean
  /** Parts of names. @default all */
  readonly peers: readonly string[] | undefined
  /** Take those of bench/package.json too. */
  readonly withPeers: boolean
  readonly json: string | undefined
  /** Write the run to maintainers/benchmarks under this version, and the tables in maintainers/benchmark.md and .html. */
  readonly release: string | undefined
  /** Measure nothing: write the documents from this file of `--json`. */
  readonly from: string | undefined
  readonly settings: Settings
}

export async function readOptions(): Promise<Options> {
  const { values } = parseArgs({
    options: {
      phases: { type: 'string' },
      peers: { type: 'string' },
      'without-peers': { type: 'boolean', default: false },
      growth: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      'turn-milliseconds': { type: 'string' },
      'bulk-rows': { type: 'string' },
      calls: { type: 'string' },
      'memory-lines': { type: 'string' },
      urls: { type: 'string', default: EXAMPLES },
      json: { type: 'string' },
      release: { type: 'string' },
      from: { type: 'string' },
    },
  })
  const either = (given: string | undefined, quick: number, full: number): number =>
    Number(given ?? (values.quick ? quick : full))
  return {
    phases: values.phases?.split(','),
    growth: values.growth,
    peers: values.peers?.split(','),
    withPeers: !values['without-peers'],
    json: values.json,
    release: values.release,
    from: values.from,
    settings: {
      rounds: either(values.rounds, 7, 21),
      turnMilliseconds: either(values['turn-milliseconds'], 20, 40),
      bulkRows: either(values['bulk-rows'], 4_000, 20_000),
      calls: either(values.calls, 200, 1_000),
      memoryLines: either(values['memory-lines'], 100_000, 1_000_000),
      lines: await readLines(values.urls),
    },
  }
}

/**
 * Lines of a file, or of every .txt file in a folder. Those that the entity would refuse are left out: what is measured
 * is storing.
 */
async function readLines(place: string): Promise<string[]> {
  const isFolder = (await stat(place)).isDirectory()
  const names = isFolder ? (await readdir(place)).filter((name) => name.endsWith('.txt')) : ['']
  const texts = await Promise.all(names.map(async (name) => await readFile(path.join(place, name), 'utf8')))
  return texts.flatMap((text) => text.split('\n')).filter(isUrl)
}

function isUrl(line: string): boolean {
  try {
    url().normalize(line)
    return true
  } catch {
    return false
  }
}
