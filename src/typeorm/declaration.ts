import { createHash } from 'node:crypto'
import type { DataSource, EntityManager, EntityMetadata, ValueTransformer } from 'typeorm'
import { DeclarationError, UnsupportedDatabaseError } from '../errors'
import { fitName } from '../sql/identifier'
import { checkExpression, type TextTable } from '../sql/text-table'
import { normalizeText, type Normalizer } from '../text/normalizer'
import type { RawDeclaration } from './options'
import { type ColumnMetadata, type Declaration, registry, rootOf } from './registry'

/** The parts of TypeORM's IndexMetadata that are used here; the class is not exported with its fields. */
interface IndexMetadata {
  readonly entityMetadata: EntityMetadata
  readonly embeddedMetadata?: unknown
  givenName?: string
}

const TEXT_TYPES: ReadonlySet<unknown> = new Set(['text', 'varchar', 'character varying', String])

/**
 * Resolves a declaration, once per DataSource, and gives the columns of its unique index.
 *
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export function resolveIndexColumns(index: unknown, raw: RawDeclaration): string[] {
  if (!isIndexMetadata(index)) {
    throw new DeclarationError(
      'This version of TypeORM calls index functions in another way. Use one that typeorm-unique-text supports.',
    )
  }
  const metadata = rootOf(index.entityMetadata)
  const known = registry.declarations.get(metadata)?.find(({ name }) => name === raw.name)
  const declaration = known ?? resolve(metadata, raw, index)
  hideFromReturning(index.entityMetadata, declaration.hidden)
  return [...declaration.scope, ...declaration.hidden.slice(0, 2)].map(({ propertyPath }) => propertyPath)
}

function isIndexMetadata(index: unknown): index is IndexMetadata {
  return typeof index === 'object' && index !== null && 'entityMetadata' in index
}

/** The DataSource that an entity's metadata or a manager belongs to; TypeORM 0.3 calls it `connection`. */
export function dataSourceOf(owner: EntityMetadata | EntityManager): DataSource {
  return owner.dataSource ?? (owner as unknown as { connection: DataSource }).connection
}

function resolve(metadata: EntityMetadata, raw: RawDeclaration, index: IndexMetadata): Declaration {
  const where = `${metadata.name}.${raw.name}`
  const { driver, namingStrategy } = dataSourceOf(metadata)
  if (driver.options.type !== 'postgres') {
    throw new UnsupportedDatabaseError(
      `@UniqueText on ${where} needs PostgreSQL, and this DataSource is of type "${driver.options.type}".`,
    )
  }
  if (index.embeddedMetadata !== undefined) {
    throw new DeclarationError(`@UniqueText on ${where}: it cannot stand in an embedded. Declare it on the entity.`)
  }
  const text = raw.columns.map(({ property, prefix, normalizer }) => {
    const column = textColumn(metadata, property, where)
    return { column, prefix, normalizer, transformed: column.transformer !== undefined }
  })
  const scope = raw.scope.flatMap((property) => scopeColumns(metadata, property, where))
  const hidden = ['Hash', 'HashNumber', 'HashChained'].map((suffix) => hiddenColumn(metadata, raw.name + suffix))
  const [hash, number, chained] = hidden.map(({ databaseName }) => databaseName) as [string, string, string]
  const nullable = text.every(({ column }) => column.isNullable)
  const indexed = [...scope.map(({ databaseName }) => databaseName), hash, number]
  const table: TextTable = {
    schema: foreignSchema(metadata),
    table: metadata.tableName,
    text: text.map(({ column, prefix }) => ({ name: column.databaseName, prefix })),
    scope: scope.map(({ databaseName }) => databaseName),
    hash,
    number,
    chained,
    index: fitName(raw.indexName ?? namingStrategy.indexName(metadata.tableName, indexed, undefined)),
    check: checkName(metadata.tableName, hash, raw.digest.name),
    digest: raw.digest,
    nullable,
    immutable: raw.immutable,
    maxChainLength: raw.maxChainLength,
    normalizer: [...new Set(text.map(({ normalizer }) => `${normalizer.name}@${normalizer.version}`))].join(' '),
    guard: `unique_text_${metadata.tableName}_${raw.name}`,
  }
  index.givenName = table.index
  const declaration: Declaration = { name: raw.name, metadata, text, scope, hidden, table, parse: raw.parse }
  register(metadata, declaration, where)
  pushCheck(metadata, table)
  for (const { column, normalizer } of text) column.transformer = withNormalizer(column, normalizer)
  return declaration
}

