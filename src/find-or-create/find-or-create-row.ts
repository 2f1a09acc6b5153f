import { setTimeout as sleep } from 'node:timers/promises'
import type { DeepPartial, ObjectLiteral } from 'typeorm'
import { AttemptsExhaustedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import type { StoredRow } from '../sql/statements'
import { explain, find, tryOnce } from './attempt'
import type { EntityText, ReadyText } from './entity-text'
import { afterInsert, afterLoad, beforeInsert, listensToInsert } from './events'
import { hydrate } from './hydrate'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import { type RowValues, withOthersOf } from './row-values'
import type { Session } from './session'

/** A row, and how it came about. */
export interface FindOrCreateResult<Entity> {
  readonly entity: Entity
  /** This call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** 1 if the first attempt was enough; there is one retry fewer than attempts. */
  readonly attempts: number
}

/**
 * The loop of attempts.
 *
 * @param values the caller's object, of which listeners get an entity
 */
export async function findOrCreateRow<Entity extends ObjectLiteral>(
  session: Session,
  entityText: ReadyText,
  row: RowValues,
  values: DeepPartial<Entity>,
): Promise<FindOrCreateResult<Entity>> {
  const started = performance.now()
  const listened = listensToInsert(entityText) ? new ListenedRow(session, entityText, row, values) : undefined
  let cause: unknown
  for (let attempts = 1; attempts <= MAX_ATTEMPTS; attempts += 1) {
    if (attempts > 1) await sleep(backoffMilliseconds(attempts - 1, Math.random()))
    try {
      const stored = await (listened ? listened.tryOnce() : tryOnce(session, entityText, row))
      if (stored) return { ...(await toResult<Entity>(session, entityText, stored, listened?.entity)), attempts }
    } catch (error) {
      if (session.inTransaction || !isSerializationError(error)) throw explain(error, entityText)
      cause = error
    }
  }
  throw new AttemptsExhaustedError(entityText.declaration.name, MAX_ATTEMPTS, performance.now() - started, cause)
}

/** A row whose creation is announced to listeners before the insert. */
class ListenedRow {
  /** What BeforeInsert has seen, and AfterInsert shall see. */
  entity: ObjectLiteral | undefined
  private announced: RowValues | undefined

  constructor(
    private readonly session: Session,
    private readonly entityText: ReadyText,
    private readonly given: RowValues,
    private readonly values: ObjectLiteral,
  ) {}

  /** BeforeInsert must not fire for a row that is found, so it is looked for first; it fires once for all attempts. */
  async tryOnce(): Promise<StoredRow | undefined> {
    const found = await find(this.session, this.entityText, this.given)
    if (found) return found
    this.announced ??= await this.announce()
    return await tryOnce(this.session, this.entityText, this.announced)
  }

  /** Listeners may fill in columns; another text would make it another operation, so text and scope stay as given. */
  private async announce(): Promise<RowValues> {
    const { metadata, dataSource } = this.entityText
    const entity: ObjectLiteral = dataSource.manager.create(metadata.target, this.values)
    this.entity = entity
    await beforeInsert(this.session, metadata, entity)
    return withOthersOf(this.given, this.entityText, entity)
  }
}

/** A row that was created becomes the object that BeforeInsert has seen, and AfterInsert sees the same. */
async function toResult<Entity extends ObjectLiteral>(
  session: Session,
  entityText: EntityText,
  stored: StoredRow,
  announced: ObjectLiteral | undefined,
): Promise<Omit<FindOrCreateResult<Entity>, 'attempts'>> {
  const { created } = stored
  const entity = hydrate(entityText, session.queryRunner, stored, created ? announced : undefined) as Entity
  if (created) await afterInsert(session, entityText, entity)
  else await afterLoad(session, entityText, [entity])
  return { entity, created }
}
