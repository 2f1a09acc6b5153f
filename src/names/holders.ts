import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  countResults,
  entityOf,
  type FindOrCreateResult,
  insertOrFail,
  type NameDeclaration,
  operate,
  type Operation,
  requiredName,
  type RowId,
  rowKey,
  watched,
} from '../core'
import { DeclarationError, TextRejectedError, TextTakenError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'
import { normalizeText } from '../text/normalizer'
import { BY_NAME_RULES, type ByNameOptions, chooseName } from './rename'
import {
  findHolderStatement,
  type FoundHolder,
  type HolderEntity,
  holderEntity,
  holderOf,
  namesOf,
} from './sql/statements'

/** Options of `findHolder`. */
export interface FindHolderOptions {
  /** Find a holder by a former name too, if it was declared to redirect. @default false */
  readonly former?: boolean
  /** Return the entity, with its eager relations, in the same round trip. @default false */
  readonly entity?: boolean
}

const FIND_HOLDER_RULES: Rules<FindHolderOptions> = { former: RULE.boolean, entity: RULE.boolean }

/** The holder of a name. */
export interface Holder {
  /** The holder's entity, for a repository. In single table inheritance it is the class that declares the name. */
  readonly target: EntityTarget<ObjectLiteral>
  /** The name of the entity. */
  readonly entityName: string
  /** The property that holds the name. */
  readonly property: string
  /** Primary key of the row, as a TypeORM id map. */
  readonly id: ObjectLiteral
  /** The normalized name that the row holds now, or null if the row was found by a former name and holds none now. */
  readonly name: string | null
  /** When the row took the name. If the name is a former one, when the row gave it up. */
  readonly since: Date
  /** Whether the row was found by a name that it gave up. */
  readonly former: boolean
  /** When the redirect ends, or null if it never ends or the name is held. */
  readonly until: Date | null
  /** An instance of the row's class, if the option `entity` is set. A softly deleted row holds its name. */
  readonly entity?: ObjectLiteral
}

/**
 * Returns the row that holds a name, of whichever entity, or null. It takes one round trip. No row holds a name that
 * the normalizer refuses. A reserved name has no holder.
 *
 * @param namespace the namespace of `@UniqueName`
 * @throws DeclarationError for a namespace that no entity of the DataSource has
 * @throws TextRejectedError only for a value that is not a string
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @example
 * const holder = await findHolder(manager, 'handle', 'ada', { former: true })
 * if (holder?.former) redirect(`/${holder.name}`)
 * @function
 */
export const findHolder: typeof findHolderImpl = watched('findHolder', undefined, findHolderImpl)

async function findHolderImpl(
  manager: EntityManager,
  namespace: string,
  text: string,
  options: FindHolderOptions = {},
): Promise<Holder | null> {
  checkOptions('findHolder()', options, FIND_HOLDER_RULES)
  const names = namesOf(manager)
  const declarations = requireNamespace(names.declared, namespace)
  let stored: string
  try {
    stored = normalizeText(declarations[0].text.normalizer, namespace, text)
  } catch (error) {
    // No row can hold a name that the normalizer refuses.
    if (error instanceof TextRejectedError && typeof text === 'string') return null
    throw error
  }
  const table = names.table()
  const lookUp = lookUpOf(table, declarations, options)
  return await operate(manager, { names: declarations }, async (operation) => {
    const [found] = await operation.session.rows(lookUp.statement, [namespace, stored, table.digest.js(stored)])
    return found ? await toHolder(operation, lookUp, found) : null
  })
}

function requireNamespace(
  declared: readonly NameDeclaration[],
  namespace: string,
): readonly [NameDeclaration, ...NameDeclaration[]] {
  if (typeof namespace !== 'string') {
    throw new DeclarationError(`findHolder(): the namespace is a string, got ${kindOf(namespace)}.`)
  }
  const [first, ...others] = declared.filter((one) => one.namespace === namespace)
  if (first) return [first, ...others]
  const known = [...new Set(declared.map((one) => `"${one.namespace}"`))].join(', ')
  throw new DeclarationError(
    `findHolder(): no entity of this DataSource has the namespace "${namespace}". It has ${known === '' ? 'none' : known}.`,
  )
}

interface HolderLookUp {
  readonly holders: readonly HolderEntity[]
  readonly readsRows: boolean
  readonly statement: ReturnType<typeof findHolderStatement>
}

/** The look-ups that were made, by the first declaration of a namespace and the options. */
const lookUps = new WeakMap<NameDeclaration, Map<string, HolderLookUp>>()

function lookUpOf(
  table: Parameters<typeof findHolderStatement>[0],
  declarations: readonly [NameDeclaration, ...NameDeclaration[]],
  { former = false, entity = false }: FindHolderOptions,
): HolderLookUp {
  const known = lookUps.get(declarations[0]) ?? new Map<string, HolderLookUp>()
  lookUps.set(declarations[0], known)
  const key = `${former} ${entity}`
  const kept = known.get(key)
  if (kept) return kept
  const metadatas = new Map(declarations.map((one) => [one.metadata, one]))
  const holders = [...metadatas].map(([metadata, declaration]) => holderEntity(metadata, declaration))
  const made = { holders, readsRows: entity, statement: findHolderStatement(table, holders, { former, entity }) }
  known.set(key, made)
  return made
}

async function toHolder(
  operation: Operation,
  { holders, readsRows }: HolderLookUp,
  found: FoundHolder,
): Promise<Holder> {
  const position = holders.findIndex(({ table }) => table.holder === found.holder)
  const [holder, row] = [holders[position], found.rows[position]]
  const held = holder && row && holderOf(holder.dataSource, found, row.key)
  if (!held) {
    throw new DeclarationError(
      `findHolder(): a row of the table "${found.holder}" holds the name in "${found.column}", and no entity of this ` +
        `DataSource declares that. Add the entity.`,
    )
  }
  let entity: ObjectLiteral | undefined
  if (readsRows && !isWithoutRow(holder, row.columns)) {
    const loaded = operation.entity(holder, row.columns)
    // In single table inheritance the metadata is that of the row's class.
    const children = holder.metadata.childEntityMetadatas
    const metadata = children.find(({ target }) => target === loaded.constructor) ?? holder.metadata
    await operation.load({ ...holder, metadata }, loaded)
    entity = loaded
  }
  return {
    target: held.metadata.target,
    entityName: held.metadata.name,
    property: held.declaration.name,
    id: held.id,
    name: found.name,
    since: new Date(found.since),
    former: found.state !== 'held',
    until: found.until === null ? null : new Date(found.until),
    ...(entity ? { entity } : {}),
  }
}

/** Whether the row cannot be read: a row security policy hides it, or it was changed while the triggers were off. */
function isWithoutRow({ metadata, read }: HolderEntity, columns: readonly unknown[]): boolean {
  const isPrimary = (name: string): boolean => metadata.primaryColumns.some(({ databaseName }) => databaseName === name)
  return read.every((name, index) => !isPrimary(name) || columns[index] === null)
}

/** A name that a row gave up, and that is kept for it. */
export interface FormerName {
  /** The name as it was stored. */
  readonly name: string
  /** The property that held it. */
  readonly property: string
  /** Whether `findHolder(…, { former: true })` finds the row by it. */
  readonly state: 'reserved' | 'redirect'
  /** When the row gave it up. */
  readonly since: Date
  /** Until when the name is kept, or null if it always is. */
  readonly until: Date | null
}

/**
 * Returns the former names that are kept for a row, the newest first, in one round trip. They were declared to be
 * reserved or to redirect, and have not expired.
 *
 * @param id the primary key, or an object with the whole of it
 * @returns an empty list if there is no such row
 * @throws DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @example
 * const [last] = await formerNamesOf(manager, User, 1)
 * @function
 */
export const formerNamesOf: typeof formerNamesOfImpl = watched('formerNamesOf', 'name', formerNamesOfImpl)

async function formerNamesOfImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  id: RowId<NoInfer<Entity>>,
): Promise<FormerName[]> {
  const { names } = entityOf(manager, entity)
  const holder = chooseName(manager, entity, names[0] ? { by: names[0].name } : {})
  const { values } = rowKey(holder, id)
  return await operate(manager, { names }, async ({ session }) => {
    const found = await session.rows(holder.formerNames, [...values, ...holder.discriminators])
    return found.flatMap(({ name, column, state, since, until }) => {
      const property = names.find(({ text }) => text.column.databaseName === column)?.name
      if (property === undefined) return []
      return [{ name, property, state, since: new Date(since), until: until === null ? null : new Date(until) }]
    })
  })
}

