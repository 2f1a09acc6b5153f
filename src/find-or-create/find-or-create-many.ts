import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions } from '../options'
import { requireArray } from '../rows/call-arguments'
import {
  CALL_RULES,
  type FindOrCreateManyOptions,
  type GivenValues,
  type LoadOptions,
  type Naming,
} from '../rows/call-options'
import { calledFrom, callerOf } from './caller'
import { requireDeleteDate } from './deleted-rows'
import { type EntityText, entityTextOf } from '../rows/entity-text'
import { relationsToLoad } from '../rows/load-relations'
import { findOrCreateNested, nestedCall } from './nested'
import { withPromised } from '../rows/nested-values'
import { PreparedMany } from './prepared-many'
import type { FindOrCreateManyResult } from './run-batch'

/**
 * `findOrCreate` for many inputs. The results have the order of the inputs. Of several inputs with equal texts the
 * first gives the other columns, and only the first can be `created`; all of them get the same entity. An input that is
 * rejected, or that the database refuses, has its error at its index and affects no other input: the next input with
 * the same text takes its place.
 *
 * Sends batches of up to 1,000 rows. Outside a transaction each batch commits by itself, and two may be at the server
 * at once, while the pool has a connection to spare and nobody waits for one. A function `create`, listeners of inserts
 * and a manager with a connection of its own keep to one at a time.
 *
 * @example
 * for (const result of await findOrCreateMany(manager, Page, [{ url: 'http://example.com/' }])) {
 *   if ('error' in result) console.error(result.error)
 *   else console.log(result.entity.id, result.created)
 * }
 *
 * @throws DeclarationError, SchemaDriftError, UnsupportedDatabaseError for the whole call
 * @throws AttemptsExhaustedError for a batch that loses every race; what was sent before it, or beside it, is committed
 * @throws TransactionAbortedError, and QueryFailedError where the connection or the server fails
 * @throws the reason of an aborted `signal`. When it throws, nothing of the call is still under way
 */
export async function findOrCreateMany<
  Entity extends ObjectLiteral,
  Given = DeepPartial<Entity>,
  By extends string = string,
>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
  options: Naming<By, FindOrCreateManyOptions<NoInfer<Entity>>> = {},
): Promise<FindOrCreateManyResult<Entity>[]> {
  return await calledFrom(callerOf(findOrCreateMany), findOrCreateAll<Entity>(manager, entity, inputs, options))
}

async function findOrCreateAll<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  inputs: readonly DeepPartial<Entity>[],
  options: FindOrCreateManyOptions<NoInfer<Entity>>,
): Promise<FindOrCreateManyResult<Entity>[]> {
  checkOptions('findOrCreateMany()', options, CALL_RULES.findOrCreateMany)
  options.signal?.throwIfAborted()
  requireArray(inputs)
  const entityText = entityTextOf(manager, entity, options.by)
  const { create, deleted } = options
  if (deleted !== undefined && deleted !== 'return') requireDeleteDate(entityText, 'deleted')
  const nested = nestedCall(manager, entityText, options)
  if (nested && create !== undefined) {
    throw new DeclarationError(
      `findOrCreateMany(): "create" cannot be given with relations: 'findOrCreate'. ` +
        `Put the values into the inputs, or call findOrCreate() for each.`,
    )
  }
  if (nested) return (await findOrCreateNested(nested, inputs, options)) as FindOrCreateManyResult<Entity>[]
  const load = relationsToLoad(entityText, options as LoadOptions)
  const prepared = new PreparedMany<Entity>(entityText, load, { create, deleted, progress: options })
  await addAll(prepared, entityText, inputs)
  return await prepared.run(manager)
}

/** Adds the inputs. Inputs with lazy relations are added once their promises are kept. */
export async function addAll<Entity extends ObjectLiteral>(
  prepared: PreparedMany<Entity>,
  { metadata }: EntityText,
  inputs: readonly DeepPartial<Entity>[],
): Promise<void> {
  if (metadata.lazyRelations.length === 0) {
    for (const values of inputs) prepared.add(values)
    return
  }
  const settled = await Promise.allSettled(inputs.map((values) => withPromised(metadata, values)))
  for (const one of settled) {
    if (one.status === 'fulfilled') prepared.add(one.value)
    else prepared.refuse(one.reason)
  }
}
