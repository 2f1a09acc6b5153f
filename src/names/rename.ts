import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  entityOf,
  missingRow,
  operate,
  type Operation,
  type RowId,
  rowKey,
  updateNames,
  updateOrFail,
  watched,
} from '../core'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { type HolderEntity, holderEntity, namesOf, releaseExpiredStatement } from './sql/statements'

/**
 * Gives a row another name in one round trip, by an UPDATE of its property like that of `save` or raw SQL. The former
 * name is then free, reserved or redirects, as declared.
 *
 * @param id the primary key, or an object with the whole of it
 * @param names the new name of one property or of several; null if the column is nullable
 * @returns the row as it is stored now, without relations
 * @throws TextTakenError with every taken name and its holder; nothing is changed then, and a transaction stays usable
 * @throws EntityNotFoundError of TypeORM if there is no such row
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * as `updateOrFail`
 * @example
 * const user = await rename(manager, User, 1, { handle: 'grace' })
 * @function
 */
export const rename: typeof renameImpl = watched('rename', 'name', renameImpl)

async function renameImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  id: RowId<NoInfer<Entity>>,
  names: { readonly [Property in keyof Entity]?: Extract<Entity[Property], string | null> },
): Promise<Entity> {
  const { metadata, names: declared } = entityOf(manager, entity)
  const given: unknown = names
  const values = new Map(typeof given === 'object' && given !== null ? Object.entries(given) : [])
  const keys = [...values.keys()].filter((key) => values.get(key) !== undefined)
  const other = keys.find((key) => declared.every(({ name }) => name !== key))
  const [first] = declared
  if (!first || keys.length === 0 || other !== undefined) {
    const list = declared.map(({ name }) => `"${name}"`).join(', ')
    throw new DeclarationError(
      `rename(): ${other === undefined ? 'no name was given' : `"${other}" is not a name`}. ` +
        (first
          ? `${metadata.name} has ${list}; updateOrFail() changes other properties with it.`
          : `${metadata.name} has no names; declare them with @UniqueName.`),
    )
  }
  const renamed = await updateNames(manager, holderEntity(metadata, first), id, names)
  return (renamed as Entity | undefined) ?? (await updateOrFail(manager, entity, id, names as Entity))
}

/**
 * Swaps the names of two rows of an entity, in one statement. Nobody sees a name twice or not at all, and nobody can
 * take one in between. Neither name becomes a former name. AfterUpdate fires for both rows with their new names.
 *
 * @returns both rows as they are stored now, in the order of the arguments, without relations
 * @throws EntityNotFoundError of TypeORM if there is no such row; nothing is changed then
 * @throws DeclarationError if both are the same row, before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * @example
 * const [ada, grace] = await swapNames(manager, User, 1, 2)
 * @function
 */
export const swapNames: typeof swapNamesImpl = watched('swapNames', 'name', swapNamesImpl)

async function swapNamesImpl<Entity extends ObjectLiteral>(
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
    if (missing !== undefined) throw missingRow(holder.metadata, missing)
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

/** Options of an operation that uses one name of an entity. */
export interface ByNameOptions {
  /** The property that holds the name. @default the only one */
  readonly by?: string
}

export const BY_NAME_RULES: Rules<ByNameOptions> = { by: RULE.name }

/**
 * @throws DeclarationError if the entity has no such name, or has several and `by` names none; also if `manager` is not
 * an EntityManager
 */
export function chooseName<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  { by }: ByNameOptions,
): HolderEntity {
  const { metadata, names } = entityOf(manager, entity)
  const [only, another] = names
  if (!only) throw new DeclarationError(`${metadata.name} declares no name. Put @UniqueName() on a property of it.`)
  if (by === undefined && !another) return holderEntity(metadata, only)
  const chosen = names.find(({ name }) => name === by)
  if (chosen) return holderEntity(metadata, chosen)
  const list = names.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    by === undefined
      ? `${metadata.name} declares several names. Name one with the option "by": ${list}.`
      : `${metadata.name} declares no name "${by}". The option "by" takes one of ${list}.`,
  )
}

/** Options of `releaseExpired`. */
export interface ReleaseExpiredOptions {
  /** The names that one statement removes. Outside a transaction each statement commits by itself. @default 1000 */
  readonly batch?: number
}

/**
 * Removes expired former names, which keeps the table small. They are free for everybody even if this never runs. It
 * skips a name that somebody is just taking. Several calls at once share the work.
 *
 * @returns the number of names that were removed
 * @throws SchemaDriftError, UnsupportedDatabaseError, DeclarationError
 * @example
 * setInterval(() => void releaseExpired(dataSource.manager), 3_600_000)
 * @function
 */
export const releaseExpired: typeof releaseExpiredImpl = watched('releaseExpired', undefined, releaseExpiredImpl)

async function releaseExpiredImpl(manager: EntityManager, options: ReleaseExpiredOptions = {}): Promise<number> {
  checkOptions('releaseExpired()', options, { batch: RULE.positive } satisfies Rules<ReleaseExpiredOptions>)
  const names = namesOf(manager)
  return await operate(manager, { text: names.text() }, async (operation) => {
    return await operation.removeAll(releaseExpiredStatement(names.table()), options.batch)
  })
}
