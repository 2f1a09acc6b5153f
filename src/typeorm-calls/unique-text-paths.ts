import { type EntityTarget, getMetadataArgsStorage, type ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { rawDeclarationOf } from '../declare/decorator'
import type { RawDeclaration } from '../registry/options'
import { isOrExtends } from '../registry/registry'

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
  const { name, scope } = chooseDeclaration(entity, by)
  return [...scope, `${name}Hash`, `${name}HashNumber`]
}

function chooseDeclaration(entity: EntityTarget<ObjectLiteral>, by: string | undefined): RawDeclaration {
  const declarations = declarationsOf(entity)
  const [only, another] = declarations
  const chosen = by === undefined && !another ? only : declarations.find(({ name }) => name === by)
  if (chosen) return chosen
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

function declarationsOf(entity: EntityTarget<ObjectLiteral>): RawDeclaration[] {
  if (typeof entity === 'function') {
    return getMetadataArgsStorage()
      .indices.filter(({ target }) => isOrExtends(entity, target))
      .flatMap(rawDeclarationOf)
  }
  if (typeof entity !== 'object') return []
  if ('options' in entity) return (entity.options.indices ?? []).flatMap(rawDeclarationOf)
  return declarationsOf(entity.type as EntityTarget<ObjectLiteral>)
}
