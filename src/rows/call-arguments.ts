import type { EntityManager } from 'typeorm'
import { DeclarationError } from '../errors'
import { isManager, kindOf } from '../options'

/** @throws DeclarationError for anything but an EntityManager */
export function requireManager(manager: EntityManager): void {
  const given: unknown = manager
  if (isManager(given)) return
  const own = typeof given === 'object' && given !== null && 'manager' in given && isManager(given.manager)
  throw new DeclarationError(
    `Expected an EntityManager as the first argument, got ${kindOf(given)}. ` +
      (own ? 'Pass its property "manager".' : 'Pass dataSource.manager, or the manager of your transaction.'),
  )
}

/** @throws DeclarationError for anything but an array */
export function requireArray(inputs: readonly unknown[]): void {
  if (Array.isArray(inputs)) return
  throw new DeclarationError(
    `Expected an array of objects, got ${kindOf(inputs)}. Pass an array, for instance [...inputs].`,
  )
}

/**
 * @param length of an entry
 * @throws DeclarationError for anything but an array of arrays, the first element of each of which is an entity
 */
export function requireEntries(entries: readonly unknown[], length: number): void {
  const wrong = entries.findIndex((entry) => !Array.isArray(entry) || entry.length !== length)
  if (entries.length > 0 && wrong === -1) return
  throw new DeclarationError(
    `Expected a list of ${length === 2 ? '[entity, values]' : '[entity, id, changes]'}, got ` +
      `${entries.length === 0 ? 'an empty array' : `an array with ${kindOf(entries[wrong])}`}.`,
  )
}
