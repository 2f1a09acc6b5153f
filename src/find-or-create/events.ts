import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { StoredTextSubscriber } from '../typeorm/subscriber'
import type { Session } from './session'
import type { EntityText } from './entity-text'

/**
 * Listeners and subscribers see what they would see of `find` and `insert`. Whether anyone listens is looked at first:
 * an event before the insert costs a separate look-up, since it must not fire for a row that is found.
 */
export function listensToInsert({ metadata, dataSource }: EntityText): boolean {
  const { beforeInsertListeners, afterInsertListeners } = metadata
  return (
    beforeInsertListeners.length + afterInsertListeners.length > 0 ||
    dataSource.subscribers.some(
      (subscriber) =>
        !(subscriber instanceof StoredTextSubscriber) &&
        (subscriber.beforeInsert !== undefined || subscriber.afterInsert !== undefined),
    )
  )
}

export async function beforeInsert(session: Session, metadata: EntityMetadata, entity: ObjectLiteral): Promise<void> {
  await session.queryRunner.broadcaster.broadcast('BeforeInsert', metadata, entity)
}

export async function afterInsert(session: Session, target: EntityText, entity: ObjectLiteral): Promise<void> {
  if (!listensToInsert(target)) return
  const { metadata } = target
  await session.queryRunner.broadcaster.broadcast('AfterInsert', metadata, entity)
}

export function listensToLoad({ metadata, dataSource }: EntityText): boolean {
  return (
    metadata.afterLoadListeners.length > 0 ||
    dataSource.subscribers.some((subscriber) => subscriber.afterLoad !== undefined)
  )
}

export async function afterLoad(session: Session, target: EntityText, entities: ObjectLiteral[]): Promise<void> {
  if (entities.length === 0) return
  if (listensToLoad(target)) await session.queryRunner.broadcaster.broadcast('Load', target.metadata, entities)
}
