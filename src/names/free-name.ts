import { isDeepStrictEqual } from 'node:util'
import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  type HolderEntity,
  operate,
  requiredName,
  type RowId,
  rowKey,
  serverError,
  SQLSTATE,
  watched,
  watchers,
} from '../core'
import { DeclarationError, TextTakenError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { BY_NAME_RULES, type ByNameOptions, chooseName } from './rename'

/** Options of `withFreeName`. */
export interface FreeNameOptions<Entity extends ObjectLiteral = ObjectLiteral> extends ByNameOptions {
  /**
   * Returns the name to try as the nth, where n begins with 2; another one for each n. It gets the name normalized, and
   * is called for 50 numbers at once. @default name + '-' + n
   */
  readonly candidates?: (name: string, n: number) => string
  /** Primary key of a row that is renamed: names that it holds, or that are kept for it, are free for it. @default none */
  readonly id?: RowId<Entity>
}

const FREE_NAME_RULES: Rules<FreeNameOptions> = {
  ...BY_NAME_RULES,
  candidates: RULE.function,
  id: { takes: (value) => value !== null, expected: 'a primary key' },
}

/** How many names one statement looks up, and how many are tried at most. */
const [BATCH, MOST] = [50, 1000]

/**
 * Writes with a name, and if that is taken, with the first of its candidates that is free: `ada`, `ada-2`, `ada-3`. The
 * write decides, so that two calls never get the same name. One statement looks up which of 50 candidates are taken.
 *
 * @param write stores the name that it gets, by `insertOrFail`, `updateOrFail` or `rename`, after which a transaction
 * stays usable; outside a transaction also by `save`. It is called again while it throws a TextTakenError of this name
 * alone
 * @returns what `write` returned
 * @throws TextTakenError if a thousand names are taken, or something else than the name
 * @throws TextRejectedError for a name that cannot be stored, before any SQL, and for such a candidate when its turn comes
 * @throws DeclarationError also if two of these candidates are equal
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @throws what `write` throws
 * @example
 * const post = await withFreeName(manager, Post, 'hello-world', (slug) => insertOrFail(manager, Post, { slug, title }))
 */
export async function withFreeName<Entity extends ObjectLiteral, Result>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  name: string,
  write: (name: string) => Promise<Result>,
  options: FreeNameOptions<NoInfer<Entity>> = {},
): Promise<Result> {
  const seen =
    watchers.hasSubscribers &&
    watched('withFreeName', 'name', withFreeName<Entity, Result>, [manager, entity, name, write, options])
  if (seen) return await seen
  checkOptions('withFreeName()', options, FREE_NAME_RULES)
  if (typeof write !== 'function') throw new DeclarationError('withFreeName(): write must be a function.')
  const holder = chooseName(manager, entity, options)
  let refusal: TextTakenError | undefined
  for await (const one of namesToTry(manager, holder, name, options)) {
    try {
      return await write(one)
    } catch (error) {
      // A row holds one name of a property: where it refuses two, the write does not use what it gets.
      if (!isOfName(holder, error) || isDeepStrictEqual(error.taken, refusal?.taken)) throw error
      refusal = error
    }
  }
  throw refusal
}

const numbered = (name: string, n: number): string => `${name}-${n}`

/** The name, and then all that are not taken when their batch is looked up: the name again if it has become free. */
async function* namesToTry(
  manager: EntityManager,
  holder: HolderEntity,
  name: string,
  { candidates = numbered, id }: FreeNameOptions,
): AsyncGenerator<string, void, undefined> {
  const { name: property, text } = holder.declaration
  const normalized = requiredName(holder, holder.declaration, { [property]: name })
  const nameAt = (n: number): string => (n === 1 ? name : candidates(text.transformed ? name : normalized, n))
  const key = id === undefined ? undefined : rowKey(holder, id).values
  yield name
  for (let n = 1; n <= MOST; n += BATCH) {
    const { names, rejection } = batchOf(holder, (index) => nameAt(n + index))
    let taken: ReadonlySet<string>
    try {
      taken = await takenOf(manager, holder, [...names.keys()], key)
    } catch (error) {
      // TypeORM's own call has ended the transaction when it was refused.
      if (serverError(error)?.code === SQLSTATE.failedTransaction) return
      throw error
    }
    for (const [text, one] of names) if (!taken.has(text)) yield one
    if (rejection !== undefined) throw rejection
  }
}

/** Which of these names are taken, for the row with this key. */
async function takenOf(
  manager: EntityManager,
  holder: HolderEntity,
  names: readonly string[],
  key: readonly unknown[] | undefined,
): Promise<ReadonlySet<string>> {
  const { declaration, discriminators, namesOfRow } = holder
  return await operate(manager, { names: [declaration] }, async (operation) => {
    const taken = await operation.takenNames(holder, names)
    const row = key && (await operation.session.rows(namesOfRow, [...key, ...discriminators]))
    for (const { name, namespace, column, state } of row ?? []) {
      const isItsOwn = state !== 'held' || column === declaration.text.column.databaseName
      if (namespace === declaration.namespace && isItsOwn) taken.delete(name)
    }
    return taken
  })
}

interface Batch {
  /** As they are given, by what is stored. */
  readonly names: ReadonlyMap<string, string>
  readonly rejection?: unknown
}

/** The names before one that is rejected, too: that one may be too long only because its number is. */
function batchOf(holder: HolderEntity, nameAt: (index: number) => string): Batch {
  const { declaration } = holder
  const names = new Map<string, string>()
  for (let index = 0; index < BATCH; index++) {
    try {
      const name = nameAt(index)
      names.set(requiredName(holder, declaration, { [declaration.name]: name }), name)
    } catch (rejection) {
      return { names, rejection }
    }
  }
  if (names.size === BATCH) return { names }
  throw new DeclarationError(
    `withFreeName(): several candidates for "${declaration.name}" are equal once they are normalized. Give "candidates" ` +
      'that keep the number, such as (name, n) => `${name.slice(0, 50)}-${n}`.',
  )
}

/** Nothing but one name of this property is taken. */
function isOfName({ declaration: { name, metadata } }: HolderEntity, error: unknown): error is TextTakenError {
  const entities = [metadata, ...metadata.childEntityMetadatas].map((one) => one.name)
  return (
    error instanceof TextTakenError &&
    error.taken.every(({ entity, property, row, repeated = false }) => {
      return property === name && entities.includes(entity) && row === error.taken[0]?.row && !repeated
    })
  )
}
