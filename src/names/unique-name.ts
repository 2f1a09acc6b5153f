import type { EntityMetadata, EntitySchemaOptions } from 'typeorm'
import {
  declareInSchema,
  declareProperty,
  forbidSharedColumns,
  type PropertyDeclaration,
  textColumnOf,
  type TextDecorator,
} from '../declare/column'
import { attachDataSource, type IndexMetadata, requireOneClass } from '../declare/data-source'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { entityTable, normalizeColumn, requireKeyTypes, requireString, textColumn } from '../registry/declarations'
import { requireMetadataInternals } from '../registry/internals'
import { holderTable, namesTable } from '../registry/names'
import {
  dataSourceOf,
  type NameDeclaration,
  registry,
  rootOf,
  type RowsChange,
  tableNames,
  type TriggerWork,
} from '../registry/registry'
import { hasTenants } from '../schema/readiness'
import { registerTriggers } from '../schema/table'
import type { Change } from '../sql/alter'
import { plainName } from '../sql/identifier'
import type { FormerPolicy, HolderTable } from '../sql/names'
import type { TriggerNote } from '../sql/trigger-set'
import { type Duration, durationOf } from '../text/digest'
import { NORMALIZE, type Normalizer, normalizerLabel, toNormalizer, unstorable } from '../text/normalizer'
import { claimAllNames, releaseAllNames } from '../triggers/names'
import { notedHolder } from '../triggers/plan'
import { refuseUnnormalized } from '../triggers/rows'
import { namesGuard, nameTriggersOf } from './sql/triggers'

/** What becomes of a name when its holder takes another one. */
export type FormerOption =
  /** Anybody can take it at once. */
  | 'free'
  /** Nobody else can take it, for ever or for so long. */
  | 'reserve'
  | { readonly reserveFor: Duration }
  /** That, and `findHolder(…, { former: true })` finds its holder by it. */
  | 'redirect'
  | { readonly redirectFor: Duration }

/** Options of `@UniqueName`, and of one entry of `uniqueNameSchema()`. */
export interface UniqueNameOptions {
  /** The name is unique among all that say the same namespace, whichever their entities; at most 63 characters. */
  readonly namespace: string
  /** Brings the name into the form that is compared and stored; one for the whole namespace. @default none */
  readonly normalize?: Normalizer
  /** What becomes of a name when its holder takes another one. @default 'free' */
  readonly former?: FormerOption
  /** Allow NULL, in any number of rows: such a row holds no name. @default false, or what `@Column` says */
  readonly nullable?: boolean
  /** Name of the text column. @default the naming strategy's, or what `@Column` says */
  readonly name?: string
}

/**
 * Makes a property hold a name, which is unique in its namespace: among the rows of every entity that declares the same
 * namespace. It is also the column decorator; a `@Column` of type text or varchar may stand beside it, in either order.
 *
 * The names are kept in the table of `Name`, which must be among the entities of the DataSource.
 *
 * @throws DeclarationError when the class is defined, for options that make no sense, and when the DataSource is
 * initialised, for what contradicts the entity or another declaration of the namespace
 * @example
 * ```ts
 * @Entity()
 * class User {
 *   @PrimaryGeneratedColumn('identity') id!: number
 *   @UniqueName({ namespace: 'handle', normalize: lowerCase(), former: 'redirect' }) handle!: string
 * }
 * ```
 */
export function UniqueName(options: UniqueNameOptions, ...applied: unknown[]): TextDecorator {
  return declareProperty(UNIQUE_NAME, options, applied)
}

/**
 * What `@UniqueName` does, for EntitySchema options: plain JavaScript has no decorators.
 *
 * @param names the options of each property that holds a name
 * @returns new options for `new EntitySchema(…)`; what was passed is left unchanged
 * @throws DeclarationError as the decorator does
 * @example
 * ```js
 * const User = new EntitySchema(
 *   uniqueNameSchema(
 *     { name: 'User', columns: { id: { type: Number, primary: true, generated: true } } },
 *     { handle: { namespace: 'handle' } },
 *   ),
 * )
 * ```
 */
