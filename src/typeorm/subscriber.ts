import type { EntityMetadata, EntitySubscriberInterface, InsertEvent, ObjectLiteral, UpdateEvent } from 'typeorm'
import { ImmutableTextError } from '../errors'
import { declarationsOf } from './registry'

/** After `save` and `insert`, an entity holds the text that the database holds: the normalized one. */
export class StoredTextSubscriber implements EntitySubscriberInterface {
  afterInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    putBack(metadata, entity)
  }

  /** Before any SQL; the guard refuses what comes by other ways. */
  beforeUpdate({ metadata, updatedColumns, databaseEntity }: UpdateEvent<ObjectLiteral>): void {
    for (const { name, table, text, scope } of declarationsOf(metadata)) {
      if (!table.immutable) continue
      const given = text.some(({ column }) => column.getEntityValue(databaseEntity ?? {}) !== null)
      const fixed = [...text.map(({ column }) => column), ...scope]
      if (given && updatedColumns.some((column) => fixed.includes(column))) throw new ImmutableTextError(name)
    }
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
