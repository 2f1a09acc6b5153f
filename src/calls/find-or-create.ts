import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { openSession } from '../connection/open-session'
import { DeclarationError } from '../errors'
import { checkOptions, NO_OPTIONS } from '../options'
import type { StoredRow } from '../sql/find'
import {
  CALL_RULES,
  type FindOrCreateManyOptions,
  type FindOrCreateOptions,
  type GivenValues,
  type LoadOptions,
  type Naming,
  requireArray,
} from './call-options'
import { calledFrom, callerOf } from './caller'
import { coalescerOf } from './coalescer'
import { entityTextOf, readyText, requireChanged } from './entity-text'
import { findOrCreateNested, findOrCreateOneNested, nestedCall } from './graph'
import { finish, hydrate, relationsToLoad } from './hydrate'
import { isDeleted, requireDeleteDate } from './look-up'
import { type FindOrCreateManyResult, PreparedMany } from './many'
import { type FindOrCreateResult, findOrCreateRow } from './one-row'
import { DeferredRow, requestedRow } from './row-values'
import { keyValues, normalized, requireObject, withPromised } from './values'
import { countResults, watched } from './watch'

/**
 * Returns the row that holds the text, inserting it if there is none. Takes one round trip, is exact for texts with
 * equal hashes, and raises no unique violation that would abort the caller's transaction. If the last 64 calls have
 * found their rows, the call looks before it inserts, and a new text takes two round trips.
 *
 * Makes up to 10 attempts, with full jitter of up to 500 ms between them. Properties other than text and scope are used
 * only when the row is created. A softly deleted row still holds its text and is found, unless the option `deleted` or
 * the declaration's `ignoreDeleted` changes this. A `BeforeInsert` listener may set columns, but not change text or
 * scope.
 *
 * @example
 * const { entity, created } = await findOrCreate(manager, Page, { url: 'http://example.com/', title: 'Example' })
 *
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError, DuplicateTextError
 * @throws TextTakenError for another text or a name of the row, and for a softly deleted row with `deleted: 'throw'`
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws QueryFailedError of TypeORM for everything else, including a violation of another unique index
 * @function
 */
export const findOrCreate: typeof findOrCreateImpl = watched('findOrCreate', 'text', findOrCreateImpl, countResults)

async function findOrCreateImpl<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, FindOrCreateOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<FindOrCreateResult<Entity>> {
  const { entityText, nested, load, onDeleted, takes } = planOf('findOrCreate', manager, entity, options)
  if (nested)
    return await calledFrom(callerOf(findOrCreate), findOrCreateOneNested<Entity>(nested, values, options.create))
  const { lazyRelations } = entityText.metadata
  const given = lazyRelations.length > 0 ? await withPromised(entityText.metadata, values) : values
  const requested = requestedRow(entityText, given, options.create)
  const session = await openSession(manager)
  try {
    const coalescer = coalescerOf(session, entityText)
    const late = new DeferredRow(session, entityText, requested)
    // A call that need not wait is not delayed by a promise either.
    const waits = coalescer.enter({ row: requested.row, missing: late.isNeeded ? 'ask' : 'insert', takes })
    const answer = waits && (await waits)
    let result: FindOrCreateResult<Entity> | undefined
    if (answer?.stored) {
      result = { entity: hydrate(entityText, session, answer.stored) as Entity, created: false, attempts: 1 }
    } else {
      try {
        // This call notifies the calls that wait for its row.
        const heard = answer
          ? { ...requested, notify: (stored: StoredRow): void => coalescer.notify(answer, stored) }
          : requested
        // A loop, because each function around it would add a line to the stack of an error.
        for (let again = false; !result; again = true) {
          const ready = await readyText(session, entityText)
          try {
            result = await findOrCreateRow<Entity>(session, ready, heard, late, onDeleted)
          } catch (error) {
            requireChanged(session, entityText, error, again)
          }
        }
      } finally {
        coalescer.leave(answer, result)
      }
    }
    await finish(session, entityText, [result], load)
    return result
  } finally {
    await session.close()
  }
}

