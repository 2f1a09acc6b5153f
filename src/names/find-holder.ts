import type { DataSource, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { ensureNamesReady } from '../find-or-create/requested-names'
import { requireManager } from '../rows/call-arguments'
import { finish, relationsToLoad } from '../rows/load-relations'
import { findHolderStatement, type FoundHolder, type SoughtTable } from '../sql/name-statements'
import { normalizeText } from '../text/normalizer'
import { declaringEntity, holderOf, namesIn, namesTable, namesText } from '../typeorm/names'
import { dataSourceOf, type NameDeclaration } from '../registry/registry'
import { idOf } from '../typeorm/refused-text'
import { holderEntity, type HolderEntity, toEntity } from './holder-row'

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
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const declarations = requireNamespace(dataSource, namespace)
  const stored = storedName(declarations, namespace, text)
  if (stored === undefined) return null
  const lookUp = lookUpOf(dataSource, declarations, options)
  const session = await openSession(manager)
  try {
    await ensureNamesReady(
      session,
      declarations.map((name) => ({ name })),
    )
    const { digest } = namesTable(dataSource)
    const [found] = await session.rows(lookUp.statement, [namespace, stored, digest.js(stored)])
    return found ? await toHolder(session, lookUp, found) : null
  } finally {
    await session.close()
  }
}

function requireNamespace(dataSource: DataSource, namespace: string): readonly [NameDeclaration, ...NameDeclaration[]] {
  const all = namesIn(dataSource)
  const [first, ...others] = all.filter((one) => one.namespace === namespace)
  if (first) return [first, ...others]
  const known = [...new Set(all.map((one) => `"${one.namespace}"`))].join(', ')
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
  readonly holders: readonly HolderEntity[]
  readonly readsRows: boolean
  readonly statement: ReturnType<typeof findHolderStatement>
}

/** By the first declaration of a namespace, and the options. */
const lookUps = new WeakMap<NameDeclaration, Map<string, LookUp>>()

function lookUpOf(
  dataSource: DataSource,
  declarations: readonly [NameDeclaration, ...NameDeclaration[]],
  { former = false, entity = false }: FindHolderOptions,
): LookUp {
  const known = lookUps.get(declarations[0]) ?? new Map<string, LookUp>()
  lookUps.set(declarations[0], known)
  const key = `${former} ${entity}`
  const lookUp = known.get(key) ?? makeLookUp(dataSource, declarations, { former, entity })
  known.set(key, lookUp)
  return lookUp
}

function makeLookUp(
  dataSource: DataSource,
  declarations: readonly NameDeclaration[],
  { former, entity }: Required<FindHolderOptions>,
): LookUp {
  const metadatas = new Map(declarations.map((one) => [one.metadata, one]))
  const holders = [...metadatas].map(([metadata, declaration]) => holderEntity(metadata, declaration))
  const tables = holders.map(({ shape: { holder, row } }): SoughtTable => ({
    holder,
    select: entity ? row.select : [],
    spatial: row.spatial ?? new Map(),
  }))
  return { holders, readsRows: entity, statement: findHolderStatement(namesTable(dataSource), tables, former) }
}

async function toHolder(session: Session, { holders, readsRows }: LookUp, found: FoundHolder): Promise<Holder> {
  const { dataSource } = session
  const position = holders.findIndex(({ shape }) => shape.holder.holder === found.holder)
  const [holder, row] = [holders[position], found.rows[position]]
  const declaration = holder && holderOf(holder.declaration, { holder: found.holder, holderColumn: found.column })
  if (!holder || !row || !declaration) {
    throw new DeclarationError(
      `findHolder(): a row of the table "${found.holder}" holds the name in "${found.column}", and no entity of this ` +
        `DataSource declares that. Add the entity.`,
    )
  }
  const columns = namesText(dataSource).metadata.columns
  const dateOf = (property: 'since' | 'until', value: unknown): unknown => {
    const column = columns.find(({ propertyPath }) => propertyPath === property)
    return column ? dataSource.driver.prepareHydratedValue(value, column) : value
  }
  const entity = readsRows && !isMissing(holder, row.columns) ? await loaded(session, holder, row.columns) : undefined
  const { metadata } = declaration
  return {
    target: metadata.childEntityMetadatas.find((one) => one.target === declaration.target)?.target ?? metadata.target,
    entityName: declaringEntity(declaration),
    property: declaration.name,
    id: idOf(metadata, row.key) ?? {},
    name: found.name,
    since: dateOf('since', found.since) as Date,
    former: found.state !== 'held',
    until: dateOf('until', found.until) as Date | null,
    ...(entity ? { entity } : {}),
  }
}

/** The row cannot be seen: a policy of row security hides it, or it was changed while the triggers were off. */
function isMissing({ metadata, shape }: HolderEntity, columns: readonly unknown[]): boolean {
  const isPrimary = (name: string): boolean => metadata.primaryColumns.some(({ databaseName }) => databaseName === name)
  return shape.row.select.every((name, index) => !isPrimary(name) || columns[index] === null)
}

async function loaded(session: Session, holder: HolderEntity, columns: readonly unknown[]): Promise<ObjectLiteral> {
  const entity = toEntity(holder, session, columns)
  const metadata = metadataOf(holder, entity)
  const ofRow = { ...holder, metadata }
  await finish(session, ofRow, [{ entity, created: false }], relationsToLoad(ofRow, {}))
  return entity
}

/** In single table inheritance that of the row's class. */
const metadataOf = ({ metadata }: HolderEntity, entity: ObjectLiteral): EntityMetadata =>
  metadata.childEntityMetadatas.find(({ target }) => target === entity.constructor) ?? metadata
