import { type ColumnMetadata, tableNumbers } from '../registry/registry'
import type { ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { parameterText } from '../sql/parameter-text'
import { guardedNumbers, type RowShape } from '../sql/statements'
import { hashOfTexts } from '../sql/text-table'
import type { EntityText, ReadyText } from './entity-text'
import { givenTexts, insertValue, type KeyValues, keyValues, normalized, textValue, valueIn } from './key-values'
import { requireInsertable, requireKnown, requireObject } from './refused-input'

/** What a caller's object becomes: the parameters of every statement about it. */
export interface RowValues extends KeyValues {
  /** Database names of the further columns it brings; together with the EntityText they decide the statements. */
  readonly others: readonly string[]
  /** In the order of `RowShape`: the key, then the others. */
  readonly all: readonly unknown[]
}

/**
 * @throws TextRejectedError for the text, or a text of the scope, that cannot be stored
 * @throws DeclarationError for a scope that is not given, and for values that are no object
 */
export function rowValues(entityText: EntityText, given: ObjectLiteral): RowValues {
  requireObject(entityText, given)
  return valuesOf(entityText, given)
}

function valuesOf(entityText: EntityText, given: ObjectLiteral): RowValues {
  const entity = entityText.declaration.normalizeValues ? normalized(entityText, given) : given
  return withOthers(keyValues(entityText, entity), otherValues(entityText, entity))
}

/** @throws TextRejectedError, DeclarationError for what can be said of a row whose scope is not known yet */
export function checkUnscoped(entityText: EntityText, given: ObjectLiteral): void {
  requireInsertable(entityText, given)
  givenTexts(entityText, given)
}

/**
 * The parameters of a row that may be created: its values must be ones that an insert can store.
 *
 * @throws DeclarationError also for what only `save` can insert
 */
export function newRowValues(entityText: EntityText, entity: ObjectLiteral): RowValues {
  requireObject(entityText, entity)
  requireKnown(entityText, entity)
  requireInsertable(entityText, entity)
  return valuesOf(entityText, entity)
}

/**
 * A row with the values that `create` gives, in addition to those of the input.
 *
 * @throws DeclarationError for a property that both give, with different values; also for what only `save` can insert
 */
export function withCreateValues(
  row: RowValues,
  entityText: EntityText,
  values: ObjectLiteral,
  created: ObjectLiteral,
): RowValues {
  requireKnown(entityText, created)
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
  return valueIn(part.column, entity) === undefined ? undefined : textValue(entityText, part, entity)
}

/** A row with the further columns of another object. */
export function withOthersOf(row: RowValues, entityText: EntityText, entity: ObjectLiteral): RowValues {
  requireInsertable(entityText, entity)
  return withOthers(row, otherValues(entityText, entity))
}

const NO_NAMES: readonly string[] = []

/** A row with these further columns, by their database names. */
export function withOthers({ key, hash, identity }: KeyValues, others: ReadonlyMap<string, unknown>): RowValues {
  if (others.size === 0) return { key, hash, identity, others: NO_NAMES, all: key }
  return { key, hash, identity, others: [...others.keys()], all: [...key, ...others.values()] }
}

/** Values by the database names of their columns; of several objects, no two bring a column with different values. */
function otherValues(entityText: EntityText, ...objects: readonly ObjectLiteral[]): ReadonlyMap<string, unknown> {
  const { discriminatorColumn, discriminatorValue } = entityText.metadata
  const values = columnValues(entityText, objects)
  // Most rows of thousands bring nothing but their text.
  if (!discriminatorColumn && entityText.otherTexts.length === 0) return values ?? NO_VALUES
  const known = values ?? new Map<string, unknown>()
  if (discriminatorColumn && !known.has(discriminatorColumn.databaseName)) {
    known.set(discriminatorColumn.databaseName, discriminatorValue)
  }
  for (const declaration of entityText.otherTexts) setHash(declaration, known)
  return known
}

/** Of another text of the entity, where it is known. */
export function setHash({ text, table }: EntityText['otherTexts'][number], values: Map<string, unknown>): void {
  const texts = text.map(({ column }) => textToBeStored(column, values))
  if (texts.every(isKnown) && texts.some((one) => one !== null)) {
    values.set(table.hash, hashOfTexts(table, texts))
  }
}

/** @returns undefined where the objects bring none */
function columnValues(entityText: EntityText, objects: readonly ObjectLiteral[]): Map<string, unknown> | undefined {
  let values: Map<string, unknown> | undefined
  const { others, properties } = entityText
  const [first, another] = objects
  for (let index = 0; index < others.length; index += 1) {
    const column = others[index]
    const name = properties[index]
    // Most columns of most objects: nothing is called for those.
    const isLeftOut = name !== undefined && first?.[name] === undefined && !another
    if (!column || (isLeftOut && !column.isVersion)) continue
    const given = valueOf(entityText, column, objects)
    const value = given === undefined && column.isVersion ? 1 : given
    if (value !== undefined) (values ??= new Map<string, unknown>()).set(column.databaseName, value)
  }
  return values
}

const NO_VALUES: ReadonlyMap<string, unknown> = new Map()

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

/** Otherwise one of the two values would be dropped, and nobody could tell which. */
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
    otherNumbers: guardedNumbers(otherTexts.map(({ table }) => table)),
    deferrable: ready.deferrable,
    distributed: ready.distributed,
    partitioned: ready.partitioned,
    numbered: tableNumbers(metadata).length > 0,
  }
}
