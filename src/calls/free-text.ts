import { isDeepStrictEqual } from 'node:util'
import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { withSession } from '../connection/open-session'
import { DeclarationError, TextRejectedError, TextTakenError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { dataSourceOf, type Declaration, namesOfEntity, rootOf, textsOfEntity } from '../registry/registry'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { normalizeText } from '../text/normalizer'
import { type ByOptions, requireManager } from './call-options'
import { type EntityColumns, entityColumns, entityTextOf, readyText } from './entity-text'
import { findRows, rowToFind } from './look-up'
import { ensureNamesReady, requestedNames, requiredName, takenNames } from './requested-names'
import { rowValues } from './row-values'
import { type RowId, rowKey } from './update-or-fail'
import { requireObject } from './values'
import { watched } from './watch'

/** Options of `withFreeText`. */
export interface FreeTextOptions<Entity extends ObjectLiteral = ObjectLiteral> extends ByOptions<Entity> {
  /**
   * Returns the nth text to try, where n begins with 2. Its argument is the normalized text, unless the column has a
   * transformer. It is called for 50 numbers at once. @default text + '-' + n
   */
  readonly candidates?: (text: string, n: number) => string
  /** Primary key of a row to change. Texts that it holds, or that are kept for it, are free for it. @default none */
  readonly id?: RowId<Entity>
}

const FREE_TEXT_RULES: Rules<FreeTextOptions> = {
  by: RULE.name,
  candidates: RULE.function,
  id: { takes: (value) => value !== null, expected: 'a primary key' },
}

/** The number of texts that one statement looks up, and the most texts that are tried. */
const [BATCH, MOST] = [50, 1000]

/**
 * Writes with a unique text or a name. If that is taken, it writes with the first free candidate: `ada`, `ada-2`,
 * `ada-3`. Two calls never get the same text, because the write decides. One statement looks up which of 50 candidates
 * are taken.
 *
 * @param values the text and its scope, or the name, and nothing else
 * @param write stores its argument by `insertOrFail`, `updateOrFail` or `rename`, after which a transaction stays
 * usable; outside a transaction also by `save`. A TextTakenError of this text alone causes another call
 * @returns the result of `write`
 * @throws TextTakenError if a thousand texts are taken, or a value other than the text
 * @throws TextRejectedError before any SQL for a text that cannot be stored, and later for such a candidate in its turn
 * @throws DeclarationError also if all candidates are equal
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @throws the errors of `write`
 * @example
 * const post = await withFreeText(manager, Post, { slug: 'hello' }, (slug) => insertOrFail(manager, Post, { slug, title }))
 * @function
 */
export const withFreeText: typeof withFreeTextImpl = watched(
  'withFreeText',
  'text or name',
  withFreeTextImpl,
  () => ({}),
)

async function withFreeTextImpl<Entity extends ObjectLiteral, Result>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  write: (text: string) => Promise<Result>,
  options: FreeTextOptions<NoInfer<Entity>> = {},
): Promise<Result> {
  checkOptions('withFreeText()', options, FREE_TEXT_RULES)
  if (typeof write !== 'function') throw new DeclarationError('withFreeText(): write must be a function.')
  const sought = soughtOf(manager, entity, values, options)
  let refused: { readonly text: string; readonly error: TextTakenError } | undefined
  for await (const one of textsToTry(manager, sought, options)) {
    try {
      return await write(one)
    } catch (error) {
      if (!isOfText(sought, error)) throw error
      // A row holds one text of a property. If one row refuses two texts, the write does not use its argument.
      if (refused && refused.text !== one && isByTheSame(error, refused.error)) throw error
      refused = { text: one, error }
    }
  }
  throw refused?.error
}

/** The object of the search: a unique text within its scope, or a name. */
interface Sought {
  readonly columns: EntityColumns
  readonly property: string
  /** The text as the caller passes it. */
  readonly text: string
  /** The text that `candidates` gets. */
  readonly normalized: string
  /** Returns equal values for texts that are stored as equal texts. Throws TextRejectedError. */
  readonly identityOf: (text: string) => string
  /** Returns the identities of these texts that are taken for that row. */
  readonly taken: (texts: readonly string[], own: ObjectLiteral | null) => Promise<ReadonlySet<string>>
}

/** @throws TextRejectedError, DeclarationError */
function soughtOf(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  values: ObjectLiteral,
  { by }: FreeTextOptions,
): Sought {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const metadata = dataSource.getMetadata(entity)
  const columns = entityColumns(dataSource, metadata)
  requireObject(columns, values)
  const names = namesOfEntity(metadata)
  const ofOneProperty = textsOfEntity(metadata).filter(
    ({ name, text: [first, another] }) => another === undefined && first?.column.propertyPath === name,
  )
  const known = [...names, ...ofOneProperty].map(({ name }) => name)
  const [property, another] = known.filter((one) => (by === undefined ? values[one] !== undefined : one === by))
  if (property === undefined || another !== undefined) {
    throw new DeclarationError(
      `withFreeText() of ${metadata.name} expects one of ${known.map((one) => `"${one}"`).join(', ') || 'its texts'}. ` +
        `Give it with its scope, and name it with the option "by" if the scope has another.`,
    )
  }
  const name = names.find((one) => one.name === property)
  return name ? soughtName(manager, columns, name, values) : soughtText(manager, entity, property, values)
}

