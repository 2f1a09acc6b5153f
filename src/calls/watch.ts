import { AsyncLocalStorage } from 'node:async_hooks'
import { type TracingChannel, tracingChannel } from 'node:diagnostics_channel'
import type { EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { UniqueTextError } from '../errors'
import { dataSourceOf, namesOfEntity, numbersOfTable, textsOfEntity } from '../registry/registry'
import { serverError } from '../sql/sqlstate'
import { calledFrom, callerOf } from './caller'
import { hashNumberOf } from './hydrate'

/**
 * The message to subscribers of the tracing channel `typeorm-unique-text:operation`: one object for each call of an
 * operation, complete at `asyncEnd`. It holds no text, and neither a row nor an error, which may contain one.
 */
export interface OperationEvent {
  /** The function that was called, such as `findOrCreate`. */
  readonly operation: string
  /** The operation that made this call, itself or by a user's function; undefined for other calls. */
  readonly within: string | undefined
  /** The name of the entity. Several names are separated by commas. */
  readonly entity: string | undefined
  /** The property by which the call looks up; undefined if it could be one of several. */
  readonly property: string | undefined
  /** Rows that were found, written, removed or counted. */
  rows: number
  /** Rows that this call inserted; for `once`, 1 if its work ran. */
  created: number
  /** Inputs of a list that have an error in place of a row. */
  refused: number
  /** The number of attempts, which is 1 if the first was enough. Every batch may add some. */
  attempts: number
  /** Rows of find-or-create, upsert or a look-up that were not the first with their hash. */
  collisions: number
  /** Whether the call was answered by a statement that it shared with others. */
  shared: boolean
  /** The duration of the operation. */
  milliseconds: number
  /** The reason why the call failed. */
  error?: {
    /** The class of the error. */
    readonly name: string
    /** The `code` of an error of this package, or an SQLSTATE. */
    readonly code: string | undefined
  }
}

type Counts = Pick<OperationEvent, 'rows' | 'created' | 'refused' | 'collisions'>
/** Counts the result of an operation. */
type Count<Result> = (result: Result) => Partial<Counts>
/** The kind of value by which an operation looks up. */
type Kind = 'text' | 'name' | 'text or name' | 'number' | undefined

/** The channel on which operations are published. */
const watchers: TracingChannel<unknown, OperationEvent> = tracingChannel('typeorm-unique-text:operation')

const underWay = new AsyncLocalStorage<OperationEvent>()

/** Returns the event of the operation for which this code runs; undefined if there are no subscribers. */
export const currentEvent = (): OperationEvent | undefined => underWay.getStore()

/**
 * Returns the operation, which publishes an event for each call if there are subscribers.
 *
 * @param name the public name, which stacks contain too
 * @param kind undefined for an operation without a particular entity
 * @param operation its arguments are the manager and, unless `kind` is undefined, the entity or a list that begins with
 * it; options have a default
 */
export function watched<Operation extends (...given: never[]) => Promise<unknown>>(
  name: string,
  kind: Kind,
  operation: Operation,
  count: Count<Awaited<ReturnType<Operation>>> = countRows,
): Operation {
  const run = operation as unknown as (...given: unknown[]) => ReturnType<Operation>
  const published = (...given: unknown[]): Promise<unknown> => {
    if (!watchers.hasSubscribers) return run(...given)
    // `length` counts the parameters before the one with a default.
    const { by } = Object(given[operation.length]) as { readonly by?: unknown }
    return calledFrom(
      callerOf(published),
      publish(new Publication(name, kind, given, by), () => run(...given), count),
    )
  }
  for (const one of [operation, published]) Object.defineProperty(one, 'name', { value: name })
  return published as unknown as Operation
}

async function publish<Result>(by: Publication, run: () => Promise<Result>, count: Count<Result>): Promise<Result> {
  try {
    const result = await by.start(run)
    by.add(count(result))
    return result
  } catch (error) {
    throw by.failed(error)
  } finally {
    by.end()
  }
}

/** Publishes a stream as one operation, from its first result to its end. Without subscribers, returns it unchanged. */
export function watchedStream<Result extends OneResult>(
  results: AsyncGenerator<Result, void, undefined>,
  ...published: ConstructorParameters<typeof Publication>
): AsyncGenerator<Result, void, undefined> {
  return watchers.hasSubscribers ? publishStream(results, published) : results
}

async function* publishStream<Result extends OneResult>(
  results: AsyncGenerator<Result, void, undefined>,
  published: ConstructorParameters<typeof Publication>,
): AsyncGenerator<Result, void, undefined> {
  const by = new Publication(...published)
  const take = async (): Promise<IteratorResult<Result, void>> => await results.next()
  try {
    for (let next = await by.start(take); next.done !== true; next = await underWay.run(by.event, take)) {
      by.add(countResults(next.value))
      yield next.value
    }
  } catch (error) {
    throw by.failed(error)
  } finally {
    await results.return()
    by.end()
  }
}

class Publication {
  private readonly started = performance.now()
  readonly event: OperationEvent

  constructor(operation: string, kind: Kind, given: readonly unknown[], by?: unknown) {
    const counts = { rows: 0, created: 0, refused: 0, attempts: 1, collisions: 0, shared: false, milliseconds: 0 }
    this.event = { operation, within: currentEvent()?.operation, ...subjectOf(kind, given, by), ...counts }
  }

  start<Result>(run: () => Promise<Result>): Promise<Result> {
    try {
      return watchers.start.runStores(this.event, () => underWay.run(this.event, run))
    } finally {
      watchers.end.publish(this.event)
    }
  }

  add({ rows = 0, created = 0, refused = 0, collisions = 0 }: Partial<Counts>): void {
    this.event.rows += rows
    this.event.created += created
    this.event.refused += refused
    this.event.collisions += collisions
  }

  failed(error: unknown): unknown {
    const code = error instanceof UniqueTextError ? error.code : serverError(error)?.code
    this.event.error = { name: error instanceof Error ? error.name : typeof error, code }
    this.event.milliseconds = performance.now() - this.started
    watchers.error.publish(this.event)
    return error
  }

  end(): void {
    this.event.milliseconds = performance.now() - this.started
    watchers.asyncStart.publish(this.event)
    watchers.asyncEnd.publish(this.event)
  }
}

const DECLARED = {
  text: textsOfEntity,
  name: namesOfEntity,
  'text or name': (metadata: EntityMetadata) => [...textsOfEntity(metadata), ...namesOfEntity(metadata)],
  number: numbersOfTable,
} as const

/** Takes every name from the declarations, because a value in place of an entity or a property may be a text. */
function subjectOf(kind: Kind, given: readonly unknown[], by: unknown): Pick<OperationEvent, 'entity' | 'property'> {
  const [manager, of] = given as [EntityManager, EntityTarget<ObjectLiteral> | readonly (readonly [string])[]]
  try {
    const targets = kind ? (Array.isArray(of) ? of.map(([target]) => target as string) : [of as string]) : []
    const all = [...new Set(targets.map((target) => dataSourceOf(manager).getMetadata(target)))]
    const declared = all.flatMap((metadata) => (kind ? DECLARED[kind](metadata) : []).map(({ name }) => name))
    const property = declared.length === 1 ? declared[0] : declared.find((name) => name === by)
    return { entity: all.map(({ name }) => name).join(', ') || undefined, property }
  } catch {
    return { entity: undefined, property: undefined }
  }
}

type OneResult = { readonly entity: object; readonly created: boolean } | { readonly error: unknown }

/** Counts the results of find-or-create or upsert, of one row or of several. */
export function countResults(given: OneResult | readonly OneResult[]): Partial<Counts> {
  const results = [given].flat()
  const stored = results.flatMap((one) => ('error' in one ? [] : [one]))
  const { rows = 0, collisions = 0 } = countRows(stored.map(({ entity }) => entity))
  return { rows, created: stored.filter((one) => one.created).length, refused: results.length - rows, collisions }
}

/** Counts the results of other operations: rows, a row or none, a number, or whether there was a row. */
function countRows(result: unknown): Partial<Counts> {
  if (typeof result === 'number' || typeof result === 'boolean') return { rows: Number(result) }
  const rows = [result].flat(2).filter((row) => typeof row === 'object' && row !== null)
  return { rows: rows.length, collisions: rows.filter((row) => hashNumberOf(row) > 0).length }
}

/** Counts rows that did not exist before. */
export const countInserted = (result: unknown): Partial<Counts> => {
  const { rows = 0 } = countRows(result)
  return { rows, created: rows }
}
