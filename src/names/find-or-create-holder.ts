import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  type FindOrCreateResult,
  type HolderEntity,
  insertOrFail,
  operate,
  type Operation,
  requiredName,
} from '../core'
import { TextTakenError } from '../errors'
import { checkOptions } from '../options'
import { BY_NAME_RULES, type ByNameOptions, chooseName } from './choose-name'

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
  const holder = chooseName(manager, entity, options)
  const name = requiredName(holder, holder.declaration, values)
  return await operate(manager, { names: [holder.declaration] }, async (operation) => {
    for (;;) {
      const found = await findByName(operation, holder, name)
      if (found) return { entity: found as Entity, created: false, attempts: operation.attempt }
      // The insert takes a connection of its own.
      await operation.session.release()
      try {
        const [created] = await insertOrFail(manager, entity, [values])
        return { entity: created as Entity, created: true, attempts: operation.attempt }
      } catch (error) {
        if (!isOfSameEntity(holder, error)) throw error
        // Above READ COMMITTED a row that the snapshot does not show fails with 40001 before this.
        await operation.next(error)
      }
    }
  })
}

/** @throws TextTakenError for a row of another class of the table */
async function findByName(
  operation: Operation,
  holder: HolderEntity,
  name: string,
): Promise<ObjectLiteral | undefined> {
  const [row] = await operation.session.rows(holder.find, [name])
  if (!row) return undefined
  const entity = operation.entity(holder, row)
  await operation.load(holder, entity)
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
