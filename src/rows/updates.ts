import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import type { UpdateShape } from '../sql/upsert-statement'
import { type ColumnMetadata, declarationsOf, rootOf } from '../registry/registry'
import type { EntityText } from './entity-text'
import type { RequestedRow } from './deferred-row'
import { type RowValues, setHash, withOthers } from './row-values'

/** What an upsert does to a row that is there. */
export interface Updates {
  /** Database names of the columns that it takes over from the values, where these bring them. */
  readonly columns: ReadonlySet<string>
  readonly skipUnchanged: boolean
}

/**
 * @param listed properties. @default every column that an update may change
 * @throws DeclarationError for a property that an upsert cannot change, or that is none
 */
export function updatesOf(
  entityText: EntityText,
  listed: readonly string[] | undefined,
  skipUnchanged: boolean,
): Updates {
  const columns = listed
    ? listed.flatMap((property) => listedColumns(entityText, property))
    : entityText.others.filter((column) => mayUpdate(entityText, column) && !isDate(column))
  return { columns: new Set(columns.map(({ databaseName }) => databaseName)), skipUnchanged }
}

/**
 * Where nothing is listed, the row may be an entity that was loaded: its dates are then those of another moment. The
 * update date moves by itself, and a deleted row must not be restored by accident.
 */
const isDate = ({ isUpdateDate, isDeleteDate }: ColumnMetadata): boolean => isUpdateDate || isDeleteDate

/** The columns that this row changes; none: it is only found. */
export function updateOf(updates: Updates | undefined, { others }: RowValues): string[] {
  return updates ? others.filter((name) => updates.columns.has(name)) : []
}

export function updateShape(
  { metadata, otherTexts }: EntityText,
  { skipUnchanged }: Updates,
  update: readonly string[],
): UpdateShape {
  const names = (is: (column: ColumnMetadata) => boolean): string[] =>
    metadata.columns.filter(is).map(({ databaseName }) => databaseName)
  return {
    update,
    versions: names(({ isVersion }) => isVersion),
    updateDates: names(({ isUpdateDate }) => isUpdateDate),
    hashes: changedTexts(otherTexts, update).flatMap(({ table }) => (table.guardless === true ? [table] : [])),
    skipUnchanged,
    only: classFilter(metadata),
  }
}

/** Of single table inheritance, a row of another class is not ours to change. */
export function classFilter(metadata: EntityMetadata): UpdateShape['only'] {
  const { discriminatorColumn, childEntityMetadatas } = metadata
  if (!discriminatorColumn || metadata === rootOf(metadata)) return undefined
  const values = [metadata, ...childEntityMetadatas].map(({ discriminatorValue }) => String(discriminatorValue))
  return { column: discriminatorColumn.databaseName, values }
}

/** A property stands for its column, a relation for its join columns, an embedded for all of its columns. */
function listedColumns(entityText: EntityText, property: string): ColumnMetadata[] {
  const { metadata, declaration } = entityText
  const columns = [
    ...metadata.findColumnsWithPropertyPath(property),
    ...(metadata.findEmbeddedWithPropertyPath(property)?.columnsFromTree ?? []),
  ]
  const reasons = columns.map((column) => reasonAgainst(entityText, column)).filter((reason) => reason !== undefined)
  const reason = columns.length === 0 ? `${metadata.name} has no such column` : reasons[0]
  if (reason === undefined) return columns
  throw new DeclarationError(
    `upsertByText() by "${declaration.name}" cannot update "${property}": ${reason}. Leave it out of "update".`,
  )
}

export function mayUpdate(entityText: EntityText, column: ColumnMetadata): boolean {
  return reasonAgainst(entityText, column) === undefined
}

/** Why an upsert does not change a column; undefined if it may change it. */
function reasonAgainst({ metadata, declaration }: EntityText, column: ColumnMetadata): string | undefined {
  const { text, scope } = declaration
  if (text.some((one) => one.column === column)) return 'the row is found by it'
  if (scope.includes(column)) return 'the text is unique within it, and so the row is found by it'
  if (declarationsOf(metadata).some(({ hidden }) => hidden.includes(column))) return 'the guard maintains it'
  if (column.isPrimary) return 'it is the primary key'
  if (column.isGenerated || column.generatedType !== undefined) return 'the database generates it'
  if (column.isCreateDate) return 'it is the creation date'
  if (column.isVersion) return 'every update increments it'
  if (column.isDiscriminator) return 'it is the discriminator, which says the class of the row'
  return column.isInsert && column.isUpdate ? undefined : 'its column says "insert: false" or "update: false"'
}

/** A row with only some of its further columns: a statement must use every parameter that it is given. */
export function withOnly(row: RowValues, names: ReadonlySet<string>): RowValues {
  return withOthers(row, new Map([...othersOf(row)].filter(([name]) => names.has(name))))
}

/** A row with the changes of a later row of the same text. */
function withUpdateOf(
  row: RowValues,
  { otherTexts }: EntityText,
  later: RowValues,
  update: readonly string[],
): RowValues {
  const values = othersOf(row)
  const changes = othersOf(later)
  for (const name of update) values.set(name, changes.get(name))
  for (const declaration of changedTexts(otherTexts, update)) {
    // The guard makes the hash of a text that is made up of both.
    values.delete(declaration.table.hash)
    if (declaration.table.guardless === true) setHash(declaration, values)
  }
  return withOthers(row, values)
}

const changedTexts = (texts: EntityText['otherTexts'], update: readonly string[]): EntityText['otherTexts'] =>
  texts.filter(({ table }) => table.text.some(({ name }) => update.includes(name)))

const othersOf = ({ key, others, all }: RowValues): Map<string, unknown> =>
  new Map(others.map((name, index) => [name, all[key.length + index]]))

/** Both bring the same columns with the same values. */
export const isSame = ({ others: names, all: values }: RowValues, { others, all }: RowValues): boolean =>
  names.length === others.length &&
  names.every((name, index) => name === others[index]) &&
  values.every((value, index) => value === all[index])

/** A change would put another value in place of one that no row was asked to take yet. */
export const isReplaced = (first: RowValues, later: RowValues, update: readonly string[]): boolean =>
  update.some((name) => first.others.includes(name) && valueOf(first, name) !== valueOf(later, name))

const valueOf = ({ key, others, all }: RowValues, name: string): unknown => all[key.length + others.indexOf(name)]

/** Merges rows as if they were upserted one after another: the first is created, and each changes what it brings. */
export function withUpdate<Row extends RequestedRow>(
  entityText: EntityText,
  updates: Updates,
  first: Row,
  { row, values, more }: RequestedRow,
): Row {
  const update = updateOf(updates, row)
  const changes = [values, ...more].map((one) => pickColumns(entityText, one, update))
  return {
    ...first,
    row: withUpdateOf(first.row, entityText, row, update),
    more: [...first.more, ...changes],
  }
}

/** The properties that hold these columns; an embedded, or a relation, as a whole. */
function pickColumns({ others }: EntityText, values: ObjectLiteral, names: readonly string[]): ObjectLiteral {
  const columns = others.filter(({ databaseName }) => names.includes(databaseName))
  const properties = columns.map(({ propertyPath }) => propertyPath.split('.')[0] ?? propertyPath)
  return Object.fromEntries(properties.map((property) => [property, values[property]]))
}