/** Returns the settings that entity and options determine, before the values are read. */
function planOf<Entity extends ObjectLiteral>(
  operation: 'findOrCreate' | 'findOrCreateMany',
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  options: Omit<FindOrCreateOptions<Entity>, 'create'> & { readonly by?: string | undefined },
) {
  checkOptions(`${operation}()`, options, CALL_RULES[operation])
  const entityText = entityTextOf(manager, entity, options.by)
  const { deleted } = options
  const takesAll = deleted === undefined || deleted === 'return'
  if (!takesAll) requireDeleteDate(entityText, 'deleted')
  const nested = options.relations && nestedCall(manager, entityText, options)
  return {
    entityText,
    nested,
    load: nested ? undefined : relationsToLoad(entityText, options as LoadOptions),
    onDeleted: deleted && { deleted, position: 0 },
    takes: takesAll ? undefined : (stored: StoredRow) => !isDeleted(entityText, stored),
  }
}

/**
 * Finds or creates rows for many inputs, as `findOrCreate` does. The results have the order of the inputs. If several
 * inputs have equal texts, the first sets the other columns, and only the first can be `created`. All of them get the
 * same entity. If an input is rejected, or refused by the database, its result has the error, and other inputs are not
 * affected: the next input with the same text takes its place.
 *
 * Sends batches of up to 1,000 rows. Outside a transaction each batch commits by itself. Two may be at the server at
 * once, while the pool has a connection to spare and nobody waits for one. A function `create`, a listener of inserts
 * or a manager with a connection of its own limits this to one at a time.
 *
 * @example
 * for (const result of await findOrCreateMany(manager, Page, [{ url: 'http://example.com/' }])) {
 *   if ('error' in result) console.error(result.error)
 *   else console.log(result.entity.id, result.created)
 * }
 *
 * @throws DeclarationError, SchemaDriftError, UnsupportedDatabaseError for the whole call
 * @throws AttemptsExhaustedError for a batch that loses every race; batches before it, or beside it, are committed
 * @throws TransactionAbortedError, and QueryFailedError if the connection or the server fails
 * @throws the reason of an aborted `signal`. Whenever the call throws, none of its statements is still under way
 * @function
 */
export const findOrCreateMany: typeof findOrCreateManyImpl = watched(
  'findOrCreateMany',
  'text',
  findOrCreateManyImpl,
  countResults,
)

async function findOrCreateManyImpl<
  Entity extends ObjectLiteral,
  Given = DeepPartial<Entity>,
  By extends string = string,
>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
  options: Naming<By, FindOrCreateManyOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<FindOrCreateManyResult<Entity>[]> {
  const { entityText, nested, load } = planOf('findOrCreateMany', manager, entity, options)
  const { create, deleted, signal } = options
  signal?.throwIfAborted()
  requireArray(inputs)
  const caller = callerOf(findOrCreateMany)
  if (nested) {
    if (create === undefined) return await calledFrom(caller, findOrCreateNested<Entity>(nested, inputs, options))
    throw new DeclarationError(
      `findOrCreateMany(): "create" cannot be given with relations: 'findOrCreate'. ` +
        `Put the values into the inputs, or call findOrCreate() for each.`,
    )
  }
  const prepared = new PreparedMany<Entity>(entityText, load, { create, deleted, progress: options })
  const adding = prepared.addAll(inputs)
  if (adding) await adding
  return await calledFrom(caller, prepared.run(manager))
}

/** The values that determine the database of a row. */
export interface TextHash {
  /** Values of the scope's columns by their properties, as they are sent. */
  readonly scope: Readonly<Record<string, unknown>>
  /** The hash in hexadecimal digits: 32 for md5, 64 for sha256. */
  readonly hash: string
}

/**
 * Returns the scope and hash of a text, for an application that distributes its rows over several databases: equal
 * texts of one scope belong in one database. Sends no SQL.
 *
 * @param values text and scope; other properties are ignored
 * @throws TextRejectedError, DeclarationError
 * @example
 * const { hash } = hashOf(manager, Page, { url })
 * const shard = shards[Number.parseInt(hash.slice(0, 8), 16) % shards.length]
 */
export function hashOf<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, { readonly by?: string }> = {},
): TextHash {
  checkOptions('hashOf()', options, CALL_RULES.hashOf)
  const entityText = entityTextOf(manager, entity, options.by)
  requireObject(entityText, values)
  const { key, hash } = keyValues(entityText, normalized(entityText, values))
  const scope = entityText.declaration.scope.map(({ propertyPath }, index) => [propertyPath, key[index]] as const)
  return { scope: Object.fromEntries(scope), hash: hash.replace(/^\\x/, '') }
}
