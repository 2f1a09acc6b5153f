import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { declarationsOf, isOrExtends, namesOfEntity, rootOf, tableNumbers } from '../registry/registry'
import { findNames } from './name-steps'
import { findNumber } from './number-steps'
import type { FindWork } from './work'

interface Adoptable {
  readonly name: string
  readonly find: FindWork
}

/**
 * What is to be adopted where that is no text.
 *
 * @returns undefined for a text
 * @throws DeclarationError where several might be meant
 */
export function findWork(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  property?: string,
): FindWork | undefined {
  const metadata = dataSource.getMetadata(entity)
  const numbers = tableNumbers(metadata)
    .filter(({ target }) => isOrExtends(metadata.target, target))
    .map((one): Adoptable => ({ name: one.name, find: async (query) => await findNumber(one, query) }))
  const root = rootOf(metadata)
  const find: FindWork = async (query) => await findNames(root, query)
  const names = namesOfEntity(metadata)
  if (property !== undefined) {
    return names.some(({ name }) => name === property) ? find : numbers.find(({ name }) => name === property)?.find
  }
  // All names of a table are adopted together.
  const works = [...numbers, ...(names.length === 0 ? [] : [{ name: names[0]?.name ?? '', find }])]
  if (works.length === 0 || declarationsOf(metadata).length > 0) return undefined
  const [only, ...more] = works
  if (only && more.length === 0) return only.find
  throw new DeclarationError(
    `Choose what of ${metadata.name} to adopt with the property: ${works.map(({ name }) => `"${name}"`).join(', ')}.`,
  )
}
