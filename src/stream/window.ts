import { setImmediate as untilNextTurn } from 'node:timers/promises'
import type { DataSource, ObjectLiteral } from 'typeorm'
import {
  type EntityText,
  type FindOrCreateManyOptions,
  type FindOrCreateManyResult,
  indexSizeOf,
  PreparedMany,
} from '../core'

/** What to do with every row. */
export interface WindowRules {
  readonly entityText: EntityText
  /** Entities get their eager relations. */
  readonly eager: boolean
  readonly create?: ObjectLiteral | ((values: never, index: number) => unknown) | undefined
  readonly deleted?: FindOrCreateManyOptions['deleted']
  readonly progress?: Pick<FindOrCreateManyOptions, 'signal' | 'onProgress'>
  /** Called when two windows blocked each other at the server. */
  readonly onLost?: () => void
}

/** Results in the order of the inputs. If an error ended the window, some may be missing. */
export interface Outcome<Entity> {
  readonly results: readonly (FindOrCreateManyResult<Entity> | undefined)[]
  readonly failure: { readonly error: unknown } | undefined
}

/** Inputs that are sorted by hash and sent together. */
export class Window<Entity extends ObjectLiteral> {
  readonly rows: PreparedMany<Entity>
  private outcome: Outcome<Entity> | undefined
  private running: Promise<void> | undefined

  private readonly ahead: PreparedMany<Entity>[]

  /**
   * @param first index of its first input
   * @param ahead windows that are still under way; their rows are not requested again
   */
  constructor(
    private readonly rules: WindowRules,
    first: number,
    ahead: readonly Window<Entity>[],
  ) {
    this.ahead = ahead.map(({ rows }) => rows)
    this.rows = new PreparedMany<Entity>(rules.entityText, rules.eager ? 'eager' : undefined, {
      ...rules,
      first,
      ahead: this.ahead,
      batchRows: BATCH_ROWS,
    })
  }

  /** Never rejects: `done` says how it ended. */
  async run(dataSource: DataSource): Promise<void> {
    // Or every window would hold all those before it.
    this.ahead.length = 0
    this.running ??= this.send(dataSource)
    await this.running
  }

  get inputs(): number {
    return this.rows.inputs
  }

  /** Characters of the inputs that wait to be sent. */
  get characters(): number {
    return this.rows.characters
  }

  /** How it ended; to be taken in the order of the windows. */
  async take({ manager }: DataSource): Promise<Outcome<Entity>> {
    const { results = [] } = this.outcome ?? {}
    let { failure } = this.outcome ?? {}
    try {
      await this.rows.answerShared(failure ? undefined : manager)
    } catch (error) {
      failure = { error }
    }
    // The signal came too late for this one.
    const signal = this.rules.progress?.signal
    const isWhole = signal?.aborted === true && failure?.error === signal.reason && !results.includes(undefined)
    return { results, failure: isWhole ? undefined : failure }
  }

  get done(): boolean {
    return this.outcome !== undefined
  }

  get hasFailed(): boolean {
    return this.outcome?.failure !== undefined
  }

  private async send({ manager }: DataSource): Promise<void> {
    try {
      this.outcome = { results: await this.rows.run(manager), failure: undefined }
    } catch (error) {
      this.outcome = { results: this.rows.results, failure: { error } }
    }
  }
}

/**
 * As many rows as one statement takes: with a thousand, the server spends a tenth of its work on reading and planning
 * statements. Look-ups of ten times as many could cost so much that it compiles them.
 */
export const BATCH_ROWS = 3_000
/** Rows in a window of one batch. */
const BATCH_CHARACTERS = 2 * 2 ** 20
/** Most rows in any window, so that they do not fill the memory. */
const MAX_CHARACTERS = 16 * 2 ** 20
const MAX_ROWS = 250_000
/**
 * How many rows of a window there are for each page of the index. Three times as many would save a tenth of the time
 * and take three times the memory.
 */
const ROWS_A_PAGE = 4
/** An index that takes no more of the server's cache stays in it. */
const CACHED_SHARE = 0.25
/** After this many rows the index may have outgrown the cache. */
const ROWS_BETWEEN_LOOKS = 100_000
/** If a source pauses for longer, the inputs that it has given are sent. In milliseconds. */
const GRACE_MILLISECONDS = 50

/**
 * How many rows are sorted together. Hashes are random: rows of a batch go to as many pages of the unique index, and once
 * it outgrows the server's cache nearly each of them is read and written anew. In a large sorted window neighbours share
 * a page.
 */
export class WindowSize {
  private size = BATCH_ROWS
  private sinceLook = 0
  private looking: Promise<void> | undefined
  private stopGrace: (() => void) | undefined

  /** @param given rows. @default by the size of the index */
  constructor(
    private readonly entityText: EntityText,
    private readonly given: number | undefined,
  ) {
    if (given !== undefined) this.size = given
  }

  get rows(): number {
    return this.size
  }

  get characters(): number {
    return this.size > BATCH_ROWS ? MAX_CHARACTERS : BATCH_CHARACTERS
  }

  private async look(): Promise<void> {
    this.size = windowRows(await indexSizeOf(this.entityText))
  }

  /**
   * Asks the server for the size of the index, unless the caller has given a size. Until the answer comes, the size
   * stays as it is.
   */
  async ask(): Promise<void> {
    if (this.given !== undefined) return
    this.sinceLook = 0
    // The rows will report a connection that is lost.
    this.looking ??= this.look()
      .catch(() => undefined)
      .finally(() => (this.looking = undefined))
    await this.looking
  }

  /** Counts rows that were sent, and asks again after many. */
  sent(rows: number): void {
    this.sinceLook += rows
    if (this.sinceLook >= ROWS_BETWEEN_LOOKS) void this.ask()
  }

  /** Settles when no question is under way. */
  async settled(): Promise<void> {
    await this.looking
  }

  /** Calls back, at most once for all calls meanwhile, when a source that has given nothing must be taken for paused. */
  afterGrace(callback: () => void): void {
    if (this.stopGrace) return
    this.stopGrace = after(this.size > BATCH_ROWS ? GRACE_MILLISECONDS : undefined, () => {
      this.stopGrace = undefined
      callback()
    })
  }

  endGrace(): void {
    this.stopGrace?.()
  }
}

/** @param index in bytes; `cache` is the server's own */
export function windowRows({
  index,
  cache,
  page,
}: {
  readonly index: number
  readonly cache: number
  readonly page: number
}): number {
  if (index <= cache * CACHED_SHARE) return BATCH_ROWS
  return Math.min(MAX_ROWS, Math.max(BATCH_ROWS, Math.ceil((index / page) * ROWS_A_PAGE)))
}

// As they were when this package was loaded, for the reason that connection/real-timers.ts has.
const [startTimer, stopTimer, startTurn, stopTurn] = [setTimeout, clearTimeout, setImmediate, clearImmediate]

/** Lets events from outside be processed. */
export const nextTurn: typeof untilNextTurn = untilNextTurn

/**
 * Calls back later.
 *
 * @param milliseconds undefined: as soon as events from outside were processed
 * @returns prevents it
 */
function after(milliseconds: number | undefined, callback: () => void): () => void {
  if (milliseconds === undefined) {
    const turn = startTurn(callback)
    return () => stopTurn(turn)
  }
  const timer = startTimer(callback, milliseconds)
  return () => stopTimer(timer)
}
