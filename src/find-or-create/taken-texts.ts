import type { TakenText } from '../errors'
import { parameterText } from '../sql/parameter-text'
import { takenStatement, type WantedRow } from '../sql/taken-statement'
import { holderKeyStatement, standingKeyStatement } from '../sql/spread-statement'
import { composedText, isLive } from '../sql/text-table'
import { idOf } from '../typeorm/refused-text'
import { parameterOptions } from '../connection/pg-client'
import { groupBy } from './batches'
import type { ReadyText } from '../rows/entity-text'
import type { Session } from '../connection/session'

/** A text that a row of the call requests. */
export interface RequestedText {
  readonly entityText: ReadyText
  /** 0-based position of the row among the rows of the call. */
  readonly row: number
  /** Scope and text, as they are sent; undefined for what a change of a stored row leaves as it is. */
  readonly key: readonly unknown[]
  /** Primary key of the stored row to change; undefined for a row to insert. */
  readonly id?: readonly unknown[]
  /** Whether the stored row will be live; undefined where it stays as it is. */
  readonly live?: boolean | undefined
}

/**
 * Which of the texts are taken, in the order requested, in one round trip. Of several rows of the call with equal texts
 * the first may have it.
 *
 * @throws QueryFailedError of TypeORM for a key that its column cannot hold, which was not written yet
 */
export async function takenTexts(session: Session, requested: readonly RequestedText[]): Promise<TakenText[]> {
  if (requested.length === 0) return []
  if (requested.some(({ entityText }) => entityText.ready.distributed)) return await takenOneByOne(session, requested)
  const groups = [...groupBy(requested, ({ entityText }) => entityText.declaration).values()]
  const statement = takenStatement(groups.map(wantedOf))
  const rows = await session.rowsOrRollBack(statement, groups.flatMap(parametersOf))
  const taken = rows.filter(({ holder, repeated }) => holder !== undefined || repeated)
  const order = new Map(requested.map((one, position) => [one, position]))
  const found = taken.flatMap((row) => {
    const one = groups[row.wanted]?.[row.index]
    return one ? [{ text: takenText(one, row), position: order.get(one) ?? 0 }] : []
  })
  return found.sort((left, right) => left.position - right.position).map(({ text }) => text)
}

/** On distributed tables, which take no such statement: this comes after a refusal only. */
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
    const holderKey = holderKeyStatement({ table, types: entityText.ready.types }, primaryNames(entityText))
    const hash = table.digest.js(composedText(table, texts))
    const holders = await session.rowsOrRollBack(holderKey, [...key, hash])
    const holder = holders.find((row) => !changed.has(textOf(row)))
    const repeated = seen.has(textOf(key))
    seen.add(textOf(key))
    if (holder || repeated) taken.push(takenText(one, { wanted: 0, index, repeated, holder }))
  }
  return taken
}

/** Scope and text as they shall be; undefined for a row that is not there, or will be deleted. */
async function keyToBe(
  session: Session,
  { entityText, key, id, live }: RequestedText,
): Promise<readonly unknown[] | undefined> {
  if (!id) return key
  const { table } = entityText.declaration
  const [row] = await session.rowsOrRollBack(standingKeyStatement(table, primaryNames(entityText)), id)
  if (!row || !(live ?? row.at(-1) !== null)) return undefined
  return key.map((value, index) => (value === undefined ? row[index] : value))
}

function wantedOf([first]: readonly RequestedText[]): Parameters<typeof takenStatement>[0][number] {
  const { entityText, id } = first as RequestedText
  const { declaration, ready } = entityText
  return { table: declaration.table, types: ready.types, primary: primaryNames(entityText), standing: id !== undefined }
}

const primaryNames = ({ metadata }: ReadyText): string[] => metadata.primaryColumns.map((column) => column.databaseName)

/** In the order of `takenStatement`: a list for each column. */
function parametersOf(group: readonly RequestedText[]): (string | boolean | null)[][] {
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

function takenText({ entityText, row }: RequestedText, { holder }: WantedRow): TakenText {
  const { name, metadata, target } = entityText.declaration
  // In single table inheritance the class that declares the text: the holder may be of another than was asked.
  const declaring = metadata.childEntityMetadatas.find((child) => child.target === target) ?? metadata
  return { entity: declaring.name, property: name, id: holder && idOf(entityText.metadata, holder), row }
}
