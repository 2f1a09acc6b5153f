import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral, SaveOptions } from 'typeorm'
import { TextTakenError, TransactionAbortedError } from '../errors'
import { Attempts } from '../find-or-create/attempts'
import { MAX_DANGLING } from '../find-or-create/retry'
import { requireManager } from '../rows/call-arguments'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { asOne, requireCurrentSnapshot } from '../connection/whole-transaction'
import { calledFrom, callerOf } from '../find-or-create/caller'
import { isForeignKeyError, isSerializationError } from '../sql/sqlstate'
import { dataSourceOf } from '../typeorm/registry'
import { KnownTexts } from './known-texts'

/**
 * TypeORM's `save`, whose new nested objects are not stored a second time: one without a primary key whose unique text
 * a row holds becomes that row, as it stands. Its own columns and relations are not written; objects with equal texts
 * become one. An object whose text no row holds is saved, if the relation cascades. The entities themselves are saved
 * as `save` does it: where their own text is taken, it fails.
 *
 * Runs in a transaction of its own, or behind a savepoint of yours, which stays usable. If others store a text at the
 * same moment, the next of up to 10 attempts finds it. If it fails, your objects are as they were.
 *
 * @example
 * const link = await saveFindingTexts(manager, Link, { page: { url: 'http://example.com/' } })
 *
 * @returns what was given, as `save` does
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError
 * @throws TextTakenError where a row of another class holds a nested text
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws what `save` throws
 */
export async function saveFindingTexts<Entity extends ObjectLiteral, Given extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: readonly Given[],
  options?: SaveOptions,
): Promise<(Given & Entity)[]>
export async function saveFindingTexts<Entity extends ObjectLiteral, Given extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: Given,
  options?: SaveOptions,
): Promise<Given & Entity>
export async function saveFindingTexts(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  given: ObjectLiteral | readonly ObjectLiteral[],
  options?: SaveOptions,
): Promise<unknown> {
  return await calledFrom(callerOf(saveFindingTexts), saveAll(manager, entity, given, options))
}

async function saveAll(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  given: ObjectLiteral | readonly ObjectLiteral[],
  options?: SaveOptions,
): Promise<unknown> {
  requireManager(manager)
  const metadata = dataSourceOf(manager).getMetadata(entity)
  const session = await openSession(manager)
  await session.close()
  const attempts = new Attempts(session, metadata.name)
  let known = 0
  for (;;) {
    const texts = new KnownTexts(metadata)
    try {
      return await asOne(manager, async (own) => {
        await texts.find(own, Array.isArray(given) ? given : [given])
        // A transaction is open already, perhaps one that SQL began and TypeORM does not know of.
        return await own.save(metadata.target, given, { ...options, transaction: false })
      })
    } catch (error) {
      texts.undo()
      const isRace = lostRace(error, texts, { known, attempt: attempts.count })
      if (!isRace && (session.inTransaction || !isLost(error))) await refuse(session, texts, error)
      known = texts.found
      await attempts.next(error)
    }
  }
}

/** Somebody stored a text that was not found, or deleted a row that was found before anything referred to it. */
function lostRace(
  error: unknown,
  texts: KnownTexts,
  { known, attempt }: { readonly known: number; readonly attempt: number },
): boolean {
  if (texts.isTaken(error)) return attempt === 1 || texts.found > known
  return attempt <= MAX_DANGLING && texts.found > 0 && isForeignKeyError(error)
}

/** @throws what the error means */
async function refuse(session: Session, texts: KnownTexts, error: unknown): Promise<never> {
  if (texts.isTaken(error) && isOfNobody(error)) await requireCurrentSnapshot(session, error)
  throw error
}

const isOfNobody = (error: unknown): boolean =>
  error instanceof TextTakenError && error.taken.every(({ id }) => id === undefined)

const isLost = (error: unknown): boolean =>
  isSerializationError(error instanceof TransactionAbortedError ? error.cause : error)
