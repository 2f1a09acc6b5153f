import type { ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { parameterText } from '../sql/parameter-text'
import { hashOfTexts } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { unstorable } from '../text/storable'
import { normalizedValues } from '../registry/normalize-column'
import type { ColumnMetadata } from '../registry/registry'
import type { EntityText } from './entity-text'

/** What decides which row is meant. */
export interface KeyValues {
  /** Scope, text and hash: parameters of the statements that only look. */
  readonly key: readonly unknown[]
  /** Equal for equal texts of one scope; comparable among rows of one EntityText. */
  readonly identity: string
  /** The hash as a literal; sorts bytewise. */
  readonly hash: string
}

/**
 * Scope, text and hash of an entity whose values are normalized as far as they depend on each other.
 *
 * @throws TextRejectedError, DeclarationError
 */
export function keyValues(entityText: EntityText, entity: ObjectLiteral): KeyValues {
  const { scope, text, table } = entityText.declaration
  const [part] = text
  // Nearly always the text tells the row by itself: then no lists are made, which thousands of rows feel.
  const alone = part && text.length === 1 && scope.length === 0 ? textValue(entityText, part, entity) : null
  if (alone !== null) {
    const hash = hashOfTexts(table, [alone])
    return { key: [alone, hash], hash, identity: alone }
  }
  const scopes = scope.map((column) => scopeValue(entityText, column, entity))
  const texts = textsOf(entityText, entity)
  const hash = hashOfTexts(table, texts)
  // Joined at their length, where lists that grow take twice the memory: thousands of rows feel it.
  return { key: scopes.concat(texts, hash), hash, identity: identityOf(scopes, texts) }
}

/**
 * By the texts that are sent, for a scope may be a BigInt. Scopes that are stored alike can still differ here. Texts have
 * no U+0000; and which of them are NULL, and not the empty text, stands at the end.
 */
function identityOf(scopes: readonly unknown[], texts: readonly (string | null)[]): string {
  let nulls = ''
  for (const text of texts) nulls += text === null ? '0' : '1'
  const sent = scopes.map((value) => parameterText(value))
  return sent.concat(texts, nulls).join('\0')
}

function textsOf(entityText: EntityText, entity: ObjectLiteral): (string | null)[] {
  const { declaration } = entityText
  const texts = declaration.text.map((part) => textValue(entityText, part, entity))
  if (texts.some((text) => text !== null)) return texts
  throw new TextRejectedError({ property: declaration.name, reason: 'it is null, and only a text can be looked up' })
}

/**
 * The texts of values whose scope is not known yet, as they will be stored.
 *
 * @throws TextRejectedError
 */
export const givenTexts = (entityText: EntityText, given: ObjectLiteral): readonly (string | null)[] =>
  textsOf(entityText, normalized(entityText, given))

/**
 * Scope and text of a change; undefined for each that it leaves as it is.
 *
 * @throws TextRejectedError
 * @throws DeclarationError for a scope that is null
 */
export function changedKey(entityText: EntityText, changes: ObjectLiteral): unknown[] {
  const { scope, text } = entityText.declaration
  const isGiven = (column: ColumnMetadata): boolean => valueIn(column, changes) !== undefined
  return [
    ...scope.map((column) => (isGiven(column) ? scopeValue(entityText, column, changes) : undefined)),
    ...text.map((part) => (isGiven(part.column) ? textValue(entityText, part, changes) : undefined)),
  ]
}

/** Over the object, not into it, which is the caller's. */
export function normalized({ declaration }: EntityText, given: ObjectLiteral): ObjectLiteral {
  if (!declaration.normalizeValues) return given
  const values = normalizedValues(declaration, given)
  if (values === given) return given
  // A copy takes a quarter of the time, and of an entity it would ask the getters.
  if (Object.getPrototypeOf(given) === Object.prototype) return { ...given, ...values }
  return Object.create(given, Object.getOwnPropertyDescriptors(values)) as ObjectLiteral
}

function scopeValue(entityText: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const given = insertValue(entityText, column, entity)
  const value = given === undefined ? constantDefault(column) : given
  if (typeof value === 'function') throw notKnown(entityText, column)
  if (value !== undefined && value !== null) {
    requireStorable(column, value)
    return value
  }
  throw new DeclarationError(
    `"${entityText.declaration.name}" of ${entityText.metadata.name} is unique within "${column.propertyPath}". Give its value.`,
  )
}

/** SQL, in TypeORM's own calls. */
const notKnown = ({ declaration, metadata }: EntityText, { propertyPath }: ColumnMetadata): DeclarationError =>
  new DeclarationError(
    `"${declaration.name}" of ${metadata.name} is unique within "${propertyPath}", and a function does not tell who ` +
      `else holds the text there. Give a value.`,
  )

/** The default that the row will have, where TypeORM knows it; one that SQL computes is known to the database only. */
function constantDefault({ default: value }: ColumnMetadata): unknown {
  return ['string', 'number', 'boolean'].includes(typeof value) ? value : undefined
}

/** Postgres would refuse U+0000, and the driver would send U+FFFD for a lone surrogate: two scopes would become one. */
function requireStorable({ propertyPath }: ColumnMetadata, value: unknown): void {
  const problem = typeof value === 'string' ? unstorable(value) : undefined
  if (problem) throw new TextRejectedError({ property: propertyPath, ...problem })
}

export function textValue(
  entityText: EntityText,
  { column, normalizer, transformed }: EntityText['declaration']['text'][number],
  entity: ObjectLiteral,
): string | null {
  const given: unknown = valueIn(column, entity)
  const several = entityText.declaration.text.length > 1
  if (given === undefined && !several) requireProperty(column, entity)
  if (given === null || (given === undefined && several)) {
    if (column.isNullable) return null
    throw new TextRejectedError({ property: column.propertyPath, reason: `expected a string, got ${String(given)}` })
  }
  // The user's own transformer comes first; the last in the list is the normalizer.
  const stored: unknown = transformed ? entityText.dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, column.propertyPath, stored)
}

/** The message lists the given names, so that a misspelt one is seen. */
function requireProperty({ propertyName, propertyPath }: ColumnMetadata, entity: ObjectLiteral): void {
  if (propertyName !== propertyPath || propertyName in entity) return
  const names = Object.keys(entity).slice(0, MAX_NAMES_SHOWN)
  const given = names.length === 0 ? 'nothing was given' : `given: ${names.map((name) => `"${name}"`).join(', ')}`
  throw new TextRejectedError({ property: propertyPath, reason: `the property is missing; ${given}` })
}

const MAX_NAMES_SHOWN = 10

/** undefined: the column is left out, and the database's default counts. */
export function insertValue({ dataSource }: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const value = valueIn(column, entity)
  if (value === undefined) return undefined
  return dataSource.driver.preparePersistentValue(value, column)
}

/** As `getEntityValue` reads it, which also walks to the columns of embeddeds and of other entities. */
export function valueIn(column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const { embeddedMetadata, referencedColumn } = column
  return embeddedMetadata || referencedColumn ? column.getEntityValue(entity) : entity[column.propertyName]
}