export function uniqueNameSchema<T>(
  schema: EntitySchemaOptions<T>,
  names: Readonly<Record<string, UniqueNameOptions>>,
): EntitySchemaOptions<T> {
  return declareInSchema(UNIQUE_NAME, schema, names)
}

const UNIQUE_NAME: PropertyDeclaration<UniqueNameOptions> = {
  decorator: '@UniqueName',
  inSchema: { name: 'uniqueNameSchema', takes: "the names: { handle: { namespace: 'handle' } }" },
  columnOf: textColumnOf,
  attachment: (where, property, options) => {
    const raw = toRawName(where, property, options)
    return (index) => attachName(index, raw)
  },
}

/**
 * The door to TypeORM for a name, as `attachDeclaration` is for a text: resolves it, and makes it take effect.
 *
 * @param index the IndexMetadata that TypeORM calls the index's `columns` function on; no such index is made
 * @returns the property path of the name
 * @throws DeclarationError, UnsupportedDatabaseError
 */
function attachName(index: object, raw: RawName): string[] {
  requireMetadataInternals(index)
  const door = index as IndexMetadata
  const metadata = rootOf(door.entityMetadata)
  attachDataSource(dataSourceOf(metadata), whereOf(metadata, raw))
  door.synchronize = false
  const known = tableNames(metadata).find(({ name }) => name === raw.property)
  if (known) requireOneClass('@UniqueName', known, door)
  else resolveName(door, metadata, raw)
  return [raw.property]
}

/** The door to TypeORM for the entity that keeps the names: registers it, and the triggers of its table. */
export function attachNamesEntity(index: object): string[] {
  requireMetadataInternals(index)
  const door = index as IndexMetadata
  door.synchronize = false
  const { entityMetadata } = door
  const dataSource = dataSourceOf(entityMetadata)
  registry.namesEntity.set(dataSource, entityMetadata)
  registerTriggers(entityMetadata, 'names', () => ({ set: namesGuard(namesTable(dataSource)) }))
  return entityMetadata.primaryColumns.map(({ propertyPath }) => propertyPath)
}

const whereOf = (metadata: EntityMetadata, { property }: Pick<RawName, 'property'>): string =>
  `@UniqueName on ${metadata.name}.${property}`

function resolveName(index: IndexMetadata, metadata: EntityMetadata, raw: RawName): void {
  const where = whereOf(metadata, raw)
  if (index.embeddedMetadata !== undefined) {
    throw new DeclarationError(
      `${where}: a property of an embedded cannot declare it. Declare it on a property of the entity itself.`,
    )
  }
  const column = textColumn(metadata, raw.property, where)
  const transformers = [column.transformer ?? []].flat()
  if (transformers.length === 0) requireString(column, where)
  forbidSharedColumns(where, metadata, [column])
  requireKeyTypes(metadata, where)
  const { normalizer, namespace, former } = raw
  const declaration: NameDeclaration = {
    name: raw.property,
    metadata,
    target: index.target,
    text: { column, normalizer, transformed: transformers.length > 0, transformers },
    table: entityTable(metadata),
    namespace,
    former,
    lookup: `${plainName('name', metadata.tableName, column.databaseName)}_lookup`,
  }
  requireOneNormalizer(where, declaration)
  registry.names.set(metadata, [...tableNames(metadata), declaration])
  registerTriggers(metadata, 'names', () => nameWork(metadata))
  afterIndexes(metadata, () => {
    const names = registry.namesEntity.get(dataSourceOf(metadata))
    if (!names) {
      throw new DeclarationError(
        `${where}: the table that keeps the names is missing. ` +
          `Add Name of typeorm-unique-text/names to the entities of your DataSource.`,
      )
    }
    if (hasTenants(metadata) && !hasTenants(names)) {
      throw new DeclarationError(
        `${where}: every tenant would keep its names in the table of schema "${names.schema}". ` +
          `With tenantsBySearchPath, give that entity no schema, and each tenant a table of names.`,
      )
    }
    if (hasTenants(names) && !hasTenants(metadata)) {
      throw new DeclarationError(
        `${where}: rows in the table of schema "${metadata.schema}" would keep their names in one table, and sessions ` +
          `would look for them in that of their tenant. With tenantsBySearchPath, give their entity no schema either.`,
      )
    }
  })
  normalizeColumn(column, normalizer)
}

