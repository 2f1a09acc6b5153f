import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { ChainLimitError, HashCollisionError, ImmutableTextError, type TakenText, TextTakenError } from '../errors'
import { namesTable, namesIn, holderDeclaration, declaringMetadata, typedKey } from '../registry/name-declarations'
import { dataSourceOf, type Declaration, type NameDeclaration, registry, textsOfTable } from '../registry/registry'
import { quote } from '../sql/identifier'
import { type RefusedName, refusedNames } from '../sql/names-table'
import { holderQuery, partitionRoot, refusedPlace } from '../sql/refused'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { hashOfTexts, type HolderColumns } from '../sql/text-table'

/** Runs SQL and returns its rows as objects. */
export type QueryRows = (sql: string, values: unknown[]) => Promise<readonly ObjectLiteral[]>

/** A unique violation, and the declaration of the index. */
export interface RefusedText {
  readonly declaration: Declaration
  readonly error: Error
}

/** All declarations of a DataSource, without duplicates. */
export const declarationsIn = ({ entityMetadatas }: DataSource): readonly Declaration[] => [
  ...new Set(entityMetadatas.flatMap(textsOfTable)),
]

/** Returns declarations on the table that an error names. If several tables have that name, the schema decides. */
function declarationsOn<One extends Pick<NameDeclaration, 'table'>>(
  { table: name, schema }: { readonly table?: string; readonly schema?: string },
  declarations: readonly One[],
): readonly One[] {
  const named = declarations.filter(({ table }) => table.table === name && [undefined, schema].includes(table.schema))
  const exact = named.filter(({ table }) => table.schema === schema)
  return exact.length > 0 ? exact : named
}

/** Finds the declaration that refused, by its index name. If the index was renamed, its columns identify it. */
export function refusedText(error: Error, declarations: readonly Declaration[]): RefusedText | undefined {
  const refused = serverError(error)
  if (refused?.code !== SQLSTATE.uniqueViolation) return undefined
  const ofTable = declarationsOn(refused, declarations)
  const declaration =
    ofTable.find(({ table }) => table.index === refused.constraint) ??
    ofTable.find(({ table }) => refusedPlace(table, refused.detail) !== undefined) ??
    refusedPart(error, declarations)
  return declaration && { declaration, error }
}

/** Whether existing rows made a migration or `synchronize` fail. No row was to be written, so no text is taken. */
export const isOfSchema = (error: Error): boolean =>
  'query' in error && /^\s*(?:CREATE|ALTER|DROP|REINDEX|DO)\b/iu.test(String(error.query))

/**
 * Finds the declaration that a partition or shard refused. Its index has another name, and a shard's table is not known
 * either. So the written table and the columns of the index identify it.
 */
function refusedPart(error: Error, declarations: readonly Declaration[]): Declaration | undefined {
  const { detail, table: name } = serverError(error) ?? {}
  const written = writtenTable(error)
  if (declarations.some(({ table }) => table.table === name)) return undefined
  return declarations.find(({ table }) => table.table === written && refusedPlace(table, detail) !== undefined)
}

/** Returns the table that a statement of TypeORM writes to. */
function writtenTable(error: Error): string | undefined {
  const sql = 'query' in error ? String(error.query) : ''
  const named = /^\s*(?:WITH changed AS \()?(?:INSERT INTO|UPDATE)\s+((?:"(?:[^"]|"")*"\.?)+)/iu.exec(sql)?.[1]
  return /"((?:[^"]|"")*)"$/u.exec(named ?? '')?.[1]?.replaceAll('""', '"')
}

/**
 * Finds the text that a partition refused. The partition's index has another name, and the catalog names its root
 * table.
 */
export async function refusedPartition(
  error: Error,
  declarations: readonly Declaration[],
  query: QueryRows,
): Promise<RefusedText | undefined> {
  const { table, schema, detail, code } = serverError(error) ?? {}
  const mayBe = ({ table: one }: Declaration): boolean => refusedPlace(one, detail) !== undefined
  if (code !== SQLSTATE.uniqueViolation || !declarations.some(mayBe)) return undefined
  const [root] = await query(partitionRoot(), [schema, table])
  const { schema: ofRoot, table: named } = root ?? {}
  const [found] = declarationsOn({ table: String(named), schema: String(ofRoot) }, declarations.filter(mayBe))
  return found && { declaration: found, error }
}

/** The known facts about the holder of a text. */
export interface TextHolder {
  /** Undefined if it cannot be known. */
  readonly id: ObjectLiteral | undefined
  readonly deleted?: boolean
  /** Another text with the same hash took the place. The refused text is free, and a retry may succeed. */
  readonly isOtherText: boolean
}

export const UNKNOWN_HOLDER: TextHolder = { id: undefined, isOtherText: false }

/**
 * Finds the holder of the refused text. The server reports only the hash. The text is the parameter of the statement
 * that has this hash. If it is missing, no holder is named, because the row could hold another text.
 *
 * @param given the texts of which one was refused, each as the values of its columns. @default the parameters of
 * TypeORM's error, for a text of one column
 */
