import type { EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { plainName } from '../sql/identifier'
import { namesGuard } from '../sql/name-guard'
import { normalizerLabel } from '../text/normalizer'
import { attachDataSource, type IndexMetadata, requireOneClass } from './attach-data-source'
import { forbidSharedColumns } from './conflicts'
import { requireKeyTypes, requireString, textColumn } from './declared-columns'
import type { RawName } from './name-options'
import { namesTable } from './name-tables'
import { nameWork } from './name-work'
import { normalizeColumn } from './normalize-column'
import { dataSourceOf, type NameDeclaration, registry, rootOf, tableNames } from './registry'
import { foreignSchema } from './resolve-declaration'
import { requireMetadataInternals } from './supported'
import { registerTriggers } from './trigger-sets'

/**
 * The door to TypeORM for a name, as `attachDeclaration` is for a text: resolves it, and makes it take effect.
 *
 * @param index the IndexMetadata that TypeORM calls the index's `columns` function on; no such index is made
 * @returns the property path of the name
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export function attachName(index: object, raw: RawName): string[] {
  requireMetadataInternals(index)
  const door = index as IndexMetadata
  const metadata = rootOf(door.entityMetadata)
  attachDataSource(dataSourceOf(metadata), whereOf(metadata, raw))
  door.synchronize = false
  const known = tableNames(metadata).find(({ name }) => name === raw.property)
  if (known) requireOneClass('@UniqueName', known, door)
  else attach(door, metadata, raw)
  return [raw.property]
}

/** The door to TypeORM for the entity that keeps the names: registers it, and the triggers of its table. */
export function attachNamesEntity(index: object): string[] {
  requireMetadataInternals(index)
  const door = index as IndexMetadata
  door.synchronize = false
  const { entityMetadata } = door
  const dataSource = dataSourceOf(entityMetadata)
  registry.namesEntity.set(dataSource, entityMetadata)
  registerTriggers(entityMetadata, 'names', () => ({ set: namesGuard(namesTable(dataSource)) }))
  return entityMetadata.primaryColumns.map(({ propertyPath }) => propertyPath)
}

const whereOf = (metadata: EntityMetadata, { property }: Pick<RawName, 'property'>): string =>
  `@UniqueName on ${metadata.name}.${property}`

function attach(index: IndexMetadata, metadata: EntityMetadata, raw: RawName): void {
  const where = whereOf(metadata, raw)
  if (index.embeddedMetadata !== undefined) {
    throw new DeclarationError(
      `${where}: a property of an embedded cannot declare it. Declare it on a property of the entity itself.`,
    )
  }
  const column = textColumn(metadata, raw.property, where)
  const transformers = [column.transformer ?? []].flat()
  if (transformers.length === 0) requireString(column, where)
  forbidSharedColumns(where, metadata, [column])
  requireKeyTypes(metadata, where)
  const { normalizer, namespace, former } = raw
  const declaration: NameDeclaration = {
    name: raw.property,
    metadata,
    target: index.target,
    text: { column, normalizer, transformed: transformers.length > 0, transformers },
    table: { schema: foreignSchema(metadata), table: metadata.tableName },
    namespace,
    former,
    lookup: `${plainName('name', metadata.tableName, column.databaseName)}_lookup`,
  }
  requireOneNormalizer(where, declaration)
  registry.names.set(metadata, [...tableNames(metadata), declaration])
  registerTriggers(metadata, 'names', () => nameWork(metadata))
  afterIndexes(metadata, () => {
    requireNamesEntity(where, metadata)
  })
  normalizeColumn(column, normalizer)
}

/** Otherwise two spellings of one name would be two names, or nobody would find one of them. */
function requireOneNormalizer(where: string, declaration: NameDeclaration): void {
  const dataSource = dataSourceOf(declaration.metadata)
  const { namespaces } = registry
  const known = namespaces.get(dataSource) ?? new Map<string, NameDeclaration>()
  namespaces.set(dataSource, known)
  const first = known.get(declaration.namespace)
  known.set(declaration.namespace, first ?? declaration)
  if (!first || isSameNormalizer(first, declaration)) return
  throw new DeclarationError(
    `${where}: the namespace "${declaration.namespace}" is normalized differently by ` +
      `${first.metadata.name}.${first.name}. Give both the same normalizer, in one constant.`,
  )
}

function isSameNormalizer({ text: { normalizer: one } }: NameDeclaration, { text }: NameDeclaration): boolean {
  const { normalizer: other } = text
  const label = normalizerLabel(one)
  // Two normalizers without a name are the same only if they are the same function.
  return label === normalizerLabel(other) && (!/\bcustom@/u.test(label) || one.normalize === other.normalize)
}

function requireNamesEntity(where: string, metadata: EntityMetadata): void {
  if (registry.namesEntity.has(dataSourceOf(metadata))) return
  throw new DeclarationError(
    `${where}: the table that keeps the names is missing. ` +
      `Add Name of typeorm-unique-text/names to the entities of your DataSource.`,
  )
}

/**
 * Calls back when TypeORM has built the indexes of every entity: it builds the checks next, of which this pretends to be
 * one until it is called.
 */
function afterIndexes(metadata: EntityMetadata, callback: () => void): void {
  const check = {
    entityMetadata: metadata,
    name: '',
    expression: '',
    build: () => {
      // A new list: TypeORM walks through the one that it has.
      metadata.checks = metadata.checks.filter((one) => one !== check)
      callback()
      return check
    },
  }
  metadata.checks.push(check)
}
