import type { EntityMetadata, ObjectLiteral, QueryRunner } from 'typeorm'
import type { StoredRow } from '../sql/statements'
import type { EntityText } from './entity-text'

/** Hash numbers of the entities given back, where they are not 0: too few to weigh, and no property would be free. */
const hashNumbers = new WeakMap<object, number>()

/** The hash number that the row of this entity had when find-or-create gave it back. */
export function hashNumberOf(entity: object): number {
  return hashNumbers.get(entity) ?? 0
}

/**
 * An entity as `find` would give it, without relations.
 *
 * @param row its columns in the order of `rowShape(entityText).select`
 * @param into takes the columns. @default a new one
 */
export function hydrate(
  entityText: EntityText,
  queryRunner: QueryRunner,
  row: StoredRow,
  into?: ObjectLiteral,
): ObjectLiteral {
  const { driver } = entityText.dataSource
  const entity: ObjectLiteral = into ?? classOfRow(entityText, row).create(queryRunner, { fromDeserializer: true })
  entityText.select.forEach((column, index) => {
    const value: unknown = driver.prepareHydratedValue(row.columns[index], column)
    if (value !== undefined) column.setEntityValue(entity, value)
  })
  if (row.hashNumber > 0) hashNumbers.set(entity, row.hashNumber)
  return entity
}

/** Of single table inheritance, the child that the row's discriminator names. */
function classOfRow({ metadata, select }: EntityText, { columns }: StoredRow): EntityMetadata {
  const { discriminatorColumn, childEntityMetadatas } = metadata
  if (!discriminatorColumn || childEntityMetadatas.length === 0) return metadata
  const index = select.indexOf(discriminatorColumn)
  const value = columns[index === -1 ? select.length : index]
  return childEntityMetadatas.find(({ discriminatorValue }) => discriminatorValue === value) ?? metadata
}
