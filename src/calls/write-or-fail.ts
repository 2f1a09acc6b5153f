import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { allOrNothing, requireCurrentSnapshot, type Step } from '../connection/transactions'
import { parameterOptions } from '../connection/wire'
import type { Session } from '../connection/session'
import { HashCollisionError, type TakenText, TextTakenError } from '../errors'
import { declaringMetadata } from '../registry/name-declarations'
import { type ColumnMetadata, numbersOfTable, rootOf, textsOfTable } from '../registry/registry'
import { forgetIfChanged, knownReady } from '../schema/readiness'
import type { UnusualIndex } from '../sql/catalog'
import type { WireRow } from '../sql/find'
import { holderKeyStatement, standingKeyStatement } from '../sql/spread'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { takenKeysStatement, takenStatement, type TakenRow, type WantedText } from '../sql/taken'
import { hashOfTexts, isLive } from '../sql/text-table'
import { parameterText } from '../sql/types'
import {
  asQueryFailedError,
  findTextHolder,
  guardError,
  holderColumns,
  idOf,
  type QueryRows,
  type RefusedText,
  refusedText,
  takenByTriggers,
  takenNamesError,
  textError,
  UNKNOWN_HOLDER,
} from '../typeorm/refusals'
import { type EntityColumns, type EntityText, type ReadyText, readyText } from './entity-text'
import { Attempts } from './attempts'
import { groupBy } from './batches'
import { ensureNamesReady, type RequestedName, requestedNames, takenNames } from './requested-names'
import type { RowValues } from './row-values'
import { inRow, requireNoNul, valueIn } from './values'

/** A row that a call writes. */
export interface WrittenRow {
  readonly columns: EntityColumns
  /** 0-based position of the row in the call. */
  readonly position: number
  readonly values: ObjectLiteral
  /** Primary key of the stored row to change, and perhaps further conditions; undefined for a row to insert. */
  readonly id?: ObjectLiteral
}

/**
 * Returns the texts and names of rows. Everything is checked before any SQL.
 *
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError
 */
export async function requestedOf<Row extends WrittenRow, Text extends RequestedText>(
  session: Session,
  rows: readonly Row[],
  textsOf: (row: Row) => (Omit<Text, 'entityText'> & { readonly entityText: EntityText })[],
): Promise<{ readonly requested: readonly Text[]; readonly names: readonly RequestedName[] }> {
  const names = rows.flatMap(({ columns, position, values, id }) =>
    inRow(position, () => {
      for (const column of columns.metadata.columns) {
        if (!column.transformer) requireNoNul(column, valueIn(column, values))
      }
      return requestedNames(columns, position, values, id)
    }),
  )
  const requested: Text[] = []
  for (const one of rows.flatMap((row) => inRow(row.position, () => textsOf(row))))
    requested.push({ ...one, entityText: await readyText(session, one.entityText) } as Text)
  await ensureNamesReady(session, names)
  return { requested, names }
}

/** The steps of a call, and the texts that must be free for it. */
interface Writing {
  readonly steps: readonly Step<WireRow>[]
  /** Cheaper steps, for texts that share no hash. They are tried once. @default the steps themselves */
  readonly quick?: readonly Step<WireRow>[] | undefined
  readonly requested: readonly RequestedText[]
  readonly names: readonly RequestedName[]
  /** The rows whose primary keys and ordinary unique columns must be free. @default none */
  readonly rows?: readonly WrittenRow[]
  /** Whether a text or name that one change gives up is free for every other one. @default for later ones */
  readonly atOnce?: boolean
}

/**
 * Writes everything or nothing. If an index refuses, it looks up once which texts are taken. If none is, the holder was
 * removed meanwhile or another text with equal hash was faster, and it tries again.
 *
 * @returns the rows of each step
 * @throws TextTakenError with every taken text, name, number, primary key and unique column
 * @throws ImmutableTextError, ChainLimitError, AttemptsExhaustedError, TransactionAbortedError
 * @throws QueryFailedError for everything else
 */
