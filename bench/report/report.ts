import type { Result } from '../phase'

/** What a run has measured: docs/benchmark.json. */
export interface Report {
  readonly at: string
  readonly node: string
  readonly server: string
  readonly cpu: string
  readonly rounds: number
  readonly turnMilliseconds: number
  /** By name, of the packages that were compared. */
  readonly versions: Readonly<Record<string, string>>
  readonly results: readonly Result[]
}
