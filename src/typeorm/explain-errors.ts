import {
  type DataSource,
  type ObjectLiteral,
  QueryFailedError,
  type QueryRunner,
  QueryRunnerAlreadyReleasedError,
} from 'typeorm'
import {
  DeclarationError,
  HashCollisionError,
  SchemaDriftError,
  TextTakenError,
  TransactionAbortedError,
  type UniqueTextError,
  WaitsForItselfError,
} from '../errors'
import { namesIn, namesTable } from '../registry/name-declarations'
import { quote } from '../sql/identifier'
import { scopesName } from '../sql/numbers'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { savepoint, transactionCommands } from '../sql/transaction-commands'
import { type ColumnMetadata, numbersOfTable } from '../registry/registry'
import { lossOf } from '../registry/pool'
import { hearTransaction } from '../registry/open-transactions'
import {
  collisionError,
  declarationsIn,
  findTextHolder,
  guardError,
  isOfSchema,
  type QueryRows,
  refusedPartition,
  type RefusedText,
  refusedText,
  takenError,
  takenNamesError,
  type TextHolder,
  UNKNOWN_HOLDER,
} from './refusals'
import { Deciding } from './seen-tables'

/** A refusal in a transaction that accepts no query before it ends. */
interface Pending {
  readonly refused: RefusedText
  readonly thrown: TextTakenError
}

/** Makes the errors of a query runner meaningful. They are still `QueryFailedError`s, which existing code expects. */
export function explaining(queryRunner: QueryRunner, dataSource: DataSource): QueryRunner {
  const query = queryRunner.query.bind(queryRunner) as (...args: readonly unknown[]) => Promise<unknown>
  const rows: QueryRows = async (sql, values) => (await query(sql, values)) as Awaited<ReturnType<QueryRows>>
  const deciding = new Deciding({ dataSource, queryRunner, query })
  let pending: readonly Pending[] = []
  const explained = async (...args: readonly unknown[]): Promise<unknown> => {
    try {
      const sql = String(args[0])
      hearTransaction(queryRunner)
      const result = deciding.isFree(sql)
        ? await query(...args)
        : await deciding.send(sql, async (text) => await query(text, ...args.slice(1)))
      hearTransaction(queryRunner)
      // After these commands, the connection accepts queries again.
      const ends = pending.length > 0 ? transactionCommands(sql).filter(({ does }) => ENDS.has(does)) : []
      if (ends.length > 0) {
        const ended = pending
        pending = []
        // After a rollback to a savepoint, the connection is still in a transaction.
        const ask = ends.at(-1)?.does === 'roll back to' ? behindSavepoint(rows) : rows
        for (const one of ended) await nameHolder(one, ask)
      }
      return result
    } catch (error) {
      requireToldHere(error, queryRunner, String(args[0]))
      const explanation = await explainFailure(error, { dataSource, queryRunner, rows })
      if (explanation.pending) pending = [...pending, explanation.pending]
      throw explanation.error
    }
  }
  queryRunner.query = explained as QueryRunner['query']
  const stream = queryRunner.stream.bind(queryRunner)
  queryRunner.stream = async (sql, ...args) => await deciding.send(sql, async (text) => await stream(text, ...args))
  return queryRunner
}

/** @throws an error that can be explained without a query */
function requireToldHere(error: unknown, queryRunner: QueryRunner, sql: string): void {
  if (error instanceof QueryRunnerAlreadyReleasedError) throw lossOf(queryRunner, sql) ?? error
  if (error instanceof QueryFailedError && error.driverError instanceof WaitsForItselfError)
    throw asQueryFailedError(error.driverError, error)
}

const ENDS: ReadonlySet<string> = new Set(['roll back', 'roll back to', 'commit'])

/** After a rollback to a savepoint, the caller continues in a transaction, which an error of ours would abort. */
function behindSavepoint(rows: QueryRows): QueryRows {
  return async (...query) => {
    await rows(savepoint.set, [])
    try {
      return await rows(...query)
    } catch (error) {
      await rows(savepoint.rollBack, [])
      throw error
    } finally {
      await rows(savepoint.release, [])
    }
  }
}

interface Explanation {
  readonly error: unknown
  /** The holder can be queried when the transaction has ended. */
  readonly pending?: Pending
}

/** The context in which a statement failed. */
interface Failing {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly rows: QueryRows
}

