import type { ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { type RowShape } from '../sql/statements'
import { normalizeText } from '../text/normalizer'
import type { ColumnMetadata } from '../typeorm/registry'
import type { EntityText } from './entity-text'

/** What a caller's object becomes: the parameters of every statement about it. */
export interface PreparedRow {
  /** Database names of the further columns it brings; together with the target they decide the statements. */
  readonly others: readonly string[]
  /** In the order of `RowShape`: scope, text, hash, others. */
  readonly values: readonly unknown[]
  /** Equal for equal texts of one scope; only rows of one target are compared. */
  readonly key: string
  /** The hash as a literal; sorts bytewise. */
  readonly hash: string
}

/**
 * @throws TextRejectedError for the text
 * @throws DeclarationError for a scope that is not given
 */
export function prepareRow(target: EntityText, entity: ObjectLiteral): PreparedRow {
  const { declaration, metadata, others } = target
  const scope = declaration.scope.map((column) => scopeValue(target, column, entity))
  const texts = declaration.text.map((part) => textValue(target, part, entity))
  if (texts.every((text) => text === null)) {
    throw new TextRejectedError({ property: declaration.name, reason: 'it is null, and only a text can be looked up' })
  }
  const hash = declaration.table.digest.js(compose(target, texts))
  const names: string[] = []
  const values: unknown[] = [...scope, ...texts, hash]
  for (const column of others) {
    const value = insertValue(target, column, entity)
    if (value === undefined) continue
    names.push(column.databaseName)
    values.push(value)
  }
  if (metadata.discriminatorColumn && !names.includes(metadata.discriminatorColumn.databaseName)) {
    names.push(metadata.discriminatorColumn.databaseName)
    values.push(metadata.discriminatorValue)
  }
  const [only] = texts
  const single = scope.length === 0 && texts.length === 1 && typeof only === 'string'
  return { others: names, values, hash, key: single ? only : JSON.stringify([scope, texts]) }
}

/** The text that is hashed; the same rule as `composed` in SQL. */
function compose({ declaration }: EntityText, texts: readonly (string | null)[]): string {
  return texts
    .map((text, place) => (text === null ? '' : `${declaration.table.text[place]?.prefix ?? ''}${text}`))
    .join('')
}

function scopeValue(target: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const value = insertValue(target, column, entity)
  if (value !== undefined && value !== null) return value
  throw new DeclarationError(
    `"${target.declaration.name}" of ${target.metadata.name} is unique within "${column.propertyPath}". Give its value.`,
  )
}

function textValue(
  target: EntityText,
  { column, normalizer, transformed }: EntityText['declaration']['text'][number],
  entity: ObjectLiteral,
): string | null {
  const given: unknown = column.getEntityValue(entity)
  const several = target.declaration.text.length > 1
  if (given === null || (given === undefined && several)) {
    if (column.isNullable) return null
    throw new TextRejectedError({ property: column.propertyPath, reason: `it is ${String(given)}, no string` })
  }
  // A transformer of the user's own comes first; the last in the list is the normalizer.
  const stored: unknown = transformed ? target.dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, column.propertyPath, stored)
}

/** undefined: the column is left out, and the database's default counts. */
function insertValue({ dataSource }: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const value: unknown = column.getEntityValue(entity)
  if (value === undefined) return column.isVersion ? 1 : undefined
  return dataSource.driver.preparePersistentValue(value, column)
}

/** Its select list: what `find` would load, the discriminator, and the hash number, always last. */
export function shapeOf(target: EntityText, others: readonly string[]): RowShape {
  const { metadata, select, declaration } = target
  const names = select.map(({ databaseName }) => databaseName)
  const { discriminatorColumn } = metadata
  const hidden = discriminatorColumn && !names.includes(discriminatorColumn.databaseName)
  return {
    table: declaration.table,
    others,
    select: [...names, ...(hidden ? [discriminatorColumn.databaseName] : []), declaration.table.number],
  }
}
