import type { DataSource, EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import type { HolderTable, NamesColumn, NamesTable } from '../sql/name-table'
import { normalizerLabel } from '../text/normalizer'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  registry,
  rootOf,
  tableDeclarations,
  tableNames,
} from './registry'
import { foreignSchema } from './resolve-declaration'

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

const escaped = (name: string): string => name.replaceAll(':', '::').replaceAll('.', ':.')

/** What the table of names calls the table of an entity. */
export function holderName(metadata: EntityMetadata): string {
  const schema = foreignSchema(metadata)
  // Of a name that has a point, it is escaped: `a`.`b.c` is another table than `a.b`.`c`.
  return [...(schema === undefined ? [] : [schema]), metadata.tableName].map(escaped).join('.')
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

const known = new WeakMap<readonly EntityMetadata[], readonly NameDeclaration[]>()

/** Every declaration of names of a DataSource, each once. */
export function namesIn({ entityMetadatas }: DataSource): readonly NameDeclaration[] {
  // TypeORM makes a new list on each `initialize()`.
  const names = known.get(entityMetadatas) ?? [...new Set(entityMetadatas.flatMap(tableNames))]
  known.set(entityMetadatas, names)
  return names
}
