import { Transform, type TransformCallback } from 'node:stream'
import type { DataSource, DeepPartial, EntityTarget, ObjectLiteral } from 'typeorm'
import { type Naming, tracedTo } from '../core'
import { type FindOrCreateStreamOptions, flowOf, resultsOf, streamedText } from './find-or-create-stream'
import type { Source } from './source'

/**
 * `findOrCreateStream` as a Node.js stream in object mode: inputs are written, results are read, in the same order.
 * Once destroyed it sends nothing more, and closes when the batches at the server have ended.
 *
 * @example
 * await pipeline(readable, findOrCreateTransform(dataSource, Page), writable)
 *
 * @throws DeclarationError at the call; every other error of `findOrCreateStream` is emitted by the stream
 */
export function findOrCreateTransform<Entity extends ObjectLiteral, By extends string = string>(
  dataSource: DataSource,
  entity: EntityTarget<Entity>,
  options: Naming<By, FindOrCreateStreamOptions<NoInfer<Entity>>> = {},
): Transform {
  const entityText = streamedText('findOrCreateTransform', dataSource, entity, options)
  const traced = tracedTo(findOrCreateTransform)
  const written = new Written<DeepPartial<Entity>>()
  const flow = flowOf<Entity>(dataSource, entityText, written, options)
  return new FlowTransform(written, resultsOf(flow, options, traced), {
    stop: () => flow.stop(),
    signal: options.signal,
  })
}

/** The written inputs, one at a time: the next is requested when this one was read. */
class Written<Item> implements Source<Item> {
  private waiting: { readonly item: Item; readonly taken: () => void } | undefined
  private closed = false
  private wake = (): void => {}

  give(item: Item, taken: () => void): void {
    this.waiting = { item, taken }
    this.wake()
  }

  close(): void {
    this.closed = true
    this.wake()
  }

  readonly next = async (): Promise<readonly Item[] | undefined> => {
    while (!this.waiting && !this.closed) await new Promise<void>((resolve) => (this.wake = resolve))
    if (!this.waiting) return undefined
    const { item, taken } = this.waiting
    this.waiting = undefined
    taken()
    return [item]
  }

  readonly end = async (): Promise<void> => this.close()
}

class FlowTransform<Item> extends Transform {
  private pumping: Promise<void> | undefined
  private resumeReading = (): void => {}

  constructor(
    private readonly written: Written<Item>,
    private readonly results: AsyncIterable<unknown>,
    private readonly ends: { readonly stop: () => void; readonly signal: AbortSignal | undefined },
  ) {
    super({ objectMode: true })
    const { signal } = ends
    // Code that waits for the first input hears of the end too.
    if (signal?.aborted === true) this.begin()
    else signal?.addEventListener('abort', this.begin)
  }

  override _transform(item: Item, _encoding: BufferEncoding, callback: TransformCallback): void {
    this.begin()
    this.written.give(item, callback)
  }

  override _flush(callback: TransformCallback): void {
    this.begin()
    this.written.close()
    // Where it fails, the stream is destroyed.
    void this.afterPump(callback)
  }

  override _read(size: number): void {
    this.resumeReading()
    // The writable side may wait for room on this one.
    // oxlint-disable-next-line no-underscore-dangle
    super._read(size)
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.ends.stop()
    this.ends.signal?.removeEventListener('abort', this.begin)
    this.written.close()
    this.resumeReading()
    void this.afterPump(() => callback(error))
  }

  private readonly begin = (): void => {
    this.pumping ??= this.pump()
  }

  private async afterPump(then: () => void): Promise<void> {
    await this.pumping
    then()
  }

  /** Never rejects. */
  private async pump(): Promise<void> {
    try {
      for await (const result of this.results) {
        if (!this.push(result)) await this.untilRead()
        if (this.destroyed) return
      }
    } catch (error) {
      this.destroy(error as Error)
    }
  }

  private async untilRead(): Promise<void> {
    if (!this.destroyed) await new Promise<void>((resolve) => (this.resumeReading = resolve))
  }
}
