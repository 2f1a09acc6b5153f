import { type EntityManager, EntityNotFoundError, type EntityTarget, type ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { openSession } from '../connection/open-session'
import { ensureNamesReady } from '../find-or-create/requested-names'
import { Attempts } from '../find-or-create/attempts'
import { criteriaOf, type RowId, sentValue } from '../find-or-create/update-or-fail'
import { afterUpdate } from '../rows/events'
import { type SwappedRow, swapNamesStatement } from '../sql/name-statements'
import type { Session } from '../connection/session'
import { takenNamesError, textsOfKey } from '../typeorm/names'
import { type HolderEntity, holderEntityOf, toEntity } from './holder-row'

/** Options of an operation that uses one name of an entity. */
export interface ByNameOptions {
  /** The property that holds the name. @default the only one */
  readonly by?: string
}

export const BY_NAME_RULES: Rules<ByNameOptions> = { by: RULE.name }

/**
 * Swaps the names of two rows of an entity, in one statement: nobody sees a name twice or not at all, and nobody can
 * take one in between. Neither name becomes a former name. AfterUpdate fires for both rows with their new names.
 *
 * @returns both rows as they stand now, in the order of the arguments, without relations
 * @throws EntityNotFoundError of TypeORM if there is no such row; nothing is changed then
 * @throws DeclarationError if both are the same row, before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * @example
 * const [ada, grace] = await swapNames(manager, User, 1, 2)
 */
export async function swapNames<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  one: RowId<NoInfer<Entity>>,
  ...[other, options = {}]: [other: RowId<NoInfer<Entity>>, options?: ByNameOptions]
): Promise<[Entity, Entity]> {
  checkOptions('swapNames()', options, BY_NAME_RULES)
  const holder = holderEntityOf(manager, entity, options.by)
  const keys = [one, other].map((id) => keyOf(holder, id))
  if (new Set(keys.map((key) => JSON.stringify(textsOfKey(key)))).size < 2) {
    throw new DeclarationError(`swapNames(): both ids are of one row of ${holder.metadata.name}. Give two rows.`)
  }
  const session = await openSession(manager)
  try {
    await ensureNamesReady(session, [{ name: holder.declaration }])
    const rows = await swapped(session, holder, keys)
    const missing = [one, other].find((_, index) => rows.every(({ position }) => position !== index))
    if (missing !== undefined) throw new EntityNotFoundError(holder.metadata.target, missing)
    const ordered = rows.toSorted((left, right) => left.position - right.position)
    const [first = {}, second = {}] = ordered.map(({ columns }) => toEntity(holder, session, columns))
    for (const each of [first, second]) await afterUpdate(session, holder, each)
    return [first as Entity, second as Entity]
  } finally {
    await session.close()
  }
}

const keyOf = (holder: HolderEntity, id: unknown): unknown[] => {
  const criteria = criteriaOf(holder, id)
  return holder.metadata.primaryColumns.map((column) => sentValue(holder, column, criteria))
}

async function swapped(
  session: Session,
  holder: HolderEntity,
  keys: readonly (readonly unknown[])[],
): Promise<readonly SwappedRow[]> {
  const { shape, changes, declaration } = holder
  const statement = swapNamesStatement(shape, changes)
  const values = [...keys.flat(), ...(shape.only?.values ?? [])]
  const attempts = new Attempts(session, declaration.name)
  for (;;) {
    try {
      return await session.rowsOrRollBack(statement, values)
    } catch (error) {
      await attempts.again(takenNamesError(error, session.dataSource) ?? error)
    }
  }
}
