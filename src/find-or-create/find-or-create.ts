import { setTimeout as sleep } from 'node:timers/promises'
import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { AttemptsExhaustedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { ensureReady } from '../typeorm/readiness'
import { explain, find, type Outcome, tryOnce } from './attempt'
import { afterInsert, afterLoad, beforeInsert, listensToInsert } from './events'
import { hydrate } from './hydrate'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import { type PreparedRow, prepareRow } from './row-values'
import { type Session, withSession } from './session'
import { type EntityText, entityTextOf } from './entity-text'

/** Options of every operation. */
export interface ByOptions {
  /** Which of the entity's texts; required where it has several. @default the only one */
  readonly by?: string
}

/** A row, and how it came. */
export interface FindOrCreateResult<Entity> {
  readonly entity: Entity
  /** This call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** 1 where the first try was enough; retries are one fewer. */
  readonly attempts: number
}

/**
 * Gives the row that holds the text, and inserts it where there is none: in one round trip, exact for texts with equal
 * hash, and without a unique violation that would abort the caller's transaction.
 *
 * Tries up to 10 times, with full jitter up to 500 ms. Properties beside text and scope are used only when the row is
 * created. A row that is deleted softly still holds its text and is found.
 *
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError, DuplicateTextError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws the driver's own error for everything else, a violation of another unique index included
 */
export async function findOrCreate<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  { by }: ByOptions = {},
): Promise<FindOrCreateResult<Entity>> {
  const target = entityTextOf(manager, entity, by)
  const row = prepareRow(target, values)
  return await withSession(manager, async (session) => {
    await ensureReady(target.declaration, session.query)
    return await findOrCreateRow<Entity>(session, target, row, values)
  })
}

/**
 * Gives the row that holds the text, or null. Looks it up by hash, so that the unique index is used.
 *
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError, DuplicateTextError
 */
export async function findOneByText<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  { by }: ByOptions = {},
): Promise<Entity | null> {
  const target = entityTextOf(manager, entity, by)
  const row = prepareRow(target, values)
  return await withSession(manager, async (session) => {
    await ensureReady(target.declaration, session.query)
    const [found] = await find(session, target, row)
    if (!found) return null
    const loaded = hydrate(session, target, found) as Entity
    await afterLoad(session, target, [loaded])
    return loaded
  })
}

/**
 * The loop of attempts.
 *
 * @param values the caller's object, of which listeners get an entity
 */
export async function findOrCreateRow<Entity extends ObjectLiteral>(
  session: Session,
  target: EntityText,
  row: PreparedRow,
  values: DeepPartial<Entity>,
): Promise<FindOrCreateResult<Entity>> {
  const started = performance.now()
  const once = listensToInsert(target) ? listened(session, target, row, values) : plain(session, target, row)
  let cause: unknown
  for (let attempts = 1; attempts <= MAX_ATTEMPTS; attempts += 1) {
    if (attempts > 1) await sleep(backoffMilliseconds(attempts - 1, Math.random()))
    try {
      const outcome = await once()
      if (outcome) return { ...(await toResult(session, target, outcome)), attempts } as FindOrCreateResult<Entity>
    } catch (error) {
      if (session.inTransaction || !isSerializationError(error)) throw explain(error, target)
      cause = error
    }
  }
  throw new AttemptsExhaustedError(target.declaration.name, MAX_ATTEMPTS, performance.now() - started, cause)
}

type Once = () => Promise<Outcome | undefined>

function plain(session: Session, target: EntityText, row: PreparedRow): Once {
  return () => tryOnce(session, target, row)
}

/** BeforeInsert must not fire for a row that is found, so it is looked for first; it fires once for all attempts. */
function listened(session: Session, target: EntityText, given: PreparedRow, values: ObjectLiteral): Once {
  let row: PreparedRow | undefined
  return async () => {
    const [found] = await find(session, target, given)
    if (found) return { row: found, created: false }
    row ??= await rowAfterListeners(session, target, given, values)
    return await tryOnce(session, target, row)
  }
}

/** Listeners may fill in columns; another text would make it another operation, and does not count. */
async function rowAfterListeners(
  session: Session,
  target: EntityText,
  given: PreparedRow,
  values: ObjectLiteral,
): Promise<PreparedRow> {
  const { metadata, dataSource } = target
  const entity: ObjectLiteral = dataSource.manager.create(metadata.target, values)
  await beforeInsert(session, metadata, entity)
  const changed = prepareRow(target, entity)
  return changed.key === given.key ? changed : given
}

async function toResult(
  session: Session,
  target: EntityText,
  { row, created }: Outcome,
): Promise<Omit<FindOrCreateResult<ObjectLiteral>, 'attempts'>> {
  const entity = hydrate(session, target, row)
  if (created) await afterInsert(session, target, entity)
  else await afterLoad(session, target, [entity])
  return { entity, created }
}