export async function writeOrFail(
  session: Session,
  { steps, quick, ...wanted }: Writing,
): Promise<readonly (readonly WireRow[])[]> {
  const { requested, names } = wanted
  const attempts = new Attempts(session, requested[0]?.entityText.declaration.name ?? names[0]?.name.name ?? '')
  const written =
    quick &&
    (await allOrNothing(session, quick).catch((error: unknown) => {
      if (REFUSED.has(serverError(error)?.code ?? '') || attempts.mayHelp(error)) return undefined
      throw error
    }))
  if (written) return written
  for (;;) {
    try {
      return await allOrNothing(session, steps)
    } catch (error) {
      if (!attempts.mayHelp(error)) await requireRetry(session, wanted, error)
      await attempts.next(error)
    }
  }
}

/** The codes of indexes and checks. Our check refuses a text that a trigger changed after its hash was computed. */
const REFUSED: ReadonlySet<string> = new Set([SQLSTATE.uniqueViolation, SQLSTATE.checkViolation])

const OR_ANOTHER_VALUE = 'Use the row that holds it, or give another value.'
const OR_SWAP =
  'Use the row that holds the text, or give another text. To swap texts, change both rows in one updateOrFail().'

/** @throws TextTakenError for all that is taken; if only ordinary columns are, it is TypeORM's error as well */
async function requireFree(
  session: Session,
  { requested, names, rows, atOnce }: Required<Pick<Writing, 'requested' | 'names' | 'rows' | 'atOnce'>>,
  error: unknown,
): Promise<void> {
  const texts = [...(await takenTexts(session, requested, atOnce)), ...(await takenNames(session, names, atOnce))]
  // A name that is free by now was taken when the triggers looked.
  const found = texts.length > 0 ? texts : takenByTriggers(error, session.dataSource)
  const keys = await takenKeys(session, rows)
  if (found.length + keys.length === 0) return
  const taken = [...found, ...keys].toSorted((left, right) => left.row - right.row)
  const isChange = requested.some(({ id }) => id) || names.some(({ key }) => key)
  const remedy = keys.length > 0 ? OR_ANOTHER_VALUE : isChange ? OR_SWAP : undefined
  const explained = new TextTakenError(taken, error, remedy)
  throw found.length === 0 && error instanceof Error ? asQueryFailedError(explained, error) : explained
}

/** @throws the explained error, unless another attempt may succeed */
async function requireRetry(
  session: Session,
  { requested, names, rows = [], atOnce = false }: Omit<Writing, 'steps'>,
  error: unknown,
): Promise<void> {
  const declarations = requested.map(({ entityText }) => entityText.declaration)
  const refused = serverError(error)
  const isOurs = requested.length + names.length + rows.length > 0
  if (refused?.code !== SQLSTATE.uniqueViolation || !isOurs) throw guardError(error, declarations) ?? error
  await requireFree(session, { requested, names, rows, atOnce }, error)
  const { constraint = '' } = refused
  const ofText = error instanceof Error ? refusedText(error, declarations) : undefined
  if (!ofText && !isOfNumber(rows, constraint)) throw error
  if (ofText) {
    const { declaration } = ofText
    const ofDeclaration = requested.filter(({ entityText }) => entityText.declaration === declaration)
    const texts = ofDeclaration.map(({ key }) => key.slice(declaration.scope.length))
    await requireNoCollision(session, ofText, texts)
  }
  await requireCurrentSnapshot(session, error)
}

/** @throws HashCollisionError if another text with equal hash has the number, and no guard sets the next */
export async function requireNoCollision(
  session: Session,
  refused: RefusedText,
  texts: readonly (readonly unknown[])[],
): Promise<void> {
  if (refused.declaration.table.guardless !== true) return
  const found = textError(refused, await findTextHolder(refused, storedRows(session), texts))
  if (found instanceof HashCollisionError) throw found
}

const storedRows =
  (session: Session): QueryRows =>
  async (...requested) =>
    await session.byTypeOrm(async (runner) => (await runner.query(...requested)) as Awaited<ReturnType<QueryRows>>)

/**
 * Returns the error with which find-or-create and upsert fail: a full chain, or another text of the entity that is
 * taken. The second is also TypeORM's `QueryFailedError`, as is a violation of any other index.
 */
