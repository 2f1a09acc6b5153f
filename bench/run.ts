import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { bulk } from './bulk'
import { peakMegabytes } from './memory'
import { single } from './single'
import { startBench, url } from './support'

const EXAMPLES = path.resolve(__dirname, '../examples/urls.txt')

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

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      urls: { type: 'string', default: EXAMPLES },
      json: { type: 'string' },
      rounds: { type: 'string', default: '9' },
      operations: { type: 'string', default: '2000' },
      'memory-lines': { type: 'string', default: '1000000' },
    },
  })
  const rounds = Number(values.rounds)
  const bench = await startBench()
  try {
    const lines = await readLines(values.urls)
    const comparisons = [
      ...(await single(bench, rounds, Number(values.operations))),
      ...(await bulk(bench, Math.max(1, Math.ceil(rounds / 3)), lines)),
    ]
    const memory = {
      lines: Number(values['memory-lines']),
      megabytes: await peakMegabytes(bench.url, Number(values['memory-lines'])),
    }
    const result = {
      at: new Date().toISOString(),
      node: process.version,
      server: bench.server,
      cpu: `${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown'}`,
      comparisons,
      memory,
    }
    console.table(
      Object.fromEntries(
        comparisons.map(({ what, unit, peer, ours, ratio }) => [
          what,
          {
            unit,
            'raw pg': Number(peer.toPrecision(4)),
            ours: Number(ours.toPrecision(4)),
            ratio: Number(ratio.toFixed(2)),
          },
        ]),
      ),
    )
    console.log(`peak memory of an import of ${memory.lines} lines: ${memory.megabytes.toFixed(0)} MB`)
    if (values.json) await writeFile(values.json, `${JSON.stringify(result, null, 2)}\n`)
  } finally {
    await bench.stop()
  }
}

void main()