/** undefined where TypeORM too leaves the schema out. */
function foreignSchema(metadata: EntityMetadata): string | undefined {
  const { searchSchema } = dataSourceOf(metadata).driver as unknown as { searchSchema?: string }
  return metadata.schema === undefined || metadata.schema === searchSchema ? undefined : metadata.schema
}

function register(metadata: EntityMetadata, declaration: Declaration, where: string): void {
  const others = registry.declarations.get(metadata) ?? []
  const columns = new Set(others.flatMap(({ text }) => text.map(({ column }) => column)))
  if (declaration.text.some(({ column }) => columns.has(column))) {
    throw new DeclarationError(`@UniqueText on ${where}: another declaration has this column. Remove one of them.`)
  }
  registry.declarations.set(metadata, [...others, declaration])
}

function textColumn(metadata: EntityMetadata, property: string, where: string): ColumnMetadata {
  const column = metadata.columns.find(({ propertyPath }) => propertyPath === property)
  if (!column) throw new DeclarationError(`@UniqueText on ${where}: there is no column "${property}". Add a @Column.`)
  if (!TEXT_TYPES.has(column.type) || column.isArray) {
    throw new DeclarationError(`@UniqueText on ${where}: "${property}" must be of type text or varchar.`)
  }
  return column
}

function scopeColumns(metadata: EntityMetadata, property: string, where: string): ColumnMetadata[] {
  const column = metadata.columns.find(({ propertyPath }) => propertyPath === property)
  const relation = metadata.relations.find(({ propertyPath }) => propertyPath === property)
  const columns = column ? [column] : (relation?.joinColumns ?? [])
  if (columns.length === 0) {
    throw new DeclarationError(`@UniqueText on ${where}: the scope names "${property}", which is no column.`)
  }
  for (const { isNullable, type } of columns) {
    // NULLs are never equal in a unique index, so two rows without a scope could hold one text.
    if (isNullable) throw new DeclarationError(`@UniqueText on ${where}: the scope "${property}" must be NOT NULL.`)
    // Its `=` lives in the extension's schema, which the guard's fixed search_path leaves out.
    if (type === 'citext') throw new DeclarationError(`@UniqueText on ${where}: the scope "${property}" is a citext.`)
  }
  return columns
}

/** The hidden column, its name made to fit: TypeORM itself would let Postgres cut it, and then find a difference. */
function hiddenColumn(metadata: EntityMetadata, property: string): ColumnMetadata {
  const column = metadata.columns.find(({ propertyPath }) => propertyPath === property)
  if (!column) throw new DeclarationError(`${metadata.name}: TypeORM lost the hidden column "${property}".`)
  column.databaseName = fitName(column.databaseName)
  // TypeORM builds the columns of some entities a second time, from this.
  column.givenDatabaseName = column.databaseName
  column.databasePath = column.databaseName
  column.databaseNameWithoutPrefixes = column.databaseName
  return column
}

/** Else RETURNING gives them, as columns with defaults, and TypeORM merges them into entities and generatedMaps. */
function hideFromReturning(metadata: EntityMetadata, hidden: readonly ColumnMetadata[]): void {
  const original = metadata.getInsertionReturningColumns.bind(metadata)
  metadata.getInsertionReturningColumns = () => original().filter((column) => !hidden.includes(column))
}

/** Holds the digest's name: TypeORM compares checks by their names only. */
function checkName(table: string, hash: string, digest: string): string {
  const key = createHash('sha1').update(`${table}.${hash}`).digest('hex').slice(0, 26)
  return fitName(`CHK_${key}_${digest}`)
}

/** TypeORM's CheckMetadata is not exported; this is what it and the schema builder use of it. */
function pushCheck(metadata: EntityMetadata, table: TextTable): void {
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
