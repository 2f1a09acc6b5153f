import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { OURS } from '../typeorm/subscriber'
import type { EntityColumns } from './entity-text'
import type { Session } from '../connection/session'

/**
 * Listeners and subscribers see what they would see of `find` and `insert`. Whether anyone listens is looked at first:
 * an event before the insert costs a separate look-up, since it must not fire for a row that is found.
 */
export function listensToInsert({ metadata, dataSource }: EntityColumns): boolean {
  if (metadata.beforeInsertListeners.length + metadata.afterInsertListeners.length > 0) return true
  // A loop, and not a list that is kept: whoever comes later, or gets a method later, hears too.
  for (const one of dataSource.subscribers)
    if ((one.beforeInsert !== undefined || one.afterInsert !== undefined) && !(OURS in one)) return true
  return false
}

export function listensToUpdate({ metadata, dataSource }: EntityColumns): boolean {
  const { beforeUpdateListeners, afterUpdateListeners } = metadata
  return (
    beforeUpdateListeners.length + afterUpdateListeners.length > 0 ||
    dataSource.subscribers.some(
      (subscriber) =>
        !(OURS in subscriber) && (subscriber.beforeUpdate !== undefined || subscriber.afterUpdate !== undefined),
    )
  )
}

export function listensToLoad({ metadata, dataSource }: EntityColumns): boolean {
  if (metadata.afterLoadListeners.length > 0) return true
  for (const one of dataSource.subscribers) if (one.afterLoad !== undefined) return true
  return false
}

/** Listeners run while we hold no connection: a listener that asks an exhausted pool for one would wait for ever. */
export async function beforeInsert(session: Session, metadata: EntityMetadata, entity: ObjectLiteral): Promise<void> {
  await session.release()
  await session.queryRunner.broadcaster.broadcast('BeforeInsert', metadata, entity)
}

export async function afterInsert(session: Session, entityText: EntityColumns, entity: ObjectLiteral): Promise<void> {
  if (!listensToInsert(entityText)) return
  await session.release()
  await session.queryRunner.broadcaster.broadcast('AfterInsert', entityText.metadata, entity)
}

/** As `update()` fires it: with the new values, and without the row that was there before. */
export async function beforeUpdate(session: Session, entityText: EntityColumns, entity: ObjectLiteral): Promise<void> {
  await session.release()
  await session.queryRunner.broadcaster.broadcast('BeforeUpdate', entityText.metadata, entity)
}

export async function afterUpdate(session: Session, entityText: EntityColumns, entity: ObjectLiteral): Promise<void> {
  if (!listensToUpdate(entityText)) return
  await session.release()
  await session.queryRunner.broadcaster.broadcast('AfterUpdate', entityText.metadata, entity)
}

export async function afterLoad(session: Session, entityText: EntityColumns, entities: ObjectLiteral[]): Promise<void> {
  if (entities.length === 0 || !listensToLoad(entityText)) return
  await session.release()
  await session.queryRunner.broadcaster.broadcast('Load', entityText.metadata, entities)
}

/** As TypeORM's `restore()` tells subscribers: without an entity. */
export async function recoverEvent(
  session: Session,
  { metadata, dataSource }: EntityColumns,
  event: 'BeforeRecover' | 'AfterRecover',
): Promise<void> {
  const isHeard = dataSource.subscribers.some(
    (subscriber) => subscriber.beforeRecover !== undefined || subscriber.afterRecover !== undefined,
  )
  if (!isHeard) return
  await session.release()
  await session.queryRunner.broadcaster.broadcast(event, metadata)
}

/** Entities of one class that were loaded with others. */
export interface Related {
  readonly metadata: EntityMetadata
  readonly entities: ObjectLiteral[]
}

/** Fires AfterLoad after relations were joined: TypeORM fires it for joined entities together with their row. */
export async function afterLoadJoined(
  session: Session,
  { metadata }: EntityColumns,
  entities: ObjectLiteral[],
  related: readonly Related[],
): Promise<void> {
  const notified = [{ metadata, entities }, ...related].filter((one) => one.entities.length > 0)
  if (notified.length === 0) return
  await session.release()
  for (const one of notified) {
    await session.queryRunner.broadcaster.broadcast('Load', one.metadata, one.entities)
  }
}