export async function findTextHolder(
  { declaration, error }: RefusedText,
  query: QueryRows,
  given: readonly (readonly unknown[])[] = sentParameters(error)
    .flat()
    .map((one) => [one]),
): Promise<TextHolder> {
  const { table, metadata } = declaration
  const place = refusedPlace(table, serverError(error)?.detail)
  const text = place && textWithHash(declaration, given, place.hash)
  const restored = text === undefined && isRestore(declaration, error)
  if (!place || (text === undefined && !restored)) return UNKNOWN_HOLDER
  const of = holderColumns(metadata, table)
  const { sql, values } = holderQuery(table, of, place, text)
  const rows = await query(sql, [...values])
  const holder = rows.find(({ same }) => same !== null)
  if (!holder) return { id: undefined, isOtherText: rows.length > 0 && !restored }
  return {
    id: idOf(
      metadata,
      of.primary.map((_, index) => holder[`k${index}`]),
    ),
    deleted: (holder['deleted'] ?? null) !== null,
    isOtherText: false,
  }
}

/** The columns that are read of the row that holds a text. */
export const holderColumns = (metadata: EntityMetadata, table?: Declaration['table']): HolderColumns => ({
  primary: metadata.primaryColumns.map(({ databaseName }) => databaseName),
  softDelete: table?.deleted === undefined ? metadata.deleteDateColumn?.databaseName : undefined,
})

/** Whether the statement writes the delete date of soft-deleted rows. */
function isRestore({ table: { deleted } }: Declaration, error: Error): boolean {
  const sql = 'query' in error ? String(error.query) : ''
  return deleted !== undefined && /^\s*UPDATE\b/iu.test(sql) && sql.includes(`${quote(deleted)} = `)
}

const sentParameters = (error: Error): readonly unknown[] =>
  'parameters' in error && Array.isArray(error.parameters) ? error.parameters : []

/** Returns the text with this hash if there is only one. */
function textWithHash(
  { table }: Declaration,
  given: readonly (readonly unknown[])[],
  hash: string,
): readonly (string | null)[] | undefined {
  const isWhole = (one: readonly unknown[]): one is readonly (string | null)[] =>
    one.length === table.text.length &&
    one.some((value) => value !== null) &&
    one.every((value) => value === null || typeof value === 'string')
  const digest = table.digest.type === 'uuid' ? hash.replaceAll('-', '') : hash
  const found = given.filter(isWhole).filter((one) => hashOfTexts(table, one) === digest)
  const texts = new Map(found.map((one) => [JSON.stringify(one), one]))
  return texts.size === 1 ? found[0] : undefined
}

/** Returns the id map for `find`, from the values of the primary columns that the driver returns. */
export function idOf(metadata: EntityMetadata, values: readonly unknown[]): ObjectLiteral | undefined {
  const row: ObjectLiteral = {}
  const { driver } = dataSourceOf(metadata)
  for (const [index, column] of metadata.primaryColumns.entries()) {
    column.setEntityValue(row, driver.prepareHydratedValue(values[index], column))
  }
  return metadata.getEntityIdMap(row)
}

/** Returns the error for a refused text. TypeORM's own calls do not report which of their rows it was in. */
export function takenError({ declaration, error }: RefusedText, { id, deleted }: TextHolder): TextTakenError {
  const { metadata, name } = declaration
  const taken: TakenText = { entity: metadata.name, property: name, id, row: 0, ...(deleted ? { deleted } : {}) }
  return new TextTakenError([taken], error)
}

/** Returns the error for a text whose place another text with the same hash has, if no guard finds another place. */
export const collisionError = (
  { declaration: { table, name }, error }: RefusedText,
  { isOtherText }: TextHolder,
): HashCollisionError | undefined =>
  isOtherText && table.guardless === true ? new HashCollisionError(name, error) : undefined

/**
 * Translates an error of the guard into one of ours.
 *
 * @param declarations those whose guards may have raised it
 * @returns undefined for any other error
 */
export function guardError(
  error: unknown,
  declarations: readonly Declaration[],
): ChainLimitError | ImmutableTextError | undefined {
  const refused = serverError(error)
  const written = refused && error instanceof Error && refused.table === undefined ? writtenTable(error) : undefined
  // An error from another node of a cluster names neither constraint nor table.
  const named = declarations.filter(({ table }) =>
    written === undefined ? table.index === refused?.constraint : table.table === written,
  )
  // A partition has another name than the table.
  const declaration = (refused && declarationsOn(refused, named)[0]) ?? named[0]
  if (!declaration) return undefined
  const code = refused?.code
  if (code === SQLSTATE.chainLimit) return new ChainLimitError(declaration.name, error)
  return code === SQLSTATE.immutableText ? new ImmutableTextError(declaration.name, error) : undefined
}

/** The holder of a requested name. */
type NameOwner = Pick<RefusedName, 'holder' | 'holderColumn' | 'key' | 'state'>

/**
 * Returns the names that the triggers refused, from the server's error, or undefined for another error.
 *
 * @param rowOf the 0-based position of a row, by its primary key. @default 0, because TypeORM's calls do not report it
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
  const names = declarationsOn(refused, namesIn(dataSource))
  return list.flatMap((one) => {
    const requested = names.find(({ text }) => text.column.databaseName === one.column)
    return requested ? [takenName(requested, rowOf(requested.metadata, one.of), one)] : []
  })
}

/** Returns the error for names that TypeORM's own calls were refused, or undefined for another error. */
export function takenNamesError(error: unknown, dataSource: DataSource): TextTakenError | undefined {
  const taken = takenByTriggers(error, dataSource)
  return taken && taken.length > 0 ? new TextTakenError(taken, error) : undefined
}

/** Describes a requested name and its holder. */
export function takenName(requested: NameDeclaration, row: number, owner: NameOwner | undefined): TakenText {
  const holder = owner && holderDeclaration(dataSourceOf(requested.metadata), owner)
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
