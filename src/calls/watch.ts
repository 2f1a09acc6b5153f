import { AsyncLocalStorage } from 'node:async_hooks'
import { type TracingChannel, tracingChannel } from 'node:diagnostics_channel'
import type { EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { UniqueTextError } from '../errors'
import { dataSourceOf, declarationsOf, namesOfEntity, tableNumbers } from '../registry/registry'
import { serverError } from '../sql/sqlstate'
import { calledFrom, callerOf } from './call-options'
import { hashNumberOf } from './hydrate'

/**
 * What subscribers of the tracing channel `typeorm-unique-text:operation` get: one object for each call of an operation,
 * complete at `asyncEnd`. It holds no text, and neither a row nor an error, which may hold one.
 */
export interface OperationEvent {
  /** The function that was called, such as `findOrCreate`. */
  readonly operation: string
  /** The operation that made this call, itself or by a function of the user's; undefined for other calls. */
  readonly within: string | undefined
  /** Of several there is a list with commas. */
  readonly entity: string | undefined
  /** What the call looks up by; undefined where it could be several. */
  readonly property: string | undefined
  /** How many rows were found, written, removed or counted. */
  rows: number
  /** How many of them this call inserted; of `once`, 1 if its work ran. */
  created: number
  /** How many inputs of a list have an error in place of a row. */
  refused: number
  /** 1 if the first attempt was enough; every batch may add some. */
  attempts: number
  /** How many rows of find-or-create, upsert or a look-up were not the first of their hash. */
  collisions: number
  /** The call was answered by a statement that it shared with others. */
  shared: boolean
  /** The duration of the operation. */
  milliseconds: number
  /** Why the call failed: the code is one of this package, or an SQLSTATE. */
  error?: {
    /** The class of the error. */
    readonly name: string
    /** The `code` of an error of this package, or an SQLSTATE. */
    readonly code: string | undefined
  }
}

type Counts = Pick<OperationEvent, 'rows' | 'created' | 'refused' | 'collisions'>
/** How the result of an operation is counted. */
type Count<Result> = (result: Result) => Partial<Counts>
/** What an operation looks up by. */
type Kind = 'text' | 'name' | 'text or name' | 'number' | undefined

/** Where operations are published, and whether anybody subscribes. */
export const watchers: TracingChannel<unknown, OperationEvent> = tracingChannel('typeorm-unique-text:operation')

const underWay = new AsyncLocalStorage<OperationEvent>()

/** The event of the operation that this code runs for; undefined where nobody subscribes. */
export const currentEvent = (): OperationEvent | undefined => underWay.getStore()

/** The next call is the second one of an operation. */
let isSecond = false

/**
 * Publishes an operation. Where somebody subscribes, an operation asks for this first of all; it is then called a second
 * time, and goes its ordinary way. So nothing stands around an operation where nobody subscribes.
 *
 * @param kind undefined for one of no entity in particular
 * @param again the operation
 * @param given its arguments: the manager and, unless `kind` is undefined, the entity or a list that begins with it
 * @returns undefined in the second call
 */
export function watched<Result>(
  operation: string,
  kind: Kind,
  again: (...given: never[]) => Promise<Result>,
  given: readonly unknown[],
  count: Count<Result> = countRows,
): Promise<Result> | undefined {
  const second = isSecond
  isSecond = false
  if (second) return undefined
  const run = (): Promise<Result> => {
    isSecond = true
    try {
      return again(...(given as never[]))
    } finally {
      // A subscriber that has left at `start` leaves nobody to ask.
      isSecond = false
    }
  }
  return calledFrom(callerOf(watched), publish(new Publication(operation, kind, given), run, count))
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

/** Publishes a stream as one operation, from its first result to its end; where nobody subscribes, returns it as it is. */
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

  constructor(operation: string, kind: Kind, given: readonly unknown[]) {
    const counts = { rows: 0, created: 0, refused: 0, attempts: 1, collisions: 0, shared: false, milliseconds: 0 }
    this.event = { operation, within: currentEvent()?.operation, ...subjectOf(kind, given), ...counts }
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
  text: declarationsOf,
  name: namesOfEntity,
  'text or name': (metadata: EntityMetadata) => [...declarationsOf(metadata), ...namesOfEntity(metadata)],
  number: tableNumbers,
} as const

/** Takes every name from what is declared: what was given in place of an entity or a property may be a text. */
function subjectOf(kind: Kind, given: readonly unknown[]): Pick<OperationEvent, 'entity' | 'property'> {
  const [manager, of] = given as [EntityManager, EntityTarget<ObjectLiteral> | readonly (readonly [string])[]]
  try {
    const { by } = Object(given.at(-1)) as { readonly by?: unknown }
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

/** Counts what find-or-create or upsert returns, of one row or of several. */
export function countResults(given: OneResult | readonly OneResult[]): Partial<Counts> {
  const results = [given].flat()
  const stored = results.flatMap((one) => ('error' in one ? [] : [one]))
  const { rows = 0, collisions = 0 } = countRows(stored.map(({ entity }) => entity))
  return { rows, created: stored.filter((one) => one.created).length, refused: results.length - rows, collisions }
}

/** Counts what other operations return: rows, a row or none, how many, or whether there was one. */
function countRows(result: unknown): Partial<Counts> {
  if (typeof result === 'number' || typeof result === 'boolean') return { rows: Number(result) }
  const rows = [result].flat(2).filter((row) => typeof row === 'object' && row !== null)
  return { rows: rows.length, collisions: rows.filter((row) => hashNumberOf(row) > 0).length }
}

/** Counts rows that were not there before. */
export const countInserted = (result: unknown): Partial<Counts> => {
  const { rows = 0 } = countRows(result)
  return { rows, created: rows }
}
