import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { DeclarationError, DuplicateTextError, TextRejectedError } from '../errors'
import { checkOptions, NO_OPTIONS } from '../options'
import type { StoredRow } from '../sql/find'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { type BatchRules, findQuery, groupBy, inBatches } from './batches'
import { CALL_RULES, type FindOneByTextOptions, type FoundOptions, type GivenValues, type Naming } from './call-options'
import { type CallCoalescer, coalescerOf } from './coalescer'
import { type EntityText, type ReadyText, entityTextOf, readyText } from './entity-text'
import { finish, hydrate, isEntityOfClass, relationsToLoad } from './hydrate'
import { type RowValues, rowValues } from './row-values'
import { statementsOf } from './statements'
import { pathsBeside, requireObject } from './values'
import { watched } from './watch'

/**
 * Returns the row that holds the text, or undefined.
 *
 * @throws DuplicateTextError if there are several
 * @throws TransactionAbortedError if there are several only in the transaction's snapshot
 */
export async function find(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const rows = await session.rows(statementsOf(entityText, row.others).find, row.key)
  return rows.length > 1 ? await theOne(session, entityText, row, rows) : rows[0]
}

/** Returns the row that still exists, if several rows were seen. */
export async function theOne(
  session: Session,
  entityText: ReadyText,
  row: RowValues,
  rows: StoredRow[],
): Promise<StoredRow | undefined> {
  let standing = rows
  // Above READ COMMITTED, a transaction that inserts a text also sees the former holder in its snapshot, which others
  // have deleted since, as with any unique index. A lock reads the current row, and fails with 40001.
  if (session.inTransaction) {
    try {
      standing = await session.rowsOrRollBack(statementsOf(entityText, row.others).findStanding, row.key)
    } catch (error) {
      // A role without the privilege to lock rows gets the rows that it sees.
      if (serverError(error)?.code !== SQLSTATE.insufficientPrivilege) throw error
    }
  }
  if (standing.length <= 1) return standing[0]
  const ids = standing.map((one) => primaryKeyOf(entityText, one))
  throw new DuplicateTextError(entityText.declaration.name, ids)
}

/** Returns the primary key of a row, by its properties. */
export const primaryKeyOf = ({ metadata, select }: EntityText, { columns }: StoredRow): Record<string, unknown> =>
  Object.fromEntries(
    metadata.primaryColumns.map((column) => [column.propertyPath, columns[select.indexOf(column)] ?? null]),
  )

/** The fields of a look-up, which has no input positions and creates nothing. */
const UNASKED = { input: 0, repeats: undefined, values: {}, more: [], create: undefined }

/**
 * Returns the rows that hold the texts, keyed by the identity of each input. Looks them up in batches.
 *
 * @throws DuplicateTextError, and errors of converting a scope value to text
 */
export async function findRows(
  session: Session,
  entityText: ReadyText,
  rows: readonly RowValues[],
): Promise<ReadonlyMap<string, StoredRow>> {
  const requested = new Map(rows.map((row) => [row.identity, { ...row, others: [], all: row.key }]))
  const distinct = [...requested.values()].map((row) => ({ ...UNASKED, row }))
  const rules: BatchRules = { entityText }
  const found = new Map<string, StoredRow>()
  const batches = inBatches(rules, distinct, (_, error) => {
    throw error
  })
  for (const { items, alone } of batches) {
    const query = alone ? undefined : findQuery(rules, items)
    const stored = query ? await session.rowsOrRollBack(query.statement, query.values) : []
    const answers = groupBy(stored, ({ index }) => index)
    for (const [index, { row }] of items.entries()) {
      const [first, another] = answers.get(index) ?? []
      const one = alone || another ? await find(session, entityText, row) : first
      if (one) found.set(row.identity, one)
    }
  }
  return found
}

/** @throws DeclarationError if no row can be softly deleted and hold its text */
export function requireDeleteDate({ metadata, declaration }: EntityText, option: string): void {
  const where = `The option "${option}" of a call for "${declaration.name}" of ${metadata.name}`
  if (!metadata.deleteDateColumn) {
    throw new DeclarationError(`${where} needs a @DeleteDateColumn, and there is none. Leave the option out.`)
  }
  if (declaration.table.deleted !== undefined) {
    throw new DeclarationError(`${where}: with ignoreDeleted a deleted row holds no text. Leave the option out.`)
  }
}

