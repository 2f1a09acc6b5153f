import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { withSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { DeclarationError } from '../errors'
import { checkOptions, NO_OPTIONS, RULE, type Rules } from '../options'
import { entityKeyTexts } from '../registry/name-declarations'
import { dataSourceOf, type NameDeclaration, namesOfEntity } from '../registry/registry'
import { type ByOptions, type NoOthers, requireArray, requireManager } from './call-options'
import { type EntityColumns, entityColumns, entityTextOf, keyOnly, readyText } from './entity-text'
import { hydrate, isEntityOfClass } from './hydrate'
import { findRows, rowToFind } from './look-up'
import { ensureNamesReady, requiredName } from './requested-names'
import { takenNames } from './taken'
import { rowValues } from './row-values'
import { rowKey } from './row-key'
import type { RowId } from './update-or-fail'
import { inRow, pathsBeside, requireObject } from './values'
import { watched } from './watch'

/** Options of `firstFreeText`. */
export interface FreeTextOptions<Entity extends ObjectLiteral = ObjectLiteral> extends ByOptions<Entity> {
  /**
   * Primary key of a row to change. Texts that it holds, or that are kept for it, are free for it. Reading its key takes
   * one more statement. @default none
   */
  readonly id?: RowId<Entity>
}

const FREE_TEXT_RULES: Rules<FreeTextOptions> = {
  by: RULE.name,
  id: { takes: (value) => value !== null, expected: 'a primary key' },
}

/** The most candidates of a call, so that one statement looks all of them up. */
const MAX_CANDIDATES = 50

/**
 * Returns the first of at most 50 candidates that nobody holds, or null. It reserves nothing: the write that follows
 * decides. Another caller may be faster, and then the next call returns another candidate.
 *
 * @param candidates the text and its scope, or the name, of each, and nothing else
 * @throws TextRejectedError, DeclarationError before any SQL, also for a candidate that cannot be stored
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @throws DuplicateTextError
 * @example
 * const free = await firstFreeText(manager, Post, [{ slug: 'hello' }, { slug: 'hello-2' }])
 * const post = free && (await insertOrNull(manager, Post, { ...free, title }))
 * @function
 */
export const firstFreeText: typeof firstFreeTextImpl = watched(
  'firstFreeText',
  'text or name',
  firstFreeTextImpl,
  () => ({}),
)

async function firstFreeTextImpl<Entity extends ObjectLiteral, Candidate extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  candidates: readonly (Candidate & NoOthers<Entity, Candidate>)[],
  options: FreeTextOptions<NoInfer<Entity>> = NO_OPTIONS,
): Promise<Candidate | null> {
  requireManager(manager)
  checkOptions('firstFreeText()', options, FREE_TEXT_RULES)
  requireArray(candidates)
  if (candidates.length > MAX_CANDIDATES) {
    throw new DeclarationError(
      `firstFreeText() takes at most ${MAX_CANDIDATES} candidates, got ${candidates.length}. Pass the others to another call.`,
    )
  }
  const dataSource = dataSourceOf(manager)
  const columns = entityColumns(dataSource, dataSource.getMetadata(entity))
  for (const [position, one] of candidates.entries()) inRow(position, () => requireObject(columns, one))
  const [first] = candidates
  if (!first) return null
  const { by, id } = options
  const { metadata } = columns
  const name = namesOfEntity(metadata).find((one) =>
    by === undefined ? one.text.column.getEntityValue(first) !== undefined : one.name === by,
  )
  const findTaken = name ? takenOfName(columns, name, candidates) : takenOfText(manager, entity, by, candidates)
  const where = id === undefined ? undefined : metadata.getEntityIdMap(rowKey(columns, id).criteria)
  const taken = await withSession(manager, async (session) => {
    if (!where) return await findTaken(session, null)
    // A caller may write an equal key differently, so the key is read as it is stored.
    const select = Object.fromEntries(metadata.primaryColumns.map(({ propertyName }) => [propertyName, true]))
    const options = { where, cache: false, select, withDeleted: true, loadEagerRelations: false }
    return await findTaken(
      session,
      await session.byTypeOrm(({ manager: own }) => own.findOne(metadata.target, options)),
    )
  })
  return candidates.find((_, position) => !taken.has(position)) ?? null
}

/** Returns the positions of the candidates that are taken for a row, of which the primary key is known. */
type FindTaken = (session: Session, own: ObjectLiteral | null) => Promise<ReadonlySet<number>>

function takenOfName(columns: EntityColumns, name: NameDeclaration, candidates: readonly ObjectLiteral[]): FindTaken {
  const texts = candidates.map((one, position) =>
    inRow(position, () => {
      const [other] = pathsBeside(columns.metadata, [name.text.column], one)
      if (other === undefined) return requiredName(columns, name, one)
      throw new DeclarationError(`firstFreeText(): the name "${name.name}" has no scope. Leave "${other}" out.`)
    }),
  )
  return async (session, own) => {
    await ensureNamesReady(session, [{ name }])
    const key = own ? entityKeyTexts(columns.metadata, own) : undefined
    const taken = await takenNames(
      session,
      texts.map((text, row) => ({ name, row, text, key })),
    )
    return new Set(taken.map(({ row }) => row))
  }
}

function takenOfText(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  by: string | undefined,
  candidates: readonly ObjectLiteral[],
): FindTaken {
  const entityText = keyOnly(entityTextOf(manager, entity, by))
  const rows = candidates.map((one, position) =>
    // The first function returns undefined for a text that cannot be stored, and the second throws.
    inRow(position, () => rowToFind('firstFreeText()', entityText, one) ?? rowValues(entityText, one)),
  )
  return async (session, own) => {
    const held = await findRows(session, await readyText(session, entityText), rows)
    const isTaken = ({ identity }: (typeof rows)[number]): boolean => {
      const stored = held.get(identity)
      if (!stored || !own || !isEntityOfClass(entityText, stored)) return stored !== undefined
      return !entityText.metadata.compareEntities(own, hydrate(entityText, session, stored))
    }
    return new Set(rows.flatMap((row, position) => (isTaken(row) ? [position] : [])))
  }
}