export async function explain(
  session: Session,
  { declaration, otherTexts, dataSource }: EntityText,
  row: RowValues | undefined,
  failure: unknown,
): Promise<unknown> {
  const ofNames = takenNamesError(failure, dataSource)
  if (ofNames) return asQueryFailedError(ofNames, failure as Error)
  const ofGuard = guardError(failure, [declaration, ...otherTexts])
  const refused = failure instanceof Error ? refusedText(failure, otherTexts) : undefined
  if (ofGuard || !refused || !row) return ofGuard ?? failure
  const given = refused.declaration.table.text.map(
    ({ name }) => row.all[row.all.length - row.others.length + row.others.indexOf(name)],
  )
  const holder = await findTextHolder(refused, storedRows(session), [given]).catch(() => UNKNOWN_HOLDER)
  const explained = textError(refused, holder)
  return explained ? asQueryFailedError(explained, refused.error) : failure
}

/**
 * Whether it is the unique index of numbers that no row sets. Another attempt may succeed then, because the index may
 * refuse a row only because others were numbered meanwhile.
 */
function isOfNumber(rows: readonly WrittenRow[], index: string): boolean {
  const numbered = rows.flatMap(({ columns, values }) =>
    numbersOfTable(columns.metadata)
      .filter(({ table }) => table.index === index)
      .map(({ column }): unknown => column.getEntityValue(values) ?? null),
  )
  return numbered.length > 0 && numbered.every((given) => given === null)
}

interface UniqueKey {
  readonly name: string
  readonly columns: readonly ColumnMetadata[]
  /** The column of a number. A trigger gives a free one to a row that does not set it. */
  readonly number?: ColumnMetadata | undefined
  /** The index, if it has a condition or an expression. */
  readonly index?: UnusualIndex
}

/**
 * Returns taken primary keys, unique columns and numbers of the rows, as far as they can be known. A value from a
 * trigger, an identity or a sequence is unknown.
 */
async function takenKeys(session: Session, rows: readonly WrittenRow[]): Promise<TakenText[]> {
  const taken: TakenText[] = []
  const groups = groupBy(rows, ({ columns, id }) => `${rootOf(columns.metadata).tablePath} ${id === undefined}`)
  for (const group of groups.values()) {
    const [{ columns: of }] = group as [WrittenRow]
    const root = rootOf(of.metadata)
    const ofTexts = new Set(textsOfTable(root).map(({ table }) => table.index))
    const numbers = new Map(numbersOfTable(root).map((one) => [one.table.index, one]))
    const indices = root.indices.filter(({ name, isUnique, where }) => isUnique && !where && !ofTexts.has(name))
    const primary = { name: undefined, columns: root.primaryColumns }
    const keys = [primary, ...root.uniques, ...indices]
      .filter(({ columns }) => columns.length > 0)
      .map(({ name, columns }): UniqueKey => {
        const number = numbers.get(name ?? '')
        return { columns, name: number?.name ?? pathsOf(columns), number: number?.column }
      })
    taken.push(...(await takenOfKeys(session, group, keys)))
    // Unusual indexes, declared or created by SQL, that the table had when it was found ready. They have a statement of
    // their own, because an expression may fail for a value that the row itself can hold.
    const { unusual = [] } =
      textsOfTable(root)
        .map(knownReady)
        .find((one) => one !== undefined) ?? {}
    const unusualKeys = unusual.flatMap((index): UniqueKey[] => {
      const columns = columnsNamed(root, index.columns)
      if (columns.length === 0) return []
      return [{ name: pathsOf(columns), columns: columnsNamed(root, Object.keys(index.reads)), index }]
    })
    taken.push(...(await takenOfKeys(session, group, unusualKeys)))
  }
  return taken
}

