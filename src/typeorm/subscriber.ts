import type {
  BeforeQueryEvent,
  DataSource,
  EntityMetadata,
  EntitySubscriberInterface,
  InsertEvent,
  ObjectLiteral,
  UpdateEvent,
} from 'typeorm'
import { ImmutableTextError } from '../errors'
import { savepoint } from '../sql/statements'
import { normalizedValues } from './normalized-values'
import { declarationsOf, registry } from './registry'

/** Known to every copy of this package in the process. */
const OURS = Symbol.for('typeorm-unique-text.subscriber')

export function isOurs(subscriber: object): boolean {
  return OURS in subscriber
}

/**
 * As the first: what others send when they hear of a rollback is still before it, and what they are told after an
 * insert is what is stored. TypeORM makes the list anew on each `initialize()`.
 */
export function subscribe({ subscribers }: DataSource): void {
  if (!subscribers.some(isOurs)) subscribers.unshift(new RollbackSubscriber(), new StoredTextSubscriber())
}

/** After `save` and `insert`, makes the entity hold what the database holds: the normalized text. */
class StoredTextSubscriber implements EntitySubscriberInterface {
  readonly [OURS] = true

  beforeInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    for (const declaration of declarationsOf(metadata)) Object.assign(entity, normalizedValues(declaration, entity))
  }

  afterInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    putBack(metadata, entity)
  }

  /** Refuses a change before any SQL. The guard refuses those that come another way. */
  beforeUpdate({ metadata, updatedColumns, databaseEntity }: UpdateEvent<ObjectLiteral>): void {
    for (const { name, table, text, scope } of declarationsOf(metadata)) {
      if (!table.immutable) continue
      const given = text.some(({ column }) => column.getEntityValue(databaseEntity ?? {}) !== null)
      const fixed = [...text.map(({ column }) => column), ...scope]
      if (given && updatedColumns.some((column) => fixed.includes(column))) throw new ImmutableTextError(name)
    }
  }

  /** Only what was written: another text may be stored as it is. `update()` lists no columns; its values are the caller's. */
  afterUpdate({ metadata, entity, updatedColumns }: UpdateEvent<ObjectLiteral>): void {
    if (entity && updatedColumns.length > 0) putBack(metadata, entity, updatedColumns)
  }
}

/** Told before the server is: a call that is under way must not send anything after it. */
class RollbackSubscriber implements EntitySubscriberInterface {
  readonly [OURS] = true

  beforeQuery({ query, queryRunner }: BeforeQueryEvent): void {
    if (query === savepoint.rollBack || !/^\s*ROLLBACK\b/i.test(query)) return
    registry.rollbacks.set(queryRunner, (registry.rollbacks.get(queryRunner) ?? 0) + 1)
  }
}

function putBack(metadata: EntityMetadata, entity: ObjectLiteral, written = metadata.columns): void {
  if (Object.isFrozen(entity)) return
  for (const { text } of declarationsOf(metadata)) {
    for (const { column, normalizer, transformed } of text) {
      const value: unknown = transformed || !written.includes(column) ? undefined : column.getEntityValue(entity)
      if (typeof value === 'string') column.setEntityValue(entity, normalizer.normalize(value))
    }
  }
}
