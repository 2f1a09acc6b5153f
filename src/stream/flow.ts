import { setImmediate as untilNextTurn } from 'node:timers/promises'
import type { DataSource, ObjectLiteral } from 'typeorm'
import {
  type EntityText,
  type FindOrCreateManyOptions,
  type FindOrCreateManyResult,
  type FindOrCreateProgress,
  operate,
  PreparedMany,
} from '../core'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { indexSizeOf } from './sql'

interface FlowParts<Item, Entity extends ObjectLiteral> {
  readonly dataSource: DataSource
  readonly rules: WindowRules
  readonly source: Source<Item>
  /** Adds exactly one input, or rejects it. */
  readonly add: (rows: PreparedMany<Entity>, item: Item) => void | Promise<void>
  readonly progress?: WindowRules['progress']
  /** Rows in a window. @default by the size of the unique index */
  readonly window?: number | undefined
}

/** The server works on two windows while the answer to the third is read and the next window is gathered. */
const WINDOWS_AT_SERVER = 3
/** How long gathering may block the process, in milliseconds. The time of one input is added. */
const SLICE_MILLISECONDS = 50
/** The limit for all one-batch windows at the server together, so that memory use stays flat for long texts too. */
const CHARACTERS_AT_SERVER = 4 * 2 ** 20

/**
 * Reads a source, gathers windows, and sends them. The outcomes are in the order of the source. While three small
 * windows, or one large window, are at the server, the next one is gathered, and no more is read.
 */
export class Flow<Item, Entity extends ObjectLiteral> {
  private readonly atServer: Window<Entity>[] = []
  private readonly size: WindowSize
  private gathering: Window<Entity>
  private read = 0
  private stopped = false
  private ended = false
  private sourceEnd: Promise<void> | undefined
  private failure: { readonly error: unknown } | undefined
  /** Whether the reader waits for the source, which may have paused. */
  private atSource = false
  private paused = false
  private lost = false
  private taken: FindOrCreateProgress = { done: 0, created: 0, rejected: 0 }
  private reported = 0
  private readonly rules: WindowRules
  private wake = (): void => {}
  private makeRoom = (): void => {}

  constructor(private readonly parts: FlowParts<Item, Entity>) {
    this.size = new WindowSize(parts.rules.entityText, parts.window)
    const progress = { ...parts.progress, onProgress: (): void => this.report() }
    this.rules = { ...parts.rules, progress, onLost: () => (this.lost = true) }
    this.gathering = new Window(this.rules, 0, [])
  }

  /** The number of inputs that were read. */
  get inputs(): number {
    return this.read
  }

  /**
   * Checks the table. It must be called before the outcomes are taken. It reads nothing.
   *
   * @throws SchemaDriftError, UnsupportedDatabaseError
   */
  async open(): Promise<void> {
    const { dataSource, rules } = this.parts
    await operate(dataSource.manager, { text: rules.entityText.declaration }, async () => {})
  }

  /**
   * Yields one outcome for each window. After a failure, and after `stop`, it yields only the outcomes of windows that
   * were at the server.
   *
   * @throws the error of the source, after the outcomes of the inputs that were read before
   */
  async *outcomes(): AsyncGenerator<Outcome<Entity>, void, undefined> {
    const { signal } = this.parts.progress ?? {}
    const abort = (): void => this.stop()
    signal?.addEventListener('abort', abort)
    if (signal?.aborted === true) this.stop()
    const reading = this.readAll()
    let failed = false
    try {
      await this.size.ask()
      for (let outcome = await this.next(); outcome; outcome = await this.next()) {
        if (outcome.failure) failed = true
        yield outcome
      }
    } finally {
      signal?.removeEventListener('abort', abort)
      await this.finish(reading)
    }
    if (this.failure && !failed) throw this.failure.error
  }

  /** Sends nothing more, and ends the source. */
  stop(): void {
    this.stopped = true
    this.makeRoom()
    this.wake()
  }

