import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { withoutColumns } from '../find-or-create/find-or-create-many'
import { type EntityText, entityTextOf } from '../find-or-create/entity-text'
import { type Declaration, declarationsOf } from '../typeorm/registry'
import { UsageError } from './usage'

/** Where lines go, and what becomes of one. */
export interface ImportTarget {
  readonly metadata: EntityMetadata
  readonly declaration: Declaration
  /** For find-or-create, with no more columns than a count needs. */
  readonly rows: EntityText
  /**
   * The properties of a row for a text; undefined where the declaration's `parse` refuses it.
   *
   * @throws what the user's own `parse` throws
   */
  readonly toValues: (text: string) => ObjectLiteral | undefined
  /** The reason where `parse` gives none: one clause. */
  readonly refusal: string
}

/** What a person typed. */
export interface TargetNames {
  /** Name of an entity's class or table, the latter with or without its schema. */
  readonly entity: string
  /** What `by` calls the text. @default the entity's only one */
  readonly property?: string | undefined
}

/**
 * @throws UsageError if there is none of this name; it tells those that are there
 * @throws DeclarationError if lines cannot fill it
 */
export function findTarget(dataSource: DataSource, { entity, property }: TargetNames): ImportTarget {
  const metadata = findEntity(dataSource.entityMetadatas, entity)
  const declaration = findDeclaration(metadata, property)
  const rows = withoutColumns(entityTextOf(dataSource.manager, metadata.target, declaration.name))
  const refusal = `it is no "${declaration.name}" that ${metadata.name} keeps`
  return { metadata, declaration, rows, toValues: valuesOf(metadata, declaration), refusal }
}

function findEntity(all: readonly EntityMetadata[], name: string): EntityMetadata {
  const byClass = all.filter((metadata) => metadata.name === name)
  const found = byClass.length > 0 ? byClass : all.filter((metadata) => tableNames(metadata).includes(name))
  const [only] = found
  if (only && found.length === 1) return only
  const several = found.map(({ tablePath }) => `"${tablePath}"`).join(', ')
  if (only) throw new UsageError(`Several entities are called "${name}". Name one by its table: ${several}.`)
  const known = all.filter((metadata) => declarationsOf(metadata).length > 0).map((metadata) => `"${metadata.name}"`)
  throw new UsageError(
    `The DataSource has no entity "${name}". Those with a unique text: ${known.join(', ') || 'none'}.`,
  )
}

const tableNames = ({ tableName, tablePath }: EntityMetadata): readonly string[] => [tableName, tablePath]

function findDeclaration(metadata: EntityMetadata, property: string | undefined): Declaration {
  const declarations = declarationsOf(metadata)
  const [only] = declarations
  if (!only) {
    throw new DeclarationError(`${metadata.name} declares no unique text. Put @UniqueText() on a property of it.`)
  }
  if (property === undefined && declarations.length === 1) return only
  const chosen = declarations.find(({ name }) => name === property)
  if (chosen) return chosen
  const names = declarations.map(({ name }) => `"${name}"`).join(', ')
  throw new UsageError(`Say which unique text of ${metadata.name} with --property: ${names}.`)
}

function valuesOf(metadata: EntityMetadata, { name, text, scope, parse }: Declaration): ImportTarget['toValues'] {
  if (parse) return (line) => parse(line) ?? undefined
  const what = `"${name}" of ${metadata.name}`
  const [only] = text
  if (!only || text.length > 1) {
    throw new DeclarationError(
      `${what} is made of several columns. Give its @UniqueText the option "parse", which makes them of a text.`,
    )
  }
  if (scope.length > 0) {
    const within = scope.map(({ propertyPath }) => `"${propertyPath}"`).join(', ')
    throw new DeclarationError(
      `${what} is unique within ${within}, and a line holds the text only. Import it with findOrCreateMany().`,
    )
  }
  const { propertyName } = only.column
  return (line) => ({ [propertyName]: line })
}
