import type { ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { TextRejectedError } from '../errors'
import { entityKeyTexts, namesText } from '../registry/name-declarations'
import { type NameDeclaration, namesOfEntity } from '../registry/registry'
import { ensureReady, ensureTriggers } from '../schema/readiness'
import { normalizeText } from '../text/normalizer'
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
