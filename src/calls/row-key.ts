import { type EntityMetadata, EntityNotFoundError, InstanceChecker, type ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { textsOfKey } from '../registry/name-declarations'
import type { ColumnMetadata } from '../registry/registry'
import type { EntityColumns } from './entity-text'
import { requireKeyValues, spelling } from './values'

/** The key by which a row is found. */
export interface RowKey {
  /** The primary key, and further conditions. */
  readonly criteria: ObjectLiteral
  /** The primary key as it is sent. */
  readonly values: readonly unknown[]
  /** A string that is equal for equal keys of an entity. */
  readonly identity: string
}

/** @throws DeclarationError unless it holds the whole primary key */
export function rowKey(columns: EntityColumns, id: unknown): RowKey {
  const criteria = criteriaOf(columns, id)
  const values = columns.metadata.primaryColumns.map((column) => sentValue(columns, column, criteria))
  const texts = textsOfKey(values).map((text, index) => spelling(columns, columns.metadata.primaryColumns[index], text))
  return { criteria, values, identity: JSON.stringify(texts) }
}

/** @throws DeclarationError unless it holds the whole primary key */
function criteriaOf(columns: EntityColumns, id: unknown): ObjectLiteral {
  const { metadata } = columns
  const [only, another] = metadata.primaryColumns
  const isKey = typeof id !== 'object' || id instanceof Date
  const isEntity = typeof metadata.target === 'function' && id instanceof metadata.target
  // The other values of an entity are loaded ones: its dates are rounded, and its lists are not columns.
  const given = (isEntity && metadata.getEntityIdMap(id)) || id
  const criteria: ObjectLiteral = isKey ? {} : { ...(given as object | null) }
  if (isKey && only && !another && id !== undefined) only.setEntityValue(criteria, id)
  const isWhole = metadata.getEntityIdMap(criteria) !== undefined
  // An operator, SQL or a list may select several rows, or none in particular.
  const areValues = metadata.primaryColumns.every((column) => {
    const value: unknown = column.getEntityValue(criteria)
    const isList = !column.isArray && Array.isArray(value)
    return !InstanceChecker.isFindOperator(value) && typeof value !== 'function' && !isList
  })
  if (isWhole && areValues) {
    requireKeyValues(columns, criteria)
    return criteria
  }
  const names = metadata.primaryColumns.map(({ propertyPath }) => `"${propertyPath}"`).join(', ')
  throw new DeclarationError(
    `Expected the primary key of ${metadata.name}, got ${kindOf(id)}. Give ${names}: updateOrFail() changes one row.`,
  )
}

/** Returns TypeORM's error for a missing row, whose key is in `criteria` alone. TypeORM would put it into the message. */
export function missingRow(metadata: EntityMetadata, criteria: unknown): EntityNotFoundError {
  const error = new EntityNotFoundError(metadata.target, undefined)
  return Object.assign(error, {
    criteria,
    message: `Could not find the row of entity "${metadata.name}": no row has the primary key in "criteria".`,
  })
}

const sentValue = (
  { dataSource }: Pick<EntityColumns, 'dataSource'>,
  column: ColumnMetadata,
  entity: ObjectLiteral,
): unknown => dataSource.driver.preparePersistentValue(column.getEntityValue(entity), column)
