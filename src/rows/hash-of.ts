import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { checkOptions } from '../options'
import { CALL_RULES, type GivenValues, type Naming } from './call-options'
import { entityTextOf } from './entity-text'
import { keyValues, normalized } from './key-values'
import { requireObject } from './refused-input'

/** What decides where a row belongs. */
export interface TextHash {
  /** Values of the scope's columns by their properties, as they are sent. */
  readonly scope: Readonly<Record<string, unknown>>
  /** The hash in hexadecimal digits: 32 for md5, 64 for sha256. */
  readonly hash: string
}

/**
 * Returns scope and hash of a text, for an application that keeps its rows in several databases: equal texts of one
 * scope belong into one database. Sends no SQL.
 *
 * @param values text and scope; other properties do not matter
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
