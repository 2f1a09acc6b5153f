import { oneOf, type Rule, RULE, type Rules } from '../options'
import type { LockMode } from './table'

/** The steps of an adoption, in their order. An adoption that stopped early continues with the step it was in. */
export const STEPS = ['begin', 'fill', 'number', 'index', 'check', 'guard', 'clean', 'done'] as const

/** A step of an adoption. */
export type AdoptStep = (typeof STEPS)[number]

/** The effect of one step of an adoption. */
export interface PlannedStep {
  /** The step. */
  readonly step: AdoptStep
  /** Which sessions wait while the last statements of the step hold their lock; undefined if none wait. */
  readonly lock: LockMode | undefined
  /** The SQL of the step. */
  readonly statements: readonly string[]
}

/** The progress that the steps report. */
export interface AdoptProgress {
  /** The step that runs. */
  readonly step: AdoptStep
  /** 0 to 1; undefined if it is not known. */
  readonly fraction: number | undefined
  /** Rows written in this step so far. */
  readonly rows: number
}

/** How a lock that blocks readers or writers was obtained. */
export interface AdoptionLock {
  /** The step that took the lock. */
  readonly step: string
  /** The mode of the lock on the table. */
  readonly mode: LockMode
  /** 1-based. Each attempt but the last failed after the time limit. */
  readonly attempts: number
  /** Time in the queue of the last attempt. */
  readonly waitedMilliseconds: number
  /** How long the lock was held. */
  readonly heldMilliseconds: number
}

/** Options of `adopt`. */
export interface AdoptOptions {
  /** The property of the unique text. @default the only text */
  readonly property?: string | undefined
  /** The last step to do; the same call without this option continues. @default the whole adoption */
  readonly until?: AdoptStep | undefined
  /** How long a batch should last, in milliseconds: a client may wait this long for a row. @default 50 */
  readonly batchMilliseconds?: number
  /** A pause after each batch, in milliseconds. A function is called after each batch. @default 0 */
  readonly pauseMilliseconds?: number | (() => number)
  /** Wait while a standby is further behind than this, in milliseconds. @default no check */
  readonly maxLagMilliseconds?: number | undefined
  /** Wait while a replication slot or the archive needs more WAL than this, in bytes. @default no check */
  readonly maxWalBytes?: number | undefined
  /** How long to wait for a lock that blocks readers or writers in each attempt, in milliseconds. @default 50 */
  readonly lockMilliseconds?: number
  /** How long such a lock may be held, in milliseconds. @default 100 */
  readonly holdMilliseconds?: number
  /**
   * Let the table's own triggers fire for every written row if they cannot be disabled for the session.
   *
   * @default the command stops instead
   */
  readonly userTriggers?: 'fire' | undefined
  /** What to do with rows whose texts the normalizer refuses. @default it stops before the guard and names them */
  readonly rejected?: 'keep' | 'delete' | undefined
  /**
   * The name of the pending migration that would make the objects of an adopted table: that of its class, or the one
   * that `typeorm migration:show` prints. It is marked as run at the end, as by `migration:run --fake`.
   */
  readonly fake?: string | undefined
  /** Once aborted, the adoption stops after the current batch. */
  readonly signal?: AbortSignal | undefined
  /** Receives the progress. */
  readonly onProgress?: (progress: AdoptProgress) => void
  /** Receives sentences about what the command waits for or repeats. */
  readonly onNotice?: (notice: string) => void
  /** Called when a lock that blocked readers or writers is released. */
  readonly onLock?: (lock: AdoptionLock) => void
}

const MILLISECONDS: Rule = {
  takes: (value) => typeof value === 'number' && value >= 0 && Number.isFinite(value),
  expected: 'a number of milliseconds from 0',
}

/** Options of every function that waits for locks. AdoptOptions describes them. */
export type LockOption = 'property' | 'lockMilliseconds' | 'signal' | 'onNotice'

export const LOCK_RULES: Readonly<Record<LockOption, Rule>> = {
  property: RULE.name,
  lockMilliseconds: MILLISECONDS,
  signal: RULE.signal,
  onNotice: RULE.function,
}

/** Options of every function that locks the table against readers or writers. */
export type HoldOption = 'holdMilliseconds' | 'onLock'

export const HOLD_RULES: Readonly<Record<HoldOption, Rule>> = {
  holdMilliseconds: MILLISECONDS,
  onLock: RULE.function,
}

/** Options of every function that works in batches. */
export type BatchOption = 'batchMilliseconds' | 'pauseMilliseconds' | 'maxLagMilliseconds' | 'maxWalBytes'

export const BATCH_RULES: Readonly<Record<BatchOption, Rule>> = {
  batchMilliseconds: MILLISECONDS,
  pauseMilliseconds: {
    takes: (value) => typeof value === 'function' || MILLISECONDS.takes(value),
    expected: `${MILLISECONDS.expected}, or a function that returns it`,
  },
  maxLagMilliseconds: MILLISECONDS,
  maxWalBytes: { ...MILLISECONDS, expected: 'a number of bytes from 0' },
}

export const ADOPT_RULES: Rules<AdoptOptions> = {
  ...LOCK_RULES,
  ...HOLD_RULES,
  ...BATCH_RULES,
  until: oneOf(...STEPS),
  userTriggers: oneOf('fire'),
  rejected: oneOf('keep', 'delete'),
  fake: RULE.name,
  onProgress: RULE.function,
}

/** Options of every function that only needs to know the text. */
export const PROPERTY_OPTION: Readonly<Record<'property', Rule>> = { property: RULE.name }
