import type { EntityMetadata, EntitySchemaOptions } from 'typeorm'
import {
  declareInSchema,
  declareProperty,
  forbidSharedColumns,
  type PropertyDeclaration,
  textColumnOf,
  type TextDecorator,
} from '../declare/column'
import { type Attached, attachTo, type IndexMetadata, refuseEmbedded, requireOneClass } from '../declare/data-source'
import { DeclarationError } from '../errors'
import { checkOptions, oneOf, RULE, type Rules } from '../options'
import { entityTable, normalizeColumn, requireString, searchSchemaOf, textColumn } from '../registry/declarations'
import { requireKeyTypes, holderTable } from './sql/holder-table'
import { requireMetadataInternals } from '../registry/internals'
import { namesTable } from '../registry/name-declarations'
import {
  dataSourceOf,
  type NameDeclaration,
  namesOfTable,
  registry,
  type RowsChange,
  type TriggerWork,
} from '../registry/registry'
import { hasTenants } from '../schema/readiness'
import { registerTriggers } from '../schema/table'
import type { Change } from '../sql/alter'
import { plainName } from '../sql/identifier'
import type { FormerPolicy } from '../sql/names-table'
import type { HolderTable } from './sql/fragments'
import { type Duration, durationOf } from '../text/digest'
import { NORMALIZE, type Normalizer, normalizerLabel, toNormalizer, unstorable } from '../text/normalizer'
import { raiseIfUnnormalized } from '../sql/rows'
import { releaseNames } from '../sql/library'
import type { Declared, NamesDeclaration } from '../triggers/kinds'
import { directNames, namesOfHolder, NOT_NORMALIZED, renamedNames } from './sql/attach'

/** The treatment of a name when its holder takes another one. */
export type FormerOption =
  /** Anybody can take it at once. */
  | 'free'
  /** Nobody else can take it, either permanently or for the given time. */
  | 'reserve'
  | { readonly reserveFor: Duration }
  /** Nobody else can take it, and `findHolder(…, { former: true })` finds its holder by it. */
  | 'redirect'
  | { readonly redirectFor: Duration }

/** Options of `@UniqueName`, and of one entry of `uniqueNameSchema()`. */
export interface UniqueNameOptions {
  /** The namespace in which the name is unique, across all entities that declare it. It has at most 63 characters. */
  readonly namespace: string
  /** Normalizes the name before it is compared and stored. A namespace has one normalizer. @default none */
  readonly normalize?: Normalizer
  /** The treatment of a name when its holder takes another one. @default 'free' */
  readonly former?: FormerOption
  /** Allow NULL, in any number of rows. A row with NULL holds no name. @default false, or the value in `@Column` */
  readonly nullable?: boolean
  /** The name of the text column. @default the naming strategy's, or the one in `@Column` */
  readonly name?: string
  /**
   * Let Citus keep the table local, for instance because of a foreign key to a reference table. The triggers then plan
   * their statements at each write. One name of the table is enough. @default Citus cannot manage the table
   */
  readonly citus?: 'local'
}

/**
 * Makes a property hold a name that is unique in its namespace, among the rows of every entity that declares the same
 * namespace. It also declares the column. You can add a `@Column` of type text or varchar, in either order.
 *
 * The names are kept in the table of `Name`, which must be among the entities of the DataSource.
 *
 * @throws DeclarationError when the class is defined, if the options make no sense, and when the DataSource is
 * initialised, if they contradict the entity or another declaration of the namespace
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
 * Does for EntitySchema options what `@UniqueName` does for a class, because plain JavaScript has no decorators.
 *
 * @param names the options of each property that holds a name
 * @returns new options for `new EntitySchema(…)`; the passed options are left unchanged
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

// A DataSource that declares no names may have to remove those of earlier declarations.
registry.removals.set('name', (had, from) => {
  const { name, in: names } = had as NamesDeclaration
  return name === 'names' ? { release: [releaseNames(from, names)] } : {}
})

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
 * Resolves a name for TypeORM and makes it take effect, as `attachDeclaration` does for a text.
 *
 * @param index the IndexMetadata on which TypeORM calls the index's `columns` function; no such index is made
 * @returns the property path of the name
 * @throws DeclarationError, UnsupportedDatabaseError
 */
function attachName(index: object, raw: RawName): string[] {
  const attached = attachTo(index, '@UniqueName', raw.property)
  attached.index.synchronize = false
  const known = namesOfTable(attached.metadata).find(({ name }) => name === raw.property)
  if (known) requireOneClass('@UniqueName', known, attached.index)
  else resolveName(attached, raw)
  return [raw.property]
}

/** Registers the entity that keeps the names, and the triggers of its table. */
export function attachNamesEntity(index: object): string[] {
  requireMetadataInternals(index)
  const door = index as IndexMetadata
  door.synchronize = false
  const { entityMetadata } = door
  const dataSource = dataSourceOf(entityMetadata)
  registry.namesEntity.set(dataSource, entityMetadata)
  // TypeORM knows no type that holds the OID of a table.
  const { supportedDataTypes } = dataSource.driver as { readonly supportedDataTypes: string[] }
  if (!supportedDataTypes.includes('regclass')) supportedDataTypes.push('regclass')
  registerTriggers(entityMetadata, 'names', () => ({ declared: directNames(namesTable(dataSource)) }))
  return entityMetadata.primaryColumns.map(({ propertyPath }) => propertyPath)
}