function soughtName(
  manager: EntityManager,
  columns: EntityColumns,
  name: ReturnType<typeof namesOfEntity>[number],
  values: ObjectLiteral,
): Sought {
  const property = name.name
  const other = Object.keys(values).find((one) => one !== property && values[one] !== undefined)
  if (other !== undefined) {
    throw new DeclarationError(`withFreeText(): the name "${property}" has no scope. Leave "${other}" out.`)
  }
  const identityOf = (text: string): string => requiredName(columns, name, { [property]: text })
  const normalized = identityOf(values[property] as string)
  return {
    columns,
    property,
    text: values[property] as string,
    normalized: name.text.transformed ? (values[property] as string) : normalized,
    identityOf,
    taken: async (texts, own) =>
      await withSession(manager, async (session) => {
        await ensureNamesReady(session, [{ name }])
        const requested = texts.flatMap((text, row) =>
          requestedNames(columns, row, { [property]: text }, own ?? undefined).filter((one) => one.name === name),
        )
        return new Set((await takenNames(session, requested)).map(({ row }) => requested[row]?.text ?? ''))
      }),
  }
}

function soughtText(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  property: string,
  values: ObjectLiteral,
): Sought {
  const entityText = entityTextOf(manager, entity, property)
  rowToFind('withFreeText()', entityText, values)
  const [part] = entityText.declaration.text as readonly [Declaration['text'][number]]
  const rowOf = (text: unknown): ReturnType<typeof rowValues> => rowValues(entityText, { ...values, [property]: text })
  const text = values[property] as string
  const identityOf = (one: string): string => rowOf(one).identity
  identityOf(text)
  return {
    columns: entityText,
    property,
    text,
    normalized: part.transformed ? text : normalizeText(part.normalizer, property, text),
    identityOf,
    taken: async (texts, own) =>
      await withSession(manager, async (session) => {
        const held = await findRows(session, await readyText(session, entityText), texts.map(rowOf))
        const taken = new Set(held.keys())
        try {
          if (own) taken.delete(identityOf(part.column.getEntityValue(own) as string))
        } catch (error) {
          // The value is NULL, or a text that the current normalizer refuses.
          if (!(error instanceof TextRejectedError)) throw error
        }
        return taken
      }),
  }
}

/** Yields the text, then all candidates that their batch's look-up finds free. The text is among them. */
async function* textsToTry(
  manager: EntityManager,
  sought: Sought,
  { candidates = (given, n) => `${given}-${n}`, id }: FreeTextOptions,
): AsyncGenerator<string, void, undefined> {
  const { columns, text, normalized } = sought
  const criteria = id === undefined ? undefined : rowKey(columns, id).criteria
  yield text
  try {
    const own = criteria ? await ownRow(manager, sought, criteria) : null
    for (let n = 1; n <= MOST; n += BATCH) {
      const { texts, rejection } = batchOf(sought, (index) =>
        n + index === 1 ? text : candidates(normalized, n + index),
      )
      const taken = await sought.taken([...texts.values()], own)
      for (const [identity, one] of texts) if (!taken.has(identity)) yield one
      if (rejection !== undefined) throw rejection
    }
  } catch (error) {
    // TypeORM's own call aborted the transaction when it was refused.
    if (serverError(error)?.code !== SQLSTATE.failedTransaction) throw error
  }
}

/** Reads the row by its key on the primary server, which alone knows equal keys and the latest rows. */
async function ownRow(
  manager: EntityManager,
  { columns: { metadata }, property }: Sought,
  where: ObjectLiteral,
): Promise<ObjectLiteral | null> {
  const runner = manager.queryRunner ?? dataSourceOf(manager).createQueryRunner('master')
  const selected = [property, ...metadata.primaryColumns.map(({ propertyName }) => propertyName)]
  try {
    return await runner.manager.findOne(metadata.target, {
      where: metadata.getEntityIdMap(where) ?? where,
      cache: false,
      // The columns include those that are not selected by default.
      select: Object.fromEntries(selected.map((one) => [one, true])),
      withDeleted: true,
      loadEagerRelations: false,
    })
  } finally {
    if (runner !== manager.queryRunner) await runner.release()
  }
}

/** Returns texts by their identities, up to the first that is rejected. Its number may have made that text too long. */
function batchOf(
  { property, identityOf }: Sought,
  textAt: (index: number) => string,
): { readonly texts: ReadonlyMap<string, string>; readonly rejection?: unknown } {
  const texts = new Map<string, string>()
  for (let index = 0; index < BATCH; index++) {
    try {
      const text = textAt(index)
      texts.set(identityOf(text), text)
    } catch (rejection) {
      return { texts, rejection }
    }
  }
  if (texts.size > 1) return { texts }
  throw new DeclarationError(
    `withFreeText(): all candidates for "${property}" are equal once they are normalized. Give "candidates" ` +
      'that keep the number, such as (text, n) => `${text.slice(0, 50)}-${n}`.',
  )
}

/** Returns whether the rows that hold the texts are known, and are the same. */
const isByTheSame = ({ taken }: TextTakenError, before: TextTakenError): boolean =>
  taken.every(({ id }) => id !== undefined) && isDeepStrictEqual(taken, before.taken)

/** Returns whether only one text of this property is taken. */
function isOfText({ columns, property: sought }: Sought, error: unknown): error is TextTakenError {
  const root = rootOf(columns.metadata)
  const entities = [root, ...root.childEntityMetadatas].map(({ name }) => name)
  return (
    error instanceof TextTakenError &&
    error.taken.every(({ entity, property, row, repeated = false }) => {
      return property === sought && entities.includes(entity) && row === error.taken[0]?.row && !repeated
    })
  )
}