  /** Waits until nothing runs any more, except a source that does not answer. */
  private async finish(reading: Promise<void>): Promise<void> {
    this.stop()
    this.size.endGrace()
    await Promise.all(this.atServer.map(async (window) => await window.run(this.parts.dataSource)))
    await this.size.settled()
    // A waiting generator notices its end only when it continues, which may never happen.
    if (this.atSource) void this.endSource().catch(() => undefined)
    else await reading
  }

  private async endSource(): Promise<void> {
    this.sourceEnd ??= this.parts.source.end()
    await this.sourceEnd
  }

  private async next(): Promise<Outcome<Entity> | undefined> {
    for (;;) {
      if (this.maySend()) {
        this.send()
        // Sends the batch before the next one uses the processor.
        await nextTurn()
        this.makeRoom()
        continue
      }
      const [oldest] = this.atServer
      if (oldest?.outcome) {
        const outcome = await oldest.take(this.parts.dataSource)
        this.report()
        this.taken = this.progress([oldest])
        this.atServer.shift()
        return outcome
      }
      // Inputs that were gathered by the end of the source were sent above.
      if (!oldest && (this.stopped || this.ended)) return undefined
      // The window was full when the reader stopped. Since then the index was examined, and the window is no longer
      // full.
      if (!this.isFull()) this.makeRoom()
      await new Promise<void>((resolve) => (this.wake = resolve))
    }
  }

  private report(): void {
    const progress = this.progress(this.atServer)
    if (progress.done === this.reported) return
    this.reported = progress.done
    this.parts.progress?.onProgress?.(progress)
  }

  private progress(windows: readonly Window<Entity>[]): FindOrCreateProgress {
    let { done, created, rejected } = this.taken
    for (const { rows } of windows) {
      const { counts: progress } = rows.progress
      done += progress.done
      created += progress.created
      rejected += progress.rejected
    }
    return { done, created, rejected }
  }

  private maySend(): boolean {
    const { atServer } = this
    const { rows } = this.gathering
    if (this.stopped || rows.results.length === 0) return false
    if (atServer.length === 0) return this.ended || this.paused || this.isFull()
    if (!this.ended && !this.isFull()) return false
    // Another window may be sent while others are at the server.
    const characters = atServer.reduce((sum, window) => sum + window.rows.characters, rows.characters)
    if (atServer.length >= WINDOWS_AT_SERVER || characters > CHARACTERS_AT_SERVER) return false
    return !this.lost && this.size.rows <= FLOW_WINDOW_ROWS && rows.mayOverlap
  }

  private isFull(): boolean {
    const { results, characters } = this.gathering.rows
    return results.length >= this.size.rows || characters >= this.size.characters
  }

  private send(): void {
    const window = this.gathering
    this.atServer.push(window)
    void this.run(window)
    this.gathering = new Window(this.rules, this.read, this.atServer)
  }

  private async run(window: Window<Entity>): Promise<void> {
    await window.run(this.parts.dataSource)
    this.size.sent(window.rows.results.length)
    // Done now, and not when the outcome is taken, because the next window may be ready to be sent.
    if (window.outcome?.failure) this.stop()
    else this.wake()
  }

  private async readAll(): Promise<void> {
    try {
      for (;;) {
        const items = await this.fromSource()
        if (!items) return
        if (!this.stopped) await this.gather(items)
        if (this.stopped) return await this.endSource()
      }
    } catch (error) {
      if (!this.stopped) this.failure = { error }
    } finally {
      this.ended = true
      this.wake()
    }
  }

  private async fromSource(): Promise<Iterable<Item> | undefined> {
    this.atSource = true
    this.watchPause()
    try {
      return await this.parts.source.next()
    } finally {
      this.atSource = false
      this.paused = false
    }
  }

