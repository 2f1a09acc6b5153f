import type { ObjectLiteral } from 'typeorm'
import type { StoredRow } from '../sql/statements'
import { updateSpreadStatement } from '../sql/spread'
import { upsertStatement } from '../sql/upsert-statement'
import { explain, find, type FindOrCreateResult, tryOnce } from './try-once'
import { Attempts } from './attempts'
import { cached, type EntityText, type ReadyText, type UpsertStatements } from '../rows/entity-text'
import { afterInsert, afterUpdate, beforeUpdate, listensToInsert, listensToUpdate } from '../rows/events'
import { hydrate, isEntityOfClass } from '../rows/hydrate'
import { DeferredRow, entityToInsert, type RequestedRow } from '../rows/deferred-row'
import { withPromised } from '../rows/nested-values'
import { rowShape, type RowValues, withOthersOf } from '../rows/row-values'
import type { Session } from '../connection/session'
import { mayUpdate, updateOf, type Updates, updateShape, withOnly } from '../rows/updates'

/** The loop of attempts of an upsert: like `findOrCreateRow`, but a row that is found may be updated. */
export async function upsertRow<Entity extends ObjectLiteral>(
  session: Session,
  entityText: ReadyText,
  requested: RequestedRow,
  updates: Updates,
): Promise<FindOrCreateResult<Entity>> {
  const attempts = new Attempts(session, entityText.declaration.name)
  const listened =
    isHeard(entityText) || entityText.ready.distributed
      ? new ListenedUpsert(session, entityText, requested, updates)
      : undefined
  for (;;) {
    let stored: StoredRow | undefined
    try {
      stored = await (listened ? listened.tryOnce() : tryUpsert(session, entityText, requested.row, updates))
    } catch (error) {
      await attempts.again(await explain(session, entityText, requested.row, error))
      continue
    }
    if (stored) {
      const entity = (await toEntity(session, entityText, stored, listened)) as Entity
      return { entity, created: stored.created, attempts: attempts.count }
    }
    await attempts.again()
  }
}

/** Somebody hears of inserts or of updates. */
export const isHeard = (entityText: EntityText): boolean => listensToInsert(entityText) || listensToUpdate(entityText)

/** One attempt; undefined where others were faster. An update may violate another index: it must abort nothing. */
async function tryUpsert(
  session: Session,
  entityText: ReadyText,
  row: RowValues,
  updates: Updates,
): Promise<StoredRow | undefined> {
  const { upsert } = statementsOf(entityText, row.others, { ...updates, columns: new Set(updateOf(updates, row)) })
  const [first, another] = await session.rowsOrRollBack(upsert, row.all)
  if (first && !another) return first
  return await createOnly(session, entityText, row)
}

/** A row that is found has come meanwhile: the next attempt updates it. */
async function createOnly(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const stored = await tryOnce(session, entityText, row)
  return stored?.created ? stored : undefined
}

/** An upsert that is announced to listeners. What is to happen must be known before, so the row is looked for first. */
class ListenedUpsert {
  /** What BeforeInsert or BeforeUpdate has seen. */
  readonly announced: { inserted?: ObjectLiteral | undefined; updated?: ObjectLiteral } = {}
  private insert: RowValues | undefined
  private update: RowValues | undefined

  constructor(
    private readonly session: Session,
    private readonly entityText: ReadyText,
    private readonly requested: RequestedRow,
    private readonly updates: Updates,
  ) {}

  /** Each event fires once for all attempts. */
  async tryOnce(): Promise<StoredRow | undefined> {
    const { session, entityText } = this
    const found = await find(session, entityText, this.requested.row)
    if (found) {
      // A row of another class is refused with its entity.
      if (!isEntityOfClass(entityText, found)) return found
      const row = (this.update ??= await this.announceUpdate())
      if (row.others.length === 0) return found
      const { update } = statementsOf(entityText, row.others, { ...this.updates, columns: new Set(row.others) })
      const [stored] = await session.rowsOrRollBack(update, row.all)
      // On a distributed table, what is as it should be is not given back.
      return stored ?? (entityText.ready.distributed ? await find(session, entityText, this.requested.row) : undefined)
    }
    this.insert ??= await this.announceInsert()
    return await createOnly(session, entityText, this.insert)
  }

  private async announceInsert(): Promise<RowValues> {
    const deferred = new DeferredRow(this.session, this.entityText, this.requested)
    const row = await deferred.complete()
    this.announced.inserted = deferred.entity
    return row
  }

  /**
   * What a listener sets is updated too, as `save` does it; what it takes away is not.
   *
   * @returns the row with the columns that are updated, and no others
   */
  private async announceUpdate(): Promise<RowValues> {
    const { session, entityText, requested, updates } = this
    const columns = new Set(updateOf(updates, requested.row))
    if (!listensToUpdate(entityText)) return withOnly(requested.row, columns)
    const entity = entityToInsert(entityText, requested)
    const given = await withPromised(entityText.metadata, entity)
    const before = entityText.others.map((column) => column.getEntityValue(given) as unknown)
    this.announced.updated = entity
    await beforeUpdate(session, entityText, entity)
    const values = await withPromised(entityText.metadata, entity)
    entityText.others.forEach((column, index) => {
      if (column.getEntityValue(values) !== before[index] && mayUpdate(entityText, column)) {
        columns.add(column.databaseName)
      }
    })
    return withOnly(withOthersOf(requested.row, entityText, values), columns)
  }
}

async function toEntity(
  session: Session,
  entityText: ReadyText,
  stored: StoredRow,
  listened: ListenedUpsert | undefined,
): Promise<ObjectLiteral> {
  const { inserted, updated } = listened?.announced ?? {}
  // With single table inheritance the row may be of a child's class, which the values were not.
  const announced = entityText.metadata.discriminatorColumn ? undefined : updated
  const entity = hydrate(entityText, session, stored, stored.created ? inserted : announced)
  if (stored.created) await afterInsert(session, entityText, entity)
  else await afterUpdate(session, entityText, entity)
  return entity
}

function statementsOf(entityText: ReadyText, others: readonly string[], updates: Updates): UpsertStatements {
  const updated = [...updates.columns]
  const key = [...others, '', ...updated, String(updates.skipUnchanged)]
  return cached(entityText.upsertStatements, key, (): UpsertStatements => {
    const shape = rowShape(entityText, others)
    const changes = updateShape(entityText, updates, updated)
    const update = entityText.ready.distributed
      ? updateSpreadStatement(shape, changes)
      : upsertStatement(shape, changes, false)
    return { upsert: upsertStatement(shape, changes, true), update }
  })
}
