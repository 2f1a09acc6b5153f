import { randomUUID } from 'node:crypto'
import type { DataSource, EntityManager, EntityMetadata, QueryRunner, ValueTransformer } from 'typeorm'
import type { Change, FilledColumn } from '../sql/alter'
import type { UnusualIndex } from '../sql/catalog'
import type { ColumnTypes } from '../sql/column-type'
import type { LookupIndex } from '../sql/lookup'
import type { FormerPolicy } from '../sql/name-table'
import type { NumberTable } from '../sql/number-table'
import type { TextTable } from '../sql/text-table'
import type { RemovedRows, TriggerNote, TriggerSet } from '../sql/trigger-set'
import type { Normalizer } from '../text/normalizer'
import type { UniqueTextClassOptions } from './options'

/** TypeORM does not export the class. */
export type ColumnMetadata = EntityMetadata['columns'][number]

/** A declaration resolved against the metadata of one DataSource: what every operation works from. */
export interface Declaration {
  /** The name that `by` takes: the property, or `as` of a class. */
  readonly name: string
  /** For single table inheritance, that of the table's root. */
  readonly metadata: EntityMetadata
  /** The class that the decorator stands on; for an EntitySchema its name. */
  readonly target: unknown
  readonly text: readonly {
    readonly column: ColumnMetadata
    readonly normalizer: Normalizer
    /** A transformer of the user's own stands between the property and the stored text. */
    readonly transformed: boolean
    /** The user's transformers, in the order of writing. */
    readonly transformers: readonly ValueTransformer[]
  }[]
  readonly scope: readonly ColumnMetadata[]
  readonly hidden: readonly ColumnMetadata[]
  readonly table: TextTable
  /** Name of the index that the option of this name adds. */
  readonly lookup: string | undefined
  readonly parse: UniqueTextClassOptions['parse']
  readonly normalizeValues: UniqueTextClassOptions['normalizeValues']
}

/** A name that the rows of an entity hold, resolved against the metadata of one DataSource. */
export interface NameDeclaration {
  /** The property. */
  readonly name: string
  /** For single table inheritance, that of the table's root. */
  readonly metadata: EntityMetadata
  /** The class that the decorator stands on; for an EntitySchema its name. */
  readonly target: unknown
  readonly text: Declaration['text'][number]
  /** The table of the rows that hold it. */
  readonly table: Pick<TextTable, 'schema' | 'table'>
  readonly namespace: string
  readonly former: FormerPolicy
  /** Name of the hash index that finds a row by the name. */
  readonly lookup: string
}

/** A number of the rows of an entity within a scope, resolved against the metadata of one DataSource. */
export interface NumberDeclaration {
  /** The property. */
  readonly name: string
  /** For single table inheritance, that of the table's root. */
  readonly metadata: EntityMetadata
  /** The class that the decorator stands on; for an EntitySchema its name. */
  readonly target: unknown
  readonly column: ColumnMetadata
  readonly scope: readonly ColumnMetadata[]
  readonly table: NumberTable
}

/** What was seen of a table when it was found ready. */
export interface ReadyTable {
  readonly types: ColumnTypes
  /** A unique or exclusion constraint of the table is deferrable. */
  readonly deferrable: boolean
  /** Policies say which rows a role sees. */
  readonly rowSecurity: boolean
  /** The table's rows are on other nodes of a cluster. */
  readonly distributed: boolean
  /** Unique indexes with a condition or an expression, but for those of texts. */
  readonly unusual: readonly UnusualIndex[]
  /** They are in partitions. */
  readonly partitioned: boolean
}

/** Options of a DataSource, from `withUniqueText`. */
export interface DataSourceSettings {
  readonly prepare: boolean
  readonly tenantsBySearchPath: boolean
  readonly rewriteQueries: boolean
  readonly coalesce: boolean
}

/** Triggers that a table needs beside its guards, and what becomes of the rows that are there already. */
export interface TriggerWork {
  readonly set: TriggerSet
  readonly rows?: RowsChange
  /** Indexes by which a text is found in SQL that names no hash. */
  readonly lookups?: readonly LookupIndex[]
  /** Unique indexes on which the triggers stand, by their names. TypeORM makes them. */
  readonly indexes?: readonly UniqueIndex[]
}

/** A unique index over columns, as the database names them. */
export interface UniqueIndex {
  readonly name: string
  readonly columns: readonly string[]
  /** Which rows it holds. undefined: all of them. */
  readonly where?: string
}

