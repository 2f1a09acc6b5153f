import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { openSession } from '../connection/open-session'
import { checkOptions } from '../options'
import { CALL_RULES, type UpsertByTextOptions } from './call-options'
import { calledFrom, callerOf } from './caller'
import { entityTextOf, readyText, requireChanged } from './entity-text'
import { type FindOrCreateManyResult, PreparedMany } from './many'
import { type FindOrCreateResult, findOrCreateRow, upsertRow } from './one-row'
import { DeferredRow, requestedRow } from './row-values'
import { isChanging, requireUsed, updatesOf } from './updates'
import { finish, relationsToLoad } from './hydrate'
import { withPromised } from './values'
import { countResults, watched } from './watch'

/**
 * Updates the rows that hold the texts, and creates those that are missing. The results have the order of the rows. If
 * a row is rejected, or refused by the database (by another unique index, for instance), its result has the error, and
 * no other row is affected.
 *
 * Sends batches of up to 1,000 rows, each in one round trip, and is exact for texts with equal hashes: only a row that
 * holds the text itself is updated. A found row takes over those columns of its values that `update` lists. If the
 * values contain none of these, the row is only found. Of several rows with equal texts the first is `created`, and
 * each changes its columns, as if they were upserted one after the other. All get the same entity. Rows that set a
 * column to different values take a statement each, and so do all rows of one text if `update` or `where` is SQL.
 *
 * A version is incremented and an update date is set, as in `save`. A softly deleted row holds its text: it is updated,
 * and stays deleted. `BeforeInsert` and `AfterInsert` fire for a row that is created. For an updated row,
 * `BeforeUpdate` and `AfterUpdate` fire with the new values, as in `update()`, and then `AfterLoad`. If there are
 * listeners, rows are sent one by one.
 *
 * @example
 * const results = await upsertByText(manager, Page, [{ url: 'http://example.com/', title: 'New' }], { update: ['title'] })
 *
 * @throws DeclarationError, SchemaDriftError, UnsupportedDatabaseError for the whole call
 * @throws AttemptsExhaustedError for a batch that loses every race; batches before it are committed
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws QueryFailedError if the connection or the server fails
 * @function
 */
export const upsertByText: typeof upsertByTextImpl = watched('upsertByText', 'text', upsertByTextImpl, countResults)

async function upsertByTextImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  rows: readonly DeepPartial<NoInfer<Entity>>[],
  options?: UpsertByTextOptions<NoInfer<Entity>>,
): Promise<FindOrCreateManyResult<Entity>[]>
/**
 * Updates the row that holds the text of `row`, or creates it. Throws the error that refuses that row.
 *
 * @example
 * const { entity, created } = await upsertByText(manager, Page, { url: 'http://example.com/', title: 'New' })
 */
async function upsertByTextImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  row: DeepPartial<NoInfer<Entity>>,
  options?: UpsertByTextOptions<NoInfer<Entity>>,
): Promise<FindOrCreateResult<Entity>>
async function upsertByTextImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: DeepPartial<NoInfer<Entity>> | readonly DeepPartial<NoInfer<Entity>>[],
  options: UpsertByTextOptions<NoInfer<Entity>> = {},
): Promise<FindOrCreateManyResult<Entity>[] | FindOrCreateResult<Entity>> {
  checkOptions('upsertByText()', options, CALL_RULES.upsertByText)
  const entityText = entityTextOf(manager, entity, options.by)
  const updates = updatesOf(entityText, options)
  const load = relationsToLoad(entityText, options)
  if (!Array.isArray(given)) {
    const { lazyRelations } = entityText.metadata
    const values = lazyRelations.length > 0 ? await withPromised(entityText.metadata, given) : given
    const requested = requestedRow(entityText, values, options.create)
    requireUsed(entityText, updates, requested.row)
    const session = await openSession(manager)
    try {
      let result: FindOrCreateResult<Entity> | undefined
      // A loop, because each function around it would add a line to the stack of an error.
      for (let again = false; !result; again = true) {
        const ready = await readyText(session, entityText)
        try {
          result = isChanging(updates, requested.row)
            ? await upsertRow<Entity>(session, ready, requested, updates)
            : await findOrCreateRow<Entity>(session, ready, requested, new DeferredRow(session, ready, requested))
        } catch (error) {
          requireChanged(session, entityText, error, again)
        }
      }
      await finish(session, entityText, [result], load)
      return result
    } finally {
      await session.close()
    }
  }
  const prepared = new PreparedMany<Entity>(entityText, load, { create: options.create, updates })
  const caller = callerOf(upsertByText)
  const adding = prepared.addAll(given as readonly DeepPartial<Entity>[])
  if (adding) await adding
  return await calledFrom(caller, prepared.run(manager))
}
