import type { EntityMetadata, ValueTransformer } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkExpression, type TextTable } from '../sql/text-table'
import { normalizeText, type Normalizer } from '../text/normalizer'
import type { RawDeclaration } from './options'
import { type ColumnMetadata, type Declaration, registry, rootOf } from './registry'
import { resolveDeclaration } from './resolve-declaration'
import { requireMetadataInternals } from './supported'

/** The parts of TypeORM's IndexMetadata that are used here; the class is not exported with its fields. */
interface IndexMetadata {
  readonly entityMetadata: EntityMetadata
  readonly embeddedMetadata?: unknown
  givenName?: string
}

/**
 * The door to TypeORM: called while a DataSource builds the metadata of an entity, at the one moment when the columns
 * have their final names and the checks are not yet built. Resolves the declaration, once per DataSource, and makes it
 * take effect there: registered, its columns and index named, its check added, its texts normalized.
 * docs/how-it-hooks-into-typeorm.md follows the whole way.
 *
 * @param index the IndexMetadata that TypeORM calls the index's `columns` function on
 * @returns the property paths of the unique index, which is what TypeORM asked for
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export function attachDeclaration(index: unknown, raw: RawDeclaration): string[] {
  requireMetadataInternals(index)
  const metadata = rootOf(index.entityMetadata)
  const known = registry.declarations.get(metadata)?.find(({ name }) => name === raw.name)
  const declaration = known ?? attach(index, metadata, raw)
  hideFromReturning(index.entityMetadata, declaration.hidden)
  return [...declaration.scope, ...declaration.hidden.slice(0, 2)].map(({ propertyPath }) => propertyPath)
}

function attach(index: IndexMetadata, metadata: EntityMetadata, raw: RawDeclaration): Declaration {
  if (index.embeddedMetadata !== undefined) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${raw.name}: it cannot stand in an embedded. Declare it on the entity.`,
    )
  }
  const declaration = resolveDeclaration(metadata, raw)
  const { table, hidden, text } = declaration
  register(declaration)
  index.givenName = table.index
  const names = [table.hash, table.number, table.chained]
  for (const [position, column] of hidden.entries()) nameColumn(column, names[position] ?? column.databaseName)
  addCheck(metadata, table)
  for (const { column, normalizer } of text) column.transformer = withNormalizer(column, normalizer)
  return declaration
}

function register(declaration: Declaration): void {
  const { metadata, name, text } = declaration
  const others = registry.declarations.get(metadata) ?? []
  const declared = new Set(others.flatMap((other) => other.text.map(({ column }) => column)))
  const twice = text.find(({ column }) => declared.has(column))
  if (twice) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: another declaration has the column "${twice.column.propertyPath}". ` +
        `Remove one of them.`,
    )
  }
  registry.declarations.set(metadata, [...others, declaration])
}

function nameColumn(column: ColumnMetadata, name: string): void {
  column.databaseName = name
  // TypeORM builds the columns of some entities a second time, from this.
  column.givenDatabaseName = name
  column.databasePath = name
  column.databaseNameWithoutPrefixes = name
}

/** Otherwise RETURNING includes them, as columns with defaults, and TypeORM merges them into entities and generatedMaps. */
function hideFromReturning(metadata: EntityMetadata, hidden: readonly ColumnMetadata[]): void {
  const original = metadata.getInsertionReturningColumns.bind(metadata)
  metadata.getInsertionReturningColumns = () => original().filter((column) => !hidden.includes(column))
}

/** TypeORM's CheckMetadata is not exported; this is what it and the schema builder use of it. */
function addCheck(metadata: EntityMetadata, table: TextTable): void {
  const check = {
    entityMetadata: metadata,
    name: table.check,
    givenName: table.check,
    expression: checkExpression(table),
    build: () => check,
  }
  metadata.checks.push(check)
}

/** After the user's own transformers, so that what is normalized is what would be stored. */
function withNormalizer(column: ColumnMetadata, normalizer: Normalizer): ValueTransformer[] {
  const given = column.transformer ?? []
  const ours: ValueTransformer = {
    to: (value: unknown) => (typeof value === 'string' ? normalizeText(normalizer, column.propertyName, value) : value),
    from: (value: unknown) => value,
  }
  return [...(Array.isArray(given) ? given : [given]), ours]
}
