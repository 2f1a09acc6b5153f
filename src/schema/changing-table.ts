import type { EntityMetadata, QueryRunner, Table } from 'typeorm'
import { type Change, indexCondition, sameCondition } from '../sql/alter'
import type { TextRows } from '../sql/text-table'
import type { Digest } from '../text/digest'

/** A table whose declarations may change. */
export interface ChangingTable {
  readonly queryRunner: QueryRunner
  readonly metadata: EntityMetadata
  /** The schema builder's picture of the table, to be brought up to date with every statement. */
  readonly table: Table
}

/** The rules of the rows until now, as the installed guard noted them. */
export interface RowsBefore extends Omit<TextRows, 'digest'> {
  readonly digestName: string
  /** undefined: the user's own digest, which this program no longer has. */
  readonly digest: Digest | undefined
}

export const hasColumn = ({ table }: ChangingTable, name: string): boolean => table.findColumnByName(name) !== undefined

export const hasIndex = ({ table }: ChangingTable, name: string): boolean =>
  table.indices.some((index) => index.name === name)

/** The index, with the rows in it that it should hold; TypeORM does not compare conditions. */
export const hasWholeIndex = ({ table }: ChangingTable, rows: Pick<TextRows, 'index' | 'deleted'>): boolean =>
  table.indices.some(({ name, where }) => name === rows.index && sameCondition(indexCondition(rows), where))

export const hasCheck = ({ table }: ChangingTable, name: string): boolean =>
  table.checks.some((check) => check.name === name)

/** A column of this name is wanted. */
export const isDeclared = ({ metadata }: ChangingTable, name: string): boolean =>
  metadata.columns.some(({ databaseName }) => databaseName === name)

/** A statement as the query runner takes it. */
interface Statement {
  readonly query: string
  readonly parameters?: readonly unknown[] | undefined
}

/** The protected part of the query runner that runs statements, or records them, as its mode says. */
interface Recorder {
  executeQueries(up: Statement | readonly Statement[], down: Statement | readonly Statement[]): Promise<void>
}

const recorderOf = (queryRunner: QueryRunner): Recorder => queryRunner as unknown as Recorder

const statement = (query: string): Statement => ({ query, parameters: undefined })

/** Runs the statements, or records them, as the query runner's mode says. */
export async function emit(queryRunner: QueryRunner, { up, down }: Change): Promise<void> {
  // TypeORM runs what it recorded for `down` from the last to the first.
  await recorderOf(queryRunner).executeQueries(up.map(statement), down.map(statement).toReversed())
}

const CONCURRENT = /^(?:CREATE(?: UNIQUE)?|(DROP)) INDEX CONCURRENTLY\b/i

/** A statement that has values, or cannot be in a transaction, stands alone. */
const isAlone = ({ query, parameters = [] }: Statement): boolean => parameters.length > 0 || CONCURRENT.test(query)

/** An index goes before its columns do. */
const isFirst = ({ query }: Statement): boolean => CONCURRENT.exec(query)?.[1] !== undefined

/**
 * Makes one statement of all that is run or recorded meanwhile, and one of all its ways back: the server runs statements
 * that come in one string as one transaction, also where a migration has none.
 */
export async function asOneStatement(queryRunner: QueryRunner, work: () => Promise<void>): Promise<void> {
  // The transaction of `synchronize` is whole already, and its errors tell single statements.
  if (queryRunner.isTransactionActive) {
    await work()
    return
  }
  const recorder = recorderOf(queryRunner)
  const [up, down]: Statement[][] = [[], []]
  const list = (given: Statement | readonly Statement[]): readonly Statement[] => ('query' in given ? [given] : given)
  // In place of the prototype's, for this query runner alone.
  recorder.executeQueries = async (ups, downs) => {
    up?.push(...list(ups))
    down?.push(...list(downs))
    await Promise.resolve()
  }
  try {
    await work()
  } finally {
    Reflect.deleteProperty(recorder, 'executeQueries')
  }
  await recorder.executeQueries(together(up ?? []), together((down ?? []).toReversed()).toReversed())
}

/** In the order to run. */
function together(statements: readonly Statement[]): Statement[] {
  const alone = statements.filter(isAlone)
  const joined = statements.filter((one) => !isAlone(one)).map(({ query }) => query.replace(/;\s*$/, ''))
  // A view of the user's may end with a comment.
  const ended = joined.map((one) => (/--[^\n]*$/.test(one) ? `${one}\n` : one))
  return [
    ...alone.filter(isFirst),
    ...(ended.length === 0 ? [] : [statement(ended.join(';\n'))]),
    ...alone.filter((one) => !isFirst(one)),
  ]
}
