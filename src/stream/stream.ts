import { Transform, type TransformCallback } from 'node:stream'
import type { DataSource, DeepPartial, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  CALL_RULES,
  entityTextOf,
  type FindOrCreateManyOptions,
  type FindOrCreateManyResult,
  type GivenValues,
  type Naming,
  tracedTo,
  watchedStream,
} from '../core'
import { DeclarationError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'
import { Flow, type Outcome, type Source, inputsOf } from './flow'

/** Options of `findOrCreateStream` and `findOrCreateTransform`. */
export interface FindOrCreateStreamOptions<Entity = ObjectLiteral> extends Omit<
  FindOrCreateManyOptions<Entity>,
  'relations' | 'relationLoadStrategy'
> {
  /**
   * The number of rows that are gathered, sorted by hash, and sent in batches. The results of a window arrive together,
   * when it is done. Hashes are random. If the unique index is larger than the server's cache, each row would read and
   * write its own page of the index. In a large sorted window, neighbours share a page.
   *
   * @default one batch (3,000) while the index is small beside `shared_buffers`, then by its size up to 250,000
   */
  readonly window?: number | undefined
}

const { relations: _relations, relationLoadStrategy: _strategy, ...MANY_RULES } = CALL_RULES.findOrCreateMany
const STREAM_RULES: Rules<FindOrCreateStreamOptions> = { ...MANY_RULES, window: RULE.positive }

/**
 * Does what `findOrCreateMany` does, for more inputs than fit into memory, or for inputs that arrive over time. It
 * reads a source and yields the results in its order. It reads ahead no more than it needs to keep the server busy, and
 * only while results are taken.
 *
 * It runs outside transactions: each batch of up to 3,000 rows is committed by itself. If inputs have equal texts, only
 * the first of them can be `created`, however far apart they are. If a source pauses, its inputs so far are sent.
 *
 * A loop over the results may end early. Then the source is ended too, and no connection is held.
 *
 * @param inputs are read only after the table was found ready
 * @example
 * for await (const result of findOrCreateStream(dataSource, Page, readPages())) {
 *   if ('error' in result) console.error(result.error)
 *   else console.log(result.entity.id, result.created)
 * }
 *
 * @throws DeclarationError at the call
 * @throws SchemaDriftError, UnsupportedDatabaseError when the first result is taken, before the source is read
 * @throws AttemptsExhaustedError, and QueryFailedError if the connection or the server fails, after the earlier
 * results; also the error of the source, and the reason of `signal`
 */
export function findOrCreateStream<
  Entity extends ObjectLiteral,
  Given = DeepPartial<Entity>,
  By extends string = string,
>(
  dataSource: DataSource,
  entity: EntityTarget<Entity>,
  inputs:
    | Iterable<GivenValues<NoInfer<Entity>, Given, NoInfer<By>>>
    | AsyncIterable<GivenValues<NoInfer<Entity>, Given, NoInfer<By>>>,
  options: Naming<By, FindOrCreateStreamOptions<NoInfer<Entity>>> = {},
): AsyncGenerator<FindOrCreateManyResult<Entity>, void, undefined> {
  const traced = tracedTo(findOrCreateStream)
  const source = (): Source<DeepPartial<Entity>> => inputsOf('findOrCreateStream', inputs)
  return openFlow('findOrCreateStream', traced, dataSource, entity, source, options).results
}

/** @throws DeclarationError for a wrong argument or option */
function openFlow<Entity extends ObjectLiteral>(
  operation: 'findOrCreateStream' | 'findOrCreateTransform',
  traced: ReturnType<typeof tracedTo>,
  dataSource: DataSource,
  entity: EntityTarget<Entity>,
  source: () => Source<DeepPartial<Entity>>,
  options: FindOrCreateStreamOptions<Entity>,
): {
  readonly flow: Flow<DeepPartial<Entity>, Entity>
  readonly results: AsyncGenerator<FindOrCreateManyResult<Entity>, void, undefined>
} {
  checkOptions(`${operation}()`, options, STREAM_RULES)
  // A manager or a query runner may belong to a transaction, which a stream would not join.
  if (!RULE.dataSource.takes(dataSource)) {
    throw new DeclarationError(
      `Expected a DataSource, got ${kindOf(dataSource)}. A stream runs outside transactions. Within one, use findOrCreateMany().`,
    )
  }
  const { by, create, deleted, signal, onProgress, window } = options
  const flow = new Flow<DeepPartial<Entity>, Entity>({
    dataSource,
    rules: { entityText: entityTextOf(dataSource.manager, entity, by), eager: true, create, deleted },
    source: source(),
    add: (rows, values) => rows.addAll([values]),
    progress: { signal, onProgress },
    window,
  })
  const results = resultsOf(flow, signal, traced)
  return { flow, results: watchedStream(results, operation, 'text', [dataSource.manager, entity], options.by) }
}

/** Yields the results one by one, up to the first that is missing. */
async function* resultsOf<Entity extends ObjectLiteral>(
  flow: Flow<DeepPartial<Entity>, Entity>,
  signal: AbortSignal | undefined,
  traced: ReturnType<typeof tracedTo>,
): AsyncGenerator<FindOrCreateManyResult<Entity>, void, undefined> {
  await traced(flow.open())
  const outcomes = flow.outcomes()
  let failure: Outcome<Entity>['failure']
  try {
    for (;;) {
      const { done, value } = await traced(outcomes.next())
      if (done === true) break
      if (failure) continue
      failure = value.failure
      for (const result of value.results) {
        if (!result) break
        yield result
      }
    }
  } finally {
    await outcomes.return()
  }
  if (failure) throw failure.error
  if (signal?.aborted === true) throw signal.reason
}

/**
 * Returns `findOrCreateStream` as a Node.js stream in object mode. Inputs are written, and results are read in the same
 * order. A destroyed stream sends nothing more, and closes when the batches at the server have ended.
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
  const written = new WrittenInputs<DeepPartial<Entity>>()
  const traced = tracedTo(findOrCreateTransform)
  const { flow, results } = openFlow('findOrCreateTransform', traced, dataSource, entity, () => written, options)
  return new FlowTransform(written, results, { stop: () => flow.stop(), signal: options.signal })
}

/** The written inputs, one at a time. The next is requested when this one was read. */
class WrittenInputs<Item> implements Source<Item> {
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
    private readonly written: WrittenInputs<Item>,
    private readonly results: AsyncIterable<unknown>,
    private readonly ends: { readonly stop: () => void; readonly signal: AbortSignal | undefined },
  ) {
    super({ objectMode: true })
    const { signal } = ends
    // If the signal aborts before the first input, waiting code is notified too.
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
    // If the flow fails, the stream is destroyed.
    void this.afterPump(callback)
  }

  override _read(size: number): void {
    this.resumeReading()
    // The writable side may wait for room on the readable side.
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
        if (!this.push(result) && !this.destroyed) await new Promise<void>((read) => (this.resumeReading = read))
        if (this.destroyed) return
      }
    } catch (error) {
      this.destroy(error as Error)
    }
  }
}