/** Returns whether the row was found and is softly deleted. */
export function isDeleted({ metadata, declaration, select }: EntityText, { created, columns }: StoredRow): boolean {
  const { deleteDateColumn } = metadata
  if (created || !deleteDateColumn || declaration.table.deleted !== undefined) return false
  const index = select.indexOf(deleteDateColumn)
  // The delete date is the last column if `select` lacks it.
  return (columns[index === -1 ? columns.length - 1 : index] ?? null) !== null
}

/** Returns whether `find` would return the row. */
export const isSeen = (entityText: EntityText, row: StoredRow, { withDeleted }: FoundOptions): boolean =>
  isEntityOfClass(entityText, row) && (withDeleted === true || !isDeleted(entityText, row))

/**
 * Returns the row that holds the text, or null. Looks it up by hash, so that the unique index is used. A text that the
 * normalizer refuses, and null, find nothing. A softly deleted row is found only with the option `withDeleted`, as in
 * `find`.
 *
 * @param values text and scope, and nothing else
 *
 * @example
 * const page = await findOneByText(manager, Page, { url: 'http://example.com/' })
 *
 * @throws TextRejectedError only for a value that is not a string, such as a number or a missing property
 * @throws SchemaDriftError, UnsupportedDatabaseError, DuplicateTextError
 * @throws DeclarationError also for a property that is neither text nor scope
 * @function
 */
export const findOneByText: typeof findOneByTextImpl = watched('findOneByText', 'text', findOneByTextImpl)

async function findOneByTextImpl<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
  options: Naming<By, FindOneByTextOptions<NoInfer<Entity>>> = NO_OPTIONS,
): Promise<Entity | null> {
  checkOptions('findOneByText()', options, CALL_RULES.findOneByText)
  const entityText = entityTextOf(manager, entity, options.by)
  if (options.withDeleted) requireDeleteDate(entityText, 'withDeleted')
  const load = relationsToLoad(entityText, options)
  const row = rowToFind('findOneByText()', entityText, values)
  if (!row) return null
  const mode = options.replica ? 'slave' : 'master'
  const session = await openSession(manager, mode)
  try {
    const found = await foundRow(session, entityText, coalescerOf(session, entityText, mode), row)
    if (!found || !isSeen(entityText, found, options)) return null
    const loaded = hydrate(entityText, session, found) as Entity
    await finish(session, entityText, [{ entity: loaded, created: false }], load)
    return loaded
  } finally {
    await session.close()
  }
}

/** The result of a look-up, which creates nothing. */
const NOTHING_CREATED = { created: false }

/** Returns the row that holds the text, by a look-up that simultaneous calls may share. */
export async function foundRow(
  session: Session,
  entityText: EntityText,
  coalescer: CallCoalescer,
  row: RowValues,
): Promise<StoredRow | null | undefined> {
  const waits = coalescer.enter({ row, missing: 'nothing' })
  const answer = waits && (await waits)
  if (answer?.stored !== undefined) return answer.stored
  try {
    return await find(session, await readyText(session, entityText), row)
  } finally {
    coalescer.leave(answer, NOTHING_CREATED)
  }
}

/**
 * Returns the parameters of a look-up.
 *
 * @param call the operation's name in an error
 * @returns undefined for a text that no row can hold
 * @throws DeclarationError for a property that is neither text nor scope
 */
export function rowToFind(call: string, entityText: EntityText, values: ObjectLiteral): RowValues | undefined {
  requireObject(entityText, values)
  const { metadata, declaration } = entityText
  const { text, scope, name } = declaration
  const others = pathsBeside(metadata, [...text.map(({ column }) => column), ...scope], values)
  // If a condition were ignored, the call might return a row that the caller did not request.
  if (others.length > 0) {
    const [by, without] = [[name, ...scope.map(({ propertyPath }) => propertyPath)], others].map((names) =>
      names.map((one) => `"${one}"`).join(', '),
    )
    throw new DeclarationError(
      `${call} finds a row of ${metadata.name} by ${by} only. Leave out ${without}, or use TypeORM's own calls.`,
    )
  }
  try {
    return rowValues(entityText, values)
  } catch (error) {
    if (!(error instanceof TextRejectedError)) throw error
    for (const { column, transformed } of text) {
      const given: unknown = column.getEntityValue(values)
      const isText = given === undefined ? text.length > 1 : given === null || typeof given === 'string' || transformed
      // A value that is not a string is a mistake in the program, not in its data.
      if (!isText) throw error
    }
    return undefined
  }
}
