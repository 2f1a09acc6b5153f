import type { ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { DeclarationError } from '../errors'
import type { ColumnMetadata } from '../registry/registry'
import type { StoredRow } from '../sql/find'
import { hashOfTexts } from '../sql/text-table'
import { parameterText } from '../sql/types'
import type { EntityText, Updates } from './entity-text'
import { fire, listensTo } from './hydrate'
import { changedTexts, NO_OTHERS } from './statements'
import { updateOf } from './updates'
import {
  givenTexts,
  insertValue,
  type KeyValues,
  keyValues,
  normalized,
  requireCreated,
  requireInsertable,
  requireKnown,
  requireObject,
  textValue,
  valueIn,
  withPromised,
} from './values'

/** The parameters of every statement about a caller's object. */
export interface RowValues extends KeyValues {
  /** Database names of the object's further columns. Together with the EntityText they determine the statements. */
  readonly others: readonly string[]
  /** Parameters in the order of `RowShape`: the key, then the others. */
  readonly all: readonly unknown[]
}

/**
 * @throws TextRejectedError if the text, or a text of the scope, cannot be stored
 * @throws DeclarationError if a value of the scope is missing
 */
export function rowValues(entityText: EntityText, given: ObjectLiteral): RowValues {
  const entity = entityText.declaration.normalizeValues ? normalized(entityText, given) : given
  return withOthers(keyValues(entityText, entity), otherValues(entityText, entity))
}

/** @throws TextRejectedError, DeclarationError for errors that do not depend on the scope */
export function checkUnscoped(entityText: EntityText, given: ObjectLiteral): void {
  requireInsertable(entityText, given)
  givenTexts(entityText, given)
}

/**
 * Returns a row with the values of `create` in addition to those of the input.
 *
 * @throws DeclarationError for a property with different values in both; also for values that only `save` can insert
 */
function withCreateValues(
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
    ...text.map((part) => {
      const isGiven = valueIn(part.column, more) !== undefined
      return [part.column, isGiven ? textValue(entityText, part, more) : undefined] as const
    }),
  ]
  key.forEach(([column, value], index) => {
    if (value !== undefined) requireSame(entityText, column, row.key[index], value)
  })
  return withOthers(row, otherValues(entityText, normalized(entityText, values), more))
}

/** Returns a row with the further columns of another object. */
export function withOthersOf(row: RowValues, entityText: EntityText, entity: ObjectLiteral): RowValues {
  requireInsertable(entityText, entity)
  return withOthers(row, otherValues(entityText, entity))
}

/** Returns a row with these further columns, by their database names. */
function withOthers({ key, hash, identity }: KeyValues, others: ReadonlyMap<string, unknown> | undefined): RowValues {
  if (!others || others.size === 0) return { key, hash, identity, others: NO_OTHERS, all: key }
  return { key, hash, identity, others: [...others.keys()], all: [...key, ...others.values()] }
}

/**
 * Returns values by the database names of their columns; undefined if there are none, as for most of many rows.
 *
 * @param created has further values
 * @throws DeclarationError if both have a column with different values
 */
function otherValues(
  entityText: EntityText,
  given: ObjectLiteral,
  created?: ObjectLiteral,
): ReadonlyMap<string, unknown> | undefined {
  const { others, properties, otherTexts, metadata } = entityText
  let values: Map<string, unknown> | undefined
  for (let index = 0; index < others.length; index += 1) {
    const column = others[index]
    const name = properties[index]
    // Most columns of most objects are left out. No function is called for these.
    const isLeftOut = name !== undefined && given[name] === undefined && !created
    if (!column || (isLeftOut && !column.isVersion)) continue
    const value = valueOfColumn(entityText, column, given, created)
    if (value !== undefined) (values ??= new Map<string, unknown>()).set(column.databaseName, value)
  }
  if (!metadata.discriminatorColumn && otherTexts.length === 0) return values
  return withHidden(entityText, values ?? new Map<string, unknown>())
}