/**
 * Returns the row of an entity that holds the name, or inserts it if nobody holds the name, as `findOrCreate` does for
 * a unique text. A found row takes one round trip, and a created one two. Properties other than the name are used only
 * when the row is created. A softly deleted row holds its name and is found.
 *
 * @returns the entity, and whether this call inserted its row
 * @throws TextTakenError if another entity's row has the name, or if the name is kept for its former holder
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * as `insertOrFail`
 * @example
 * const { entity, created } = await findOrCreateHolder(manager, User, { handle: 'ada', title: 'Countess' })
 * @function
 */
export const findOrCreateHolder: typeof findOrCreateHolderImpl = watched(
  'findOrCreateHolder',
  'name',
  findOrCreateHolderImpl,
  countResults,
)

async function findOrCreateHolderImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  options: ByNameOptions = {},
): Promise<FindOrCreateResult<Entity>> {
  checkOptions('findOrCreateHolder()', options, BY_NAME_RULES)
  const holder = chooseName(manager, entity, options)
  const name = requiredName(holder, holder.declaration, values)
  return await operate(manager, { names: [holder.declaration] }, async (operation) => {
    for (;;) {
      const [row] = await operation.session.rows(holder.find, [name])
      if (row) {
        // A row of another class of the table is refused here.
        const found = operation.entity(holder, row)
        await operation.load(holder, found)
        return { entity: found as Entity, created: false, attempts: operation.count }
      }
      // The insert takes a connection of its own.
      await operation.session.release()
      try {
        const [created] = await insertOrFail(manager, entity, [values])
        return { entity: created as Entity, created: true, attempts: operation.count }
      } catch (error) {
        if (!isOfSameEntity(holder, error)) throw error
        // Above READ COMMITTED, the insert fails with 40001 before this if the snapshot does not show the row.
        await operation.next(error)
      }
    }
  })
}

/** Whether another call was faster, so that the row can be found. There is no id if this DataSource lacks its table. */
function isOfSameEntity({ declaration }: HolderEntity, error: unknown): error is TextTakenError {
  return (
    error instanceof TextTakenError &&
    error.taken.every(
      ({ property, id, holder, holderProperty, state }) =>
        property === declaration.name && id !== undefined && (holder ?? holderProperty ?? state) === undefined,
    )
  )
}
