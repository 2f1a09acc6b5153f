import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { aliasConditions, entityOf } from '../core'

/**
 * The condition that a row holds a unique text, for the places where a query builder takes SQL: joins, and conditions on
 * an alias. It uses the unique index; the text is normalized, and one that the normalizer refuses finds nothing. With
 * `ignoreDeleted` a row that is deleted softly holds no text, and is not found.
 *
 * @param alias of the entity in the query
 * @param texts one unique text or several, by their properties; for a text of several columns all of them, null for NULL
 * @returns what `where()`, `andWhere()` and joins of a query builder take, in this order
 * @throws DeclarationError if the properties are not unique texts of the entity, or the values are not strings
 * @example
 * links.createQueryBuilder('l').innerJoin('l.page', 'p', ...textCondition(links.manager, Page, 'p', { url }))
 */
export function textCondition<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  alias: string,
  texts: { readonly [property in keyof Entity]?: unknown },
): [sql: string, parameters: ObjectLiteral] {
  const { metadata } = entityOf(manager, entity)
  const parameters: ObjectLiteral = {}
  const parameter = (value: string): string => {
    const name = `unique_text_${(count += 1)}`
    parameters[name] = value
    return name
  }
  const conditions = aliasConditions(metadata, alias, texts)
  return [conditions.map((one) => one(parameter)).join(' AND '), parameters]
}

/** Names of parameters must differ within a query, and this function sees only a part of the query. */
let count = 0