/** Sets the discriminator, and the hashes of the entity's other texts. */
function withHidden(
  { metadata: { discriminatorColumn, discriminatorValue }, otherTexts }: EntityText,
  values: Map<string, unknown>,
): ReadonlyMap<string, unknown> {
  if (discriminatorColumn && !values.has(discriminatorColumn.databaseName)) {
    values.set(discriminatorColumn.databaseName, discriminatorValue)
  }
  for (const declaration of otherTexts) setHash(declaration, values)
  return values
}

/**
 * Sets the hash of another text of the entity if it is known, so that no trigger has to compute it. It is unknown if
 * only the database knows the stored text: a default, or a text that it may cut.
 */
function setHash({ text, table }: EntityText['otherTexts'][number], values: Map<string, unknown>): void {
  const texts: (string | null)[] = []
  for (const { column } of text) {
    const given = values.get(column.databaseName)
    if (typeof given === 'string') {
      if (column.length && given.length > Number(column.length)) return
      texts.push(given)
    } else if (given === null || (column.isNullable && column.default === undefined)) texts.push(null)
    else return
  }
  if (texts.some((one) => one !== null)) values.set(table.hash, hashOfTexts(table, texts))
}

/** @throws DeclarationError if the two objects have different values */
function valueOfColumn(
  entityText: EntityText,
  column: ColumnMetadata,
  given: ObjectLiteral,
  created: ObjectLiteral | undefined,
): unknown {
  let value = insertValue(entityText, column, given)
  const another = created && insertValue(entityText, column, created)
  if (another !== undefined) {
    if (value !== undefined) requireSame(entityText, column, value, another)
    value = another
  }
  return value === undefined && column.isVersion ? 1 : value
}

/** Requires equal values, because one of two different values would be dropped without notice. */
function requireSame({ metadata }: EntityText, { propertyPath }: ColumnMetadata, one: unknown, other: unknown): void {
  if (one === other || parameterText(one) === parameterText(other)) return
  throw new DeclarationError(
    `"${propertyPath}" of ${metadata.name} has one value in the values and another in "create". Give it once.`,
  )
}

/** A requested row. */
export interface RequestedRow {
  /** The parameters that are known before the look-up. */
  readonly row: RowValues
  /** The object from which `row` was made. */
  readonly values: ObjectLiteral
  /** The objects that were merged into it. */
  readonly more: readonly ObjectLiteral[]
  /** Returns further values if the row is missing. */
  readonly create: (() => unknown) | undefined
  /** Called with the row as soon as it is stored. */
  readonly notify?: (stored: StoredRow) => void
}

/** An empty list that all rows share, because thousands of lists would cost memory. */
const NO_MORE: readonly ObjectLiteral[] = []

/**
 * Returns a row that may be created. Its values must be ones that an insert can store.
 *
 * @throws TextRejectedError, DeclarationError for invalid values, and for values that only `save` can insert
 */
export function requestedRow(
  entityText: EntityText,
  values: ObjectLiteral,
  create?: ObjectLiteral | (() => unknown),
): RequestedRow {
  requireObject(entityText, values)
  requireKnown(entityText, values)
  requireInsertable(entityText, values)
  const row = rowValues(entityText, values)
  if (create === undefined) return { row, values, more: NO_MORE, create: undefined }
  if (typeof create === 'function') return { row, values, more: NO_MORE, create: create as () => unknown }
  return { row: withCreateValues(row, entityText, values, create), values, more: [create], create: undefined }
}

/** Calls `create` if there is one. */
export async function withCreated(entityText: EntityText, requested: RequestedRow): Promise<RequestedRow> {
  if (!requested.create) return requested
  const created: unknown = await requested.create()
  requireCreated(entityText.metadata.name, created)
  const { values } = requested
  const row = withCreateValues(requested.row, entityText, values, created)
  return { row, values, more: [created], create: undefined }
}

