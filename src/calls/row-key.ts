import { type EntityMetadata, EntityNotFoundError, InstanceChecker, type ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { textsOfKey } from '../registry/name-declarations'
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
  const { metadata, dataSource } = columns
  const { primaryColumns } = metadata
  const criteria = criteriaOf(metadata, id)
  // An operator, SQL or a list may select several rows, or none in particular.
  const areValues = primaryColumns.every((column) => {
    const value: unknown = column.getEntityValue(criteria)
    const isList = !column.isArray && Array.isArray(value)
    return !InstanceChecker.isFindOperator(value) && typeof value !== 'function' && !isList
  })
  if (!areValues || metadata.getEntityIdMap(criteria) === undefined) {
    const names = primaryColumns.map(({ propertyPath }) => `"${propertyPath}"`).join(', ')
    throw new DeclarationError(
      `Expected the primary key of ${metadata.name}, got ${kindOf(id)}. Give ${names}: updateOrFail() changes one row.`,
    )
  }
  requireKeyValues(columns, criteria)
  const values = primaryColumns.map((column): unknown =>
    dataSource.driver.preparePersistentValue(column.getEntityValue(criteria), column),
  )
  const texts = textsOfKey(values).map((text, index) => spelling(columns, primaryColumns[index], text))
  return { criteria, values, identity: JSON.stringify(texts) }
}

/** Returns the primary key as TypeORM's criteria, and further conditions. It may be incomplete. */
function criteriaOf(metadata: EntityMetadata, id: unknown): ObjectLiteral {
  const { primaryColumns, target } = metadata
  const [only, another] = primaryColumns
  if (typeof id !== 'object' || id instanceof Date) {
    const criteria: ObjectLiteral = {}
    if (only && !another && id !== undefined) only.setEntityValue(criteria, id)
    return criteria
  }
  // The other values of an entity are loaded ones: its dates are rounded, and its lists are not columns.
  const key = typeof target === 'function' && id instanceof target ? metadata.getEntityIdMap(id) : undefined
  return { ...(key ?? id) }
}

/** Returns TypeORM's error for a missing row, whose key is in `criteria` alone. TypeORM would put it into the message. */
export function missingRow(metadata: EntityMetadata, criteria: unknown): EntityNotFoundError {
  const error = new EntityNotFoundError(metadata.target, undefined)
  return Object.assign(error, {
    criteria,
    message: `Could not find the row of entity "${metadata.name}": no row has the primary key in "criteria".`,
  })
}
