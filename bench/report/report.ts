import type { Result } from '../phase'

/** What a run has measured: maintainers/benchmark.json. */
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
