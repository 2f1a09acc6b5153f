import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import {
  type DataSource,
  type EntityManager,
  type EntityMetadata,
  QueryFailedError,
  type QueryRunner,
  type ValueTransformer,
} from 'typeorm'
import { DataSourceDestroyedError } from '../errors'
import type { Change, FilledColumn, NamedIndex } from '../sql/alter'
import type { LookupIndex, UnusualIndex } from '../sql/catalog'
import type { FormerPolicy } from '../sql/names'
import type { NumberTable } from '../sql/numbers'
import type { TextTable } from '../sql/text-table'
import type { RemovedRows, TriggerNote, TriggerSet } from '../sql/trigger-set'
import type { ColumnTypes } from '../sql/types'
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
  /** The table's rows are in shards of a cluster; undefined: the database is not one of a cluster. */
  readonly distributed: boolean | undefined
  /** Unique indexes with a condition or an expression, but for those of texts. */
  readonly unusual: readonly UnusualIndex[]
  /** They are in partitions. */
  readonly partitioned: boolean
  /** The server must not choose partitions while a statement that locks rows runs. */
  readonly crashesByPruning: boolean
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
  readonly indexes?: readonly NamedIndex[]
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
  /** Replaces all this if such a table has only lost its own trigger. */
  readonly triggers?: Change
  /** Replaces `install` and `fill` if only some triggers of the set were missing or disabled. */
  readonly again?: (before: TriggerNote) => RowsChange
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

/** What TypeORM's driver does for its query runners. */
export interface PoolDriver {
  readonly isReplicated: boolean
  /** The pool, which TypeORM forgets once it has ended. */
  readonly master?: { readonly ending?: boolean }
  /** `destroy()` releases them before it ends the pool. */
  readonly connectedQueryRunners: { release(): unknown }[]
  obtainMasterConnection: Obtain
  obtainSlaveConnection: Obtain
}

type Taken = readonly [client: unknown, release: (error?: Error) => void]
type Obtain = () => Promise<Taken>

/** On a method of ours: whether the one that it calls is TypeORM's own. */
const CALLS_OWN = Symbol.for('typeorm-unique-text.callsOwn')

/**
 * Ends everything that waits for a connection when `destroy()` is called: a pool of `pg` forgets those who wait. No query
 * runner gets a connection after that: it would enter TypeORM's list although it is released already, and `destroy()`
 * releases the first of the list until the list is empty.
 */
export function endWaiting({ driver }: DataSource): void {
  const pool = driver as unknown as PoolDriver
  for (const name of ['obtainMasterConnection', 'obtainSlaveConnection'] as const) {
    if (CALLS_OWN in pool[name]) continue
    const obtain = pool[name].bind(pool)
    const ending = async (): Promise<Taken> => await untilDestroyed(pool, obtain())
    pool[name] = Object.assign(ending, { [CALLS_OWN]: !Object.hasOwn(pool, name) })
  }
}

/** Nobody has put a method of their own in the place of TypeORM's. */
export function obtainsAsMade({ driver }: DataSource): boolean {
  if (!Object.hasOwn(driver, 'obtainMasterConnection')) return true
  return Reflect.get((driver as unknown as PoolDriver).obtainMasterConnection, CALLS_OWN) === true
}

/** @throws DataSourceDestroyedError if `destroy()` is called meanwhile, or was called before */
function untilDestroyed(pool: PoolDriver, taking: Promise<Taken>): Promise<Taken> {
  const { connectedQueryRunners: all } = pool
  return new Promise((resolve, reject) => {
    // `destroy()` releases it as it does those that have theirs.
    const waiting = {
      release: (): void => {
        removeOne(all, waiting)
        reject(new DataSourceDestroyedError())
        // A connection that arrives late belongs to nobody.
        void taking.then(
          ([, handBack]) => handBack(),
          () => undefined,
        )
      },
    }
    all.push(waiting)
    const taken = (one: Taken): void => {
      removeOne(all, waiting)
      resolve(one)
    }
    taking.then(taken, (error: unknown) => {
      removeOne(all, waiting)
      const isOver = !pool.master || pool.master.ending === true
      reject(error instanceof Error && !isOver ? error : new DataSourceDestroyedError(error))
    })
  })
}

function removeOne(all: unknown[], one: unknown): void {
  const place = all.indexOf(one)
  if (place !== -1) all.splice(place, 1)
}

