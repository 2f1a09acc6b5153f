import { type DataSource, QueryFailedError, type QueryRunner, QueryRunnerAlreadyReleasedError } from 'typeorm'
import {
  DeclarationError,
  SchemaDriftError,
  TextTakenError,
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
  asQueryFailedError,
  completeError,
  declarationsIn,
  findTextHolder,
  guardError,
  isOfSchema,
  type QueryRows,
  type RefusedText,
  refusedText,
  takenNamesError,
  takenNumberError,
  textError,
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
  const pending: Pending[] = []
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
        // After a rollback to a savepoint, the connection is still in a transaction.
        const ask = ends.at(-1)?.does === 'roll back to' ? behindSavepoint(rows) : rows
        // `save` and `transaction` roll back before their caller receives the error.
        for (const { refused, thrown } of pending.splice(0))
          completeError(thrown, refused, await findTextHolder(refused, ask).catch(() => UNKNOWN_HOLDER))
      }
      return result
    } catch (error) {
      requireToldHere(error, queryRunner, String(args[0]))
      throw await explainFailure(error, { dataSource, queryRunner, rows, pending })
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

/** The context in which a statement failed. */
interface Failing {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly rows: QueryRows
  /** Takes an error whose holder can be queried when the transaction has ended. */
  readonly pending: Pending[]
}

async function explainFailure(failure: unknown, failing: Failing): Promise<unknown> {
  if (!(failure instanceof Error)) return failure
  const code = serverError(failure)?.code ?? ''
  if (isOfSchema(failure)) return explainDrop(failure)
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
  if (explained) return asQueryFailedError(explained, failure)
  return EXPLAINED.has(code) ? await explainText(failure, failing) : failure
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

/** Explains `dropColumn` and `changeColumn` of a column on which our triggers depend. The detail is translated. */
function explainDrop(failure: Error): Error {
  const { code, detail = '' } = serverError(failure) ?? {}
  const [trigger] = /\b(?:unique_text|unique_name|numbers)_\w+\b(?!\()/u.exec(detail) ?? []
  if (code !== SQLSTATE.dependentObjects || trigger === undefined) return failure
  const byHand = trigger.startsWith('unique_text_')
    ? ' In a migration by hand, first call unique_text_detach_v1(); unique_text_report_v1() lists its arguments.'
    : ''
  return asQueryFailedError(
    new DeclarationError(
      `The trigger "${trigger}" of typeorm-unique-text depends on the column. Change the entity, and let ` +
        `migration:generate write the migration.${byHand}`,
    ),
    failure,
  )
}

/** Explains a refused text, with the row that holds it. */
async function explainText(failure: Error, { dataSource, queryRunner, rows, pending }: Failing): Promise<unknown> {
  const refused = refusedText(failure, declarationsIn(dataSource))
  if (!refused) return failure
  const holder = await askNow(refused, queryRunner, rows)
  const explained = textError(refused, holder ?? UNKNOWN_HOLDER)
  if (!explained) return failure
  const thrown = asQueryFailedError(explained, failure)
  if (!holder && thrown instanceof TextTakenError) pending.push({ refused, thrown })
  return thrown
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
