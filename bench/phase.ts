import type { Bench, Comparison } from './measure'

/** Figures that are no times: one row for a peer or a kind of write, one column for each thing that is asked. */
export interface Facts {
  readonly kind: 'facts'
  readonly phase: string
  readonly title: string
  readonly columns: readonly string[]
  /** Each column is a line over the rows, which are in order. */
  readonly lines?: boolean
  readonly rows: readonly { readonly name: string; readonly values: readonly (number | string | null)[] }[]
}

export type Result = Comparison | Facts

/** A part of the benchmark, which can be run alone. */
export interface Phase {
  /** For `--phases`. */
  readonly name: string
  /** It runs only where it is named. @default false */
  readonly onlyIfNamed?: boolean
  readonly run: (bench: Bench) => Promise<readonly Result[]>
}
