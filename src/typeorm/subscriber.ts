import type { EntityMetadata, EntitySubscriberInterface, InsertEvent, ObjectLiteral, UpdateEvent } from 'typeorm'
import { declarationsOf } from './registry'

/** After `save` and `insert`, an entity holds the text that the database holds: the normalized one. */
export class StoredTextSubscriber implements EntitySubscriberInterface {
  afterInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    putBack(metadata, entity)
  }

  afterUpdate({ metadata, entity }: UpdateEvent<ObjectLiteral>): void {
    if (entity) putBack(metadata, entity)
  }
}

function putBack(metadata: EntityMetadata, entity: ObjectLiteral): void {
  for (const { text } of declarationsOf(metadata)) {
    for (const { column, normalizer, transformed } of text) {
      const value: unknown = transformed ? undefined : column.getEntityValue(entity)
      if (typeof value === 'string') column.setEntityValue(entity, normalizer.normalize(value))
    }
  }
}
