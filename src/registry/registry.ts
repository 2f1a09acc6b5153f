import { randomUUID } from 'node:crypto'
import type { DataSource, EntityManager, EntityMetadata, QueryRunner, ValueTransformer } from 'typeorm'
import type { Change, FilledColumn, NamedIndex } from '../sql/alter'
import type { LookupIndex, UnusualIndex } from '../sql/catalog'
import type { FormerPolicy } from '../sql/names-table'
import type { NumberTable } from '../sql/numbers'
import type { TableName, TextTable } from '../sql/text-table'
import type { TableTraits } from '../sql/types'
import type { Normalizer } from '../text/normalizer'
import type { WantedDeclaration } from '../triggers/attached'
import type { Declared } from '../triggers/kinds'
import type { UniqueTextClassOptions } from './options'

/** The class, which TypeORM does not export. */
export type ColumnMetadata = EntityMetadata['columns'][number]

/**
 * A unique text that is resolved against the metadata of one DataSource. Every operation uses it. Names and numbers have
 * declarations of their own.
 */
export interface Declaration {
  /** The name for `by`: the property, or `as` of a class. */
  readonly name: string
  /** The metadata of the entity. In single table inheritance, that of the table's root. */
  readonly metadata: EntityMetadata
  /** The class with the decorator, or the name of an EntitySchema. */
  readonly target: unknown
  readonly text: readonly {
    readonly column: ColumnMetadata
    readonly normalizer: Normalizer
    /** A transformer of the user's own converts between the property and the stored text. */
    readonly transformed: boolean
    /** The user's transformers, in the order in which they are applied on writing. */
    readonly transformers: readonly ValueTransformer[]
  }[]
  readonly scope: readonly ColumnMetadata[]
  /** The columns of the hash, of the hash number and of the flag. */
  readonly hidden: readonly ColumnMetadata[]
  readonly table: TextTable
  /** The name of the index that the option `lookup` adds. */
  readonly lookup: string | undefined
  readonly parse: UniqueTextClassOptions['parse']
  readonly normalizeValues: UniqueTextClassOptions['normalizeValues']
}

/** A name that the rows of an entity hold, resolved against the metadata of one DataSource. */
export interface NameDeclaration {
  /** The name of the property. */
  readonly name: string
  /** The metadata of the entity. In single table inheritance, that of the table's root. */
  readonly metadata: EntityMetadata
  /** The class with the decorator, or the name of an EntitySchema. */
  readonly target: unknown
  readonly text: Declaration['text'][number]
  /** The table of the holders. */
  readonly table: TableName
  readonly namespace: string
  readonly former: FormerPolicy
  /** Whether the table may be a local table of Citus. */
  readonly citus: 'local' | undefined
  /** The name of the hash index that finds a row by the name. */
  readonly lookup: string
}

/** A number of the rows of an entity within a scope, resolved against the metadata of one DataSource. */
export interface NumberDeclaration {
  /** The name of the property. */
  readonly name: string
  /** The metadata of the entity. In single table inheritance, that of the table's root. */
  readonly metadata: EntityMetadata
  /** The class with the decorator, or the name of an EntitySchema. */
  readonly target: unknown
  readonly column: ColumnMetadata
  readonly scope: readonly ColumnMetadata[]
  readonly table: NumberTable
}

/** The properties of a table that was found ready. */
export interface ReadyTable extends TableTraits {
  /** Policies limit the rows that a role sees. */
  readonly rowSecurity: boolean
  /** Unique indexes with a condition or an expression, except those of texts. */
  readonly unusual: readonly UnusualIndex[]
}

/** Options of a DataSource, from `withUniqueText`. */
export interface DataSourceSettings {
  readonly prepare: boolean
  readonly tenantsBySearchPath: boolean
  readonly rewriteQueries: boolean
  readonly coalesce: boolean
}

/** Triggers that a table needs besides its guards, and the change of its existing rows. */
export interface TriggerWork {
  readonly declared: WantedDeclaration
  readonly rows?: RowsChange
  /** Indexes that find a text in SQL that does not name the hash. */
  readonly lookups?: readonly LookupIndex[]
  /** Unique indexes that the triggers depend on, by name. TypeORM creates them. */
  readonly indexes?: readonly NamedIndex[]
}

/** The work on an existing table when a declaration is added or changes. */
export interface RowsChange {
  /**
   * Columns that get their values from `fill` and not from TypeORM, which would add a NOT NULL column to rows without a
   * value. They are added without values, filled, and made NOT NULL, before TypeORM creates the indexes.
   */
  readonly filled?: readonly FilledColumn[]
  /** Gives a value to every row that has none. None of our triggers exists meanwhile. */
  readonly fill?: Change
  /** What a revert runs in place of detach, if the triggers write to another table. */
  readonly release?: readonly string[]
  /** Replaces all of this if only some triggers were missing or disabled. */
  readonly again?: (before: Declared) => RowsChange
  /** Replaces all of this if the table had another declaration until now. */
  readonly follow?: (before: Declared) => RowsChange
}

