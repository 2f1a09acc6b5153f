import type { Bench, Comparison } from './measure'

/** A part of the benchmark, which can be run alone. */
export interface Phase {
  /** For `--phases`. */
  readonly name: string
  readonly run: (bench: Bench) => Promise<readonly Comparison[]>
}
