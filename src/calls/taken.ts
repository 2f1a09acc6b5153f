/**
 * @file Finds what is taken of the texts, names, primary keys and unique columns that a call writes, once an index or a
 * trigger has refused. `write-or-fail.ts` asks, and throws the error.
 */
import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { parameterOptions } from '../connection/wire'
import type { TakenText } from '../errors'
import {
  declaringMetadata,
  holderDeclaration,
  holderName,
  namesTable,
  textsOfKey,
  typedKey,
} from '../registry/name-declarations'
import {
  type ColumnMetadata,
  dataSourceOf,
  type NameDeclaration,
  numbersOfTable,
  rootOf,
  textsOfTable,
} from '../registry/registry'
import { forgetIfChanged, knownReady } from '../schema/readiness'
import type { UnusualIndex } from '../sql/catalog'
import { takenNamesStatement } from '../sql/names-table'
import { holderKeyStatement, standingKeyStatement } from '../sql/spread'
import { takenKeysStatement, takenStatement, type TakenRow, type WantedText } from '../sql/taken'
import { hashOfTexts, isLive } from '../sql/text-table'
import { parameterText } from '../sql/types'
import { holderColumns, idOf, takenName } from '../typeorm/refusals'
import { groupBy } from './batches'
import type { EntityColumns, ReadyText } from './entity-text'
import type { RequestedName } from './requested-names'

/** A row that a call writes. */
export interface WrittenRow {
  readonly columns: EntityColumns
  /** 0-based position of the row in the call. */
  readonly position: number
  readonly values: ObjectLiteral
  /** Primary key of the stored row to change, and perhaps further conditions; undefined for a row to insert. */
  readonly id?: ObjectLiteral
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
export async function takenTexts(
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
  const { types, crashesByPruning } = ready
  return { table, types, crashesByPruning, ...holderColumns(metadata, table), standing: id !== undefined }
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

/**
 * Returns the taken names in the order requested, in one round trip. If an earlier change of the call gives up a name,
 * a later one can take it. If several rows request one name, the first gets it.
 *
 * @param atOnce whether the changes happen at once, so that a row can also take a name that a later one gives up
 */
export async function takenNames(
  session: Session,
  requested: readonly RequestedName[],
  atOnce = false,
): Promise<TakenText[]> {
  if (requested.length === 0) return []
  const names = namesTable(session.dataSource)
  const found = await session.rowsOrRollBack(takenNamesStatement(names), [
    requested.map(({ name }) => name.namespace),
    requested.map(({ text }) => text),
    requested.map(({ text }) => names.digest.js(text)),
  ])
  const owners = new Map(found.map((each) => [each.requested, each]))
  const asking = new Set<string>()
  const changing = new Map<string, RequestedName[]>()
  const change = (one: RequestedName): void => {
    if (!one.key) return
    const key = keyOfRow(one.name, one.key)
    changing.set(key, [...(changing.get(key) ?? []), one])
  }
  if (atOnce) for (const one of requested) change(one)
  return requested.flatMap((one, position) => {
    if (!atOnce) change(one)
    const owner = owners.get(position)
    const holder = owner && holderDeclaration(dataSourceOf(one.name.metadata), owner)
    const before = holder && changing.get(keyOfRow(holder, textsOfKey(typedKey(holder.metadata, owner.key))))
    // A change frees the name if it concerns the same row, or a row whose former name is not kept.
    const isFree = before?.some(({ row, name }) => row === one.row || atOnce || name.former.state === 'free') === true
    const name = JSON.stringify([one.name.namespace, one.text])
    const isRepeated = asking.has(name)
    asking.add(name)
    if (owner && !isFree) return [takenName(one.name, one.row, owner)]
    return isRepeated ? [{ ...takenName(one.name, one.row, undefined), repeated: true }] : []
  })
}

const keyOfRow = ({ metadata }: NameDeclaration, key: readonly string[]): string =>
  JSON.stringify([holderName(metadata), key])

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
export async function takenKeys(session: Session, rows: readonly WrittenRow[]): Promise<TakenText[]> {
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
