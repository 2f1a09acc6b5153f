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
import type { RemovedFrom, RemovedRows, TriggerKind, TriggerNote, TriggerSet } from '../sql/trigger-set'
import type { TableTraits } from '../sql/types'
import type { Normalizer } from '../text/normalizer'
import type { UniqueTextClassOptions } from './options'

/** The class, which TypeORM does not export. */
export type ColumnMetadata = EntityMetadata['columns'][number]

/** A declaration that is resolved against the metadata of one DataSource. Every operation uses it. */
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
  readonly table: Pick<TextTable, 'schema' | 'table'>
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
  readonly set: TriggerSet
  readonly rows?: RowsChange
  /** Indexes that find a text in SQL that does not name the hash. */
  readonly lookups?: readonly LookupIndex[]
  /** Unique indexes that the triggers depend on, by name. TypeORM creates them. */
  readonly indexes?: readonly NamedIndex[]
}

/** The work on an existing table when a set of triggers is added or changes. */
export interface RowsChange {
  /**
   * Columns that get their values from `fill` and not from TypeORM, which would add a NOT NULL column to rows without a
   * value. They are added without values, filled, and made NOT NULL, before TypeORM creates the indexes.
   */
  readonly filled?: readonly FilledColumn[]
  /** Gives a value to every row that has none. None of our triggers exists meanwhile. */
  readonly fill?: Change
  /** Runs once the triggers exist, and is undone before they are dropped. Some or all of its work may be done. */
  readonly install?: Change
  /** Replaces all of this if the table itself is new. */
  readonly created?: Change
  /** Columns that are dropped. The way back restores their values. */
  readonly dropped?: RemovedRows
  /** Runs before the table changes. It is undone when the columns exist again, under their former names. */
  readonly leave?: Change
  /** Replaces all of this if only a table of the set is missing or has another owner. */
  readonly tables?: Change
  /** Replaces all of this if such a table lacks only its own trigger. */
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
  /** The changes of rows if a set is no longer declared. Each feature adds that of its kind when it is imported. */
  readonly removals: Map<TriggerKind, (note: TriggerNote, from: RemovedFrom) => RemovedRows>
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

/** The registry is global, like TypeORM's own storage, because all copies and versions of this module must share it. */
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
export function tableDeclarations(metadata: EntityMetadata): readonly Declaration[] {
  return registry.declarations.get(rootOf(metadata)) ?? []
}

/** The declarations of an entity, including inherited ones. Empty if it has none. */
export function declarationsOf(metadata: EntityMetadata): readonly Declaration[] {
  return tableDeclarations(metadata).filter(({ target }) => isOrExtends(metadata.target, target))
}

/** All names on an entity's table. In single table inheritance, those of all classes. */
export function tableNames(metadata: EntityMetadata): readonly NameDeclaration[] {
  return registry.names.get(rootOf(metadata)) ?? []
}

/** The names of an entity, including inherited ones. Empty if it has none. */
export function namesOfEntity(metadata: EntityMetadata): readonly NameDeclaration[] {
  return tableNames(metadata).filter(({ target }) => isOrExtends(metadata.target, target))
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
export const tableNumbers = (metadata: EntityMetadata): readonly NumberDeclaration[] =>
  registry.numbers.get(rootOf(metadata)) ?? []

/** The methods of TypeORM's driver that its query runners use. */
export interface PoolDriver {
  readonly isReplicated: boolean
  /** The pool. TypeORM removes it once it has ended. */
  readonly master?: { readonly ending?: boolean }
  /** `destroy()` releases them before it ends the pool. */
  readonly connectedQueryRunners: { release(): unknown }[]
  obtainMasterConnection: Obtain
  obtainSlaveConnection: Obtain
}

type Taken = readonly [client: unknown, release: (error?: Error) => void]
type Obtain = () => Promise<Taken>

/** A property of our method: whether the method that it calls is TypeORM's own. */
const CALLS_OWN = Symbol.for('typeorm-unique-text.callsOwn')

/**
 * Ends all waits for a connection when `destroy()` is called, because a pool of `pg` forgets its waiting clients.
 * Afterwards, no query runner gets a connection. It would enter TypeORM's list although it is already released, and
 * `destroy()` releases the first of the list until the list is empty.
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

/** Whether TypeORM's method has not been replaced. */
export function obtainsAsMade({ driver }: DataSource): boolean {
  if (!Object.hasOwn(driver, 'obtainMasterConnection')) return true
  return Reflect.get((driver as unknown as PoolDriver).obtainMasterConnection, CALLS_OWN) === true
}

/** @throws DataSourceDestroyedError if `destroy()` was called before or is called meanwhile */
function untilDestroyed(pool: PoolDriver, taking: Promise<Taken>): Promise<Taken> {
  const { connectedQueryRunners: all } = pool
  return new Promise((resolve, reject) => {
    // `destroy()` releases this entry like a query runner that has a connection.
    const waiting = {
      release: (): void => {
        removeOne(all, waiting)
        reject(new DataSourceDestroyedError())
        // If a connection arrives late, it is returned to the pool.
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

/** A transaction in which code was called. */
export interface OpenTransaction {
  readonly queryRunner: QueryRunner
  /** The transaction in which it was opened. */
  readonly outer: OpenTransaction | undefined
  /** The time when a statement was last sent or answered, by this process's clock. */
  heard: number
  isOver: boolean
}

const around = new AsyncLocalStorage<OpenTransaction>()
const open = new WeakMap<QueryRunner, OpenTransaction>()

/** Returns the innermost open transaction in which the current code was called. */
export function openTransaction(): OpenTransaction | undefined {
  let transaction = around.getStore()
  while (transaction?.isOver) transaction = transaction.outer
  return transaction
}

/** Records that a query runner's transaction sent a statement or received an answer. */
export function hearTransaction(queryRunner: QueryRunner): void {
  const transaction = open.get(queryRunner)
  if (transaction) transaction.heard = performance.now()
}

/** Runs the code that a transaction is opened for. Calls without the manager inside it then find the transaction. */
export async function insideTransaction<T>(queryRunner: QueryRunner, run: () => Promise<T>): Promise<T> {
  // This is a savepoint of a known transaction.
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

/** Makes a manager's `transaction()` register the transaction for the code that it runs. */
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

/** TypeORM sets the manager of a query runner after the driver has created the query runner. */
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

/** The event of a `pg` pool for each client that it provides, before it removes its own listener. */
interface Pool {
  on(event: 'acquire', listener: (client: { on(event: 'error', listener: Listener): unknown }) => void): unknown
}

const heard = new WeakSet<object>()
const losses = new WeakMap<object, { error?: Error }>()

/**
 * Between the removal of the pool's listener and the query runner's own, a client has no listener. If its backend were
 * terminated at that moment, the process would end. The client's next statement reports the error.
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
 * Returns the cause of a lost connection (25P03, 57P01). TypeORM only releases the query runner and drops the cause.
 *
 * @param sql the statement that was to be sent
 */
export function lossOf(queryRunner: QueryRunner, sql = ''): QueryFailedError | undefined {
  const client: unknown = Reflect.get(queryRunner, 'databaseConnection')
  const error = typeof client === 'object' && client !== null ? losses.get(client)?.error : undefined
  return error && new QueryFailedError(sql, undefined, error)
}
