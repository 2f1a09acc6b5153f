import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { indexCondition } from '../sql/alter'
import { checkExpression, composedText } from '../sql/text-table'
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
    // An EntitySchema cannot declare that, and `save` would put null on its objects.
    column.isVirtual = true
  }
  if (table.spread !== undefined) sendHash(declaration)
  addCheck(declaration)
  for (const { column, normalizer } of text) normalizeColumn(column, normalizer)
  return declaration
}

function register(declaration: Declaration): void {
  const { metadata, name, text } = declaration
  const others = registry.declarations.get(metadata) ?? []
  forbidOtherSpreads(declaration, others)
  const columns = text.map(({ column }) => column)
  forbidSharedColumns(`@UniqueText on ${metadata.name}.${name}`, metadata, columns)
  registry.declarations.set(metadata, [...others, declaration])
}

/**
 * TypeORM's inserts bring the hash, for no trigger may set it where it decides in which part of the table a row lies; and
 * no number, which the guard gives. No entity holds either: they are made of its text when TypeORM asks for the columns.
 */
function sendHash({ hidden, text, table, metadata }: Declaration): void {
  const { driver } = dataSourceOf(metadata)
  const [hash, number] = hidden
  if (!hash || !number) return
  const hashOf = (entity: ObjectLiteral): string | undefined => {
    const stored = text.map(({ column }): unknown => {
      const given: unknown = column.getEntityValue(entity)
      return given === undefined || typeof given === 'function' ? given : driver.preparePersistentValue(given, column)
    })
    const texts = stored.map((one) => (text.length > 1 ? (one ?? null) : one))
    const isText = texts.every((one) => one === null || typeof one === 'string')
    return isText && texts.some((one) => one !== null) ? table.digest.js(composedText(table, texts)) : undefined
  }
  give(hash, hashOf)
  give(number, () => null)
}

/** What a condition says of the column stays as it is. */
function give(column: ColumnMetadata, valueOf: (entity: ObjectLiteral) => unknown): void {
  const given = column.getEntityValue.bind(column)
  column.isInsert = true
  column.getEntityValue = (entity, transform) => {
    const value: unknown = given(entity, transform)
    return value === undefined ? valueOf(entity) : value
  }
}

/** Refuses declarations that no index of a table can keep if the table is spread by a hash. */
function forbidOtherSpreads(declaration: Declaration, others: readonly Declaration[]): void {
  const { metadata, name, table } = declaration
  const [other] = others
  const spread = [declaration, ...others].some((one) => one.table.spread !== undefined)
  if (spread && other) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: a table that is spread by the hash of one text can hold no other unique ` +
        `text. Remove spread, or "${other.name}".`,
    )
  }
  if (table.spread !== undefined && table.nullable) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: a text by whose hash the table is spread cannot be NULL. Remove nullable.`,
    )
  }
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
