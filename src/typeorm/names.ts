import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError, type TakenText, TextTakenError } from '../errors'
import { type HolderTable, type NamesColumn, type NamesTable, type RefusedName, refusedNames } from '../sql/name-table'
import { type ServerError, serverError } from '../sql/sqlstate'
import { normalizerLabel } from '../text/normalizer'
import { idOf } from './refused-text'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  registry,
  rootOf,
  tableDeclarations,
  tableNames,
} from '../registry/registry'
import { foreignSchema } from '../registry/resolve-declaration'

/** Who has a name that was asked for. */
type NameOwner = Pick<RefusedName, 'holder' | 'holderColumn' | 'key' | 'state'>

/**
 * The names that the triggers refused, by what the server's error says; undefined for another error.
 *
 * @param rowOf the 0-based position of a row, by its primary key. @default 0, for TypeORM's calls do not tell
 */
export function takenByTriggers(
  error: unknown,
  dataSource: DataSource,
  rowOf: (metadata: EntityMetadata, key: readonly unknown[]) => number = () => 0,
): TakenText[] | undefined {
  const refused = serverError(error)
  if (!refused || !registry.namesEntity.has(dataSource)) return undefined
  const list = refusedNames(refused, namesTable(dataSource))
  if (!list || list.length === 0) return undefined
  const names = namesIn(dataSource)
  return list.flatMap((one) => {
    const requested = names.find((name) => isOn(name, refused) && name.text.column.databaseName === one.column)
    return requested ? [takenName(requested, rowOf(requested.metadata, one.of), one)] : []
  })
}

function isOn({ table, metadata }: NameDeclaration, { table: name, schema }: ServerError): boolean {
  const { searchSchema } = dataSourceOf(metadata).driver as unknown as { searchSchema?: string }
  return table.table === name && (schema === undefined || (table.schema ?? searchSchema ?? schema) === schema)
}

/** Of TypeORM's own calls; undefined for another error. */
export function takenNamesError(error: unknown, dataSource: DataSource): TextTakenError | undefined {
  const taken = takenByTriggers(error, dataSource)
  return taken && taken.length > 0 ? new TextTakenError(taken, error) : undefined
}

/** A name that was asked for, and who has it. */
export function takenName(requested: NameDeclaration, row: number, owner: NameOwner | undefined): TakenText {
  const holder = owner && holderOf(dataSourceOf(requested.metadata), owner)
  return {
    entity: declaringMetadata(requested).name,
    property: requested.name,
    id: holder && owner?.key ? idOf(holder.metadata, typedKey(holder.metadata, owner.key)) : undefined,
    row,
    ...(holder && holder.metadata !== requested.metadata ? { holder: declaringMetadata(holder).name } : {}),
    ...(holder && holder !== requested && holder.metadata === requested.metadata
      ? { holderProperty: holder.name }
      : {}),
    ...(owner && owner.state !== 'held' ? { state: owner.state } : {}),
  }
}

/** In single table inheritance the class that declares the name. */
export const declaringMetadata = ({ metadata, target }: NameDeclaration): EntityMetadata =>
  metadata.childEntityMetadatas.find((child) => child.target === target) ?? metadata

/** The declaration by which the holder took the name; undefined if another DataSource has that entity. */
export function holderOf(
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
export const keyTexts = (metadata: EntityMetadata, entity: ObjectLiteral): string[] =>
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