function resolveName(attached: Attached, raw: RawName): void {
  refuseEmbedded(attached)
  const { index, metadata, where } = attached
  const column = textColumn(metadata, raw.property, where)
  const transformers = [column.transformer ?? []].flat()
  if (transformers.length === 0) requireString(column, where)
  forbidSharedColumns(where, metadata, [column])
  requireKeyTypes(metadata, where)
  const { normalizer, namespace, former, citus } = raw
  const declaration: NameDeclaration = {
    name: raw.property,
    metadata,
    target: index.target,
    text: { column, normalizer, transformed: transformers.length > 0, transformers },
    table: entityTable(metadata),
    namespace,
    former,
    citus,
    lookup: `${plainName('name', metadata.tableName, column.databaseName)}_lookup`,
  }
  requireOneNormalizer(where, declaration)
  registry.names.set(metadata, [...namesOfTable(metadata), declaration])
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

/** Refuses a second normalizer: two spellings of one name would be two names, or nobody would find one of them. */
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
 * Calls back when TypeORM has built the indexes of every entity. TypeORM builds the checks next, and this function adds
 * a temporary one that calls back.
 */
function afterIndexes(metadata: EntityMetadata, callback: () => void): void {
  const check = {
    entityMetadata: metadata,
    name: '',
    expression: '',
    build: () => {
      // This makes a new list, because TypeORM iterates over the old one.
      metadata.checks = metadata.checks.filter((one) => one !== check)
      callback()
      return check
    },
  }
  metadata.checks.push(check)
}

/** Returns what the table of an entity needs for its names, and the changes of rows that exist. */
function nameWork(metadata: EntityMetadata): TriggerWork {
  const holder = holderTable(metadata)
  const own = namesOfHolder(holder, searchSchemaOf(metadata))
  const declared = {
    ...own,
    handOver: (former: Declared) =>
      renamedNames(own, former as NamesDeclaration, predecessorsOf(holder, former as NamesDeclaration)),
  }
  const released = releaseNames(holder, declared.declaration.in)
  // attach makes the rows hold their names.
  const changed = (before?: Declared): RowsChange =>
    refuseOtherNormalizers(metadata, holder, before as NamesDeclaration | undefined)
  return {
    declared,
    rows: {
      ...changed(),
      // A table that Citus has made anew since the last write has yet to get the names of its rows.
      release: holder.citus === 'local' ? [own.attach, released] : [released],
      again: changed,
      follow: changed,
    },
    lookups: namesOfTable(metadata).map(({ table: rows, lookup: name, text }) => ({
      rows,
      name,
      column: text.column.databaseName,
    })),
  }
}

/** Returns the former name in the column, or else one of the same namespace in a column that is gone. */
function predecessor(
  before: NamesDeclaration,
  after: HolderTable,
  { column, namespace }: HolderTable['names'][number],
): NamesDeclaration['names'][number] | undefined {
  const isGone = (one: string): boolean => after.names.every((name) => name.column !== one)
  return (
    before.names.find((one) => one.column === column) ??
    before.names.find((one) => one.namespace === namespace && isGone(one.column))
  )
}

/** The columns of names that were renamed, with their former names. */
const predecessorsOf = (holder: HolderTable, before: NamesDeclaration): [column: string, former: string][] =>
  holder.names.flatMap((name) => {
    const former = predecessor(before, holder, name)?.column
    return former === undefined || former === name.column ? [] : [[name.column, former]]
  })

/** Refuses another normalizer, because SQL cannot normalize as JavaScript does, and nobody would find the names. */
function refuseOtherNormalizers(
  { name: entity }: EntityMetadata,
  holder: HolderTable,
  before: NamesDeclaration | undefined,
): { readonly fill?: Change } {
  const refuse = (column: string, from: string, to: string): string[] =>
    to === NOT_NORMALIZED || to === from ? [] : [raiseIfUnnormalized(holder, entity, { column, from, to })]
  const changes = holder.names.map((name) => {
    const { column, normalizer: to = NOT_NORMALIZED } = name
    const from = (before && predecessor(before, holder, name))?.normalizer ?? NOT_NORMALIZED
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
  readonly citus: 'local' | undefined
}

/** The length of the column `namespace`. */
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
  citus: oneOf('local'),
}

/**
 * @param where the name of the declaration in an error, such as `@UniqueName on User.handle`
 * @throws DeclarationError for an option that does not exist, or a value that it does not take
 */
function toRawName(where: string, property: string, options: UniqueNameOptions): RawName {
  checkOptions(where, options, UNIQUE_NAME_RULES, ['namespace'])
  const { namespace, normalize, former = 'free', citus } = options
  const normalizer = toNormalizer(normalize)
  if (typeof former === 'string') return { property, namespace, normalizer, former: POLICIES[former], citus }
  const [[key, duration] = ['reserveFor', undefined]] = Object.entries(former)
  const policy: FormerPolicy = { state: STATES[key] ?? 'reserved', interval: durationOf(key, duration).interval }
  return { property, namespace, normalizer, former: policy, citus }
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
