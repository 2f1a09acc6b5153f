import type { DataSource, EntityMetadata } from 'typeorm'
import { entityOf } from '../core'
import { UsageError } from './usage'

/**
 * Finds the entity that a person named, by its class or its table.
 *
 * @throws UsageError if no entity has this name, or several have
 */
export function findEntity(dataSource: DataSource, name: string): EntityMetadata {
  const all = dataSource.entityMetadatas
  const byClass = all.filter((metadata) => metadata.name === name)
  const byTable = all.filter(({ tableName, tablePath }) => [tableName, tablePath].includes(name))
  const found = byClass.length > 0 ? byClass : byTable
  const [only] = found
  if (only && found.length === 1) return only
  const several = found.map(({ tablePath }) => `"${tablePath}"`).join(', ')
  if (only) throw new UsageError(`Several entities are called "${name}". Use the name of the table: ${several}.`)
  const known = all.filter((one) => textNames(dataSource, one).length > 0).map((one) => `"${one.name}"`)
  throw new UsageError(
    `The DataSource has no entity "${name}". Entities with a unique text: ${known.join(', ') || 'none'}.`,
  )
}

/** The unique texts of an entity. */
export const textNames = ({ manager }: DataSource, { target }: EntityMetadata): string[] =>
  entityOf(manager, target).texts.map(({ name }) => name)