async function takenOfKeys(
  session: Session,
  rows: readonly WrittenRow[],
  keys: readonly UniqueKey[],
): Promise<TakenText[]> {
  const [{ columns: of, id }] = rows as [WrittenRow]
  const root = rootOf(of.metadata)
  const requested = keys
    .map((key) => {
      const isGiven = ({ values }: WrittenRow): boolean => {
        const given = key.columns.map((column): unknown => column.getEntityValue(values))
        if (key.index) return given.some(isValue)
        if (key.number && !isValue(key.number.getEntityValue(values))) return false
        return id === undefined ? given.every(isValue) : given.some(isValue) && !given.includes(null)
      }
      return { key, rows: rows.filter(isGiven) }
    })
    .filter((one) => one.rows.length > 0)
  if (requested.length === 0) return []
  const statement = takenKeysStatement({
    schema: root.schema,
    table: root.tableName,
    ...holderColumns(root),
    keys: requested.map(({ key }) => ({
      columns: key.columns.map(({ databaseName }) => databaseName),
      index: key.index,
    })),
    types: new Map(root.columns.map(({ databaseName, type }) => [databaseName, String(type)])),
    standing: id !== undefined,
  })
  const json = requested.map((one) => JSON.stringify(one.rows.map((row) => recordOf(row, one.key))))
  // A value that its column cannot hold was already refused, or its type has texts that are not JSON.
  const found = await session.rowsOrRollBack(statement, json).catch(() => [])
  return found.flatMap(({ key, index, holder, deleted }) => {
    const one = requested[key]
    const row = one?.rows[index]
    if (!one || !row) return []
    const what = { entity: row.columns.metadata.name, property: one.key.name, row: row.position }
    return [{ ...what, ...takenBy(root, holder, deleted) }]
  })
}

const columnsNamed = (root: EntityMetadata, names: readonly string[]): ColumnMetadata[] =>
  root.columns.filter(({ databaseName }) => names.includes(databaseName))

const pathsOf = (columns: readonly ColumnMetadata[]): string => columns.map((one) => one.propertyPath).join(', ')

const isValue = (value: unknown): boolean => value !== undefined && value !== null && typeof value !== 'function'

/** Returns the record that `takenKeysStatement` takes. */
function recordOf({ columns: of, values, id }: WrittenRow, { columns, index }: UniqueKey): object {
  const { dataSource, metadata } = of
  const options = parameterOptions(dataSource)
  const record = (of: ObjectLiteral, some: readonly ColumnMetadata[]): object =>
    Object.fromEntries(
      some.flatMap((column) => {
        const value: unknown = column.getEntityValue(of)
        // A given NULL replaces a default, and may satisfy the condition of an index.
        if (!isValue(value) && !(index && value === null)) return []
        return [[column.databaseName, parameterText(dataSource.driver.preparePersistentValue(value, column), options)]]
      }),
    )
  return id === undefined
    ? record(values, columns)
    : { key: record(id, metadata.primaryColumns), set: record(values, columns) }
}

/** A text that a row of the call requests. */
export interface RequestedText {
  readonly entityText: ReadyText
  /** 0-based position of the row among the rows of the call. */
  readonly row: number
  /** Scope and text, as they are sent; undefined for each value that a change of a stored row leaves unchanged. */
  readonly key: readonly unknown[]
  /** Primary key of the stored row to change; undefined for a row to insert. */
  readonly id?: readonly unknown[]
  /** Whether the stored row will be live; undefined if that does not change. */
  readonly live?: boolean | undefined
}

/**
 * Returns the taken texts in the order requested, in one round trip. If several rows of the call have equal texts, the
 * first may have it.
 *
 * @throws QueryFailedError of TypeORM for a key that its column cannot hold, and that was not written yet
 */
async function takenTexts(
  session: Session,
  requested: readonly RequestedText[],
  atOnce: boolean,
): Promise<TakenText[]> {
  if (requested.length === 0) return []
  if (requested.some(({ entityText }) => entityText.ready.distributed)) return await takenOneByOne(session, requested)
  const groups = [...groupBy(requested, ({ entityText }) => entityText.declaration).values()]
  const statement = takenStatement(groups.map(wantedOf), atOnce)
  let rows
  try {
    rows = await session.rowsOrRollBack(statement, groups.flatMap(takenParameters))
  } catch (error) {
    if (!requested.some(({ entityText }) => forgetIfChanged(entityText.declaration, error))) throw error
    return await takenOneByOne(session, requested)
  }
  const taken = rows.filter(({ holder, repeated }) => holder !== undefined || repeated)
  const order = new Map(requested.map((one, position) => [one, position]))
  const found = taken.flatMap((row) => {
    const one = groups[row.wanted]?.[row.index]
    return one ? [{ text: takenText(one, row), position: order.get(one) ?? 0 }] : []
  })
  return found.sort((left, right) => left.position - right.position).map(({ text }) => text)
}

