import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Result } from '../phase'

/** What a run has measured: a file of maintainers/benchmarks. */
export interface Report {
  readonly at: string
  readonly node: string
  readonly server: string
  readonly cpu: string
  /** Processes that waited for a processor or had one, on the average of the run’s last minutes. */
  readonly load: number
  readonly rounds: number
  readonly turnMilliseconds: number
  /** By name, of the packages that were compared. */
  readonly versions: Readonly<Record<string, string>>
  readonly results: readonly Result[]
}

/** Where and when it was measured. */
export function aboutOf({ at, node, server, cpu, load, rounds, versions }: Report): string {
  const packages = Object.entries(versions).map(([name, version]) => `${name} ${version}`)
  const place = `Node.js ${node.slice(1)}, ${server}, processors: ${cpu}, load ${load.toFixed(1)}`
  const others = packages.length > 0 ? ` With ${packages.join(', ')}.` : ''
  return `Measured on ${at.slice(0, 10)}: ${place}, ${rounds} rounds.${others}`
}

/** The folder with the run of each release. */
export const RELEASES = path.resolve(__dirname, '../../maintainers/benchmarks')

/** The run of each release by its version, from the oldest. */
export async function readReleases(): Promise<ReadonlyMap<string, Report>> {
  const files = await readdir(RELEASES)
  const versions = files.map((file) => path.basename(file, '.json'))
  const runs = versions
    .toSorted((one, other) => one.localeCompare(other, 'en', { numeric: true }))
    .map(async (version) => [version, await readReport(path.join(RELEASES, `${version}.json`))] as const)
  return new Map(await Promise.all(runs))
}

export const readReport = async (file: string): Promise<Report> => JSON.parse(await readFile(file, 'utf8')) as Report