  private async gather(items: Iterable<Item>): Promise<void> {
    let began = performance.now()
    for (const item of items) {
      const added = this.parts.add(this.gathering.rows, item)
      this.read += 1
      if (added) await added
      while (this.isFull() && !this.stopped) {
        const room = new Promise<void>((resolve) => (this.makeRoom = resolve))
        this.wake()
        await room
      }
      if (this.stopped) return
      if (performance.now() - began < SLICE_MILLISECONDS) continue
      await nextTurn()
      if (this.stopped) return
      began = performance.now()
    }
  }

  /** Sends the gathered inputs if the source pauses and the server is idle. */
  private watchPause(): void {
    if (this.stopped) return
    const { read } = this
    this.size.afterGrace(() => {
      if (!this.atSource || this.gathering.rows.results.length === 0) return
      if (read !== this.read) return this.watchPause()
      this.paused = true
      this.wake()
    })
  }
}

/** The rules for every row. */
interface WindowRules {
  readonly entityText: EntityText
  /** Whether entities get their eager relations. */
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
class Window<Entity extends ObjectLiteral> {
  readonly rows: PreparedMany<Entity>
  /** The outcome of the window. Undefined until the window has ended. */
  outcome: Outcome<Entity> | undefined
  private running: Promise<void> | undefined
  private readonly ahead: PreparedMany<Entity>[]

  /**
   * @param first the index of its first input
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
      batchRows: FLOW_WINDOW_ROWS,
    })
  }

  /** Sends the rows. It never rejects: `outcome` contains a failure. */
  async run(dataSource: DataSource): Promise<void> {
    // Otherwise every window would keep all earlier windows in memory.
    this.ahead.length = 0
    this.running ??= this.send(dataSource)
    await this.running
  }

