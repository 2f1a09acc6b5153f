import type { ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { type TakenText, TextRejectedError } from '../errors'
import {
  holderName,
  holderDeclaration,
  entityKeyTexts,
  namesTable,
  namesText,
  textsOfKey,
  typedKey,
} from '../registry/name-declarations'
import { dataSourceOf, type NameDeclaration, namesOfEntity } from '../registry/registry'
import { ensureReady, ensureTriggers } from '../schema/readiness'
import { takenNamesStatement } from '../sql/names-table'
import { normalizeText } from '../text/normalizer'
import { takenName } from '../typeorm/refusals'
import type { EntityColumns } from './entity-text'
import { requireObject } from './values'

/** A name that a row of the call requests. */
export interface RequestedName {
  readonly name: NameDeclaration
  /** 0-based position of the row in the call. */
  readonly row: number
  readonly text: string
  /** Primary key of the stored row to change, as texts; undefined for a row to insert. */
  readonly key: readonly string[] | undefined
}

/**
 * Returns the names of a row. Names that cannot be stored are refused before any SQL.
 *
 * @param id primary key of the stored row to change
 * @throws TextRejectedError
 */
export function requestedNames(
  { metadata, dataSource }: EntityColumns,
  row: number,
  values: ObjectLiteral,
  id?: ObjectLiteral,
): RequestedName[] {
  return namesOfEntity(metadata).flatMap((name) => {
    const { column, normalizer, transformed } = name.text
    const given: unknown = column.getEntityValue(values)
    if (given === undefined || given === null) return []
    const stored: unknown = transformed ? dataSource.driver.preparePersistentValue(given, column) : given
    if (stored === undefined || stored === null) return []
    const text = normalizeText(normalizer, column.propertyPath, stored)
    return [{ name, row, text, key: id && entityKeyTexts(metadata, id) }]
  })
}

/**
 * Returns the name that a row must have.
 *
 * @throws TextRejectedError for a name that is missing or cannot be stored
 * @throws DeclarationError for values that are not an object
 */
export function requiredName(of: EntityColumns, { name, text }: NameDeclaration, values: ObjectLiteral): string {
  requireObject(of, values)
  const { column, normalizer, transformed } = text
  const given: unknown = column.getEntityValue(values)
  if (given === undefined || given === null) {
    throw new TextRejectedError({ property: name, reason: `expected a string, got ${String(given)}` })
  }
  const stored: unknown = transformed ? of.dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, name, stored)
}

/**
 * Checks once that the triggers of these names and the guard of the table of names exist.
 *
 * @throws SchemaDriftError
 */
export async function ensureNamesReady(
  session: Session,
  requested: readonly Pick<RequestedName, 'name'>[],
): Promise<void> {
  if (requested.length === 0) return
  for (const metadata of new Set(requested.map(({ name }) => name.metadata)))
    await ensureTriggers(metadata, session.query)
  await ensureReady(namesText(session.dataSource), session)
}

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
