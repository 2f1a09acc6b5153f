import type { DataSource, DeepPartial, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, kindOf } from '../options'
import { calledFrom, type Caller, callerOf } from '../find-or-create/caller'
import { requireDeleteDate } from '../find-or-create/deleted-rows'
import type { PreparedMany } from '../find-or-create/prepared-many'
import type { FindOrCreateManyResult } from '../find-or-create/run-batch'
import { CALL_RULES, type FindOrCreateStreamOptions, type GivenValues, type Naming } from '../rows/call-options'
import { type EntityText, entityTextOf } from '../rows/entity-text'
import { relationsToLoad } from '../rows/load-relations'
import { withPromised } from '../rows/nested-values'
import { Flow } from './flow'
import { type Source, sourceOf } from './source'
import type { Outcome } from './window'

/**
 * `findOrCreateMany` for more inputs than fit into memory, or for inputs that arrive over time: reads a source and
 * yields the results in its order. It reads ahead no more than it needs to keep the server busy, and only while results
 * are taken.
 *
 * Runs outside transactions: each batch, of up to 3,000 rows, commits by itself. Of inputs with equal texts, however
 * far apart, only the first can be `created`. Inputs that a source has given before it pauses are sent meanwhile.
 *
 * A loop over the results may end early. Then the source is ended too, and no connection is held.
 *
 * @param source gives the inputs. It is read only after the table was found ready
 * @example
 * for await (const result of findOrCreateStream(dataSource, Page, readPages())) {
 *   if ('error' in result) console.error(result.error)
 *   else console.log(result.entity.id, result.created)
 * }
 *
 * @throws DeclarationError at the call
 * @throws SchemaDriftError, UnsupportedDatabaseError when the first result is taken, before the source is read
 * @throws AttemptsExhaustedError, and QueryFailedError where the connection or the server fails, after the results of
 * what came before; also what the source throws, and the reason of `signal`
 */
export function findOrCreateStream<
  Entity extends ObjectLiteral,
  Given = DeepPartial<Entity>,
  By extends string = string,
>(
  dataSource: DataSource,
  entity: EntityTarget<Entity>,
  source:
    | Iterable<GivenValues<NoInfer<Entity>, Given, NoInfer<By>>>
    | AsyncIterable<GivenValues<NoInfer<Entity>, Given, NoInfer<By>>>,
  options: Naming<By, FindOrCreateStreamOptions<NoInfer<Entity>>> = {},
): AsyncGenerator<FindOrCreateManyResult<Entity>, void, undefined> {
  const operation = 'findOrCreateStream'
  const entityText = streamedText(operation, dataSource, entity, options)
  const inputs = sourceOf<DeepPartial<Entity>>(operation, source)
  return resultsOf(flowOf(dataSource, entityText, inputs, options), options, callerOf(findOrCreateStream))
}

/** @throws DeclarationError for an argument or an option that is wrong */
export function streamedText<Entity extends ObjectLiteral>(
  operation: 'findOrCreateStream' | 'findOrCreateTransform',
  dataSource: DataSource,
  entity: EntityTarget<Entity>,
  options: FindOrCreateStreamOptions<Entity>,
): EntityText {
  checkOptions(`${operation}()`, options, CALL_RULES.stream)
  requireDataSource(dataSource)
  const entityText = entityTextOf(dataSource.manager, entity, options.by)
  const { deleted } = options
  if (deleted !== undefined && deleted !== 'return') requireDeleteDate(entityText, 'deleted')
  return entityText
}

/** A manager or a query runner may belong to a transaction, and a stream would not take part in it. */
function requireDataSource(given: unknown): void {
  if (typeof given === 'object' && given !== null && 'manager' in given && 'createQueryRunner' in given) return
  throw new DeclarationError(
    `Expected a DataSource as the first argument, got ${kindOf(given)}. A stream runs outside transactions. ` +
      'Within one, use findOrCreateMany().',
  )
}

export function flowOf<Entity extends ObjectLiteral>(
  dataSource: DataSource,
  entityText: EntityText,
  source: Source<DeepPartial<Entity>>,
  { create, deleted, signal, onProgress, window }: FindOrCreateStreamOptions<Entity>,
): Flow<DeepPartial<Entity>, Entity> {
  const { metadata } = entityText
  const addPromised = async (rows: PreparedMany<Entity>, values: DeepPartial<Entity>): Promise<void> => {
    try {
      rows.add(await withPromised(metadata, values))
    } catch (error) {
      rows.refuse(error)
    }
  }
  const add = (rows: PreparedMany<Entity>, values: DeepPartial<Entity>): void => rows.add(values)
  return new Flow({
    dataSource,
    rules: { entityText, load: relationsToLoad(entityText, {}), create, deleted },
    source,
    add: metadata.lazyRelations.length === 0 ? add : addPromised,
    progress: { signal, onProgress },
    window,
  })
}

/** Yields every result by itself, up to the first that is missing. */
export async function* resultsOf<Entity extends ObjectLiteral>(
  flow: Flow<DeepPartial<Entity>, Entity>,
  { signal }: Pick<FindOrCreateStreamOptions, 'signal'>,
  caller: Caller,
): AsyncGenerator<FindOrCreateManyResult<Entity>, void, undefined> {
  await calledFrom(caller, flow.open())
  const outcomes = flow.outcomes()
  let failure: Outcome<Entity>['failure']
  try {
    for (;;) {
      const { done, value } = await calledFrom(caller, outcomes.next())
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
