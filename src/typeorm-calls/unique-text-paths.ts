import type { EntityTarget, ObjectLiteral } from 'typeorm'
import { rawDeclarationsOf } from '../core'
import { DeclarationError } from '../errors'

/**
 * The conflict paths of a unique text, for TypeORM's `upsert`: its scope, hash and hash number, by their properties. The
 * rows bring neither hash nor number; the guard finds them. With `ignoreDeleted` the index has a condition, which the
 * call must name too (42P10): `{ conflictPaths: uniqueTextPaths(Page), indexPredicate: '"deletedAt" IS NULL' }`.
 *
 * `upsert` sets the text as well, so if it meets the row of another text of equal hash, the guard refuses it with
 * 40001: try again, or use `upsertByText`, which does.
 *
 * @param entity a class, or an EntitySchema; its name alone does not lead to the declaration
 * @param by which of the entity's texts. @default the only one
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