async function explainFailure(failure: unknown, failing: Failing): Promise<Explanation> {
  if (!(failure instanceof Error) || isOfSchema(failure)) return { error: failure }
  const code = serverError(failure)?.code ?? ''
  const { dataSource } = failing
  let explained: UniqueTextError | undefined
  if (code === SQLSTATE.invalidColumnReference) explained = conflictWithoutHash(failure, dataSource)
  else if (code === SQLSTATE.undefinedTable) explained = missingTable(failure, dataSource)
  else if (EXPLAINED.has(code)) {
    explained =
      takenNamesError(failure, dataSource) ??
      takenNumberError(failure, dataSource) ??
      guardError(failure, declarationsIn(dataSource))
  }
  if (explained) return { error: asQueryFailedError(explained, failure) }
  return EXPLAINED.has(code) ? await explainText(failure, failing) : { error: failure }
}

/** The error if a trigger needs a table besides that of the entity, and it is missing. */
function missingTable(failure: Error, dataSource: DataSource): SchemaDriftError | undefined {
  const { internalQuery = '' } = serverError(failure) ?? {}
  const names = namesIn(dataSource).map(({ table }) => [table.table, namesTable(dataSource).table] as const)
  const numbers = dataSource.entityMetadatas.flatMap(numbersOfTable)
  const needed = [...names, ...numbers.map(({ table }) => [table.table, scopesName(table)] as const)]
  const missing = needed.find(([, name]) => internalQuery.includes(name))
  return missing && new SchemaDriftError(missing[0], [{ kind: 'missing', object: 'table', name: missing[1] }])
}

/**
 * The error for a number that another row has. A query would be necessary to find that row. If the caller gave no
 * number, the number is from a snapshot before that row.
 */
function takenNumberError(
  failure: Error,
  { entityMetadatas }: DataSource,
): TextTakenError | TransactionAbortedError | undefined {
  const { code, constraint, table } = serverError(failure) ?? {}
  if (code !== SQLSTATE.uniqueViolation) return undefined
  const number = entityMetadatas
    .flatMap(numbersOfTable)
    .find((one) => one.table.index === constraint && one.table.table === table)
  if (!number) return undefined
  if (leavesOut('query' in failure ? String(failure.query) : '', number.table.number)) {
    return new TransactionAbortedError(
      failure,
      `another row of ${number.metadata.name} has got the next "${number.name}"`,
    )
  }
  const taken = { entity: number.metadata.name, property: number.name, id: undefined, row: 0 }
  return new TextTakenError([taken], failure, 'Leave the number out, so that the next one is given, or give another.')
}

/** Whether an INSERT leaves out the column, or has DEFAULT for it, as TypeORM writes undefined values. */
function leavesOut(sql: string, column: string): boolean {
  const [, columns, row = ''] = /^\s*INSERT INTO [^(]+\(([^)]*)\)\s*VALUES\s*\(([^()]*)\)/iu.exec(sql) ?? []
  if (columns === undefined) return false
  const position = columns.split(',').findIndex((one) => [column, quote(column)].includes(one.trim()))
  return position < 0 || row.split(',')[position]?.trim().toUpperCase() === 'DEFAULT'
}

/** Explains a refused text, with the row that holds it. */
async function explainText(failure: Error, { dataSource, queryRunner, rows }: Failing): Promise<Explanation> {
  const refused = refusedText(failure, declarationsIn(dataSource))
  if (!refused) return { error: failure }
  const holder = await askNow(refused, queryRunner, rows)
  const collision = holder && collisionError(refused, holder)
  if (collision) return { error: asQueryFailedError(collision, failure) }
  if (holder?.isOtherText) return { error: failure }
  const thrown = asQueryFailedError(takenError(refused, holder ?? UNKNOWN_HOLDER), failure)
  return holder ? { error: thrown } : { error: thrown, pending: { refused, thrown } }
}

/** Explains an `upsert` by the text alone, because the unique index is over the hash. */
function conflictWithoutHash(failure: Error, dataSource: DataSource): DeclarationError | undefined {
  const sql = 'query' in failure ? String(failure.query) : ''
  const [, columns] = /\bON CONFLICT\s*\(([^)]*)\)/iu.exec(sql) ?? []
  const isNamed = (table: string, { databaseName }: ColumnMetadata): boolean =>
    sql.includes(quote(table)) && columns?.includes(quote(databaseName)) === true
  const held = namesIn(dataSource).find(({ table, text }) => isNamed(table.table, text.column))
  if (held) {
    return new DeclarationError(
      `upsert() of ${held.metadata.name} by "${held.name}": a name has no unique index of its own. ` +
        `Call findOrCreateHolder() of typeorm-unique-text/names, and change the row that it gives.`,
    )
  }
  const named = declarationsIn(dataSource).find(({ table, text }) =>
    text.some((one) => isNamed(table.table, one.column)),
  )
  if (!named) return undefined
  const { name, metadata } = named
  return new DeclarationError(
    `upsert() of ${metadata.name} by "${name}": the unique index covers its hash instead. Call upsertByText(), or pass ` +
      `uniqueTextPaths(${metadata.name}, '${name}') of typeorm-unique-text/typeorm as conflict paths.`,
  )
}

