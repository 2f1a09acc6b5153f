import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { TextRejectedError, TextTakenError } from '../errors'
import { checkOptions } from '../options'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { ensureNamesReady } from '../find-or-create/requested-names'
import { Attempts } from '../find-or-create/attempts'
import type { FindOrCreateResult } from '../find-or-create/try-once'
import { insertOrFail } from '../find-or-create/insert-or-fail'
import { finish, relationsToLoad } from '../rows/load-relations'
import { requireObject } from '../rows/refused-input'
import { findByNameStatement } from '../sql/name-statements'
import { normalizeText } from '../text/normalizer'
import { type HolderEntity, holderEntityOf, toEntity } from './holder-row'
import { BY_NAME_RULES, type ByNameOptions } from './swap-names'

/**
 * Returns the row of an entity that holds the name, inserting it if nobody holds it: like `findOrCreate` for a unique
 * text. One round trip for a row that is found, two for one that is created. Properties other than the name are used
 * only when the row is created; a softly deleted row holds its name and is found.
 *
 * @returns the entity, and whether this call inserted its row
 * @throws TextTakenError if another entity's row has the name, or if the name is kept for its former holder
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * as `insertOrFail`
 * @example
 * const { entity, created } = await findOrCreateHolder(manager, User, { handle: 'ada', title: 'Countess' })
 */
export async function findOrCreateHolder<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  options: ByNameOptions = {},
): Promise<FindOrCreateResult<Entity>> {
  checkOptions('findOrCreateHolder()', options, BY_NAME_RULES)
  const holder = holderEntityOf(manager, entity, options.by)
  requireObject(holder, values)
  const name = givenName(holder, values)
  const session = await openSession(manager)
  try {
    await ensureNamesReady(session, [{ name: holder.declaration }])
    const attempts = new Attempts(session, holder.declaration.name)
    for (;;) {
      const found = await findByName(session, holder, name)
      if (found) return { entity: found as Entity, created: false, attempts: attempts.count }
      // The insert takes a connection of its own.
      await session.release()
      try {
        const [created] = await insertOrFail(manager, entity, [values])
        return { entity: created as Entity, created: true, attempts: attempts.count }
      } catch (error) {
        if (!isOfSameEntity(holder, error)) throw error
        // Above READ COMMITTED a row that the snapshot does not show fails with 40001 before this.
        await attempts.next(error)
      }
    }
  } finally {
    await session.close()
  }
}

function givenName({ declaration, dataSource }: HolderEntity, values: ObjectLiteral): string {
  const { column, normalizer, transformed } = declaration.text
  const given: unknown = column.getEntityValue(values)
  if (given === undefined || given === null) {
    throw new TextRejectedError({ property: declaration.name, reason: `expected a string, got ${String(given)}` })
  }
  const stored: unknown = transformed ? dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, declaration.name, stored)
}

/** @throws TextTakenError for a row of another class of the table */
async function findByName(session: Session, holder: HolderEntity, name: string): Promise<ObjectLiteral | undefined> {
  const [row] = await session.rows(findByNameStatement(holder.shape), [name])
  if (!row) return undefined
  const entity = toEntity(holder, session, row)
  await finish(session, holder, [{ entity, created: false }], relationsToLoad(holder, {}))
  return entity
}

/** Another call was faster: the row can be found. There is no id if this DataSource does not know its table. */
function isOfSameEntity({ declaration }: HolderEntity, error: unknown): error is TextTakenError {
  return (
    error instanceof TextTakenError &&
    error.taken.every(
      ({ property, id, holder, holderProperty, state }) =>
        property === declaration.name && id !== undefined && (holder ?? holderProperty ?? state) === undefined,
    )
  )
}
