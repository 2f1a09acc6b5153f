import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import type { Row, Session } from './session'
import type { Target } from './target'

/** An entity as `find` would give it, without relations. `row` is in the order of `shapeOf(target).select`. */
export function hydrate<Entity>({ queryRunner, dataSource }: Session, target: Target, row: Row): Entity {
  const metadata = concrete(target, row)
  const entity: ObjectLiteral = metadata.create(queryRunner, { fromDeserializer: true })
  target.select.forEach((column, place) => {
    const value: unknown = dataSource.driver.prepareHydratedValue(row[place], column)
    if (value !== undefined) column.setEntityValue(entity, value)
  })
  return entity as Entity
}

/** Of single table inheritance, the child that the row's discriminator names. */
function concrete({ metadata, select }: Target, row: Row): EntityMetadata {
  const { discriminatorColumn, childEntityMetadatas } = metadata
  if (!discriminatorColumn || childEntityMetadatas.length === 0) return metadata
  const place = select.indexOf(discriminatorColumn)
  const value = row[place === -1 ? select.length : place]
  return childEntityMetadatas.find(({ discriminatorValue }) => discriminatorValue === value) ?? metadata
}