const EXPLAINED: ReadonlySet<string> = new Set([SQLSTATE.uniqueViolation, SQLSTATE.immutableText, SQLSTATE.chainLimit])

/**
 * Uses only this connection. Waiting for another one while holding this one could block the pool.
 *
 * @returns undefined if the connection does not accept queries now
 */
async function askNow(
  refused: RefusedText,
  queryRunner: QueryRunner,
  rows: QueryRows,
): Promise<TextHolder | undefined> {
  try {
    if (queryRunner.isTransactionActive) return undefined
    // SQL may have begun a transaction. Some drivers report this.
    const client = (await queryRunner.connect()) as { getTransactionStatus?(): unknown } | undefined
    const status = client?.getTransactionStatus?.()
    return status === 'T' || status === 'E' ? undefined : await findTextHolder(refused, rows)
  } catch {
    return undefined
  }
}

/** Completes an error. `save` and `transaction` roll back before their caller receives it. */
async function nameHolder({ refused, thrown }: Pending, rows: QueryRows): Promise<void> {
  const holder = await findTextHolder(refused, rows).catch(() => UNKNOWN_HOLDER)
  const collision = collisionError(refused, holder)
  if (collision) {
    // The error that was already thrown turns into the collision.
    const { code, name, message, property } = collision
    Reflect.deleteProperty(thrown, 'taken')
    Object.defineProperty(thrown, AS_OURS, { value: HashCollisionError.prototype })
    Object.assign(thrown, { code, name, message, property })
    withStackOf(thrown, thrown.stack)
  }
  if (holder.id === undefined) return
  const { message, taken } = takenError(refused, holder)
  Object.assign(thrown, { message, taken })
  withStackOf(thrown, thrown.stack)
}

/**
 * Finds the text that the first suitable error reports as taken, and its holder. It uses a connection of its own.
 *
 * @returns undefined if no error reports one, or if another text with the same hash was faster
 */
export async function takenTextError(
  errors: readonly Error[],
  dataSource: DataSource,
): Promise<TextTakenError | undefined> {
  const declarations = declarationsIn(dataSource)
  const query: QueryRows = async (sql, values) => (await dataSource.query(sql, values)) as ObjectLiteral[]
  for (const one of errors) {
    if (one instanceof TextTakenError && (!('driverError' in one) || one.taken[0]?.id !== undefined)) return one
    if (isOfSchema(one)) return undefined
    const ofNames = takenNamesError(one, dataSource)
    if (ofNames) return ofNames
    const refused = refusedText(one, declarations) ?? (await refusedPartition(one, declarations, query))
    if (!refused) continue
    const holder = await findTextHolder(refused, query)
    return holder.isOtherText ? undefined : takenError(refused, holder)
  }
  return undefined
}

/** The key by which `instanceof` of our classes recognizes an error of ours that has TypeORM's prototype. */
const AS_OURS = Symbol.for('typeorm-unique-text.error')

/**
 * Turns an error of ours into one of TypeORM's as well. TypeORM's own calls throw it, and existing code there expects
 * `QueryFailedError` and its `driverError`.
 *
 * @param failed the error of TypeORM, which stays its `cause`
 * @returns the error, which is then an instance of both classes
 */
export function asQueryFailedError<Ours extends UniqueTextError, Failed extends Error>(
  ours: Ours,
  failed: Failed,
): Failed & Ours {
  const prototype: unknown = Object.getPrototypeOf(ours)
  const { stack } = failed
  for (const [name, value] of Object.entries(failed)) {
    // The DETAIL holds values of the row. `driverError` has it.
    if (!(name in ours) && name !== 'detail') Object.assign(ours, { [name]: value })
  }
  Object.defineProperty(ours, AS_OURS, { value: prototype, configurable: true })
  Object.setPrototypeOf(ours, Object.getPrototypeOf(failed) as object)
  return withStackOf(ours, stack) as Failed & Ours
}

/** Gives an error the stack lines of TypeORM's own error, which point to the caller. */
function withStackOf<One extends Error>(error: One, stack: string | undefined): One {
  const lines = stack?.slice(Math.max(0, stack.search(/^ {4}at /m))) ?? ''
  Object.defineProperty(error, 'stack', {
    value: `${error.name}: ${error.message}\n${lines}`,
    configurable: true,
    writable: true,
  })
  return error
}