/** What to do on an existing table when a set of triggers comes or changes. */
export interface RowsChange {
  /**
   * Columns that get their values from `fill` and not from TypeORM, which would add one NOT NULL to rows that have none:
   * they are added without a value, filled, and made NOT NULL, before TypeORM makes the indexes.
   */
  readonly filled?: readonly FilledColumn[]
  /** Gives every row its values, where one has none. No trigger of ours is there meanwhile. */
  readonly fill?: Change
  /** Done when the triggers stand, and undone before they go. It must find some, or all, of its work done already. */
  readonly install?: Change
  /** Replaces all this if the table itself is new. */
  readonly created?: Change
  /** Columns that go, and have their values again on the way back. */
  readonly dropped?: RemovedRows
  /** Done before the table changes, and undone when its columns are there again, by their former names. */
  readonly leave?: Change
  /** Replaces all this if only a table that the set keeps is gone, or belongs to somebody else. */
  readonly tables?: Change
  /** Replaces `install` and `fill` if the set existed already and its note differs. */
  readonly follow?: (before: TriggerNote) => RowsChange
}

export interface Rollbacks {
  readonly ofTransactions: number
  readonly toSavepoints: number
}

export const NO_ROLLBACKS: Rollbacks = { ofTransactions: 0, toSavepoints: 0 }

interface Registry {
  readonly declarations: WeakMap<EntityMetadata, Declaration[]>
  readonly triggers: WeakMap<EntityMetadata, Map<string, () => TriggerWork>>
  readonly names: WeakMap<EntityMetadata, readonly NameDeclaration[]>
  readonly numbers: WeakMap<EntityMetadata, readonly NumberDeclaration[]>
  /** The entity that keeps the names of a DataSource. */
  readonly namesEntity: WeakMap<DataSource, EntityMetadata>
  /** The first declaration of each namespace, which the others must agree with. */
  readonly namespaces: WeakMap<DataSource, Map<string, NameDeclaration>>
  readonly settings: WeakMap<object, DataSourceSettings>
  /** Tables whose index, check and guard were seen in the database; by OID where search_path selects the tenant. */
  readonly ready: WeakMap<Declaration, Map<string, ReadyTable>>
  /** How many rollbacks TypeORM was asked to send. */
  readonly rollbacks: WeakMap<QueryRunner, Rollbacks>
  /** The marks by which conditions on a hash say which table must be examined. */
  readonly marks: { readonly secret: string; readonly numbers: WeakMap<Declaration, number>; last: number }
}

/** Global, as TypeORM's own storage is: two copies of this module, of whatever version, must share one registry. */
const KEY = Symbol.for('typeorm-unique-text.registry.1')

const holder = globalThis as { [KEY]?: Registry }

export const registry: Registry = (holder[KEY] ??= {
  declarations: new WeakMap(),
  triggers: new WeakMap(),
  names: new WeakMap(),
  numbers: new WeakMap(),
  namesEntity: new WeakMap(),
  namespaces: new WeakMap(),
  settings: new WeakMap(),
  ready: new WeakMap(),
  rollbacks: new WeakMap(),
  marks: { secret: randomUUID(), numbers: new WeakMap(), last: 0 },
})

/** Every declaration on an entity's table, in the order they were made; of single table inheritance, all classes'. */
export function tableDeclarations(metadata: EntityMetadata): readonly Declaration[] {
  return registry.declarations.get(rootOf(metadata)) ?? []
}

/** The declarations of an entity, its own and inherited ones; empty where it has none. */
export function declarationsOf(metadata: EntityMetadata): readonly Declaration[] {
  return tableDeclarations(metadata).filter(({ target }) => isOrExtends(metadata.target, target))
}

/** Every name on an entity's table; of single table inheritance, all classes'. */
export function tableNames(metadata: EntityMetadata): readonly NameDeclaration[] {
  return registry.names.get(rootOf(metadata)) ?? []
}

/** The names of an entity, its own and inherited ones; empty where it has none. */
export function namesOfEntity(metadata: EntityMetadata): readonly NameDeclaration[] {
  return tableNames(metadata).filter(({ target }) => isOrExtends(metadata.target, target))
}

export function isOrExtends(target: unknown, base: unknown): boolean {
  if (typeof target !== 'function' || typeof base !== 'function') return true
  return target === base || target.prototype instanceof base
}

/** The metadata that owns the table: a child of single table inheritance shares its parent's. */
export function rootOf(metadata: EntityMetadata): EntityMetadata {
  return metadata.tableType === 'entity-child' ? metadata.parentEntityMetadata : metadata
}

/** The DataSource that an entity's metadata or a manager belongs to; TypeORM 0.3 calls it `connection`. */
export function dataSourceOf(owner: EntityMetadata | EntityManager): DataSource {
  return owner.dataSource ?? (owner as unknown as { connection: DataSource }).connection
}

/** Every number on an entity's table. */
export const tableNumbers = (metadata: EntityMetadata): readonly NumberDeclaration[] =>
  registry.numbers.get(rootOf(metadata)) ?? []
