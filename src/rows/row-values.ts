import type { ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { parameterText } from '../sql/parameter-text'
import type { RowShape } from '../sql/statements'
import { composedText } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { unstorable } from '../text/storable'
import { normalizedValues } from '../typeorm/normalized-values'
import type { ColumnMetadata } from '../typeorm/registry'
import type { EntityText, ReadyText } from './entity-text'
import { requireInsertable, requireObject } from './refused-input'

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
 * @throws TextRejectedError for the text, or a text of the scope, that cannot be stored
 * @throws DeclarationError for a scope that is not given, and for values that are no object
 */
export function rowValues(entityText: EntityText, given: ObjectLiteral): RowValues {
  requireObject(entityText, given)
  const entity = normalized(entityText, given)
  return withOthers(keyValues(entityText, entity), otherValues(entityText, entity))
}

/** What decides which row is meant. */
export type KeyValues = Pick<RowValues, 'key' | 'hash' | 'identity'>

/**
 * Scope, text and hash of an entity whose values are normalized as far as they depend on each other.
 *
 * @throws TextRejectedError, DeclarationError
 */
export function keyValues(entityText: EntityText, entity: ObjectLiteral): KeyValues {
  const { declaration } = entityText
  const scope = declaration.scope.map((column) => scopeValue(entityText, column, entity))
  const texts = textsOf(entityText, entity)
  const hash = declaration.table.digest.js(composedText(declaration.table, texts))
  const [only] = texts
  const single = scope.length === 0 && texts.length === 1 && typeof only === 'string'
  // By the texts that are sent, for a scope may be a BigInt. Scopes that are stored alike can still differ here.
  const identity = single ? only : JSON.stringify([scope.map((value) => parameterText(value)), texts])
  return { key: [...scope, ...texts, hash], hash, identity }
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

/** @throws TextRejectedError, DeclarationError for what can be said of a row whose scope is not known yet */
export function checkUnscoped(entityText: EntityText, given: ObjectLiteral): void {
  requireInsertable(entityText, given)
  givenTexts(entityText, given)
}

/**
 * Scope and text of a change; undefined for each that it leaves as it is.
 *
 * @throws TextRejectedError
 * @throws DeclarationError for a scope that is null
 */
export function changedKey(entityText: EntityText, changes: ObjectLiteral): unknown[] {
  const { scope, text } = entityText.declaration
  const isGiven = (column: ColumnMetadata): boolean => column.getEntityValue(changes) !== undefined
  return [
    ...scope.map((column) => (isGiven(column) ? scopeValue(entityText, column, changes) : undefined)),
    ...text.map((part) => (isGiven(part.column) ? textValue(entityText, part, changes) : undefined)),
  ]
}

/**
 * The same of a row that is to be created.
 *
 * @throws DeclarationError also for what only `save` can insert
 */
export function newRowValues(entityText: EntityText, entity: ObjectLiteral): RowValues {
  requireObject(entityText, entity)
  requireInsertable(entityText, entity)
  return rowValues(entityText, entity)
}

/**
 * The same row with the values that `create` gives beside those that it was asked for with.
 *
 * @throws DeclarationError for a property that both give, with different values; also for what only `save` can insert
 */
export function withCreateValues(
  row: RowValues,
  entityText: EntityText,
  values: ObjectLiteral,
  created: ObjectLiteral,
): RowValues {
  requireInsertable(entityText, created)
  const { scope, text } = entityText.declaration
  const more = normalized(entityText, created)
  const key = [
    ...scope.map((column) => [column, insertValue(entityText, column, more)] as const),
    ...text.map((part) => [part.column, givenText(entityText, part, more)] as const),
  ]
  key.forEach(([column, value], index) => {
    if (value !== undefined) requireSame(entityText, column, row.key[index], value)
  })
  return withOthers(row, otherValues(entityText, normalized(entityText, values), more))
}

function givenText(
  entityText: EntityText,
  part: EntityText['declaration']['text'][number],
  entity: ObjectLiteral,
): string | null | undefined {
  return part.column.getEntityValue(entity) === undefined ? undefined : textValue(entityText, part, entity)
}

/** Over the object, not into it, which is the caller's, and may have getters. */
function normalized({ declaration }: EntityText, given: ObjectLiteral): ObjectLiteral {
  if (!declaration.normalizeValues) return given
  return Object.create(given, Object.getOwnPropertyDescriptors(normalizedValues(declaration, given))) as ObjectLiteral
}

/** The same row with the further columns of another object. */
export function withOthersOf(row: RowValues, entityText: EntityText, entity: ObjectLiteral): RowValues {
  requireInsertable(entityText, entity)
  return withOthers(row, otherValues(entityText, entity))
}

/** The same row with these further columns, by their database names. */
export function withOthers({ key, hash, identity }: KeyValues, others: ReadonlyMap<string, unknown>): RowValues {
  return { key, hash, identity, others: [...others.keys()], all: [...key, ...others.values()] }
}

/** Values by the database names of their columns; of several objects, no two bring a column with different values. */
function otherValues(entityText: EntityText, ...objects: readonly ObjectLiteral[]): ReadonlyMap<string, unknown> {
  const { discriminatorColumn, discriminatorValue } = entityText.metadata
  const values = new Map<string, unknown>()
  for (const column of entityText.others) {
    const value = valueOf(entityText, column, objects)
    if (value !== undefined) values.set(column.databaseName, value)
    else if (column.isVersion) values.set(column.databaseName, 1)
  }
  if (discriminatorColumn && !values.has(discriminatorColumn.databaseName)) {
    values.set(discriminatorColumn.databaseName, discriminatorValue)
  }
  for (const { text, table } of entityText.otherTexts) {
    const texts = text.map(({ column }) => textToBeStored(column, values))
    if (texts.every(isKnown) && texts.some((one) => one !== null)) {
      values.set(table.hash, table.digest.js(composedText(table, texts)))
    }
  }
  return values
}

/** @throws DeclarationError if two objects bring different values */
function valueOf(entityText: EntityText, column: ColumnMetadata, objects: readonly ObjectLiteral[]): unknown {
  let value: unknown
  for (const object of objects) {
    const another = insertValue(entityText, column, object)
    if (another === undefined) continue
    if (value !== undefined) requireSame(entityText, column, value, another)
    value = another
  }
  return value
}

/** One of them would be dropped otherwise, and nobody could tell which. */
function requireSame({ metadata }: EntityText, { propertyPath }: ColumnMetadata, one: unknown, other: unknown): void {
  if (one === other || parameterText(one) === parameterText(other)) return
  throw new DeclarationError(
    `"${propertyPath}" of ${metadata.name} has one value in the values and another in "create". Give it once.`,
  )
}

/**
 * The text that a column will hold; undefined where only the database knows: a default, or a text that it may cut. The
 * hash of another text of the entity is sent where it is known, so that no trigger has to make it.
 */
function textToBeStored(column: ColumnMetadata, values: ReadonlyMap<string, unknown>): string | null | undefined {
  const value = values.get(column.databaseName)
  if (typeof value === 'string') return column.length && value.length > Number(column.length) ? undefined : value
  if (value === null) return null
  return column.isNullable && column.default === undefined ? null : undefined
}

const isKnown = (text: string | null | undefined): text is string | null => text !== undefined

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

function textValue(
  entityText: EntityText,
  { column, normalizer, transformed }: EntityText['declaration']['text'][number],
  entity: ObjectLiteral,
): string | null {
  const given: unknown = column.getEntityValue(entity)
  const several = entityText.declaration.text.length > 1
  if (given === undefined && !several) requireProperty(column, entity)
  if (given === null || (given === undefined && several)) {
    if (column.isNullable) return null
    throw new TextRejectedError({ property: column.propertyPath, reason: `expected a string, got ${String(given)}` })
  }
  // A transformer of the user's own comes first; the last in the list is the normalizer.
  const stored: unknown = transformed ? entityText.dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, column.propertyPath, stored)
}

/** A name that is misspelt is seen beside those that were given. */
function requireProperty({ propertyName, propertyPath }: ColumnMetadata, entity: ObjectLiteral): void {
  if (propertyName !== propertyPath || propertyName in entity) return
  const names = Object.keys(entity).slice(0, MAX_NAMES_SHOWN)
  const given = names.length === 0 ? 'nothing was given' : `given: ${names.map((name) => `"${name}"`).join(', ')}`
  throw new TextRejectedError({ property: propertyPath, reason: `the property is missing; ${given}` })
}

const MAX_NAMES_SHOWN = 10

/** undefined: the column is left out, and the database's default counts. */
function insertValue({ dataSource }: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const value: unknown = column.getEntityValue(entity)
  if (value === undefined) return undefined
  return dataSource.driver.preparePersistentValue(value, column)
}

/**
 * What is selected after the columns that `find` would load: the discriminator of single table inheritance, and the
 * delete date.
 */
export function rowShape(
  { metadata, select, declaration, otherTexts, spatial, ready, echoed }: ReadyText,
  others: readonly string[],
): RowShape {
  const names = select.map(({ databaseName }) => databaseName)
  const discriminator = metadata.discriminatorColumn?.databaseName
  const deleteDate = declaration.table.deleted === undefined ? metadata.deleteDateColumn?.databaseName : undefined
  const hidden = [discriminator, deleteDate].filter((name) => name !== undefined && !names.includes(name))
  return {
    table: declaration.table,
    others,
    select: [...names, ...hidden.filter((name) => name !== undefined)],
    echoed,
    types: ready.types,
    spatial,
    otherHashes: new Map(otherTexts.map(({ table }) => [table.hash, table.digest.type])),
    deferrable: ready.deferrable,
  }
}
