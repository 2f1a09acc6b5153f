import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { entityOf, findCount, operate } from '../core'
import { DeclarationError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'

/** Options of `countWithin`. */
export interface CountWithinOptions {
  /** Which count, if the entity keeps several: the property of its number. @default the only one */
  readonly by?: string
}

const RULES: Rules<CountWithinOptions> = { by: { takes: RULE.name.takes, expected: 'the property of a number' } }

/**
 * Returns how many rows a scope has, by one look-up in an index, however many there are and whatever row security shows
 * of them. Rows that are deleted softly do not count. The entity must declare a number with `count: true`.
 *
 * @param scope the properties of that scope, and no others; {} if the whole table is numbered
 * @returns 0 if there is no row
 * @throws DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @example
 * const comments = await countWithin(manager, Comment, { post: 7 })
 */
export async function countWithin<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  scope: DeepPartial<NoInfer<Entity>>,
  options: CountWithinOptions = {},
): Promise<number> {
  checkOptions('countWithin()', options, RULES)
  const of = entityOf(manager, entity)
  const number = countedNumber(of, options.by)
  const values = scopeValues(of, number, scope)
  return await operate(manager, { number }, async ({ session }) => {
    const [count = 0] = await session.rows(findCount(number.table), values)
    return count
  })
}

type Entity = ReturnType<typeof entityOf>

function countedNumber({ metadata, numbers }: Entity, by: string | undefined): Entity['numbers'][number] {
  const counted = numbers.filter(({ table }) => table.count)
  const [found, ...more] = counted.filter(({ name }) => by === undefined || name === by)
  if (found && more.length === 0) return found
  throw new DeclarationError(
    found
      ? `countWithin(): ${metadata.name} keeps several counts. Pass { by: '${found.name}' }, or another one.`
      : `countWithin(): ${by === undefined ? metadata.name : `"${by}" of ${metadata.name}`} keeps no count. ` +
          `Declare it by @NumberWithin({ scope: […], count: true }).`,
  )
}

/** @throws DeclarationError if the scope is incomplete, and for a property that is not part of it */
function scopeValues(
  { dataSource: { driver } }: Entity,
  { metadata, scope }: Entity['numbers'][number],
  given: ObjectLiteral,
): unknown[] {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new DeclarationError(`countWithin(): expected an object with the scope, got ${kindOf(given)}.`)
  }
  const heads = new Set(
    scope.flatMap(({ propertyPath, relationMetadata }) =>
      [propertyPath, relationMetadata?.propertyPath ?? propertyPath].map((path) => path.split('.')[0]),
    ),
  )
  const other = Object.keys(given).find((key) => !heads.has(key))
  if (other !== undefined) {
    throw new DeclarationError(`countWithin(): "${other}" is not part of the scope of ${metadata.name}. Remove it.`)
  }
  return scope.map((column) => {
    const value: unknown = column.getEntityValue(given)
    if (value === undefined || value === null) {
      throw new DeclarationError(`countWithin(): "${column.propertyPath}" of the scope is missing. Give it a value.`)
    }
    return driver.preparePersistentValue(value, column) as unknown
  })
}
