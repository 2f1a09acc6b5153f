import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { entityOf, operate, serverError, SQLSTATE, watched } from '../core'
import { DeclarationError, UnsupportedDatabaseError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'
import { countStatements } from './sql/count'

/** Options of `countWithin`. */
export interface CountWithinOptions {
  /** The property of the number whose rows are counted, if the entity keeps several counts. @default the only one */
  readonly by?: string
}

const COUNT_RULES: Rules<CountWithinOptions> = { by: { takes: RULE.name.takes, expected: 'the property of a number' } }

/**
 * Returns how many rows a scope has, by one look-up in an index, independent of how many there are and of row security.
 * Softly deleted rows do not count. The entity must declare a number with `count: true`.
 *
 * @param scope the properties of that scope, and no others; {} if the whole table is numbered
 * @returns 0 if there is no row
 * @throws DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @example
 * const comments = await countWithin(manager, Comment, { post: 7 })
 * @function
 */
export const countWithin: typeof countWithinImpl = watched('countWithin', 'number', countWithinImpl)

async function countWithinImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  scope: DeepPartial<NoInfer<Entity>>,
  options: CountWithinOptions = {},
): Promise<number> {
  const { of, number } = countedNumber('countWithin()', manager, entity, options)
  const values = scopeValues('countWithin()', of, number, scope)
  return await operate(manager, { number }, async ({ session }) => {
    const [count = 0] = await session.rows(countStatements(number.table).find, values)
    return count
  })
}

/**
 * It is exact while others write, because it locks the scope as an insert does. Without a scope it counts all scopes,
 * one after the other. Outside a transaction each commits by itself. It writes as the caller, who must own the table.
 *
 * @param scope as for `countWithin`, or undefined for all scopes
 * @returns how many rows count, in the scope or in all scopes
 * @throws DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, QueryFailedError
 * @example
 * await recount(manager, Comment)
 * @function
 */
export const recount: typeof recountImpl = watched('recount', 'number', recountImpl)

async function recountImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  scope?: DeepPartial<NoInfer<Entity>>,
  options: CountWithinOptions = {},
): Promise<number> {
  const { of, number } = countedNumber('recount()', manager, entity, options)
  const statements = countStatements(number.table)
  const isOne = scope !== undefined || number.table.scope.length === 0
  const given = isOne ? [scopeValues('recount()', of, number, scope === undefined ? {} : scope)] : undefined
  const scopes = await operate(manager, { number }, async ({ session }) => {
    const [hides] = await session.rows(statements.hidesRows, [])
    if (hides === true)
      throw new UnsupportedDatabaseError(`recount(): policies hide rows of ${of.metadata.name} ${ROLE}`)
    return given ?? (await session.rows(statements.scopes, []))
  })
  let total = 0
  for (const values of scopes) {
    total += await manager
      .transaction(async (own) => {
        return await operate(own, { number }, async ({ session }) => {
          await session.rows(statements.lock, values)
          const [count = 0] = await session.rows(statements.count, values)
          return count
        })
      })
      .catch((error: unknown) => {
        // No index can hold the scope, so it has no rows.
        if (serverError(error)?.code === SQLSTATE.tooLarge) return 0
        throw error
      })
  }
  return total
}

const ROLE = 'from this role. Use a role with BYPASSRLS, or the owner without FORCE ROW LEVEL SECURITY.'

type CountedEntity = ReturnType<typeof entityOf>
type Number = CountedEntity['numbers'][number]

function countedNumber(
  call: string,
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  options: CountWithinOptions,
): { readonly of: CountedEntity; readonly number: Number } {
  checkOptions(call, options, COUNT_RULES)
  const of = entityOf(manager, entity)
  const { metadata, numbers } = of
  const { by } = options
  const counted = numbers.filter(({ table }) => table.count)
  const [found, ...more] = counted.filter(({ name }) => by === undefined || name === by)
  if (found && more.length === 0) return { of, number: found }
  throw new DeclarationError(
    found
      ? `${call}: ${metadata.name} keeps several counts. Pass { by: '${found.name}' }, or another one.`
      : `${call}: ${by === undefined ? metadata.name : `"${by}" of ${metadata.name}`} keeps no count. ` +
          `Declare it by @NumberWithin({ scope: […], count: true }).`,
  )
}

/** @throws DeclarationError if the scope is incomplete, and for a property that is not part of it */
function scopeValues(
  call: string,
  { dataSource: { driver } }: CountedEntity,
  { metadata, scope }: Number,
  given: ObjectLiteral,
): unknown[] {
  // An entity is accepted too, but a Map, a Date or a list is not.
  if (Object.prototype.toString.call(given) !== '[object Object]') {
    throw new DeclarationError(`${call}: expected an object with the scope, got ${kindOf(given)}.`)
  }
  const heads = new Set(
    scope.flatMap(({ propertyPath, relationMetadata }) =>
      [propertyPath, relationMetadata?.propertyPath ?? propertyPath].map((path) => path.split('.')[0]),
    ),
  )
  const other = Object.keys(given).find((key) => !heads.has(key))
  if (other !== undefined) {
    throw new DeclarationError(`${call}: "${other}" is not part of the scope of ${metadata.name}. Remove it.`)
  }
  return scope.map((column) => {
    const value: unknown = column.getEntityValue(given)
    if (value === undefined || value === null) {
      throw new DeclarationError(`${call}: "${column.propertyPath}" of the scope is missing. Give it a value.`)
    }
    const stored: unknown = driver.preparePersistentValue(value, column)
    if (isSent(stored, column)) return stored
    throw new DeclarationError(
      `${call}: "${column.propertyPath}" of the scope is a ${driver.normalizeType(column)}, got ${kindOf(value)}. Give it such a value.`,
    )
  })
}

/** Whether the driver sends the value as it is meant. It would convert nearly everything to a text. */
function isSent(value: unknown, { type, isArray }: Number['scope'][number]): boolean {
  if (typeof value === 'number') return Number.isFinite(value)
  if (typeof value !== 'object') return typeof value !== 'function' && typeof value !== 'symbol'
  if (value instanceof Date) return !Number.isNaN(value.getTime()) && /date|time/.test(String(type))
  return value instanceof Uint8Array ? type === 'bytea' : isArray || type === 'json' || type === 'jsonb'
}