/** Returns the entity that listeners get before the row is written. */
export function entityToInsert(
  { metadata, dataSource }: EntityText,
  { values, more }: Pick<RequestedRow, 'values' | 'more'>,
): ObjectLiteral {
  const entity: ObjectLiteral = dataSource.manager.create(metadata.target, values)
  return more.length === 0 ? entity : dataSource.manager.merge(metadata.target, entity, ...more)
}

/**
 * Completes a row after a look-up found none: calls `create`, and fires BeforeInsert. Both run once for all attempts, and
 * without a connection.
 */
export class DeferredRow {
  /** Whether the values are complete only once the row is known to be missing. */
  readonly isNeeded: boolean
  /** The entity that BeforeInsert got, and that AfterInsert will get. */
  entity: ObjectLiteral | undefined

  constructor(
    private readonly session: Session,
    private readonly entityText: EntityText,
    private readonly requested: RequestedRow,
  ) {
    this.isNeeded = requested.create !== undefined || listensTo('Insert', entityText)
  }

  async complete(): Promise<RowValues> {
    if (this.requested.create) await this.session.release()
    const requested = await withCreated(this.entityText, this.requested)
    const { row } = requested
    if (!listensTo('Insert', this.entityText)) return row
    // Listeners may set columns. Text and scope stay as given, because another text would need another operation.
    const entity = entityToInsert(this.entityText, requested)
    this.entity = entity
    await fire(this.session, 'BeforeInsert', this.entityText.metadata, entity)
    return withOthersOf(row, this.entityText, await withPromised(this.entityText.metadata, entity))
  }
}

/** Returns a row with only some of its further columns, because a statement must use every parameter. */
export function withOnly(row: RowValues, names: ReadonlySet<string>): RowValues {
  return withOthers(row, new Map([...othersOf(row)].filter(([name]) => names.has(name))))
}

const othersOf = ({ key, others, all }: RowValues): Map<string, unknown> =>
  new Map(others.map((name, index) => [name, all[key.length + index]]))

/** Returns whether both rows have the same columns with the same values. */
export const sameValues = ({ others: names, all: values }: RowValues, { others, all }: RowValues): boolean =>
  names.length === others.length &&
  names.every((name, index) => name === others[index]) &&
  values.every((value, index) => value === all[index])

/** Returns whether a change would replace a value that was not stored yet. */
export const isReplaced = (first: RowValues, later: RowValues, update: readonly string[]): boolean =>
  update.some((name) => first.others.includes(name) && otherValue(first, name) !== otherValue(later, name))

const otherValue = ({ key, others, all }: RowValues, name: string): unknown => all[key.length + others.indexOf(name)]

/** Merges rows as if they were upserted one after another. The first is created, and each changes its columns. */
export function withUpdate<Row extends RequestedRow>(
  entityText: EntityText,
  updates: Updates,
  first: Row,
  { row, values, more }: RequestedRow,
): Row {
  const update = updateOf(updates, row)
  const merged = othersOf(first.row)
  const changes = othersOf(row)
  for (const name of update) merged.set(name, changes.get(name))
  for (const declaration of changedTexts(entityText.otherTexts, update)) {
    // The guard computes the hash of a text that consists of parts of both.
    merged.delete(declaration.table.hash)
    if (declaration.table.guardless === true) setHash(declaration, merged)
  }
  // The properties that hold the changed columns. An embedded or a relation is taken as a whole.
  const properties = entityText.others
    .filter(({ databaseName }) => update.includes(databaseName))
    .map(({ propertyPath }) => propertyPath.split('.')[0] ?? propertyPath)
  const changed = [values, ...more].map((one) => Object.fromEntries(properties.map((name) => [name, one[name]])))
  return { ...first, row: withOthers(first.row, merged), more: [...first.more, ...changed] }
}
