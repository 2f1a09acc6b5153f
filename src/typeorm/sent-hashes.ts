import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { ImmutableTextError } from '../errors'
import { hashOfTexts, field, hashOfValues } from '../sql/text-table'
import { type ColumnMetadata, dataSourceOf, type Declaration, declarationsOf } from '../registry/registry'

/** The SQL of a value that the caller gives as a function. */
type Sql = () => string

/** As it will be stored, column by column; undefined for one that the values leave out. */
function storedTexts({ text, metadata }: Declaration, values: ObjectLiteral): (string | null | undefined | Sql)[] {
  const { driver } = dataSourceOf(metadata)
  return text.map(({ column }) => {
    const given: unknown = column.getEntityValue(values)
    const isValue = given !== undefined && typeof given !== 'function'
    return (isValue ? driver.preparePersistentValue(given, column) : given) as string | null | undefined | Sql
  })
}

const isText = (value: unknown): value is string | null => value === null || typeof value === 'string'

/** Of one column; of several, values of a function are known to the database only. */
const asOneFunction = ([value, another]: readonly unknown[]): Sql | undefined =>
  typeof value === 'function' && another === undefined ? (value as Sql) : undefined

/**
 * TypeORM's inserts bring the hash, for no trigger may set it where it decides in which part of the table a row lies, and
 * none can where there is none; and no number, which the guard gives. No entity holds either: they are made of its text
 * when TypeORM asks for the columns.
 */
export function sendHash(declaration: Declaration): void {
  const { hidden, text, table } = declaration
  const [hash, number] = hidden
  if (!hash || !number) return
  give(hash, (entity) => {
    const stored = storedTexts(declaration, entity)
    const sql = text.length === 1 ? asOneFunction(stored) : undefined
    if (sql) return () => hashOfValues(table, [sql()])
    const texts = text.length > 1 ? stored.map((one) => one ?? null) : stored
    return texts.every(isText) && texts.some((one) => one !== null) ? hashOfTexts(table, texts) : undefined
  })
  if (table.guardless === true) hash.isUpdate = true
  else give(number, () => null)
}

/** What a condition says of the column stays as it is. */
function give(column: ColumnMetadata, valueOf: (entity: ObjectLiteral) => unknown): void {
  const given = column.getEntityValue.bind(column)
  column.isInsert = true
  column.getEntityValue = (entity, transform) => {
    const value: unknown = given(entity, transform)
    return value === undefined ? valueOf(entity) : value
  }
}

/**
 * Values for TypeORM's UPDATE, with the hash of every text that they change and that has no guard.
 *
 * @param parameter makes a parameter of a text, and gives its SQL
 * @throws ImmutableTextError for a text by whose hash the table is spread
 */
export function withChangedHashes(
  values: ObjectLiteral,
  metadata: EntityMetadata,
  parameter: (text: string) => string,
): ObjectLiteral {
  const hashes: ObjectLiteral = {}
  for (const declaration of declarationsOf(metadata)) {
    const { table, name, scope, hidden } = declaration
    if (table.guardless !== true) continue
    const stored = storedTexts(declaration, values)
    const isChanged = stored.some((one) => one !== undefined)
    const isMoved = isChanged || scope.some((column) => column.getEntityValue(values) !== undefined)
    if (table.immutable && isMoved) throw new ImmutableTextError(name)
    if (hidden[0] && isChanged) hashes[hidden[0].propertyName] = changedHash(declaration, stored, parameter)
  }
  // Not a copy: what was given may be an entity, whose accessors are its class's.
  return Object.keys(hashes).length === 0 ? values : (Object.assign(Object.create(values), hashes) as ObjectLiteral)
}

/** By the database where it alone knows a part of the text: a function's, or the one that stands. */
function changedHash(
  { table, text }: Declaration,
  stored: ReturnType<typeof storedTexts>,
  parameter: (text: string) => string,
): string | null | Sql {
  if (stored.every(isText)) {
    return stored.some((one) => one !== null) ? hashOfTexts(table, stored) : null
  }
  const values = stored.map((one, index) => {
    if (one === undefined) return field('', text[index]?.column.databaseName ?? '')
    if (typeof one === 'function') return one()
    return one === null ? 'NULL' : parameter(one)
  })
  return () => hashOfValues(table, values)
}