/** Otherwise two spellings of one name would be two names, or nobody would find one of them. */
function requireOneNormalizer(where: string, declaration: NameDeclaration): void {
  const dataSource = dataSourceOf(declaration.metadata)
  const { namespaces } = registry
  const known = namespaces.get(dataSource) ?? new Map<string, NameDeclaration>()
  namespaces.set(dataSource, known)
  const first = known.get(declaration.namespace)
  known.set(declaration.namespace, first ?? declaration)
  const label = ({ text }: NameDeclaration): string => normalizerLabel(text.normalizer)
  if (!first || label(first) === label(declaration)) return
  throw new DeclarationError(
    `${where}: the namespace "${declaration.namespace}" is normalized differently by ` +
      `${first.metadata.name}.${first.name}. Give both the same normalizer, in one constant.`,
  )
}

/**
 * Calls back when TypeORM has built the indexes of every entity: it builds the checks next, of which this pretends to be
 * one until it is called.
 */
function afterIndexes(metadata: EntityMetadata, callback: () => void): void {
  const check = {
    entityMetadata: metadata,
    name: '',
    expression: '',
    build: () => {
      // A new list: TypeORM walks through the one that it has.
      metadata.checks = metadata.checks.filter((one) => one !== check)
      callback()
      return check
    },
  }
  metadata.checks.push(check)
}

/** What a name has that nothing normalizes. */
const NOT_NORMALIZED = normalizerLabel(toNormalizer(undefined))

/** What the table of an entity needs for its names, and what becomes of rows that are there. */
function nameWork(metadata: EntityMetadata): TriggerWork {
  const holder = holderTable(metadata)
  const install = { up: [claimAllNames(holder)], down: [releaseAllNames(holder)] }
  return {
    set: nameTriggersOf(holder),
    rows: {
      ...refuseOtherNormalizers(metadata, holder, undefined),
      install,
      again: (before) => {
        const noted = notedHolder(before, holder)
        const isAlike = noted !== undefined && isSameHolder(noted, holder)
        return isAlike
          ? { install: { ...install, down: [] } }
          : { ...refuseOtherNormalizers(metadata, holder, noted), install }
      },
      // With the table go its names.
      created: { up: [], down: [releaseAllNames(holder)] },
      follow: (before) => followNames(metadata, holder, before),
    },
    lookups: tableNames(metadata).map(({ table: rows, lookup: name, text }) => ({
      rows,
      name,
      column: text.column.databaseName,
    })),
  }
}

/** Names go with what is renamed, in either direction. */
function followNames(metadata: EntityMetadata, holder: HolderTable, note: TriggerNote): RowsChange {
  const before = notedHolder(note, holder)
  if (!before || isSameHolder(before, holder)) return {}
  if (keyTypes(before) !== keyTypes(holder)) {
    // Keys of another type are others: no name tells whose it was.
    return {
      ...refuseOtherNormalizers(metadata, holder, before),
      install: { up: [releaseAllNames(before), claimAllNames(holder)], down: [releaseAllNames(holder)] },
      dropped: { change: { up: [], down: [claimAllNames(before)] } },
    }
  }
  return {
    ...refuseOtherNormalizers(metadata, holder, before),
    install: { up: [claimAllNames(holder, before)], down: [] },
    dropped: { change: { up: [], down: [claimAllNames(before, holder)] } },
  }
}

const OTHER_INTEGERS: ReadonlySet<string> = new Set(['smallint', 'bigint'])

const keyTypes = ({ primary }: HolderTable): string =>
  JSON.stringify(primary.map(({ type }) => (OTHER_INTEGERS.has(type) ? 'integer' : type)))

