import { isDeepStrictEqual } from 'node:util'
import type { ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { TextTakenError } from '../errors'
import type { StoredRow } from '../sql/find'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { refusedText } from '../typeorm/refusals'
import { Attempts } from './attempts'
import type { DeletedOption } from './call-options'
import type { EntityText, ReadyText, Updates } from './entity-text'
import { afterWrite, entitylessEvent, fire, hydrate, isEntityOfClass, listensTo } from './hydrate'
import { find, primaryKeyOf, isDeleted, theOne } from './look-up'
import { DeferredRow, entityToInsert, type RequestedRow, type RowValues, withOnly, withOthersOf } from './row-values'
import { statementsOf, upsertStatementsOf } from './statements'
import { mayUpdate, updateOf } from './updates'
import { withPromised } from './values'
import { explain, requireNoCollision } from './write-or-fail'

/** A row, and the way in which it was found or created. */
export interface FindOrCreateResult<Entity> {
  /** The row, with the columns that `find` loads. */
  readonly entity: Entity
  /** Whether this call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** The number of attempts, which is 1 if the first was enough. There is one retry fewer. */
  readonly attempts: number
}

/**
 * Repeats attempts until one succeeds. The caller must finish the result: AfterLoad has not fired for a found row.
 *
 * No function wraps a step, because the caller's line must remain in the stack of the driver's error.
 *
 * @param onDeleted @default a softly deleted row is returned like any other
 */
export async function findOrCreateRow<Entity extends ObjectLiteral>(
  session: Session,
  entityText: ReadyText,
  requested: RequestedRow,
  late: DeferredRow,
  onDeleted?: OnDeleted,
): Promise<FindOrCreateResult<Entity>> {
  const attempts = new Attempts(session, entityText.declaration.name)
  let row = late.isNeeded ? undefined : requested.row
  for (;;) {
    let found: StoredRow | undefined
    let stored: StoredRow | undefined
    try {
      found = await (row ? tryOnce(attempts, entityText, row) : find(session, entityText, requested.row))
      stored = onDeleted ? await afterDeletion(session, entityText, found, requested.row, onDeleted) : found
    } catch (error) {
      await attempts.again(await explain(session, entityText, row, error))
      continue
    }
    if (stored) {
      requested.notify?.(stored)
      const { created } = stored
      // If the row was created, its entity is the object that BeforeInsert got, and AfterInsert gets the same.
      const entity = hydrate(entityText, session, stored, created ? late.entity : undefined) as Entity
      if (created) await afterWrite(session, 'Insert', entityText, entity)
      return { entity, created, attempts: attempts.count }
    }
    if (found || row) await attempts.again()
    else row = await late.complete()
  }
}

/**
 * The number of equal outcomes after which the next calls expect the same: they only look, or insert without a look. A
 * statement that does both costs the server more. Another outcome costs one more round trip, and an insert without a
 * look also one id, at worst in one of 65 calls.
 */
const LONG_STREAK = 64

/** Makes one attempt; returns undefined if others were faster in every step. */
async function tryOnce(attempts: Attempts, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const { session } = attempts
  const statements = statementsOf(entityText, row.others)
  const { streak } = entityText
  const { distributed } = entityText.ready
  if (distributed || streak.calls >= LONG_STREAK) {
    const rows = await session.rows(statements.find, row.key)
    const seen = rows.length > 1 ? await theOne(session, entityText, row, rows) : rows[0]
    if (seen) return seen
  }
  const insert = distributed || streak.calls <= -LONG_STREAK ? statements.create : statements.findOrCreate
  const [first, another] = await (entityText.mayRaise
    ? session.rowsOrRollBack(insert, row.all).catch(noneIfTaken)
    : session.rows(insert, row.all))
  if (first) streak.calls = first.created ? Math.min(streak.calls, 0) - 1 : Math.max(streak.calls, 0) + 1
  else streak.calls = 0
  return first && !another ? first : await insertBeside(attempts, entityText, row)
}

/**
 * Returns the row if neither a look-up nor an insert at number 0 returned it.
 *
 * @returns undefined if others were faster again
 */
async function insertBeside(attempts: Attempts, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const { session } = attempts
  // An index refused the row, and no row with the text was visible. Another inserter was faster, a text with equal hash
  // holds number 0, or the index was another one. Or several rows hold the text, which `find` explains.
  const found = await find(session, entityText, row)
  if (found) return found
  const { createInChain, createInChainOrRaise } = statementsOf(entityText, row.others)
  const [created] = await session.rowsOrRollBack(createInChain, row.all).catch(noneIfTaken)
  const stored = created ?? (await find(session, entityText, row))
  if (stored) return stored
  // The statement has no ON CONFLICT, so that another index throws. If our own index refuses, the attempt was lost.
  try {
    const [raised] = await session.rowsOrRollBack(createInChainOrRaise, row.all)
    return raised
  } catch (error) {
    const { declaration } = entityText
    const { code, constraint } = serverError(error) ?? {}
    const refused = error instanceof Error ? refusedText(error, [declaration]) : undefined
    if (refused) await requireNoCollision(session, refused, [row.key.slice(declaration.scope.length, -1)])
    if (!refused && (code !== SQLSTATE.uniqueViolation || constraint !== declaration.table.index)) throw error
    attempts.refusal = error
    return undefined
  }
}

function noneIfTaken(error: unknown): StoredRow[] {
  if (serverError(error)?.code === SQLSTATE.uniqueViolation) return []
  throw error
}

/** The handling of a softly deleted row that holds the text. */
export interface OnDeleted {
  readonly deleted: DeletedOption
  /** 0-based position in the call. */
  readonly position: number
}

/**
 * Handles a softly deleted row as the call requests, and returns any other row unchanged.
 *
 * @returns undefined if there is no row, or if someone else restored or deleted it meanwhile
 * @throws TextTakenError if the call requests it, and for a row of another class of the table
 */
export async function afterDeletion(
  session: Session,
  entityText: ReadyText,
  stored: StoredRow | undefined,
  row: RowValues,
  { deleted, position }: OnDeleted,
): Promise<StoredRow | undefined> {
  if (deleted === 'return' || !stored || !isDeleted(entityText, stored)) return stored
  const { metadata, declaration } = entityText
  const entity = hydrate(entityText, session, stored)
  if (deleted !== 'restore') {
    const id = metadata.getEntityIdMap(entity)
    throw new TextTakenError([{ entity: metadata.name, property: declaration.name, id, row: position, deleted: true }])
  }
  // Subscribers get the events of TypeORM's `restore()`, which have no entity either.
  await entitylessEvent(session, entityText, 'BeforeRecover')
  const [restored] = await session.rowsOrRollBack(statementsOf(entityText).restore, row.key)
  if (restored) await entitylessEvent(session, entityText, 'AfterRecover')
  return restored
}

/** Repeats attempts of an upsert, as `findOrCreateRow` does, but may update a row that is found. */
export async function upsertRow<Entity extends ObjectLiteral>(
  session: Session,
  entityText: ReadyText,
  requested: RequestedRow,
  updates: Updates,
): Promise<FindOrCreateResult<Entity>> {
  const attempts = new Attempts(session, entityText.declaration.name)
  const listened =
    isHeard(entityText) || entityText.ready.distributed
      ? new ListenedUpsert(attempts, entityText, requested, updates)
      : undefined
  for (;;) {
    let stored: StoredRow | undefined
    try {
      if (listened) stored = await listened.tryOnce()
      else {
        const { row } = requested
        const { upsert } = upsertStatementsOf(entityText, row.others, updates, updateOf(updates, row))
        // An update may violate another index, which must not abort the transaction.
        const [first, another] = await session.rowsOrRollBack(upsert, row.all)
        stored = first && !another ? first : await createOnly(attempts, entityText, row)
      }
    } catch (error) {
      await attempts.again(await explain(session, entityText, requested.row, error))
      continue
    }
    if (stored) {
      const { created } = stored
      const entity = hydrate(entityText, session, stored, listened?.announced(created)) as Entity
      await afterWrite(session, created ? 'Insert' : 'Update', entityText, entity)
      return { entity, created, attempts: attempts.count }
    }
    await attempts.again()
  }
}

/** Returns whether anyone listens to inserts or updates. */
export const isHeard = (entityText: EntityText): boolean =>
  listensTo('Insert', entityText) || listensTo('Update', entityText)

/** Creates a row. A row that is found was stored meanwhile, and the next attempt updates it. */
async function createOnly(attempts: Attempts, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const stored = await tryOnce(attempts, entityText, row)
  return stored?.created ? stored : undefined
}

/** An upsert that is announced to listeners. It looks for the row first, because the event must be known before. */
class ListenedUpsert {
  /** The entity that BeforeInsert got. */
  private inserted: ObjectLiteral | undefined
  /** The entity that BeforeUpdate got. */
  private updated: ObjectLiteral | undefined
  private insert: RowValues | undefined
  private update: { readonly row: RowValues; readonly columns: readonly string[] } | undefined

  constructor(
    private readonly attempts: Attempts,
    private readonly entityText: ReadyText,
    private readonly requested: RequestedRow,
    private readonly updates: Updates,
  ) {}

  announced(created: boolean): ObjectLiteral | undefined {
    if (created) return this.inserted
    // With single table inheritance, the row may be of a child class, unlike the values.
    return this.entityText.metadata.discriminatorColumn ? undefined : this.updated
  }

  /** Each event fires once for all attempts. */
  async tryOnce(): Promise<StoredRow | undefined> {
    const { entityText } = this
    const { session } = this.attempts
    const found = await find(session, entityText, this.requested.row)
    if (found) {
      // A row of another class is refused by `hydrate`.
      if (!isEntityOfClass(entityText, found)) return found
      const { row, columns } = (this.update ??= await this.announceUpdate())
      if (columns.length === 0 && this.updates.sql.size === 0) return found
      const { update } = upsertStatementsOf(entityText, row.others, this.updates, columns)
      const [stored] = await session.rowsOrRollBack(update, row.all)
      if (stored || !entityText.ready.distributed) return stored
      // On a distributed table, an unchanged row is not returned. Another row may be in its place by now.
      const now = await find(session, entityText, this.requested.row)
      return now && isDeepStrictEqual(primaryKeyOf(entityText, now), primaryKeyOf(entityText, found)) ? now : undefined
    }
    if (!this.insert) {
      const deferred = new DeferredRow(session, entityText, this.requested)
      this.insert = await deferred.complete()
      this.inserted = deferred.entity
    }
    return await createOnly(this.attempts, entityText, this.insert)
  }

  /**
   * Fires BeforeUpdate. Columns that a listener sets are updated too, as in `save`; columns that it removes are not.
   *
   * @returns the row with only the columns that the update uses, and those of them that it takes over
   */
  private async announceUpdate(): Promise<{ readonly row: RowValues; readonly columns: readonly string[] }> {
    const { entityText, requested, updates } = this
    const columns = new Set(updateOf(updates, requested.row))
    const withUsed = (all: RowValues): { readonly row: RowValues; readonly columns: readonly string[] } => {
      const row = withOnly(all, new Set([...columns, ...updates.used]))
      return { row, columns: row.others.filter((name) => columns.has(name)) }
    }
    if (!listensTo('Update', entityText)) return withUsed(requested.row)
    const entity = entityToInsert(entityText, requested)
    const given = await withPromised(entityText.metadata, entity)
    const before = entityText.others.map((column) => column.getEntityValue(given) as unknown)
    this.updated = entity
    await fire(this.attempts.session, 'BeforeUpdate', entityText.metadata, entity)
    const values = await withPromised(entityText.metadata, entity)
    entityText.others.forEach((column, index) => {
      if (column.getEntityValue(values) !== before[index] && mayUpdate(entityText, column)) {
        columns.add(column.databaseName)
      }
    })
    return withUsed(withOthersOf(requested.row, entityText, values))
  }
}
