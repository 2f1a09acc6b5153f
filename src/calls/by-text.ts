import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { openSession, withSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { checkOptions, NO_OPTIONS } from '../options'
import { parameterText } from '../sql/types'
import { Attempts } from './attempts'
import {
  CALL_RULES,
  type CountByTextOptions,
  type DeleteByTextOptions,
  type FoundOptions,
  type GivenValues,
  type Naming,
  requireArray,
} from './call-options'
import { calledFrom, callerOf } from './caller'
import { coalescerOf } from './coalescer'
import { type EntityText, entityTextOf, keyOnly, readyText } from './entity-text'
import { entitylessEvent } from './hydrate'
import { find, findRows, foundRow, isSeen, requireDeleteDate, rowToFind } from './look-up'
import { statementsOf } from './statements'
import { inRow } from './values'
import { watched } from './watch'

/**
 * Returns whether a row holds the text: `findOneByText` without the entity. Reads the primary key alone.
 *
 * @param values text and scope, and nothing else
 *
 * @throws the errors of `findOneByText`
 * @example
 * if (await existsByText(manager, Page, { url: 'http://example.com/' })) return
 * @function
 */
export const existsByText: typeof existsByTextImpl = watched('existsByText', 'text', existsByTextImpl)

async function existsByTextImpl<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, CountByTextOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<boolean> {
  checkOptions('existsByText()', options, CALL_RULES.existsByText)
  const entityText = textOf(manager, entity, options)
  const row = rowToFind('existsByText()', entityText, values)
  if (!row) return false
  const mode = options.replica ? 'slave' : 'master'
  const session = await openSession(manager, mode)
  try {
    const found = await foundRow(session, entityText, coalescerOf(session, entityText, mode), row)
    return !!found && isSeen(entityText, found, options)
  } finally {
    await session.close()
  }
}

/**
 * Returns how many rows hold one of the texts, looked up in batches. Inputs with equal texts count once, and a text
 * that the normalizer refuses counts for none. Outside a transaction, each batch has a snapshot of its own.
 *
 * @param inputs text and scope of each, and nothing else
 *
 * @throws the errors of `findOneByText`
 * @example
 * const known = await countByText(manager, Page, [{ url: 'http://example.com/' }, { url: 'http://example.org/' }])
 * @function
 */
export const countByText: typeof countByTextImpl = watched('countByText', 'text', countByTextImpl)

async function countByTextImpl<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
  options: Naming<By, CountByTextOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<number> {
  checkOptions('countByText()', options, CALL_RULES.countByText)
  requireArray(inputs)
  const entityText = textOf(manager, entity, options)
  const rows = [...inputs].flatMap((values, position) =>
    inRow(position, () => rowToFind('countByText()', entityText, values) ?? []),
  )
  if (rows.length === 0) return 0
  const count = async (session: Session): Promise<number> => {
    const found = await findRows(session, await readyText(session, entityText), rows)
    // Counts primary keys, because scopes that differ as given may be stored as equal values.
    const seen = [...found.values()].filter((row) => isSeen(entityText, row, options))
    return new Set(seen.map(({ columns }) => columns.map((value) => parameterText(value)).join('\0'))).size
  }
  return await calledFrom(callerOf(countByText), withSession(manager, count, options.replica ? 'slave' : 'master'))
}

/**
 * Deletes the row that holds the text, and returns whether there was one. It takes one round trip if the row is found.
 * The row must have the entity's class, and must not be softly deleted unless `withDeleted` is set. Subscribers get the
 * events of TypeORM's `delete()`, and the ON DELETE actions of foreign keys apply.
 *
 * @param values text and scope, and nothing else
 *
 * @throws the errors of `findOneByText`
 * @throws AttemptsExhaustedError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws QueryFailedError of TypeORM for everything else, including a foreign key that refers to the row
 * @example
 * const wasThere = await deleteByText(manager, Page, { url: 'http://example.com/' })
 * @function
 */
export const deleteByText: typeof deleteByTextImpl = watched('deleteByText', 'text', deleteByTextImpl)

async function deleteByTextImpl<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, DeleteByTextOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<boolean> {
  checkOptions('deleteByText()', options, CALL_RULES.deleteByText)
  const entityText = textOf(manager, entity, options)
  const row = rowToFind('deleteByText()', entityText, values)
  if (!row) return false
  const caller = callerOf(deleteByText)
  const session = await openSession(manager)
  const remove = async (): Promise<boolean> => {
    const ready = await readyText(session, entityText)
    const attempts = new Attempts(session, entityText.declaration.name)
    const { delete: ofLive, deleteAnyway } = statementsOf(ready)
    for (;;) {
      let lost: unknown
      try {
        if ((await session.rowsOrRollBack(options.withDeleted ? deleteAnyway : ofLive, row.key)).length > 0) return true
        const found = await find(session, ready, row)
        // If the row was deleted and stored again while this statement waited, it was never missing.
        if (!found || !isSeen(entityText, found, options)) return false
      } catch (error) {
        lost = error
      }
      await attempts.again(lost)
    }
  }
  try {
    await entitylessEvent(session, entityText, 'BeforeRemove')
    const removed = await calledFrom(caller, remove())
    if (removed) await entitylessEvent(session, entityText, 'AfterRemove')
    return removed
  } finally {
    await session.close()
  }
}

/** Returns the text of a call that reads only the primary key. */
function textOf<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  { by, withDeleted }: FoundOptions<Entity>,
): EntityText {
  const entityText = keyOnly(entityTextOf(manager, entity, by))
  if (withDeleted) requireDeleteDate(entityText, 'withDeleted')
  return entityText
}