/** Finds taken texts one by one, only after a refusal. Distributed tables do not support the common statement. */
async function takenOneByOne(session: Session, requested: readonly RequestedText[]): Promise<TakenText[]> {
  const seen = new Set<string>()
  const changed = new Set<string>()
  const taken: TakenText[] = []
  for (const [index, one] of requested.entries()) {
    const { entityText } = one
    const { table } = entityText.declaration
    const options = parameterOptions(entityText.dataSource)
    const textOf = (values: readonly unknown[]): string =>
      JSON.stringify([table.schema, table.table, table.name, ...values.map((value) => parameterText(value, options))])
    if (one.id) changed.add(textOf(one.id))
    const key = await keyToBe(session, one)
    const texts = key?.slice(table.scope.length).map((value) => parameterText(value))
    if (!key || !texts || texts.every((text) => text === null)) continue
    const { primary, softDelete } = wantedOf([one])
    const holderKey = holderKeyStatement({ table, types: entityText.ready.types }, { primary, softDelete })
    const hash = hashOfTexts(table, texts)
    const holders = await session.rowsOrRollBack(holderKey, [...key, hash])
    const found = holders.find(({ key: id }) => !changed.has(textOf(id)))
    const repeated = seen.has(textOf(key))
    seen.add(textOf(key))
    if (found || repeated) {
      taken.push(takenText(one, { wanted: 0, index, repeated, holder: found?.key, deleted: found?.deleted === true }))
    }
  }
  return taken
}

/** Returns the new scope and text; undefined for a row that does not exist, or will be deleted. */
async function keyToBe(
  session: Session,
  { entityText, key, id, live }: RequestedText,
): Promise<readonly unknown[] | undefined> {
  if (!id) return key
  const { table } = entityText.declaration
  const [row] = await session.rowsOrRollBack(
    standingKeyStatement(table, holderColumns(entityText.metadata).primary),
    id,
  )
  if (!row || !(live ?? row.at(-1) !== null)) return undefined
  return key.map((value, index) => (value === undefined ? row[index] : value))
}

export function wantedOf([first]: readonly RequestedText[]): WantedText {
  const { entityText, id } = first as RequestedText
  const { declaration, ready } = entityText
  const { table, metadata } = declaration
  return { table, types: ready.types, ...holderColumns(metadata, table), standing: id !== undefined }
}

/** Returns a list for each column, in the order of `takenStatement`. */
export function takenParameters(group: readonly RequestedText[]): (string | boolean | null)[][] {
  const [first] = group
  if (!first) return []
  const options = parameterOptions(first.entityText.dataSource)
  const columns = (
    list: readonly unknown[] | undefined,
    valueOf: (one: RequestedText, index: number) => string | boolean | null,
  ): (string | boolean | null)[][] => (list ?? []).map((_, index) => group.map((one) => valueOf(one, index)))
  return [
    ...columns(first.key, ({ key }, index) => parameterText(key[index], options)),
    ...columns(first.id && first.key, ({ key }, index) => key[index] !== undefined),
    ...columns(first.id, ({ id }, index) => parameterText(id?.[index], options)),
    ...columns(first.id && isLive(first.entityText.declaration.table, ''), ({ live }) => live ?? null),
  ]
}

function takenText({ entityText, row }: RequestedText, { holder, deleted }: TakenRow): TakenText {
  const { declaration, metadata } = entityText
  // The holder may be of another class than the one that declares the text.
  const entity = declaringMetadata(declaration).name
  return { entity, property: declaration.name, row, ...takenBy(metadata, holder, deleted) }
}

/** Returns the holder: a stored row, by its primary key, or else an earlier row of the call. */
const takenBy = (
  metadata: EntityMetadata,
  holder: readonly unknown[] | undefined,
  deleted: boolean,
): Pick<TakenText, 'id' | 'deleted' | 'repeated'> =>
  holder ? { id: idOf(metadata, holder), ...(deleted ? { deleted } : {}) } : { id: undefined, repeated: true }
