/**
 * npm run bench                                    everything, with the peers of bench/package.json
 * npm run bench -- --release 0.2.0                 … and the documents are written
 * npm run bench -- --growth                        … to 5 million rows too: ten minutes more
 * npm run bench -- --without-peers                 raw pg, TypeORM and ours
 * npm run bench -- --phases hit,miss --peers one,ours --rounds 41
 * npm run bench -- --quick                         a look, in three minutes
 */
import { writeFile } from 'node:fs/promises'
import os from 'node:os'
import { hasFaults } from './faults'
import { installPackages, loadOrms, packageVersions } from './install'
import { BASELINE, type Bench, openPeers } from './measure'
import { type Options, readOptions } from './options'
import type { PeerFactory } from './peer'
import { PEERS } from './peers'
import type { Phase, Result } from './phase'
import { PHASES } from './phases'
import { writeDocuments } from './report/documents'
import { markdownOf } from './report/markdown'
import { readReport, type Report } from './report/report'
import { tablesOfRun } from './report/tables'
import { printResult } from './report/terminal'
import { startServer } from './server'

const POOL_SIZE = 10

function chosenPhases({ phases, growth }: Options): readonly Phase[] {
  const unknown = phases?.filter((name) => !PHASES.some((phase) => phase.name === name)) ?? []
  if (unknown.length > 0) {
    throw new Error(`There is no phase ${unknown.join(', ')}. There are ${PHASES.map(({ name }) => name).join(', ')}.`)
  }
  return PHASES.filter(({ name, onlyIfNamed = false }) => phases?.includes(name) ?? (growth || !onlyIfNamed))
}

/** The baseline is always among them. */
async function chosenPeers({ peers, withPeers }: Options): Promise<readonly PeerFactory[]> {
  const all = withPeers ? [...PEERS, ...(await loadOrms())] : PEERS
  return all.filter(({ name }) => name === BASELINE || (peers?.some((part) => name.includes(part)) ?? true))
}

async function measure(options: Options): Promise<Report> {
  if (options.withPeers) await installPackages()
  const { settings } = options
  const factories = await chosenPeers(options)
  const phases = chosenPhases(options)
  const server = await startServer()
  const peers = await openPeers(factories, { url: server.url, poolSize: POOL_SIZE })
  const results: Result[] = []
  let texts = 0
  const bench: Bench = {
    server,
    settings,
    factories,
    peers,
    fresh: () => `https://example.com/some/longer/path/${(texts += 1)}/and/more?page=${texts}&of=many`,
    say: (line) => console.log(line),
  }
  try {
    for (const phase of phases) {
      for (const result of await phase.run(bench)) {
        results.push(result)
        printResult(result)
      }
    }
  } finally {
    await Promise.all(peers.map(async (peer) => await peer.close()))
    await server.stop()
  }
  return {
    at: new Date().toISOString(),
    node: process.version,
    server: server.version,
    cpu: `${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown'}`,
    load: os.loadavg()[2] ?? 0,
    rounds: settings.rounds,
    turnMilliseconds: settings.turnMilliseconds,
    versions: options.withPeers ? await packageVersions() : {},
    results,
  }
}

async function main(): Promise<void> {
  const options = await readOptions()
  const { from, json, release } = options
  const report = from === undefined ? await measure(options) : await readReport(from)
  if (json !== undefined) await writeFile(json, `${JSON.stringify(report, null, 2)}\n`)
  console.log(`\n${markdownOf(tablesOfRun(report))}`)
  if (release !== undefined) await writeDocuments(report, release)
  const wrong = report.results.flatMap((result) =>
    result.kind === 'facts'
      ? []
      : result.rows.filter(({ peer, faults }) => peer.startsWith('ours') && hasFaults(faults)),
  )
  if (wrong.length > 0) throw new Error(`Wrong answers of ours: ${JSON.stringify(wrong)}`)
}

main().catch((error: unknown) => {
  console.error(error)
  process.exitCode = 1
})
