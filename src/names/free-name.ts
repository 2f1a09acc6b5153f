import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { type HolderEntity, operate, requiredName, type RowId, rowKey, watched, watchers } from '../core'
import { DeclarationError, TextTakenError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { BY_NAME_RULES, type ByNameOptions, chooseName } from './rename'

/** Options of `withFreeName`. */
export interface FreeNameOptions<Entity extends ObjectLiteral = ObjectLiteral> extends ByNameOptions {
  /**
   * Returns the name to try as the nth, where n begins with 2; another one for each n. @default name + '-' + n
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

/** Candidates that one statement looks up, and all that are tried. */
const [BATCH, MOST] = [50, 1001]

/**
 * Writes with a name, and if that is taken, with the first of its candidates that is free: `ada`, `ada-2`, `ada-3`. The
 * write decides, so that two calls never get the same name. One statement looks up which of 50 candidates are taken.
 *
 * @param write stores the name that it gets, by `insertOrFail`, `updateOrFail` or `rename`, after which a transaction
 * stays usable; outside a transaction also by `save`. It is called again while it throws a TextTakenError of this name
 * alone
 * @returns what `write` returned
 * @throws TextTakenError if a thousand candidates are taken too, or something else than the name
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
  requiredName(holder, holder.declaration, { [holder.declaration.name]: name })
  const { candidates = (one: string, n: number): string => `${one}-${n}`, id } = options
  const criteria = id === undefined ? undefined : rowKey(holder, id).criteria
  let refusal: unknown
  for await (const one of namesToTry(manager, holder, (n) => (n === 1 ? name : candidates(name, n)), criteria)) {
    try {
      return await write(one)
    } catch (error) {
      if (!isOfName(holder, error)) throw error
      refusal = error
    }
  }
  throw refusal
}

/** The name, and then the candidates that are not taken yet when their batch is looked up. */
async function* namesToTry(
  manager: EntityManager,
  holder: HolderEntity,
  nameAt: (n: number) => string,
  criteria: ObjectLiteral | undefined,
): AsyncGenerator<string, void, undefined> {
  yield nameAt(1)
  for (let n = 2; n <= MOST; n += BATCH) {
    const { names, rejection } = batchOf(holder, (index) => nameAt(n + index))
    const taken = await operate(manager, { names: [holder.declaration] }, async (operation) => {
      return await operation.takenNames(holder, names, criteria)
    })
    yield* names.filter((_, index) => !taken.has(index))
    if (rejection !== undefined) throw rejection
  }
}

/** The names before one that is rejected, too: that one may be too long only because its number is. */
function batchOf(
  holder: HolderEntity,
  nameAt: (index: number) => string,
): { readonly names: readonly string[]; readonly rejection?: unknown } {
  const { declaration } = holder
  const names: string[] = []
  const texts = new Set<string>()
  for (let index = 0; index < BATCH; index++) {
    try {
      const name = nameAt(index)
      texts.add(requiredName(holder, declaration, { [declaration.name]: name }))
      names.push(name)
    } catch (rejection) {
      return { names, rejection }
    }
  }
  if (texts.size === BATCH) return { names }
  throw new DeclarationError(
    `withFreeName(): "candidates" must return another "${declaration.name}" for each number. Let it put the number into ` +
      'the name.',
  )
}

/** Nothing but the name is taken. */
function isOfName({ declaration: { name, metadata } }: HolderEntity, error: unknown): boolean {
  const entities = [metadata, ...metadata.childEntityMetadatas].map((one) => one.name)
  return (
    error instanceof TextTakenError &&
    error.taken.every(({ entity, property }) => property === name && entities.includes(entity))
  )
}
