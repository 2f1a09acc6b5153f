import type { EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { holderEntity, type HolderEntity, type NameDeclaration, namesOf, operate, type Operation } from '../core'
import { DeclarationError, TextRejectedError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'
import { normalizeText } from '../text/normalizer'

/** Options of `findHolder`. */
export interface FindHolderOptions {
  /** Find a holder by a former name too, if it was declared to redirect. @default false */
  readonly former?: boolean
  /** Return the entity, with its eager relations, in the same round trip. @default false */
  readonly entity?: boolean
}

const RULES: Rules<FindHolderOptions> = { former: RULE.boolean, entity: RULE.boolean }

/** The holder of a name. */
export interface Holder {
  /** The holder's entity, for a repository: in single table inheritance the class that declares the name. */
  readonly target: EntityTarget<ObjectLiteral>
  /** Its name. */
  readonly entityName: string
  /** The property that holds the name. */
  readonly property: string
  /** Primary key of the row, as a TypeORM id map. */
  readonly id: ObjectLiteral
  /** The name that the row holds now, normalized; null if the row was found by a former name and holds none now. */
  readonly name: string | null
  /** When the row took the name; of a former name, when the row gave it up. */
  readonly since: Date
  /** Whether the row was found by a name that it gave up. */
  readonly former: boolean
  /** When the redirect ends; null if it never does, and for a name that is held. */
  readonly until: Date | null
  /** With the option `entity`: an instance of the row's class. A row that is softly deleted holds its name. */
  readonly entity?: ObjectLiteral
}

/**
 * Returns who holds a name, whichever entity it is, or null. One round trip. No row holds a name that the normalizer
 * refuses. A reserved name has no holder.
 *
 * @param namespace of `@UniqueName`
 * @throws DeclarationError for a namespace that no entity of the DataSource has
 * @throws TextRejectedError only for a value that is not a string
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @example
 * const holder = await findHolder(manager, 'handle', 'ada', { former: true })
 * if (holder?.former) redirect(`/${holder.name}`)
 */
export async function findHolder(
  manager: EntityManager,
  namespace: string,
  text: string,
  options: FindHolderOptions = {},
): Promise<Holder | null> {
  checkOptions('findHolder()', options, RULES)
  const names = namesOf(manager)
  const declarations = requireNamespace(names, namespace)
  const stored = storedName(declarations, namespace, text)
  if (stored === undefined) return null
  const lookUp = lookUpOf(names, declarations, options)
  return await operate(manager, { names: declarations }, async (operation) => {
    const [found] = await operation.session.rows(lookUp.statement, [namespace, stored, names.hashOf(stored)])
    return found ? await toHolder(operation, lookUp, found) : null
  })
}

type Names = ReturnType<typeof namesOf>

function requireNamespace({ declared }: Names, namespace: string): readonly [NameDeclaration, ...NameDeclaration[]] {
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

/** @returns undefined for a name that no row can hold */
function storedName(
  [{ text }]: readonly [NameDeclaration, ...unknown[]],
  namespace: string,
  given: string,
): string | undefined {
  try {
    return normalizeText(text.normalizer, namespace, given)
  } catch (error) {
    if (error instanceof TextRejectedError && typeof given === 'string') return undefined
    throw error
  }
}

interface LookUp {
  readonly names: Names
  readonly holders: readonly HolderEntity[]
  readonly readsRows: boolean
  readonly statement: ReturnType<Names['findHolder']>
}

/** By the first declaration of a namespace, and the options. */
const lookUps = new WeakMap<NameDeclaration, Map<string, LookUp>>()

function lookUpOf(
  names: Names,
  declarations: readonly [NameDeclaration, ...NameDeclaration[]],
  { former = false, entity = false }: FindHolderOptions,
): LookUp {
  const known = lookUps.get(declarations[0]) ?? new Map<string, LookUp>()
  lookUps.set(declarations[0], known)
  const key = `${former} ${entity}`
  const lookUp = known.get(key) ?? makeLookUp(names, declarations, { former, entity })
  known.set(key, lookUp)
  return lookUp
}

function makeLookUp(
  names: Names,
  declarations: readonly NameDeclaration[],
  options: Required<FindHolderOptions>,
): LookUp {
  const metadatas = new Map(declarations.map((one) => [one.metadata, one]))
  const holders = [...metadatas].map(([metadata, declaration]) => holderEntity(metadata, declaration))
  return { names, holders, readsRows: options.entity, statement: names.findHolder(holders, options) }
}

type Found = ReturnType<LookUp['statement']['parse']>

async function toHolder(operation: Operation, lookUp: LookUp, found: Found): Promise<Holder> {
  const { names, holders, readsRows } = lookUp
  const position = holders.findIndex(({ table }) => table.holder === found.holder)
  const [holder, row] = [holders[position], found.rows[position]]
  const held = row && names.holderOf(found, row.key)
  if (!holder || !held) {
    throw new DeclarationError(
      `findHolder(): a row of the table "${found.holder}" holds the name in "${found.column}", and no entity of this ` +
        `DataSource declares that. Add the entity.`,
    )
  }
  const entity = readsRows && !isMissing(holder, row.columns) ? await loaded(operation, holder, row.columns) : undefined
  return {
    target: held.metadata.target,
    entityName: held.metadata.name,
    property: held.declaration.name,
    id: held.id,
    name: found.name,
    since: held.since,
    former: found.state !== 'held',
    until: held.until,
    ...(entity ? { entity } : {}),
  }
}

/** The row cannot be seen: a policy of row security hides it, or it was changed while the triggers were off. */
function isMissing({ metadata, read }: HolderEntity, columns: readonly unknown[]): boolean {
  const isPrimary = (name: string): boolean => metadata.primaryColumns.some(({ databaseName }) => databaseName === name)
  return read.every((name, index) => !isPrimary(name) || columns[index] === null)
}

async function loaded(operation: Operation, holder: HolderEntity, columns: readonly unknown[]): Promise<ObjectLiteral> {
  const entity = operation.entity(holder, columns)
  await operation.load({ ...holder, metadata: metadataOf(holder, entity) }, entity)
  return entity
}

/** In single table inheritance that of the row's class. */
const metadataOf = ({ metadata }: HolderEntity, entity: ObjectLiteral): EntityMetadata =>
  metadata.childEntityMetadatas.find(({ target }) => target === entity.constructor) ?? metadata
