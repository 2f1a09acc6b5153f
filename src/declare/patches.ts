import type { DataSource, EntityManager, QueryRunner, ReplicationMode } from 'typeorm'
import { missingInternal, requireInternals } from '../registry/internals'
import { insideTransaction } from '../registry/open-transactions'
import { CALLS_OWN, hearLosses, type PoolClient, type PoolDriver, untilDestroyed } from '../registry/pool'
import { dropUnusedFunctions, type SchemaBuilder, synchronizeSchema } from '../schema/hook'
import { rewriting } from '../typeorm/conditions'
import { explaining } from '../typeorm/explain-errors'
import { OURS, ourSubscribers } from '../typeorm/subscriber'

/** The parts of TypeORM's driver that are replaced or read here. */
interface Driver extends PoolDriver {
  createSchemaBuilder(): SchemaBuilder
  createQueryRunner(mode: ReplicationMode): QueryRunner
  readonly searchSchema: string
  readonly slaves?: readonly unknown[]
}

const driverOf = ({ driver }: DataSource): Driver => driver as unknown as Driver

/**
 * Replaces methods of a DataSource, its driver and its managers, and listens to its pools. No prototype is patched, and a
 * method is replaced once, even if several copies of this package do it. TypeORM has created the subscribers, but has built no
 * schema.
 */
export function patchDataSource(dataSource: DataSource): void {
  patchSchemaBuilder(dataSource)
  patchSubscribers(dataSource)
  patchQueryBuilders(dataSource)
  patchQueryRunners(dataSource)
  patchPools(dataSource)
  patchConnecting(dataSource)
  patchTransactions(dataSource.manager)
}

/** Marks an instance as patched. Returns false if it is marked already. */
function mark(instance: object, patch: string): boolean {
  const symbol = Symbol.for(`typeorm-unique-text.${patch}`)
  if (symbol in instance) return false
  Object.defineProperty(instance, symbol, { value: true })
  return true
}

/**
 * Makes every TypeORM command that synchronizes or generates emit our triggers.
 *
 * @throws UnsupportedDatabaseError if this version of TypeORM lacks a part that is used
 */
export function patchSchemaBuilder(dataSource: DataSource): void {
  const driver = driverOf(dataSource)
  if (typeof driver.createSchemaBuilder !== 'function') throw missingInternal('PostgresDriver', 'createSchemaBuilder')
  if (!mark(driver, 'schemaBuilder')) return
  const create = driver.createSchemaBuilder.bind(driver)
  driver.createSchemaBuilder = () => {
    requireInternals(dataSource, create)
    const builder = create()
    const synchronize = builder.executeSchemaSyncOperationsInProperOrder.bind(builder)
    builder.executeSchemaSyncOperationsInProperOrder = async () =>
      await synchronizeSchema(builder, driver.searchSchema, synchronize)
    return builder
  }
  // `dropDatabase`, and so `dropSchema` and `schema:drop`, drop tables and types. This drops our functions too.
  const drop = dataSource.dropDatabase.bind(dataSource)
  dataSource.dropDatabase = async () => {
    await drop()
    await dropUnusedFunctions(dataSource, driver.searchSchema)
  }
}

/**
 * Adds our subscribers before all others. After a rollback, statements of other subscribers are then sent later. After
 * an insert, other subscribers get the stored texts. TypeORM creates a new list on each `initialize()`.
 */
function patchSubscribers({ subscribers }: DataSource): void {
  if (!subscribers.some((one) => OURS in one)) subscribers.unshift(...ourSubscribers())
}

/** Makes the conditions of every query use the hash. */
function patchQueryBuilders(dataSource: DataSource): void {
  if (!mark(dataSource, 'queryBuilders')) return
  const create = dataSource.createQueryBuilder.bind(dataSource) as unknown as (...args: unknown[]) => object
  Object.defineProperty(dataSource, 'createQueryBuilder', {
    value: (...args: unknown[]): unknown => rewriting(create(...args)),
    configurable: true,
    writable: true,
  })
}

/**
 * Makes the errors of TypeORM's own calls meaningful, and registers the transactions of each query runner. A subscriber
 * is notified of an error but cannot replace it.
 */
function patchQueryRunners(dataSource: DataSource): void {
  const driver = driverOf(dataSource)
  if (!mark(driver, 'queryRunners')) return
  const create = driver.createQueryRunner.bind(driver)
  driver.createQueryRunner = (mode) => {
    const queryRunner = explaining(create(mode), dataSource)
    // TypeORM sets the manager of a query runner after the driver has created the query runner.
    let { manager } = queryRunner as { manager?: EntityManager }
    return Object.defineProperty(queryRunner, 'manager', {
      configurable: true,
      enumerable: true,
      get: () => manager,
      set: (given: EntityManager) => {
        manager = given
        patchTransactions(given)
      },
    })
  }
}

/** The event of a `pg` pool for each client that it provides, before it removes its own listener. */
interface Pool {
  on(event: 'acquire', listener: (client: PoolClient) => void): unknown
}

const isPool = (pool: unknown): pool is Pool & object =>
  typeof pool === 'object' && pool !== null && typeof Reflect.get(pool, 'on') === 'function' && 'totalCount' in pool

/** The pools whose clients this copy of the package listens to. Each copy reports the losses to its own calls. */
const heard = new WeakSet<object>()

/** Listens for the end of each client that a pool provides. */
function patchPools(dataSource: DataSource): void {
  const { master, slaves = [] } = driverOf(dataSource)
  for (const pool of [master, ...slaves]) {
    if (!isPool(pool) || heard.has(pool)) continue
    heard.add(pool)
    pool.on('acquire', hearLosses)
  }
}

/**
 * Ends all waits for a connection when `destroy()` is called, because a pool of `pg` forgets its waiting clients.
 * Afterwards, no query runner gets a connection. It would enter TypeORM's list although it is already released, and
 * `destroy()` releases the first of the list until the list is empty.
 */
function patchConnecting(dataSource: DataSource): void {
  const driver = driverOf(dataSource)
  for (const name of ['obtainMasterConnection', 'obtainSlaveConnection'] as const) {
    if (CALLS_OWN in driver[name]) continue
    const obtain = driver[name].bind(driver)
    const ending: typeof obtain = () => untilDestroyed(driver, obtain())
    driver[name] = Object.assign(ending, { [CALLS_OWN]: !Object.hasOwn(driver, name) })
  }
}

type Run = (manager: EntityManager) => unknown

/** Makes a manager's `transaction()` register the transaction for the code that it runs. */
function patchTransactions(manager: EntityManager): void {
  if (!mark(manager, 'transactions')) return
  const transaction = manager.transaction.bind(manager) as (...args: readonly unknown[]) => Promise<unknown>
  const inside =
    (run: Run): Run =>
    async (own) =>
      own.queryRunner ? await insideTransaction(own.queryRunner, async () => await run(own)) : await run(own)
  const noting = async (...args: readonly unknown[]): Promise<unknown> =>
    await transaction(...args.map((one) => (typeof one === 'function' ? inside(one as Run) : one)))
  manager.transaction = noting
}
