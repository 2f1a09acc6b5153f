import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { checkOptions, NO_OPTIONS } from '../options'
import {
  CALL_RULES,
  type DeletedOption,
  type FindOneByTextOptions,
  type FindOrCreateOptions,
  type GivenValues,
  type LoadOptions,
  type Naming,
} from '../rows/call-options'
import { calledFrom, callerOf } from './caller'
import { isDeleted, type OnDeleted, requireDeleteDate } from './deleted-rows'
import { type EntityText, entityTextOf } from '../rows/entity-text'
import { find, findOrCreateRow, type FindOrCreateResult } from './try-once'
import { hydrate, isEntityOfClass } from '../rows/hydrate'
import { isDeferred, type RequestedRow, requestedRow } from '../rows/deferred-row'
import { type Answer, type Arrival, type CallCoalescer, coalescerOf } from './coalescer'
import { readyText, requireChanged } from './ready-table'
import { finish, type RelationsToLoad, relationsToLoad } from '../rows/load-relations'
import { findOrCreateOneNested, nestedCall } from './nested'
import { withPromised } from '../rows/nested-values'
import { pathsBeside, requireObject } from '../rows/refused-input'
import { rowValues, type RowValues } from '../rows/row-values'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import type { StoredRow } from '../sql/statements'

/**
 * Returns the row that holds the text, inserting it if there is none. Takes one round trip, is exact for texts with
 * equal hashes, and raises no unique violation that would abort the caller's transaction. If the last 64 calls have
 * found their rows, it looks before it inserts, and a new text takes two round trips.
 *
 * Makes up to 10 attempts, with full jitter of up to 500 ms between them. Properties other than text and scope are used
 * only when the row is created. A softly deleted row still holds its text and is found, unless the option `deleted`
 * or `ignoreDeleted` of the declaration says otherwise. A `BeforeInsert` listener may fill in columns, but not change
 * text or scope.
 *
 * @example
 * const { entity, created } = await findOrCreate(manager, Page, { url: 'http://example.com/', title: 'Example' })
 *
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError, DuplicateTextError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws QueryFailedError of TypeORM for everything else, a violation of another unique index included
 */
export async function findOrCreate<
  Entity extends ObjectLiteral,
  Given = DeepPartial<Entity>,
  By extends string = string,
>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, FindOrCreateOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<FindOrCreateResult<Entity>> {
  const { entityText, nested, load, onDeleted } = planOf(manager, entity, options)
  if (nested)
    return await calledFrom(callerOf(findOrCreate), findOrCreateOneNested<Entity>(nested, values, options.create))
  const { lazyRelations } = entityText.metadata
  const given = lazyRelations.length > 0 ? await withPromised(entityText.metadata, values) : values
  const requested = requestedRow(entityText, given, options.create)
  const session = await openSession(manager)
  try {
    const coalescer = coalescerOf(manager, entityText)
    // Whoever need not wait is not held up by a promise either.
    const waits = coalescer.enter(arrivalOf(manager, entityText, requested, options.deleted))
    const answer = waits && (await waits)
    let result = answer && foundTogether<Entity>(session, entityText, answer)
    if (!result) {
      try {
        const heard = answer ? heardBy(coalescer, answer, requested) : requested
        // A loop, because every function around it would cost the stack of an error a line.
        for (let again = false; !result; again = true) {
          const ready = await readyText(session, entityText)
          try {
            result = await findOrCreateRow<Entity>(session, ready, heard, onDeleted)
          } catch (error) {
            if (again) throw error
            requireChanged(session, entityText, error)
          }
        }
      } finally {
        coalescer.leave(answer, result && !result.created)
      }
    }
    await finish(session, entityText, [result], load)
    return result
  } finally {
    await session.close()
  }
}

/** What entity and options decide, before the values are looked at. */
interface Plan {
  readonly entityText: EntityText
  /** Where relations are found or created too. */
  readonly nested: ReturnType<typeof nestedCall>
  readonly load: RelationsToLoad | undefined
  readonly onDeleted: OnDeleted | undefined
}

function planOf<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  options: FindOrCreateOptions<Entity> & { readonly by?: string | undefined },
): Plan {
  checkOptions('findOrCreate()', options, CALL_RULES.findOrCreate)
  const entityText = entityTextOf(manager, entity, options.by)
  const { deleted } = options
  if (deleted !== undefined && deleted !== 'return') requireDeleteDate(entityText, 'deleted')
  const nested = options.relations && nestedCall(manager, entityText, options)
  return {
    entityText,
    nested,
    load: nested ? undefined : relationsToLoad(entityText, options as LoadOptions),
    onDeleted: deleted && { deleted, position: 0 },
  }
}

