import type { EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { indexCondition } from '../sql/alter'
import { checkExpression } from '../sql/text-table'
import { attachDataSource, type IndexMetadata, requireOneClass } from './attach-data-source'
import { forbidForeignKeys, forbidOtherIndexes, forbidSharedColumns, forbidTakenNames } from './conflicts'
import { nameColumn } from './hidden-columns'
import { normalizeColumn } from './normalize-column'
import type { RawDeclaration } from './options'
import { type ColumnMetadata, dataSourceOf, type Declaration, registry, rootOf } from './registry'
import { resolveDeclaration } from './resolve-declaration'
import { requireMetadataInternals, requirePostgres } from './supported'

/**
 * The door to TypeORM: called while a DataSource builds the metadata of an entity, at the one moment when the columns
 * have their final names and the checks are not yet built. Resolves the declaration, once per DataSource, and makes it
 * take effect there: registered, its columns and index named, its check added, its texts normalized. The DataSource
 * gets the schema hook, our subscribers and our query builders, whoever made it.
 * docs/how-it-hooks-into-typeorm.md follows the whole way.
 *
 * @param index the IndexMetadata that TypeORM calls the index's `columns` function on
 * @returns the property paths of the unique index, which is what TypeORM asked for
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export function attachDeclaration(index: object, raw: RawDeclaration): string[] {
  refuseOtherDatabase(index, raw)
  requireMetadataInternals(index)
  const metadata = rootOf(index.entityMetadata)
  attachDataSource(dataSourceOf(metadata), `@UniqueText on ${metadata.name}.${raw.name}`)
  const known = registry.declarations.get(metadata)?.find(({ name }) => name === raw.name)
  if (known) requireOneClass('@UniqueText', known, index as IndexMetadata)
  const declaration = known ?? attach(index, metadata, raw)
  hideFromReturning(index.entityMetadata, declaration.hidden)
  return [...declaration.scope, ...declaration.hidden.slice(0, 2)].map(({ propertyPath }) => propertyPath)
}

/** Before anything is asked of what TypeORM gave: for some databases it makes a constraint of a unique index. */
function refuseOtherDatabase(index: object, { name }: RawDeclaration): void {
  const { entityMetadata } = index as Partial<IndexMetadata>
  if (!entityMetadata) return
  requirePostgres(dataSourceOf(entityMetadata), `@UniqueText on ${entityMetadata.name}.${name}`)
}

function attach(index: IndexMetadata, metadata: EntityMetadata, raw: RawDeclaration): Declaration {
  if (index.embeddedMetadata !== undefined) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${raw.name}: a property of an embedded cannot declare it. Declare it on the ` +
        `entity instead: @UniqueText({ as: 'name', columns: ['embedded.${raw.name}'] }).`,
    )
  }
  const declaration = resolveDeclaration(metadata, raw, index.target)
  const { table, hidden, text } = declaration
  forbidTakenNames(declaration)
  forbidForeignKeys(declaration)
  register(declaration)
  index.givenName = table.index
  const condition = indexCondition(table)
  if (condition !== undefined) index.where = condition
  const names = [table.hash, table.number, table.chained]
  for (const [position, column] of hidden.entries()) {
    nameColumn(column, names[position] ?? column.databaseName)
    // Those of a class in single table inheritance TypeORM makes nullable, for the rows of the other classes.
    column.isNullable = table.nullable && position === 0
    // An EntitySchema cannot say so, and `save` would put null on its objects.
    column.isVirtual = true
  }
  addCheck(declaration)
  for (const { column, normalizer } of text) normalizeColumn(column, normalizer)
  return declaration
}

function register(declaration: Declaration): void {
  const { metadata, name, text } = declaration
  const others = registry.declarations.get(metadata) ?? []
  const columns = text.map(({ column }) => column)
  forbidSharedColumns(`@UniqueText on ${metadata.name}.${name}`, metadata, columns)
  registry.declarations.set(metadata, [...others, declaration])
}

/** Otherwise RETURNING includes them, as columns with defaults, and TypeORM merges them into entities and generatedMaps. */
function hideFromReturning(metadata: EntityMetadata, hidden: readonly ColumnMetadata[]): void {
  const original = metadata.getInsertionReturningColumns.bind(metadata)
  metadata.getInsertionReturningColumns = () => original().filter((column) => !hidden.includes(column))
}

/** TypeORM's CheckMetadata is not exported; this is what it and the schema builder use of it. */
function addCheck(declaration: Declaration): void {
  const { metadata, table } = declaration
  const check = {
    entityMetadata: metadata,
    name: table.check,
    givenName: table.check,
    expression: checkExpression(table),
    // TypeORM builds checks after all indexes and unique constraints: the first moment at which these can be seen.
    build: () => {
      forbidOtherIndexes(declaration)
      return check
    },
  }
  metadata.checks.push(check)
}
