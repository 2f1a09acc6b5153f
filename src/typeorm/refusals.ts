import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { ChainLimitError, HashCollisionError, ImmutableTextError, type TakenText, TextTakenError } from '../errors'
import { namesTable, namesIn, holderDeclaration, declaringMetadata, typedKey } from '../registry/names'
import { dataSourceOf, type Declaration, type NameDeclaration, registry, tableDeclarations } from '../registry/registry'
import { quote } from '../sql/identifier'
import { type RefusedName, refusedNames } from '../sql/names'
import { holderQuery, partitionRoot, refusedPlace, restoredHolderQuery } from '../sql/refused'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { hashOfTexts, type HolderColumns } from '../sql/text-table'

/** Runs SQL and gives its rows as objects. */
export type QueryRows = (sql: string, values: unknown[]) => Promise<readonly ObjectLiteral[]>

/** A unique violation, and the declaration whose index it was. */
export interface RefusedText {
  readonly declaration: Declaration
  readonly error: Error
}

/** Every declaration of a DataSource, each once. */
export const declarationsIn = ({ entityMetadatas }: DataSource): readonly Declaration[] => [
  ...new Set(entityMetadatas.flatMap(tableDeclarations)),
]

/** Returns declarations on the table that an error names: of several tables of that name, the one in its schema. */
function declarationsOn<One extends Pick<NameDeclaration, 'table'>>(
  { table: name, schema }: { readonly table?: string; readonly schema?: string },
  declarations: readonly One[],
): readonly One[] {
  const named = declarations.filter(({ table }) => table.table === name && isSchema(table.schema, schema))
  const exact = named.filter(({ table }) => table.schema === schema)
  return exact.length > 0 ? exact : named
}

/** The declaration that refused, by the name of its index; of an index that was renamed, by its columns. */
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

/** A migration, or `synchronize`, was refused for rows that are there: no row was to be written, and none is taken. */
export const isOfSchema = (error: Error): boolean =>
  'query' in error && /^\s*(?:CREATE|ALTER|DROP|REINDEX|DO)\b/iu.test(String(error.query))

/**
 * Finds what a partition or a shard refused: its index has a name of its own, and of a shard not even the table is known. Then it is the
 * table that the statement writes to, by the columns of the index.
 */
function refusedPart(error: Error, declarations: readonly Declaration[]): Declaration | undefined {
  const { detail, table: name } = serverError(error) ?? {}
  const written = writtenTable(error)
  if (declarations.some(({ table }) => table.table === name)) return undefined
  return declarations.find(({ table }) => table.table === written && refusedPlace(table, detail) !== undefined)
}

/** The table that a statement of TypeORM's writes to. */
function writtenTable(error: Error): string | undefined {
  const sql = 'query' in error ? String(error.query) : ''
  const named = /^\s*(?:WITH changed AS \()?(?:INSERT INTO|UPDATE)\s+((?:"(?:[^"]|"")*"\.?)+)/iu.exec(sql)?.[1]
  return /"((?:[^"]|"")*)"$/u.exec(named ?? '')?.[1]?.replaceAll('""', '"')
}

const isSchema = (declared: string | undefined, found: string | undefined): boolean =>
  declared === undefined || declared === found

/**
 * The refused text where a partition refused it: its index has a name of its own, and the catalog tells which table it
 * belongs to.
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

/** What could be found out about who holds the text. */
export interface TextHolder {
  /** Undefined where it cannot be known. */
  readonly id: ObjectLiteral | undefined
  readonly deleted?: boolean
  /** The place was taken by another text of equal hash: the refused text itself is free, and may be tried again. */
  readonly isOtherText: boolean
}

export const UNKNOWN_HOLDER: TextHolder = { id: undefined, isOtherText: false }

/**
 * Who holds the refused text. The server names its hash, not the text; that is among the parameters of the statement,
 * where its hash shows which it is. Without it nobody is named, for the row could hold another text.
 *
 * @param given the texts of which one was refused, each as the values of its columns. @default the parameters of TypeORM's
 * error, for a text of one column
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
  const { sql, values } =
    text === undefined ? restoredHolderQuery(table, of, place) : holderQuery(table, of, place, text)
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

/** What is read of the row that holds a text. */
export const holderColumns = (metadata: EntityMetadata, table?: Declaration['table']): HolderColumns => ({
  primary: metadata.primaryColumns.map(({ databaseName }) => databaseName),
  softDelete: table?.deleted === undefined ? metadata.deleteDateColumn?.databaseName : undefined,
})

/** The statement writes the delete date of rows that were softly deleted. */
function isRestore({ table: { deleted } }: Declaration, error: Error): boolean {
  const sql = 'query' in error ? String(error.query) : ''
  return deleted !== undefined && /^\s*UPDATE\b/iu.test(sql) && sql.includes(`${quote(deleted)} = `)
}

const sentParameters = (error: Error): readonly unknown[] =>
  'parameters' in error && Array.isArray(error.parameters) ? error.parameters : []

/** The only one of the texts that has this hash. */
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

/** The id map that `find` would take, of the values of the primary columns as the driver gives them. */
export function idOf(metadata: EntityMetadata, values: readonly unknown[]): ObjectLiteral | undefined {
  const row: ObjectLiteral = {}
  const { driver } = dataSourceOf(metadata)
  for (const [index, column] of metadata.primaryColumns.entries()) {
    column.setEntityValue(row, driver.prepareHydratedValue(values[index], column))
  }
  return metadata.getEntityIdMap(row)
}

/** The error for a refused text. TypeORM's own calls do not say which of their rows it was. */
export function takenError({ declaration, error }: RefusedText, { id, deleted }: TextHolder): TextTakenError {
  const { metadata, name } = declaration
  const taken: TakenText = { entity: metadata.name, property: name, id, row: 0, ...(deleted ? { deleted } : {}) }
  return new TextTakenError([taken], error)
}

/** The error for a text whose place another text of equal hash has, where no guard finds it another one. */
export const collisionError = (
  { declaration: { table, name }, error }: RefusedText,
  { isOtherText }: TextHolder,
): HashCollisionError | undefined =>
  isOtherText && table.guardless === true ? new HashCollisionError(name, error) : undefined

/**
 * Translates an error of the guard into one of ours.
 *
 * @param declarations those whose guards may have said it
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
  // Of a partition, the table has another name.
  const declaration = (refused && declarationsOn(refused, named)[0]) ?? named[0]
  if (!declaration) return undefined
  const code = refused?.code
  if (code === SQLSTATE.chainLimit) return new ChainLimitError(declaration.name, error)
  return code === SQLSTATE.immutableText ? new ImmutableTextError(declaration.name, error) : undefined
}

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
  const names = declarationsOn(refused, namesIn(dataSource))
  return list.flatMap((one) => {
    const requested = names.find(({ text }) => text.column.databaseName === one.column)
    return requested ? [takenName(requested, rowOf(requested.metadata, one.of), one)] : []
  })
}

/** Returns the error for names that TypeORM's own calls were refused; undefined for another error. */
export function takenNamesError(error: unknown, dataSource: DataSource): TextTakenError | undefined {
  const taken = takenByTriggers(error, dataSource)
  return taken && taken.length > 0 ? new TextTakenError(taken, error) : undefined
}

/** A name that was asked for, and who has it. */
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
