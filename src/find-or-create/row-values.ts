import type { ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import type { RowShape } from '../sql/statements'
import { normalizeText } from '../text/normalizer'
import { normalizedValues } from '../typeorm/normalized-values'
import type { ColumnMetadata } from '../typeorm/registry'
import type { EntityText } from './entity-text'

/** What a caller's object becomes: the parameters of every statement about it. */
export interface RowValues {
  /** Scope, text and hash: parameters of the statements that only look. */
  readonly key: readonly unknown[]
  /** Database names of the further columns it brings; together with the EntityText they decide the statements. */
  readonly others: readonly string[]
  /** In the order of `RowShape`: the key, then the others. */
  readonly all: readonly unknown[]
  /** Equal for equal texts of one scope; comparable among rows of one EntityText. */
  readonly identity: string
  /** The hash as a literal; sorts bytewise. */
  readonly hash: string
}

/**
 * @throws TextRejectedError for the text
 * @throws DeclarationError for a scope that is not given
 */
export function rowValues(entityText: EntityText, given: ObjectLiteral): RowValues {
  const { declaration } = entityText
  // Over the object, not into it, which is the caller's, and may have getters.
  const entity: ObjectLiteral = declaration.normalizeValues
    ? Object.create(given, Object.getOwnPropertyDescriptors(normalizedValues(declaration, given)))
    : given
  const scope = declaration.scope.map((column) => scopeValue(entityText, column, entity))
  const texts = declaration.text.map((part) => textValue(entityText, part, entity))
  if (texts.every((text) => text === null)) {
    throw new TextRejectedError({ property: declaration.name, reason: 'it is null, and only a text can be looked up' })
  }
  const hash = declaration.table.digest.js(composed(entityText, texts))
  const [only] = texts
  const single = scope.length === 0 && texts.length === 1 && typeof only === 'string'
  const identity = single ? only : JSON.stringify([scope, texts])
  return withOthers({ key: [...scope, ...texts, hash], hash, identity }, otherValues(entityText, entity))
}

/** The same row with the further columns of another object. */
export function withOthersOf(row: RowValues, entityText: EntityText, entity: ObjectLiteral): RowValues {
  return withOthers(row, otherValues(entityText, entity))
}

function withOthers(
  { key, hash, identity }: Pick<RowValues, 'key' | 'hash' | 'identity'>,
  others: ReadonlyMap<string, unknown>,
): RowValues {
  return { key, hash, identity, others: [...others.keys()], all: [...key, ...others.values()] }
}

/** Values by the database names of their columns. */
function otherValues(entityText: EntityText, entity: ObjectLiteral): ReadonlyMap<string, unknown> {
  const { discriminatorColumn, discriminatorValue } = entityText.metadata
  const values = new Map<string, unknown>()
  for (const column of entityText.others) {
    const value = insertValue(entityText, column, entity)
    if (value !== undefined) values.set(column.databaseName, value)
  }
  if (discriminatorColumn && !values.has(discriminatorColumn.databaseName)) {
    values.set(discriminatorColumn.databaseName, discriminatorValue)
  }
  return values
}

/** The text that is hashed; the same rule as `composed` in SQL. */
function composed({ declaration }: EntityText, texts: readonly (string | null)[]): string {
  return texts
    .map((text, place) => (text === null ? '' : `${declaration.table.text[place]?.prefix ?? ''}${text}`))
    .join('')
}

function scopeValue(entityText: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const value = insertValue(entityText, column, entity)
  if (value !== undefined && value !== null) return value
  throw new DeclarationError(
    `"${entityText.declaration.name}" of ${entityText.metadata.name} is unique within "${column.propertyPath}". Give its value.`,
  )
}

function textValue(
  entityText: EntityText,
  { column, normalizer, transformed }: EntityText['declaration']['text'][number],
  entity: ObjectLiteral,
): string | null {
  const given: unknown = column.getEntityValue(entity)
  const several = entityText.declaration.text.length > 1
  if (given === null || (given === undefined && several)) {
    if (column.isNullable) return null
    throw new TextRejectedError({ property: column.propertyPath, reason: `expected a string, got ${String(given)}` })
  }
  // A transformer of the user's own comes first; the last in the list is the normalizer.
  const stored: unknown = transformed ? entityText.dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, column.propertyPath, stored)
}

/** undefined: the column is left out, and the database's default counts. */
function insertValue({ dataSource }: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const value: unknown = column.getEntityValue(entity)
  if (value === undefined) return column.isVersion ? 1 : undefined
  return dataSource.driver.preparePersistentValue(value, column)
}

/** The discriminator of single table inheritance is selected last, where it is no column that `find` would load. */
export function rowShape({ metadata, select, declaration }: EntityText, others: readonly string[]): RowShape {
  const names = select.map(({ databaseName }) => databaseName)
  const discriminator = metadata.discriminatorColumn?.databaseName
  const hidden = discriminator !== undefined && !names.includes(discriminator)
  return { table: declaration.table, others, select: [...names, ...(hidden ? [discriminator] : [])] }
}
