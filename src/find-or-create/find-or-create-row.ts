import type { ObjectLiteral } from 'typeorm'
import type { StoredRow } from '../sql/statements'
import { explain, find, tryOnce } from './attempt'
import { Attempts } from './attempts'
import { afterDeletion, type OnDeleted, RETURN } from './deleted-rows'
import type { ReadyText } from '../rows/entity-text'
import { afterInsert } from '../rows/events'
import { hydrate } from '../rows/hydrate'
import { type AskedRow, isLate, LateRow } from '../rows/late-row'
import type { Session } from '../connection/session'

/** A row, and how it came about. */
export interface FindOrCreateResult<Entity> {
  readonly entity: Entity
  /** This call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** 1 if the first attempt was enough; there is one retry fewer than attempts. */
  readonly attempts: number
}

/**
 * The loop of attempts. The caller must finish its result: AfterLoad has not fired yet for a row that was found.
 *
 * There is no function around each step: the caller's line must stay in the stack of the driver's error.
 */
export async function findOrCreateRow<Entity extends ObjectLiteral>(
  session: Session,
  entityText: ReadyText,
  asked: AskedRow,
  onDeleted: OnDeleted = RETURN,
): Promise<FindOrCreateResult<Entity>> {
  const attempts = new Attempts(session, entityText.declaration.name)
  const late = isLate(entityText, asked) ? new LateRow(session, entityText, asked) : undefined
  let row = late ? undefined : asked.row
  for (;;) {
    let found: StoredRow | undefined
    let stored: StoredRow | undefined
    try {
      found = await (row ? tryOnce(session, entityText, row) : find(session, entityText, asked.row))
      stored = await afterDeletion(session, entityText, { stored: found, row: asked.row }, onDeleted)
    } catch (error) {
      await attempts.again(await explain(session, entityText, row, error))
      continue
    }
    if (stored) {
      tell(asked, stored)
      const { created } = stored
      const entity = entityOf(session, entityText, stored, late) as Entity
      if (created) await afterInsert(session, entityText, entity)
      return { entity, created, attempts: attempts.count }
    }
    if (found || row || !late) await attempts.again()
    else row = await late.complete()
  }
}

function tell({ told }: AskedRow, stored: StoredRow): void {
  told?.(stored)
}

/** A row that was created becomes the object that BeforeInsert has seen, and AfterInsert sees the same. */
const entityOf = (
  session: Session,
  entityText: ReadyText,
  stored: StoredRow,
  late: LateRow | undefined,
): ObjectLiteral => hydrate(entityText, session, stored, stored.created ? late?.entity : undefined)
