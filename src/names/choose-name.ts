import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { entityOf, holderEntity, type HolderEntity } from '../core'
import { DeclarationError } from '../errors'
import { RULE, type Rules } from '../options'

/** Options of an operation that uses one name of an entity. */
export interface ByNameOptions {
  /** The property that holds the name. @default the only one */
  readonly by?: string
}

export const BY_NAME_RULES: Rules<ByNameOptions> = { by: RULE.name }

/**
 * @throws DeclarationError if the entity has no such name, or has several and `by` names none; also if `manager` is not
 * an EntityManager
 */
export function chooseName<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  { by }: ByNameOptions,
): HolderEntity {
  const { metadata, names } = entityOf(manager, entity)
  const [only, another] = names
  if (!only) throw new DeclarationError(`${metadata.name} declares no name. Put @UniqueName() on a property of it.`)
  if (by === undefined && !another) return holderEntity(metadata, only)
  const chosen = names.find(({ name }) => name === by)
  if (chosen) return holderEntity(metadata, chosen)
  const list = names.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    by === undefined
      ? `${metadata.name} declares several names. Name one with the option "by": ${list}.`
      : `${metadata.name} declares no name "${by}". The option "by" takes one of ${list}.`,
  )
}
