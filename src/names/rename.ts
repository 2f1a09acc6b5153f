import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { entityOf, holderEntity, type RowId, updateNames, updateOrFail } from '../core'
import { DeclarationError } from '../errors'

/**
 * Gives a row another name, in one round trip: by an UPDATE of its property, as `save` and raw SQL do it. The former
 * name is free, reserved or redirects from then on, as the declaration says.
 *
 * @param id the primary key, or an object with the whole of it
 * @param names the new name of one property or of several; null if the column is nullable
 * @returns the row as it stands now, without relations
 * @throws TextTakenError with every taken name and its holder; nothing is changed then, and a transaction stays usable
 * @throws EntityNotFoundError of TypeORM if there is no such row
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * as `updateOrFail`
 * @example
 * const user = await rename(manager, User, 1, { handle: 'grace' })
 */
export async function rename<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  id: RowId<NoInfer<Entity>>,
  names: { readonly [Property in keyof Entity]?: Extract<Entity[Property], string | null> },
): Promise<Entity> {
  const { metadata, names: declared } = entityOf(manager, entity)
  const given: unknown = names
  const values = new Map(typeof given === 'object' && given !== null ? Object.entries(given) : [])
  const keys = [...values.keys()].filter((key) => values.get(key) !== undefined)
  const other = keys.find((key) => declared.every(({ name }) => name !== key))
  const [first] = declared
  if (!first || keys.length === 0 || other !== undefined) {
    const list = declared.map(({ name }) => `"${name}"`).join(', ') || 'none'
    throw new DeclarationError(
      `rename(): ${other === undefined ? 'no name was given' : `"${other}" is no name`}. ${metadata.name} has ${list}; ` +
        `updateOrFail() changes other properties with it.`,
    )
  }
  const renamed = await updateNames(manager, holderEntity(metadata, first), id, names)
  return (renamed as Entity | undefined) ?? (await updateOrFail(manager, entity, id, names as Entity))
}