  /** Returns the outcome. It must be called in the order of the windows. */
  async take({ manager }: DataSource): Promise<Outcome<Entity>> {
    const { results = [] } = this.outcome ?? {}
    let { failure } = this.outcome ?? {}
    try {
      await this.rows.answerShared(failure ? undefined : manager)
    } catch (error) {
      failure = { error }
    }
    // The signal was too late for this window.
    const signal = this.rules.progress?.signal
    const isWhole = signal?.aborted === true && failure?.error === signal.reason && !results.includes(undefined)
    return { results, failure: isWhole ? undefined : failure }
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
 * The rows of one statement. With a thousand, the server spends a tenth of its work on reading and planning statements.
 * Look-ups of ten times as many rows could cost so much that the server compiles them (JIT).
 */
const FLOW_WINDOW_ROWS = 3_000
/** The most characters in a window of one batch. */
const WINDOW_CHARACTERS = 2 * 2 ** 20
/** The most characters and rows in any window, so that they do not fill the memory. */
const MAX_CHARACTERS = 16 * 2 ** 20
const MAX_ROWS = 250_000
/**
 * The rows of a window for each page of the index. Three times as many would save a tenth of the time and use three
 * times the memory.
 */
const ROWS_A_PAGE = 4
/** An index that uses no more than this share of the server's cache stays in it. */
const CACHED_SHARE = 0.25
/** The number of rows after which the index may have outgrown the cache. */
const ROWS_BETWEEN_LOOKS = 100_000
/** If a source pauses for longer, its inputs so far are sent. In milliseconds. */
const GRACE_MILLISECONDS = 50

/**
 * The number of rows that are sorted together. Hashes are random, so the rows of a batch are spread over as many pages
 * of the unique index. If the index outgrows the server's cache, nearly each page is read and written for one row. In a
 * large sorted window, neighbours share a page.
 */
class WindowSize {
  private size = FLOW_WINDOW_ROWS
  private sinceLook = 0
  private looking: Promise<void> | undefined
  private stopGrace: (() => void) | undefined

  /** @param given the number of rows. @default by the size of the index */
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
    return this.size > FLOW_WINDOW_ROWS ? MAX_CHARACTERS : WINDOW_CHARACTERS
  }

  /**
   * Asks the server for the size of the index, unless the caller has set a size. Until the answer arrives, the size
   * stays as it is.
   */
  async ask(): Promise<void> {
    if (this.given !== undefined) return
    this.sinceLook = 0
    // If the connection is lost, the rows will report it.
    this.looking ??= indexSizeOf(this.entityText)
      .then((index) => void (this.size = windowRows(index)))
      .catch(() => undefined)
      .finally(() => (this.looking = undefined))
    await this.looking
  }

  /** Counts sent rows, and asks again after many. */
  sent(rows: number): void {
    this.sinceLook += rows
    if (this.sinceLook >= ROWS_BETWEEN_LOOKS) void this.ask()
  }

  /** Resolves when no question is under way. */
  async settled(): Promise<void> {
    await this.looking
  }

  /** Calls back when a silent source counts as paused. Calls before that share one callback. */
  afterGrace(callback: () => void): void {
    if (this.stopGrace) return
    const then = (): void => {
      this.stopGrace = undefined
      callback()
    }
    // A window of one batch waits only until events from outside were processed.
    if (this.size <= FLOW_WINDOW_ROWS) {
      const turn = startTurn(then)
      this.stopGrace = () => stopTurn(turn)
    } else {
      const timer = startTimer(then, GRACE_MILLISECONDS)
      this.stopGrace = () => stopTimer(timer)
    }
  }

  endGrace(): void {
    this.stopGrace?.()
  }
}

/** @param index the size in bytes, like `cache`, the server's cache, and `page` */
export function windowRows({
  index,
  cache,
  page,
}: {
  readonly index: number
  readonly cache: number
  readonly page: number
}): number {
  if (index <= cache * CACHED_SHARE) return FLOW_WINDOW_ROWS
  return Math.min(MAX_ROWS, Math.max(FLOW_WINDOW_ROWS, Math.ceil((index / page) * ROWS_A_PAGE)))
}

// The functions as they were when this package was loaded. connection/mutex.ts explains the reason.
const [startTimer, stopTimer, startTurn, stopTurn] = [setTimeout, clearTimeout, setImmediate, clearImmediate]

/** Lets events from outside be processed. */
const nextTurn: typeof untilNextTurn = untilNextTurn

/** The items that a flow reads: several at a time, as they arrive. */
export interface Source<Item> {
  /** Returns the next items. Undefined if there are no more. */
  readonly next: () => Promise<Iterable<Item> | undefined>
  /** Informs the producer that no more items are wanted. */
  readonly end: () => Promise<void>
}

/**
 * @param operation the name of the function that was called
 * @throws DeclarationError for a value that cannot be iterated, and for a string, whose characters are not inputs
 */
export function inputsOf<Item>(operation: string, items: Iterable<Item> | AsyncIterable<Item>): Source<Item> {
  const given: unknown = items
  if (typeof given === 'object' && given !== null && Symbol.asyncIterator in given) {
    const iterator = (given as AsyncIterable<Item>)[Symbol.asyncIterator]()
    return {
      next: async () => {
        const { done, value } = await iterator.next()
        return done === true ? undefined : [value]
      },
      end: async () => void (await iterator.return?.()),
    }
  }
  if (typeof given === 'object' && given !== null && Symbol.iterator in given) {
    const iterator = (given as Iterable<Item>)[Symbol.iterator]()
    // Without `return`: if a loop ends early, `end` calls it.
    let rest: Iterable<Item> | undefined = { [Symbol.iterator]: () => ({ next: () => iterator.next() }) }
    return {
      next: async () => {
        const all = rest
        rest = undefined
        return all
      },
      end: async () => void iterator.return?.(),
    }
  }
  throw new DeclarationError(
    `${operation}(): expected an iterable or an async iterable of objects, got ${kindOf(given)}. ` +
      `Pass a generator, a readable stream in object mode, or an array.`,
  )
}
