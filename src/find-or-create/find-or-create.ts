import { setTimeout as sleep } from 'node:timers/promises'
import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { AttemptsExhaustedError, DeclarationError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import type { StoredRow } from '../sql/statements'
import { ensureReady } from '../typeorm/readiness'
import { explain, find, tryOnce } from './attempt'
import { checkCallOptions, type FindOneByTextOptions, type FindOrCreateOptions } from './call-options'
import { type EntityText, entityTextOf, onTable, type ReadyText } from './entity-text'
import { afterInsert, afterLoad, beforeInsert, listensToInsert } from './events'
import { hydrate, isOfClass } from './hydrate'
import { requireObject } from './refused-input'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import { newRowValues, rowValues, type RowValues, withOthersOf } from './row-values'
import { Session } from './session'

/** A row, and how it came about. */
export interface FindOrCreateResult<Entity> {
  readonly entity: Entity
  /** This call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** 1 if the first attempt was enough; there is one retry fewer than attempts. */
  readonly attempts: number
}

/**
 * Returns the row that holds the text, inserting it if there is none. Takes one round trip, is exact for texts with
 * equal hashes, and raises no unique violation that would abort the caller's transaction.
 *
 * Makes up to 10 attempts, with full jitter of up to 500 ms between them. Properties other than text and scope are used
 * only when the row is created. A softly deleted row still holds its text and is found. A `BeforeInsert` listener may
 * fill in columns, but not change text or scope.
 *
 * @example
 * const { entity, created } = await findOrCreate(manager, Page, { url: 'http://example.com/', title: 'Example' })
 *
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError, DuplicateTextError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws QueryFailedError of TypeORM for everything else, a violation of another unique index included
 */
export async function findOrCreate<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  options: FindOrCreateOptions<NoInfer<Entity>> = {},
): Promise<FindOrCreateResult<Entity>> {
  checkCallOptions('findOrCreate', options)
  const entityText = entityTextOf(manager, entity, options.by)
  const row = newRowValues(entityText, values)
  const session = await Session.open(manager)
  try {
    const ready = onTable(entityText, await ensureReady(entityText.declaration, session.query))
    return await findOrCreateRow<Entity>(session, ready, row, values)
  } finally {
    await session.close()
  }
}

/**
 * Returns the row that holds the text, or null. Looks it up by hash, so that the unique index is used.
 *
 * @param values text and scope, and nothing else
 *
 * @example
 * const page = await findOneByText(manager, Page, { url: 'http://example.com/' })
 *
 * @throws TextRejectedError, SchemaDriftError, UnsupportedDatabaseError, DuplicateTextError
 * @throws DeclarationError also for a property that is neither text nor scope
 */
export async function findOneByText<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  options: FindOneByTextOptions<NoInfer<Entity>> = {},
): Promise<Entity | null> {
  checkCallOptions('findOneByText', options)
  const entityText = entityTextOf(manager, entity, options.by)
  refuseOtherProperties(entityText, values)
  const row = rowValues(entityText, values)
  const session = await Session.open(manager)
  try {
    const ready = onTable(entityText, await ensureReady(entityText.declaration, session.query))
    const found = await find(session, ready, row)
    if (!found || !isOfClass(entityText, found)) return null
    const loaded = hydrate(entityText, session.queryRunner, found) as Entity
    await afterLoad(session, entityText, [loaded])
    return loaded
  } finally {
    await session.close()
  }
}

/** A condition that is ignored would give a row that the caller did not ask for. */
function refuseOtherProperties(entityText: EntityText, values: ObjectLiteral): void {
  requireObject(entityText, values)
  const { declaration, metadata } = entityText
  const key = [...declaration.text.map(({ column }) => column), ...declaration.scope]
  const known = new Set(key.map(({ propertyPath }) => propertyPath.split('.')[0]))
  const others = Object.keys(values).filter((name) => values[name] !== undefined && !known.has(name))
  if (others.length === 0) return
  const list = others.map((name) => `"${name}"`).join(', ')
  throw new DeclarationError(
    `findOneByText() looks a row of ${metadata.name} up by "${declaration.name}" alone. ` +
      `Leave out ${list}, or use TypeORM's findOneBy().`,
  )
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
