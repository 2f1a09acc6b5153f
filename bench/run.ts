/**
 * npm run bench                                    everything, with the peers of bench/package.json
 * npm run bench -- --without-peers                 without them: raw pg, TypeORM and ours
 * npm run bench -- --phases hit,miss --peers pg,ours --rounds 21
 * npm run bench -- --quick                         a look, in three minutes
 */
import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { BASELINE, type Bench, openPeers, type Settings } from './measure'
import { installPackages, loadOrms } from './packages'
import type { PeerFactory } from './peer'
import { PEERS } from './peers'
import type { Phase, Result } from './phase'
import { PHASES } from './phases'
import { printResult } from './report/terminal'
import { startServer } from './server'
import { url } from './support'

const EXAMPLES = path.resolve(__dirname, '../examples/urls.txt')
const POOL_SIZE = 10

const { values: options } = parseArgs({
  options: {
    phases: { type: 'string' },
    peers: { type: 'string' },
    'without-peers': { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    urls: { type: 'string', default: EXAMPLES },
    json: { type: 'string' },
    'memory-lines': { type: 'string' },
  },
})

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

async function readSettings(): Promise<Settings> {
  const { quick, rounds } = options
  return {
    rounds: Number(rounds ?? (quick ? 7 : 21)),
    turnMilliseconds: quick ? 25 : 50,
    bulkRows: quick ? 4_000 : 20_000,
    lines: await readLines(options.urls),
    memoryLines: Number(options['memory-lines'] ?? (quick ? 100_000 : 1_000_000)),
  }
}

function chosenPhases(): readonly Phase[] {
  const names = options.phases?.split(',')
  const unknown = names?.filter((name) => !PHASES.some((phase) => phase.name === name)) ?? []
  if (unknown.length > 0) {
    throw new Error(`There is no phase ${unknown.join(', ')}. There are ${PHASES.map(({ name }) => name).join(', ')}.`)
  }
  return PHASES.filter(({ name }) => names?.includes(name) ?? true)
}

async function allPeers(): Promise<readonly PeerFactory[]> {
  if (options['without-peers']) return PEERS
  await installPackages()
  return [...PEERS, ...(await loadOrms())]
}

/** The baseline is always among them. */
function chosenPeers(all: readonly PeerFactory[]): readonly PeerFactory[] {
  const parts = options.peers?.split(',')
  return all.filter(({ name }) => name === BASELINE || (parts?.some((part) => name.includes(part)) ?? true))
}

async function main(): Promise<void> {
  const [phases, factories, settings] = [chosenPhases(), chosenPeers(await allPeers()), await readSettings()]
  const server = await startServer()
  const peers = await openPeers(factories, { url: server.url, poolSize: POOL_SIZE })
  let texts = 0
  const bench: Bench = {
    server,
    settings,
    factories,
    peers,
    fresh: () => `https://example.com/some/longer/path/${(texts += 1)}/and/more?page=${texts}&of=many`,
    say: (line) => console.log(line),
  }
  const results: Result[] = []
  try {
    for (const phase of phases) {
      for (const result of await phase.run(bench)) {
        results.push(result)
        printResult(result)
      }
    }
    const report = {
      at: new Date().toISOString(),
      node: process.version,
      server: server.version,
      cpu: `${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown'}`,
      results,
    }
    if (options.json) await writeFile(options.json, `${JSON.stringify(report, null, 2)}\n`)
  } finally {
    await Promise.all(peers.map(async (peer) => await peer.close()))
    await server.stop()
  }
}

void main()
