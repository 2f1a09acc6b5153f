import { type EntityManager, EntityNotFoundError, type EntityTarget, type ObjectLiteral } from 'typeorm'
import { type HolderEntity, operate, type Operation, type RowId, rowKey } from '../core'
import { DeclarationError } from '../errors'
import { checkOptions } from '../options'
import { BY_NAME_RULES, type ByNameOptions, chooseName } from './choose-name'

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
  const holder = chooseName(manager, entity, options)
  const keys = [one, other].map((id) => rowKey(holder, id))
  if (keys[0]?.identity === keys[1]?.identity) {
    throw new DeclarationError(`swapNames(): both ids are of one row of ${holder.metadata.name}. Give two rows.`)
  }
  return await operate(manager, { names: [holder.declaration] }, async (operation) => {
    const parameters = [...keys.flatMap(({ values }) => values), ...holder.discriminators]
    const rows = await swapped(operation, holder, parameters)
    const missing = [one, other].find((_, index) => rows.every(({ position }) => position !== index))
    if (missing !== undefined) throw new EntityNotFoundError(holder.metadata.target, missing)
    const ordered = rows.toSorted((left, right) => left.position - right.position)
    const [first = {}, second = {}] = ordered.map(({ columns }) => operation.entity(holder, columns))
    for (const each of [first, second]) await operation.updated(holder, each)
    return [first as Entity, second as Entity]
  })
}

async function swapped(
  operation: Operation,
  { swap }: HolderEntity,
  parameters: readonly unknown[],
): Promise<readonly ReturnType<HolderEntity['swap']['parse']>[]> {
  for (;;) {
    try {
      return await operation.session.rowsOrRollBack(swap, parameters)
    } catch (error) {
      await operation.again(error)
    }
  }
}
