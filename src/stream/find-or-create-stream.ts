import type { DataSource, DeepPartial, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  CALL_RULES,
  type EntityText,
  entityTextOf,
  type FindOrCreateManyOptions,
  type FindOrCreateManyResult,
  type GivenValues,
  type Naming,
  tracedTo,
} from '../core'
import { DeclarationError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'
import { Flow } from './flow'
import { type Source, sourceOf } from './source'
import type { Outcome } from './window'

/** Options of `findOrCreateStream` and `findOrCreateTransform`. */
export interface FindOrCreateStreamOptions<Entity = ObjectLiteral> extends Omit<
  FindOrCreateManyOptions<Entity>,
  'relations' | 'relationLoadStrategy'
> {
  /**
   * Rows that are gathered, sorted by hash, and then sent in batches. The results of a window come together, when it is
   * done. Hashes are random: where the unique index is larger than the server's cache, neighbours in a large window share
   * a page of it, which otherwise would be read and written for each of them.
   *
   * @default one batch (3,000) while the index is small beside `shared_buffers`, then by its size up to 250,000
   */
  readonly window?: number | undefined
}

const { relations: _relations, relationLoadStrategy: _strategy, ...MANY_RULES } = CALL_RULES.findOrCreateMany
const RULES: Rules<FindOrCreateStreamOptions> = { ...MANY_RULES, window: RULE.positive }

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
  return resultsOf(flowOf(dataSource, entityText, inputs, options), options, tracedTo(findOrCreateStream))
}

/** @throws DeclarationError for an argument or an option that is wrong */
export function streamedText<Entity extends ObjectLiteral>(
  operation: 'findOrCreateStream' | 'findOrCreateTransform',
  dataSource: DataSource,
  entity: EntityTarget<Entity>,
  options: FindOrCreateStreamOptions<Entity>,
): EntityText {
  checkOptions(`${operation}()`, options, RULES)
  // A manager or a query runner may belong to a transaction, and a stream would not take part in it.
  if (!RULE.dataSource.takes(dataSource)) {
    throw new DeclarationError(
      `Expected a DataSource, got ${kindOf(dataSource)}. A stream runs outside transactions. Within one, use findOrCreateMany().`,
    )
  }
  return entityTextOf(dataSource.manager, entity, options.by)
}

export function flowOf<Entity extends ObjectLiteral>(
  dataSource: DataSource,
  entityText: EntityText,
  source: Source<DeepPartial<Entity>>,
  { create, deleted, signal, onProgress, window }: FindOrCreateStreamOptions<Entity>,
): Flow<DeepPartial<Entity>, Entity> {
  return new Flow({
    dataSource,
    rules: { entityText, eager: true, create, deleted },
    source,
    add: (rows, values) => rows.addPromised(values),
    progress: { signal, onProgress },
    window,
  })
}

/** Yields every result by itself, up to the first that is missing. */
export async function* resultsOf<Entity extends ObjectLiteral>(
  flow: Flow<DeepPartial<Entity>, Entity>,
  { signal }: Pick<FindOrCreateStreamOptions, 'signal'>,
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
