import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import type { NamesColumn, NamesTable, RefusedName } from '../sql/names-table'
import { schemaOf } from './declarations'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  namesOfTable,
  registry,
  rootOf,
  textsOfTable,
} from './registry'

/** Returns the class that declares the name or text, which matters in single table inheritance. */
export const declaringMetadata = ({ metadata, target }: Pick<NameDeclaration, 'metadata' | 'target'>): EntityMetadata =>
  metadata.childEntityMetadatas.find((child) => child.target === target) ?? metadata

/** The declaration of the name that the holder has. Undefined if another DataSource has that entity. */
export function holderDeclaration(
  dataSource: DataSource,
  { holder, holderColumn }: Pick<RefusedName, 'holder' | 'holderColumn'>,
): NameDeclaration | undefined {
  return namesIn(dataSource).find(
    (one) => holderName(one.metadata) === holder && one.text.column.databaseName === holderColumn,
  )
}

const NUMBERS: ReadonlySet<string> = new Set(['smallint', 'integer', 'real', 'double precision'])

/** Converts a primary key from JSON or texts to the types that the driver returns. */
export function typedKey(metadata: EntityMetadata, key: readonly unknown[]): unknown[] {
  const root = rootOf(metadata)
  const { driver } = dataSourceOf(root)
  return root.primaryColumns.map((column, index) => {
    const value = key[index]
    const type = driver.normalizeType(column)
    if (NUMBERS.has(type)) return Number(value)
    if (type === 'boolean') return value === true || value === 'true'
    if (type === 'timestamp with time zone') return new Date(`${String(value)}Z`)
    if (type === 'timestamp without time zone') return new Date(String(value))
    return typeof value === 'number' ? String(value) : value
  })
}

/** The values of a TypeORM id map as texts, in the order of the primary columns. */
export const entityKeyTexts = (metadata: EntityMetadata, entity: ObjectLiteral): string[] =>
  textsOfKey(rootOf(metadata).primaryColumns.map((column): unknown => column.getEntityValue(entity)))

/** Makes keys comparable. `String()` does not distinguish all dates. */
export const textsOfKey = (key: readonly unknown[]): string[] =>
  key.map((value) => (value instanceof Date && !Number.isNaN(value.getTime()) ? value.toISOString() : String(value)))

/** The unique text of the table of names. */
export function namesText(dataSource: DataSource): Declaration {
  const metadata = registry.namesEntity.get(dataSource)
  const [declaration] = metadata ? textsOfTable(metadata) : []
  if (declaration) return declaration
  throw new DeclarationError(
    'This DataSource keeps no names. Add Name of typeorm-unique-text/names to its entities, and initialize it.',
  )
}

/** The properties of the entity that stores names, without its text. */
const PROPERTIES = ['id', 'namespace', 'holder', 'property', 'key', 'since', 'state', 'until'] as const

export function namesTable(dataSource: DataSource): NamesTable {
  const { metadata, table } = namesText(dataSource)
  const nameOf = (property: string): string =>
    metadata.columns.find(({ propertyPath }) => propertyPath === property)?.databaseName ?? property
  const columns = Object.fromEntries(PROPERTIES.map((property) => [property, nameOf(property)]))
  const [text] = table.text
  const { schema, table: name, hash, number, index, digest } = table
  return {
    schema,
    table: name,
    columns: { ...columns, text: text?.name ?? 'text', hash, number } as Record<NamesColumn, string>,
    index,
    digest,
  }
}

/**
 * Returns the name of an entity's table in the table of names. It includes the schema only if the two schemas differ.
 * So a DataSource may name the schema of both tables, or leave it to `search_path`.
 */
export function holderName(metadata: EntityMetadata): string {
  const [schema, home] = [metadata, namesText(dataSourceOf(metadata)).metadata].map(schemaOf)
  // The dot in a name is escaped, because the table `a`.`b.c` differs from `a.b`.`c`.
  return [...(schema === home ? [] : [schema]), metadata.tableName]
    .map((name = '') => name.replaceAll(':', '::').replaceAll('.', ':.'))
    .join('.')
}

const namesOfEntities = new WeakMap<readonly EntityMetadata[], readonly NameDeclaration[]>()

/** All declarations of names of a DataSource, without duplicates. */
export function namesIn({ entityMetadatas }: DataSource): readonly NameDeclaration[] {
  // TypeORM creates a new list on each `initialize()`.
  const names = namesOfEntities.get(entityMetadatas) ?? [...new Set(entityMetadatas.flatMap(namesOfTable))]
  namesOfEntities.set(entityMetadatas, names)
  return names
}
