import type { DataSource, EntityMetadata } from 'typeorm'
import { entityOf } from '../core'
import { didYouMean } from './did-you-mean'
import { UsageError } from './usage'

/** An entity that a person named, perhaps with a property. */
interface NamedEntity {
  readonly metadata: EntityMetadata
  readonly property: string | undefined
}

/**
 * Finds the entity that a person named, by its class or its table, perhaps with a property: `Page.url`.
 *
 * @throws UsageError if no entity has this name, or several have, or if the entity has no such property
 */
export function findEntity(dataSource: DataSource, name: string): NamedEntity {
  // The longest name of an entity is tried first: a table may have a schema, and a property may be nested.
  for (let end = name.length; end > 0; end = name.lastIndexOf('.', end - 1)) {
    const metadata = findByName(dataSource, name.slice(0, end))
    if (!metadata) continue
    const property = end === name.length ? undefined : name.slice(end + 1)
    const known = metadata.columns.map(({ propertyPath }) => propertyPath).concat(textNames(dataSource, metadata))
    if (property === undefined || known.includes(property)) return { metadata, property }
    throw new UsageError(`${metadata.name} has no property "${property}".${didYouMean(property, known)}`)
  }
  const known = dataSource.entityMetadatas.filter((one) => textNames(dataSource, one).length > 0)
  const names = known.map((one) => one.name)
  throw new UsageError(
    `The DataSource has no entity "${name}".${didYouMean(name, names)} Entities with a unique text: ` +
      `${names.map((one) => `"${one}"`).join(', ') || 'none'}.`,
  )
}

function findByName({ entityMetadatas }: DataSource, name: string): EntityMetadata | undefined {
  const byClass = entityMetadatas.filter((metadata) => metadata.name === name)
  const byTable = entityMetadatas.filter(({ tableName, tablePath }) => [tableName, tablePath].includes(name))
  const found = byClass.length > 0 ? byClass : byTable
  if (found.length <= 1) return found[0]
  const several = found.map(({ tablePath }) => `"${tablePath}"`).join(', ')
  throw new UsageError(`Several entities are called "${name}". Use the name of the table: ${several}.`)
}

/** The unique texts of an entity. */
export const textNames = ({ manager }: DataSource, { target }: EntityMetadata): string[] =>
  entityOf(manager, target).texts.map(({ name }) => name)