/** The change of the rows when a declaration is removed. */
export interface RemovedRows {
  /** Runs in place of detach. */
  readonly release?: readonly string[]
  /** Columns that are dropped if no entity declares them. The way back restores them by `fill`. */
  readonly filled?: readonly FilledColumn[]
  readonly fill?: readonly string[]
}

export interface Rollbacks {
  readonly ofTransactions: number
  readonly toSavepoints: number
}

export const NO_ROLLBACKS: Rollbacks = { ofTransactions: 0, toSavepoints: 0 }

interface Registry {
  readonly declarations: WeakMap<EntityMetadata, Declaration[]>
  readonly triggers: WeakMap<EntityMetadata, Map<string, () => TriggerWork>>
  /**
   * The changes of rows if a name or number is no longer declared. The file of each feature's decorator adds that of its
   * kind when it is imported.
   */
  readonly removals: Map<Declared['kind'], (had: Declared, from: TableName) => RemovedRows>
  readonly names: WeakMap<EntityMetadata, readonly NameDeclaration[]>
  readonly numbers: WeakMap<EntityMetadata, readonly NumberDeclaration[]>
  /** The entity that stores the names of a DataSource. */
  readonly namesEntity: WeakMap<DataSource, EntityMetadata>
  /** The first declaration of each namespace. The others must agree with it. */
  readonly namespaces: WeakMap<DataSource, Map<string, NameDeclaration>>
  readonly settings: WeakMap<object, DataSourceSettings>
  /** Tables whose index, check and guard were found. They are listed by OID if `search_path` selects the tenant. */
  readonly ready: WeakMap<Declaration, Map<string, ReadyTable>>
  /** The number of rollbacks that TypeORM was asked to send. */
  readonly rollbacks: WeakMap<QueryRunner, Rollbacks>
  /** The marks of conditions on a hash. They identify the table that must be examined. */
  readonly marks: { readonly secret: string; readonly numbers: WeakMap<Declaration, number>; last: number }
}

/**
 * The registry is global, like TypeORM's own storage, because all copies and versions of this module must share it. A
 * version that renames a member needs another key.
 */
const KEY = Symbol.for('typeorm-unique-text.registry.1')

const holder = globalThis as { [KEY]?: Registry }

export const registry: Registry = (holder[KEY] ??= {
  declarations: new WeakMap(),
  triggers: new WeakMap(),
  removals: new Map(),
  names: new WeakMap(),
  numbers: new WeakMap(),
  namesEntity: new WeakMap(),
  namespaces: new WeakMap(),
  settings: new WeakMap(),
  ready: new WeakMap(),
  rollbacks: new WeakMap(),
  marks: { secret: randomUUID(), numbers: new WeakMap(), last: 0 },
})

/** All declarations on an entity's table, in order of creation. In single table inheritance, those of all classes. */
export function textsOfTable(metadata: EntityMetadata): readonly Declaration[] {
  return registry.declarations.get(rootOf(metadata)) ?? []
}

/** The declarations of an entity, including inherited ones. Empty if it has none. */
export function textsOfEntity(metadata: EntityMetadata): readonly Declaration[] {
  return textsOfTable(metadata).filter(({ target }) => isOrExtends(metadata.target, target))
}

/** All names on an entity's table. In single table inheritance, those of all classes. */
export function namesOfTable(metadata: EntityMetadata): readonly NameDeclaration[] {
  return registry.names.get(rootOf(metadata)) ?? []
}

/** The names of an entity, including inherited ones. Empty if it has none. */
export function namesOfEntity(metadata: EntityMetadata): readonly NameDeclaration[] {
  return namesOfTable(metadata).filter(({ target }) => isOrExtends(metadata.target, target))
}

export function isOrExtends(target: unknown, base: unknown): boolean {
  if (typeof target !== 'function' || typeof base !== 'function') return true
  return target === base || target.prototype instanceof base
}

/** The metadata that owns the table. In single table inheritance, a child shares its parent's table. */
export function rootOf(metadata: EntityMetadata): EntityMetadata {
  return metadata.tableType === 'entity-child' ? metadata.parentEntityMetadata : metadata
}

/** The DataSource of an entity's metadata or of a manager. TypeORM 0.3 names the property `connection`. */
export function dataSourceOf(owner: EntityMetadata | EntityManager): DataSource {
  return owner.dataSource ?? (owner as unknown as { connection: DataSource }).connection
}

/** All numbers on an entity's table. */
export const numbersOfTable = (metadata: EntityMetadata): readonly NumberDeclaration[] =>
  registry.numbers.get(rootOf(metadata)) ?? []
