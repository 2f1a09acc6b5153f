import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import type { Row, Session } from './session'
import type { EntityText } from './entity-text'

/** Hash numbers of the entities given back, where they are not 0: too few to weigh, and no property would be free. */
const hashNumbers = new WeakMap<object, number>()

/** The hash number that the row of this entity had when find-or-create gave it back. */
export function hashNumberOf(entity: object): number {
  return hashNumbers.get(entity) ?? 0
}

/** An entity as `find` would give it, without relations. `row` is in the order of `shapeOf(target).select`. */
export function hydrate({ queryRunner, dataSource }: Session, target: EntityText, row: Row): ObjectLiteral {
  const metadata = concrete(target, row)
  const entity: ObjectLiteral = metadata.create(queryRunner, { fromDeserializer: true })
  target.select.forEach((column, place) => {
    const value: unknown = dataSource.driver.prepareHydratedValue(row[place], column)
    if (value !== undefined) column.setEntityValue(entity, value)
  })
  const hashNumber = Number(row.at(-1))
  if (hashNumber > 0) hashNumbers.set(entity, hashNumber)
  return entity
}

/** Of single table inheritance, the child that the row's discriminator names. */
function concrete({ metadata, select }: EntityText, row: Row): EntityMetadata {
  const { discriminatorColumn, childEntityMetadatas } = metadata
  if (!discriminatorColumn || childEntityMetadatas.length === 0) return metadata
  const place = select.indexOf(discriminatorColumn)
  const value = row[place === -1 ? select.length : place]
  return childEntityMetadatas.find(({ discriminatorValue }) => discriminatorValue === value) ?? metadata
}
