import type { ObjectLiteral } from 'typeorm'
import type { TakenText } from '../errors'
import { type FoundName, takenNamesStatement } from '../sql/taken-names'
import { normalizeText } from '../text/normalizer'
import { holderName, namesTable, namesText } from '../typeorm/name-tables'
import { ensureReady } from '../typeorm/readiness'
import { ensureTriggers } from '../typeorm/trigger-readiness'
import { type NameDeclaration, namesOf } from '../typeorm/registry'
import { holderOf, keyTexts, takenName, textsOfKey, typedKey } from '../typeorm/taken-names'
import type { EntityColumns } from '../rows/entity-text'
import type { Session } from '../connection/session'

/** A name that a row of the call shall hold. */
export interface AskedName {
  readonly name: NameDeclaration
  /** 0-based position of the row in the call. */
  readonly row: number
  readonly text: string
  /** Primary key of the stored row to change, as texts; undefined for a row to insert. */
  readonly key: readonly string[] | undefined
}

/**
 * The names that a row brings. Names that cannot be stored are refused before any SQL.
 *
 * @param id of the stored row to change
 * @throws TextRejectedError
 */
export function askedNames(
  { metadata, dataSource }: EntityColumns,
  row: number,
  values: ObjectLiteral,
  id?: ObjectLiteral,
): AskedName[] {
  return namesOf(metadata).flatMap((name) => {
    const { column, normalizer, transformed } = name.text
    const given: unknown = column.getEntityValue(values)
    if (given === undefined || given === null || typeof given === 'function') return []
    const stored: unknown = transformed ? dataSource.driver.preparePersistentValue(given, column) : given
    if (transformed && typeof stored !== 'string') return []
    const text = normalizeText(normalizer, column.propertyPath, stored)
    return [{ name, row, text, key: id && keyTexts(metadata, id) }]
  })
}

/**
 * Checks once that the triggers of these names exist, and the guard of the table that keeps the names.
 *
 * @throws SchemaDriftError
 */
export async function ensureNamesReady(session: Session, asked: readonly Pick<AskedName, 'name'>[]): Promise<void> {
  if (asked.length === 0) return
  for (const metadata of new Set(asked.map(({ name }) => name.metadata))) await ensureTriggers(metadata, session.query)
  await ensureReady(namesText(session.dataSource), session)
}

/**
 * Which of the names are taken, in the order asked, in one round trip. A name that an earlier change of the call gives
 * up is free for a later one. If several rows ask for one name, the first gets it.
 */
export async function takenNames(session: Session, asked: readonly AskedName[]): Promise<TakenText[]> {
  if (asked.length === 0) return []
  const names = namesTable(session.dataSource)
  const found = await session.rowsOrRollBack(takenNamesStatement(names), [
    asked.map(({ name }) => name.namespace),
    asked.map(({ text }) => text),
    asked.map(({ text }) => names.digest.js(text)),
  ])
  const owners = new Map(found.map((each) => [each.asked, each]))
  const asking = new Set<string>()
  const changing = new Map<string, AskedName[]>()
  return asked.flatMap((one, position) => {
    if (one.key) push(changing, keyOfRow(one.name, one.key), one)
    const owner = owners.get(position)
    const before = owner && changing.get(keyOfOwner(one.name, owner))
    const isFree = before?.some((each) => each.row === one.row || givesUp(each)) === true
    const name = JSON.stringify([one.name.namespace, one.text])
    const isRepeated = asking.has(name)
    asking.add(name)
    if (owner && !isFree) return [takenName(one.name, one.row, owner)]
    return isRepeated ? [takenName(one.name, one.row, undefined)] : []
  })
}

function push<Value>(lists: Map<string, Value[]>, key: string, value: Value): void {
  const list = lists.get(key) ?? []
  lists.set(key, list)
  list.push(value)
}

/** Nobody keeps the row's former name. */
const givesUp = ({ name }: AskedName): boolean => name.former.state === 'free'

const keyOfRow = ({ metadata }: NameDeclaration, key: readonly string[]): string =>
  JSON.stringify([holderName(metadata), key])

function keyOfOwner(asked: NameDeclaration, owner: FoundName): string {
  const holder = holderOf(asked, owner)
  return holder ? keyOfRow(holder, textsOfKey(typedKey(holder.metadata, owner.key))) : ''
}
