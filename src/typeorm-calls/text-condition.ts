import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { entityOf, rawDeclarationsOf } from '../core'
import { DeclarationError } from '../errors'
import { aliasConditions } from './sql'

/**
 * Returns the condition that a row holds a unique text, for SQL in a query builder: joins, and conditions on an alias.
 * The condition uses the unique index. The text is normalized. If the normalizer refuses it, no row is found. With
 * `ignoreDeleted`, a soft-deleted row holds no text and is not found.
 *
 * @param alias the alias of the entity in the query
 * @param texts one unique text or several, by their properties; for a text of several columns all of them, null for NULL
 * @returns the arguments of `where()`, `andWhere()` and joins of a query builder, in this order
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
    const name = `unique_text_${(countParameters += 1)}`
    parameters[name] = value
    return name
  }
  const conditions = aliasConditions(metadata, alias, texts)
  return [conditions.map((one) => one(parameter)).join(' AND '), parameters]
}

/** Parameter names must differ within a query, and this function sees only a part of the query. */
let countParameters = 0

/**
 * Returns the conflict paths of a unique text for TypeORM's `upsert`: its scope, hash and hash number, as properties.
 * The rows contain neither hash nor number: the guard finds them. With `ignoreDeleted` the index is partial: the call
 * must pass its predicate (42P10): `{ conflictPaths: uniqueTextPaths(Page), indexPredicate: '"deletedAt" IS NULL' }`.
 *
 * `upsert` sets the text as well. If it finds the row of another text with the same hash, the guard refuses it with
 * 40001. Then try again, or use `upsertByText`, which retries.
 *
 * @param entity a class or an EntitySchema; an entity's name does not lead to the declaration
 * @param by the property of the text. @default the only one
 * @throws DeclarationError if the entity has no such text, or several and none is named
 * @example
 * await repository.upsert(rows, uniqueTextPaths(Page, 'url'))
 */
export function uniqueTextPaths<Entity extends ObjectLiteral>(
  entity: EntityTarget<Entity>,
  by?: Extract<keyof NoInfer<Entity>, string> | (string & Record<never, never>),
): string[] {
  const declarations = rawDeclarationsOf(entity)
  const [only, another] = declarations
  const chosen = by === undefined && !another ? only : declarations.find(({ name }) => name === by)
  if (chosen) return [...chosen.scope, `${chosen.name}Hash`, `${chosen.name}HashNumber`]
  const names = declarations.map(({ name }) => `"${name}"`).join(', ')
  if (names === '') {
    throw new DeclarationError('The entity declares no unique text. Pass a class or an EntitySchema that does.')
  }
  throw new DeclarationError(
    by === undefined
      ? `The entity declares several unique texts. Name one of ${names}.`
      : `The entity declares no unique text "${by}". Name one of ${names}.`,
  )
}
