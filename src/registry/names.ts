import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import type { HolderTable, NamesColumn, NamesTable, RefusedName } from '../sql/names'
import { normalizerLabel } from '../text/normalizer'
import { foreignSchema, schemaOf } from './declarations'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  registry,
  rootOf,
  tableDeclarations,
  tableNames,
} from './registry'

/** Returns the class that declares the name, which matters in single table inheritance. */
export const declaringMetadata = ({ metadata, target }: NameDeclaration): EntityMetadata =>
  metadata.childEntityMetadatas.find((child) => child.target === target) ?? metadata

/** The declaration by which the holder took the name; undefined if another DataSource has that entity. */
export function holderDeclaration(
  dataSource: DataSource,
  { holder, holderColumn }: Pick<RefusedName, 'holder' | 'holderColumn'>,
): NameDeclaration | undefined {
  return namesIn(dataSource).find(
    (one) => holderName(one.metadata) === holder && one.text.column.databaseName === holderColumn,
  )
}

const NUMBERS: ReadonlySet<string> = new Set(['smallint', 'integer', 'real', 'double precision'])

/** A primary key as the driver gives it, out of JSON or of texts. */
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

/** An id map of TypeORM's as texts, in the order of the primary columns. */
export const entityKeyTexts = (metadata: EntityMetadata, entity: ObjectLiteral): string[] =>
  textsOfKey(rootOf(metadata).primaryColumns.map((column): unknown => column.getEntityValue(entity)))

/** Tells two keys apart, which `String()` does not for dates. */
export const textsOfKey = (key: readonly unknown[]): string[] =>
  key.map((value) => (value instanceof Date && !Number.isNaN(value.getTime()) ? value.toISOString() : String(value)))

/** The unique text of the table of names. */
export function namesText(dataSource: DataSource): Declaration {
  const metadata = registry.namesEntity.get(dataSource)
  const [declaration] = metadata ? tableDeclarations(metadata) : []
  if (declaration) return declaration
  throw new DeclarationError(
    'This DataSource keeps no names. Add Name of typeorm-unique-text/names to its entities, and initialize it.',
  )
}

/** Properties of the entity that keeps names, beside its text. */
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
 * What the table of names calls the table of an entity: with its schema where that is another than its own. So it does
 * not matter whether a DataSource names the schema of both, or leaves it to `search_path`.
 */
export function holderName(metadata: EntityMetadata): string {
  const [schema, home] = [metadata, namesText(dataSourceOf(metadata)).metadata].map(schemaOf)
  // The point in a name is escaped: `a`.`b.c` is another table than `a.b`.`c`.
  return [...(schema === home ? [] : [schema]), metadata.tableName]
    .map((name = '') => name.replaceAll(':', '::').replaceAll('.', ':.'))
    .join('.')
}

/** The table of an entity whose rows hold names. */
export function holderTable(metadata: EntityMetadata): HolderTable {
  const root = rootOf(metadata)
  const dataSource = dataSourceOf(root)
  return {
    schema: foreignSchema(root),
    table: root.tableName,
    holder: holderName(root),
    primary: root.primaryColumns.map((column) => ({
      name: column.databaseName,
      type: dataSource.driver.normalizeType(column),
    })),
    names: tableNames(root).map(({ text, namespace, former }) => ({
      column: text.column.databaseName,
      namespace,
      former,
      normalizer: normalizerLabel(text.normalizer),
    })),
    of: namesTable(dataSource),
  }
}

const namesOfEntities = new WeakMap<readonly EntityMetadata[], readonly NameDeclaration[]>()

/** Every declaration of names of a DataSource, each once. */
export function namesIn({ entityMetadatas }: DataSource): readonly NameDeclaration[] {
  // TypeORM makes a new list on each `initialize()`.
  const names = namesOfEntities.get(entityMetadatas) ?? [...new Set(entityMetadatas.flatMap(tableNames))]
  namesOfEntities.set(entityMetadatas, names)
  return names
}