/** The request, whose row those that wait for it are notified of. */
const heardBy = (coalescer: CallCoalescer, answer: Answer, requested: RequestedRow): RequestedRow =>
  answer.followers ? { ...requested, notify: (stored: StoredRow) => coalescer.notify(answer, stored) } : requested

/**
 * Returns the row that holds the text, or null. Looks it up by hash, so that the unique index is used. No row can hold a
 * text that the normalizer refuses, and none holds null. A row that is deleted softly is found only with the option
 * `withDeleted`, as with `find`.
 *
 * @param values text and scope, and nothing else
 *
 * @example
 * const page = await findOneByText(manager, Page, { url: 'http://example.com/' })
 *
 * @throws TextRejectedError only for a value that is not a string, such as a number or a missing property
 * @throws SchemaDriftError, UnsupportedDatabaseError, DuplicateTextError
 * @throws DeclarationError also for a property that is neither text nor scope
 */
export async function findOneByText<
  Entity extends ObjectLiteral,
  Given = DeepPartial<Entity>,
  By extends string = string,
>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, FindOneByTextOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<Entity | null> {
  checkOptions('findOneByText()', options, CALL_RULES.findOneByText)
  const entityText = entityTextOf(manager, entity, options.by)
  const { withDeleted = false } = options
  if (withDeleted) requireDeleteDate(entityText, 'withDeleted')
  const load = relationsToLoad(entityText, options)
  refuseOtherProperties(entityText, values)
  const row = lookedUp(entityText, values)
  if (!row) return null
  const mode = options.replica ? 'slave' : 'master'
  const session = await openSession(manager, mode)
  try {
    const found = await foundRow(session, entityText, coalescerOf(manager, entityText, mode), {
      manager,
      row,
      missing: 'nothing',
    })
    if (!found || !isEntityOfClass(entityText, found) || (!withDeleted && isDeleted(entityText, found))) return null
    const loaded = hydrate(entityText, session, found) as Entity
    await finish(session, entityText, [{ entity: loaded, created: false }], load)
    return loaded
  } finally {
    await session.close()
  }
}

function arrivalOf(
  manager: EntityManager,
  entityText: EntityText,
  requested: RequestedRow,
  deleted: DeletedOption = 'return',
): Arrival {
  const takes = deleted === 'return' ? undefined : (stored: StoredRow) => !isDeleted(entityText, stored)
  return { manager, row: requested.row, missing: isDeferred(entityText, requested) ? 'ask' : 'insert', takes }
}

/** The result for a row that was found for several calls at once. */
function foundTogether<Entity extends ObjectLiteral>(
  session: Session,
  entityText: EntityText,
  { stored }: Answer,
): FindOrCreateResult<Entity> | undefined {
  if (!stored) return undefined
  return { entity: hydrate(entityText, session, stored) as Entity, created: false, attempts: 1 }
}

async function foundRow(
  session: Session,
  entityText: EntityText,
  coalescer: CallCoalescer,
  arrival: Arrival,
): Promise<StoredRow | null | undefined> {
  const waits = coalescer.enter(arrival)
  const answer = waits && (await waits)
  if (answer?.stored !== undefined) return answer.stored
  try {
    return await find(session, await readyText(session, entityText), arrival.row)
  } finally {
    coalescer.leave(answer, true)
  }
}

/** @returns undefined for a text that no row can hold */
function lookedUp(entityText: EntityText, values: ObjectLiteral): RowValues | undefined {
  try {
    return rowValues(entityText, values)
  } catch (error) {
    if (error instanceof TextRejectedError && isText(entityText, values)) return undefined
    throw error
  }
}

/** Whether the text has the right type: a value that is not a string is a mistake in the program, not in its data. */
function isText({ declaration: { text } }: EntityText, values: ObjectLiteral): boolean {
  return text.every(({ column, transformed }) => {
    const given: unknown = column.getEntityValue(values)
    if (given === undefined) return text.length > 1
    return given === null || typeof given === 'string' || transformed
  })
}

/** Ignoring a condition would return a row that the caller did not ask for. */
function refuseOtherProperties(entityText: EntityText, values: ObjectLiteral): void {
  requireObject(entityText, values)
  const { declaration, metadata } = entityText
  const key = [...declaration.text.map(({ column }) => column), ...declaration.scope]
  const others = pathsBeside(metadata, key, values)
  if (others.length === 0) return
  const list = others.map((name) => `"${name}"`).join(', ')
  throw new DeclarationError(
    `findOneByText() looks a row of ${metadata.name} up by "${declaration.name}" alone. ` +
      `Leave out ${list}, or use TypeORM's findOneBy().`,
  )
}