/** Another policy is for the names that are given up from now on. */
function isSameHolder(before: HolderTable, after: HolderTable): boolean {
  const key = ({ holder, primary, names }: HolderTable): string =>
    JSON.stringify([
      holder,
      primary.map(({ name, type }) => [name, type]),
      names.map(({ column, namespace, normalizer = NOT_NORMALIZED }) => [column, namespace, normalizer]),
    ])
  return key(before) === key(after)
}

/** The column of the same name, or one of the same namespace that is gone. */
function predecessor(
  before: HolderTable,
  after: HolderTable,
  column: string,
): HolderTable['names'][number] | undefined {
  const namespace = after.names.find((one) => one.column === column)?.namespace
  const isGone = (one: string): boolean => after.names.every((name) => name.column !== one)
  return (
    before.names.find((one) => one.column === column) ??
    before.names.find((one) => one.namespace === namespace && isGone(one.column))
  )
}

/** SQL cannot normalize as JavaScript does: a name that is not normalized is one that nobody finds. */
function refuseOtherNormalizers(
  { name: entity }: EntityMetadata,
  holder: HolderTable,
  before: HolderTable | undefined,
): { readonly fill?: Change } {
  const on = { rows: holder, primary: holder.primary.map(({ name }) => name), entity }
  const refuse = (column: string, from: string, to: string): string[] =>
    to === NOT_NORMALIZED || to === from ? [] : [refuseUnnormalized(on, { column, from, to })]
  const changes = holder.names.map(({ column, normalizer: to = NOT_NORMALIZED }) => {
    const from = (before && predecessor(before, holder, column))?.normalizer ?? NOT_NORMALIZED
    return { up: refuse(column, from, to), down: refuse(column, to, from) }
  })
  const [up, down] = [changes.flatMap((one) => one.up), changes.flatMap((one) => one.down)]
  return up.length + down.length === 0 ? {} : { fill: { up, down } }
}

/** The options with every default filled in. */
interface RawName {
  readonly property: string
  readonly namespace: string
  readonly normalizer: Normalizer
  readonly former: FormerPolicy
}

/** What the column `namespace` holds. */
const MAX_NAMESPACE_CHARACTERS = 63

const UNIQUE_NAME_RULES: Rules<UniqueNameOptions> = {
  namespace: {
    takes: (value) =>
      typeof value === 'string' &&
      value !== '' &&
      unstorable(value) === undefined &&
      Array.from(value).length <= MAX_NAMESPACE_CHARACTERS,
    expected: `a text of 1 to ${MAX_NAMESPACE_CHARACTERS} characters, for instance 'handle'`,
  },
  normalize: NORMALIZE,
  former: {
    takes: isFormer,
    expected: "'free', 'reserve', 'redirect', { reserveFor: '90 days' } or { redirectFor: '1 year' }",
  },
  nullable: RULE.boolean,
  name: RULE.name,
}

/**
 * @param where names the declaration in an error: `@UniqueName on User.handle`
 * @throws DeclarationError for an option that does not exist, or a value that it does not take
 */
function toRawName(where: string, property: string, options: UniqueNameOptions): RawName {
  checkOptions(where, options, UNIQUE_NAME_RULES, ['namespace'])
  const { namespace, normalize, former = 'free' } = options
  const normalizer = toNormalizer(normalize)
  if (typeof former === 'string') return { property, namespace, normalizer, former: POLICIES[former] }
  const [[key, duration] = ['reserveFor', undefined]] = Object.entries(former)
  const policy: FormerPolicy = { state: STATES[key] ?? 'reserved', interval: durationOf(key, duration).interval }
  return { property, namespace, normalizer, former: policy }
}

const POLICIES: Readonly<Record<Extract<FormerOption, string>, FormerPolicy>> = {
  free: { state: 'free' },
  reserve: { state: 'reserved' },
  redirect: { state: 'redirect' },
}

const STATES: Readonly<Record<string, FormerPolicy['state']>> = { reserveFor: 'reserved', redirectFor: 'redirect' }

function isFormer(former: unknown): boolean {
  if (typeof former === 'string') return Object.hasOwn(POLICIES, former)
  const [key, another] = typeof former === 'object' && former !== null ? Object.keys(former) : []
  return key !== undefined && another === undefined && Object.hasOwn(STATES, key)
}
