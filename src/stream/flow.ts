import type { DataSource, ObjectLiteral } from 'typeorm'
import { type FindOrCreateProgress, operate, type PreparedMany } from '../core'
import type { Source } from './source'
import { BATCH_ROWS, nextTurn, type Outcome, Window, type WindowRules, WindowSize } from './window'

interface FlowParts<Item, Entity extends ObjectLiteral> {
  readonly dataSource: DataSource
  readonly rules: WindowRules
  readonly source: Source<Item>
  /** Adds exactly one input, or refuses it. */
  readonly add: (rows: PreparedMany<Entity>, item: Item) => void | Promise<void>
  readonly progress?: WindowRules['progress']
  /** Rows. @default by the size of the unique index */
  readonly window?: number | undefined
}

/** The server works on two while the answer to the third is read and the next is gathered. */
const WINDOWS_AT_SERVER = 3
/** How long gathering may keep the process from everything else, plus the time of one input. In milliseconds. */
const SLICE_MILLISECONDS = 50
/** Limit for all one-batch windows at the server together, so that memory stays flat for long texts too. */
const CHARACTERS_AT_SERVER = 4 * 2 ** 20

/**
 * Reads a source, gathers windows, and sends them, so that their outcomes come in the order of the source. While
 * three small windows, or one large one, are at the server, the next is gathered, and no more is read.
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
  /** The reader waits for the source, which may have paused. */
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

  /** How many inputs were read. */
  get inputs(): number {
    return this.read
  }

  /**
   * Must be called before the outcomes are taken. Reads nothing.
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
   * @throws what the source throws, after the outcomes of the inputs that were read before
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

  /** After this nothing runs on, except a source that does not answer. */
  private async finish(reading: Promise<void>): Promise<void> {
    this.stop()
    this.size.endGrace()
    await Promise.all(this.atServer.map(async (window) => await window.run(this.parts.dataSource)))
    await this.size.settled()
    // A generator that waits learns of its end only when it continues, which may be never.
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
        // Lets the batch leave before the next one takes the processor.
        await nextTurn()
        this.makeRoom()
        continue
      }
      const [oldest] = this.atServer
      if (oldest?.done) return await this.take(oldest)
      // Inputs that were gathered by the end of the source were sent above.
      if (!oldest && (this.stopped || this.ended)) return undefined
      // The window was full when the reader stopped. Since then the index was examined, and the window is no longer
      // full.
      if (!this.isFull()) this.makeRoom()
      await this.change()
    }
  }

  private async take(oldest: Window<Entity>): Promise<Outcome<Entity>> {
    const outcome = await oldest.take(this.parts.dataSource)
    this.report()
    this.taken = this.progress([oldest])
    this.atServer.shift()
    return outcome
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
    const { gathering, atServer } = this
    if (this.stopped || gathering.inputs === 0) return false
    if (atServer.length === 0) return this.ended || this.paused || this.isFull()
    if (!this.ended && !this.isFull()) return false
    const characters = atServer.reduce((sum, window) => sum + window.characters, gathering.characters)
    return atServer.length < WINDOWS_AT_SERVER && characters <= CHARACTERS_AT_SERVER && this.mayOverlap()
  }

  /** Another window may go to the server beside those that are there. */
  private mayOverlap(): boolean {
    return !this.lost && this.size.rows <= BATCH_ROWS && this.gathering.rows.mayOverlap
  }

  private isFull(): boolean {
    const { inputs, characters } = this.gathering
    return inputs >= this.size.rows || characters >= this.size.characters
  }

  private send(): void {
    const window = this.gathering
    this.atServer.push(window)
    void this.run(window)
    this.gathering = new Window(this.rules, this.read, this.atServer)
  }

  private async run(window: Window<Entity>): Promise<void> {
    await window.run(this.parts.dataSource)
    this.size.sent(window.inputs)
    // Now, and not when the outcome is taken: the next window may be ready to be sent.
    if (window.hasFailed) this.stop()
    else this.wake()
  }

  private async change(): Promise<void> {
    await new Promise<void>((resolve) => (this.wake = resolve))
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
      while (this.isFull() && !this.stopped) await this.room()
      if (this.stopped) return
      if (performance.now() - began < SLICE_MILLISECONDS) continue
      await nextTurn()
      if (this.stopped) return
      began = performance.now()
    }
  }

  private async room(): Promise<void> {
    const room = new Promise<void>((resolve) => (this.makeRoom = resolve))
    this.wake()
    await room
  }

  /** Sends what was gathered if the source gives nothing more and the server has nothing to do. */
  private watchPause(): void {
    if (this.stopped) return
    const { read } = this
    this.size.afterGrace(() => {
      if (!this.atSource || this.gathering.inputs === 0) return
      if (read !== this.read) return this.watchPause()
      this.paused = true
      this.wake()
    })
  }
}
