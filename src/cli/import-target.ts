import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { entityOf, type EntityText, entityTextOf, withoutColumns } from '../core'
import { DeclarationError } from '../errors'
import { UsageError } from './usage'

/** Where lines go, and how one becomes a row. */
export interface ImportTarget {
  readonly metadata: EntityMetadata
  /** For find-or-create, selecting no more columns than counting needs. */
  readonly rows: EntityText
  /**
   * The properties of a row for a text; undefined if the declaration's `parse` refuses the text.
   *
   * @throws what the user's own `parse` throws
   */
  readonly toValues: (text: string) => ObjectLiteral | undefined
  /** The reason if `parse` gives none: one clause. */
  readonly refusal: string
}

/** What a person typed. */
export interface TargetNames {
  /** An entity's class name, or its table name with or without the schema. */
  readonly entity: string
  /** The name of the unique text, as in the option `by`. @default the entity's only one */
  readonly property?: string | undefined
}

/**
 * Finds the entity and the unique text that a person named.
 *
 * @throws UsageError if nothing has this name; the message lists the names that exist
 * @throws DeclarationError if a line is not enough to make a row
 */
export function findImportTarget(dataSource: DataSource, { entity, property }: TargetNames): ImportTarget {
  const metadata = findEntity(dataSource, entity)
  const name = chooseText(dataSource, metadata, property)
  const rows = withoutColumns(entityTextOf(dataSource.manager, metadata.target, name))
  return { metadata, rows, toValues: valuesOf(rows), refusal: `it is not a "${name}" that ${metadata.name} accepts` }
}

/**
 * Finds the entity that a person named, by its class or its table.
 *
 * @throws UsageError if no entity has this name, or several have
 */
export function findEntity(dataSource: DataSource, name: string): EntityMetadata {
  const all = dataSource.entityMetadatas
  const byClass = all.filter((metadata) => metadata.name === name)
  const found = byClass.length > 0 ? byClass : all.filter((metadata) => tableNames(metadata).includes(name))
  const [only] = found
  if (only && found.length === 1) return only
  const several = found.map(({ tablePath }) => `"${tablePath}"`).join(', ')
  if (only) throw new UsageError(`Several entities are called "${name}". Use the name of the table: ${several}.`)
  const known = all.filter((one) => textsOf(dataSource, one).length > 0).map((one) => `"${one.name}"`)
  throw new UsageError(
    `The DataSource has no entity "${name}". Entities with a unique text: ${known.join(', ') || 'none'}.`,
  )
}

const tableNames = ({ tableName, tablePath }: EntityMetadata): readonly string[] => [tableName, tablePath]

/** Their names. */
const textsOf = ({ manager }: DataSource, { target }: EntityMetadata): string[] =>
  entityOf(manager, target).texts.map(({ name }) => name)

function chooseText(dataSource: DataSource, metadata: EntityMetadata, property: string | undefined): string {
  const texts = textsOf(dataSource, metadata)
  const [only] = texts
  if (only === undefined) {
    throw new DeclarationError(`${metadata.name} declares no unique text. Put @UniqueText() on a property of it.`)
  }
  if (property === undefined && texts.length === 1) return only
  if (property !== undefined && texts.includes(property)) return property
  const names = texts.map((name) => `"${name}"`).join(', ')
  throw new UsageError(`Choose a unique text of ${metadata.name} with --property: ${names}.`)
}

function valuesOf({ metadata, declaration }: EntityText): ImportTarget['toValues'] {
  const { name, text, scope, parse } = declaration
  if (parse) return (line) => parse(line) ?? undefined
  const what = `"${name}" of ${metadata.name}`
  const [only] = text
  if (!only || text.length > 1) {
    throw new DeclarationError(
      `${what} consists of several columns. Give its @UniqueText() the option "parse", which fills them from a text.`,
    )
  }
  if (scope.length > 0) {
    const within = scope.map(({ propertyPath }) => `"${propertyPath}"`).join(', ')
    throw new DeclarationError(
      `${what} is unique within ${within}, but a line holds only the text. Import it with findOrCreateMany().`,
    )
  }
  const { propertyName } = only.column
  return (line) => ({ [propertyName]: line })
}
