/**
 * @file Makes a `TextTakenError` from the server's error: `textError` for a text, `takenNamesError` for names,
 * `takenNumberError` for a number. TypeORM's own calls throw it in `explain-errors.ts`; find-or-create and upsert throw
 * it in `explain` of `calls/write-or-fail.ts`. There, `requireFree` throws the error of `insertOrFail` and
 * `updateOrFail`: `calls/taken.ts` looks up everything that is taken. Without a refusal, `calls/one-row.ts` throws it for
 * a deleted row, and `calls/hydrate.ts` for a row of another class.
 */
import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import {
  ChainLimitError,
  HashCollisionError,
  ImmutableTextError,
  type TakenText,
  TextTakenError,
  TransactionAbortedError,
  type UniqueTextError,
} from '../errors'
import { namesTable, namesIn, holderDeclaration, declaringMetadata, typedKey } from '../registry/name-declarations'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  numbersOfTable,
  registry,
  textsOfTable,
} from '../registry/registry'
import { quote } from '../sql/identifier'
import { partUsedBy } from '../sql/library'
import { type RefusedName, refusedNames } from '../sql/names-table'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { holderQuery, PARTITION_ROOT, refusedPlace } from '../sql/taken'
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
  'query' in error &&
  (/^\s*(?:--[^\n]*\s+)*(?:CREATE|ALTER|DROP|REINDEX|DO)\b/iu.test(String(error.query)) ||
    partUsedBy(String(error.query)) !== undefined)

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
async function refusedPartition(
  error: Error,
  declarations: readonly Declaration[],
  query: QueryRows,
): Promise<RefusedText | undefined> {
  const { table, schema, detail, code } = serverError(error) ?? {}
  const mayBe = ({ table: one }: Declaration): boolean => refusedPlace(one, detail) !== undefined
  if (code !== SQLSTATE.uniqueViolation || !declarations.some(mayBe)) return undefined
  const [root] = await query(PARTITION_ROOT, [schema, table])
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

/**
 * Returns the error for a refused text. TypeORM's own calls do not report which of their rows it was in.
 *
 * @returns undefined if another text with the same hash was faster, and a guard finds another place for this one
 */
export function textError(
  { declaration: { table, metadata, name }, error }: RefusedText,
  { id, deleted, isOtherText }: TextHolder,
): HashCollisionError | TextTakenError | undefined {
  if (isOtherText) return table.guardless === true ? new HashCollisionError(name, error) : undefined
  return new TextTakenError(
    [{ entity: metadata.name, property: name, id, row: 0, ...(deleted ? { deleted } : {}) }],
    error,
  )
}

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

/** Returns the names that the triggers refused, from the server's error. TypeORM's calls do not report their rows. */
export function takenByTriggers(error: unknown, dataSource: DataSource): TakenText[] {
  const refused = serverError(error)
  if (!refused || !registry.namesEntity.has(dataSource)) return []
  const names = declarationsOn(refused, namesIn(dataSource))
  return refusedNames(refused, namesTable(dataSource)).flatMap((one) => {
    const requested = names.find(({ text }) => text.column.databaseName === one.column)
    return requested ? [takenName(requested, 0, one)] : []
  })
}

/** Returns the error for names that the triggers refused, or undefined for another error. */
export function takenNamesError(error: unknown, dataSource: DataSource): TextTakenError | undefined {
  const taken = takenByTriggers(error, dataSource)
  return taken.length > 0 ? new TextTakenError(taken, error) : undefined
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

/**
 * The error for a number that another row has. A query would be necessary to find that row. If the caller gave no
 * number, the number is from a snapshot before that row.
 */
export function takenNumberError(
  failure: Error,
  { entityMetadatas }: DataSource,
): TextTakenError | TransactionAbortedError | undefined {
  const { code, constraint, table } = serverError(failure) ?? {}
  if (code !== SQLSTATE.uniqueViolation) return undefined
  const number = entityMetadatas
    .flatMap(numbersOfTable)
    .find((one) => one.table.index === constraint && one.table.table === table)
  if (!number) return undefined
  if (leavesOut('query' in failure ? String(failure.query) : '', number.table.number)) {
    return new TransactionAbortedError(
      failure,
      `another row of ${number.metadata.name} has got the next "${number.name}"`,
    )
  }
  const taken = { entity: number.metadata.name, property: number.name, id: undefined, row: 0 }
  return new TextTakenError([taken], failure, 'Leave the number out, so that the next one is given, or give another.')
}

/** Whether an INSERT leaves out the column, or has DEFAULT for it, as TypeORM writes undefined values. */
function leavesOut(sql: string, column: string): boolean {
  const [, columns, row = ''] = /^\s*INSERT INTO [^(]+\(([^)]*)\)\s*VALUES\s*\(([^()]*)\)/iu.exec(sql) ?? []
  if (columns === undefined) return false
  const position = columns.split(',').findIndex((one) => [column, quote(column)].includes(one.trim()))
  return position < 0 || row.split(',')[position]?.trim().toUpperCase() === 'DEFAULT'
}

/**
 * Finds the text that the first suitable error reports as taken, and its holder. It uses a connection of its own.
 *
 * @returns undefined if no error reports one, or if another text with the same hash was faster
 */
export async function takenTextError(
  errors: readonly Error[],
  dataSource: DataSource,
): Promise<TextTakenError | undefined> {
  const declarations = declarationsIn(dataSource)
  const query: QueryRows = async (sql, values) => (await dataSource.query(sql, values)) as ObjectLiteral[]
  for (const one of errors) {
    if (one instanceof TextTakenError && (!('driverError' in one) || one.taken[0]?.id !== undefined)) return one
    if (isOfSchema(one)) return undefined
    const ofNames = takenNamesError(one, dataSource)
    if (ofNames) return ofNames
    const refused = refusedText(one, declarations) ?? (await refusedPartition(one, declarations, query))
    if (!refused) continue
    const found = textError(refused, await findTextHolder(refused, query))
    return found instanceof TextTakenError ? found : undefined
  }
  return undefined
}

/** The key by which `instanceof` of our classes recognizes an error of ours that has TypeORM's prototype. */
const AS_OURS = Symbol.for('typeorm-unique-text.error')

/**
 * Turns an error of ours into one of TypeORM's as well. TypeORM's own calls throw it, and existing code there expects
 * `QueryFailedError` and its `driverError`.
 *
 * @param failed the error of TypeORM, which stays its `cause`
 * @returns the error, which is then an instance of both classes
 */
export function asQueryFailedError<Ours extends UniqueTextError, Failed extends Error>(
  ours: Ours,
  failed: Failed,
): Failed & Ours {
  const prototype: unknown = Object.getPrototypeOf(ours)
  const { stack } = failed
  for (const [name, value] of Object.entries(failed)) {
    // The DETAIL holds values of the row. `driverError` has it.
    if (!(name in ours) && name !== 'detail') Object.assign(ours, { [name]: value })
  }
  Object.defineProperty(ours, AS_OURS, { value: prototype, configurable: true })
  Object.setPrototypeOf(ours, Object.getPrototypeOf(failed) as object)
  return withStackOf(ours, stack) as Failed & Ours
}

/** Completes an error that was thrown before the holder of its text was known. */
export function completeError(thrown: TextTakenError, refused: RefusedText, holder: TextHolder): void {
  const found = textError(refused, holder)
  if (found instanceof HashCollisionError) {
    // The error that was already thrown turns into the collision.
    const { code, name, message, property } = found
    Reflect.deleteProperty(thrown, 'taken')
    Object.defineProperty(thrown, AS_OURS, { value: HashCollisionError.prototype })
    Object.assign(thrown, { code, name, message, property })
  } else if (found && holder.id) Object.assign(thrown, { message: found.message, taken: found.taken })
  withStackOf(thrown, thrown.stack)
}

/** Gives an error the stack lines of TypeORM's own error, which point to the caller. */
function withStackOf<One extends Error>(error: One, stack: string | undefined): One {
  const lines = stack?.slice(Math.max(0, stack.search(/^ {4}at /m))) ?? ''
  Object.defineProperty(error, 'stack', {
    value: `${error.name}: ${error.message}\n${lines}`,
    configurable: true,
    writable: true,
  })
  return error
}