/** A transaction that code was called in. */
export interface OpenTransaction {
  readonly queryRunner: QueryRunner
  /** The one that it was opened in. */
  readonly outer: OpenTransaction | undefined
  /** When something was last sent by it, by the clock of this process. */
  heard: number
  isOver: boolean
}

const around = new AsyncLocalStorage<OpenTransaction>()
const open = new WeakMap<QueryRunner, OpenTransaction>()

/** The innermost that the code that asks was called in, and that is open still. */
export function openTransaction(): OpenTransaction | undefined {
  let transaction = around.getStore()
  while (transaction?.isOver) transaction = transaction.outer
  return transaction
}

/** Something is sent in the transaction of a query runner, or answered. */
export function hearTransaction(queryRunner: QueryRunner): void {
  const transaction = open.get(queryRunner)
  if (transaction) transaction.heard = performance.now()
}

/** Runs code that a transaction is opened for: what it calls without the manager knows of the transaction. */
export async function insideTransaction<T>(queryRunner: QueryRunner, run: () => Promise<T>): Promise<T> {
  // A savepoint of a transaction that is known.
  if (open.has(queryRunner)) return await run()
  const transaction = { queryRunner, outer: openTransaction(), heard: performance.now(), isOver: false }
  open.set(queryRunner, transaction)
  try {
    return await around.run(transaction, run)
  } finally {
    transaction.isOver = true
    open.delete(queryRunner)
  }
}

const NOTES_TRANSACTIONS = Symbol.for('typeorm-unique-text.notesTransactions')

/** Makes the code that a manager's `transaction()` runs know of it. */
export function noteTransactions(manager: EntityManager): void {
  if (NOTES_TRANSACTIONS in manager) return
  const transaction = manager.transaction.bind(manager) as (...args: readonly unknown[]) => Promise<unknown>
  const inside =
    (run: Run): Run =>
    async (own) =>
      own.queryRunner ? await insideTransaction(own.queryRunner, async () => await run(own)) : await run(own)
  const noting = async (...args: readonly unknown[]): Promise<unknown> =>
    await transaction(...args.map((one) => (typeof one === 'function' ? inside(one as Run) : one)))
  manager.transaction = noting
  Object.defineProperty(manager, NOTES_TRANSACTIONS, { value: true })
}

/** TypeORM gives a query runner its manager once the driver has made it. */
export function noteTransactionsOf(queryRunner: QueryRunner): void {
  let { manager } = queryRunner as { manager?: EntityManager }
  Object.defineProperty(queryRunner, 'manager', {
    configurable: true,
    enumerable: true,
    get: () => manager,
    set: (given: EntityManager) => {
      manager = given
      noteTransactions(given)
    },
  })
}

type Run = (manager: EntityManager) => unknown

type Listener = (error: Error) => void

/** What a pool of `pg` tells of each client that it gives, before it takes its own listener off. */
interface Pool {
  on(event: 'acquire', listener: (client: { on(event: 'error', listener: Listener): unknown }) => void): unknown
}

const heard = new WeakSet<object>()
const losses = new WeakMap<object, { error?: Error }>()

/**
 * Between the pool's listener and that of a query runner there is a moment in which a client has none: a backend that is
 * terminated then would end the process. The next statement of the client reports it.
 */
export function hearPools({ driver }: DataSource): void {
  const { master, slaves = [] } = driver as { master?: unknown; slaves?: readonly unknown[] }
  for (const pool of [master, ...slaves]) {
    if (!isPool(pool) || heard.has(pool)) continue
    heard.add(pool)
    pool.on('acquire', (client) => {
      if (losses.has(client)) return
      const loss: { error?: Error } = {}
      losses.set(client, loss)
      client.on('error', (error) => (loss.error ??= error))
    })
  }
}

const isPool = (pool: unknown): pool is Pool & object =>
  typeof pool === 'object' && pool !== null && typeof Reflect.get(pool, 'on') === 'function' && 'totalCount' in pool

/**
 * TypeORM releases a query runner whose connection is lost, and forgets why; the caller should hear it (25P03, 57P01).
 *
 * @param sql what was to be sent
 */
export function lossOf(queryRunner: QueryRunner, sql = ''): QueryFailedError | undefined {
  const client: unknown = Reflect.get(queryRunner, 'databaseConnection')
  const error = typeof client === 'object' && client !== null ? losses.get(client)?.error : undefined
  return error && new QueryFailedError(sql, undefined, error)
}
