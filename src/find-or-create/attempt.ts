import { ChainLimitError, DuplicateTextError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { createInChainStatement, findOrCreateStatement, findStandingStatement, findStatement } from '../sql/statements'
import { type PreparedRow, shapeOf } from './row-values'
import type { Row, Session } from './session'
import { remember, type Statements, type EntityText } from './entity-text'

/** How an attempt ended. `row` is in the order of `shapeOf(target).select`. */
export interface Outcome {
  readonly row: Row
  readonly created: boolean
}

/** One attempt; undefined where others were faster in every step. */
export async function tryOnce(session: Session, target: EntityText, row: PreparedRow): Promise<Outcome | undefined> {
  const { findOrCreate, inChain, inChainOrRaise } = statementsOf(target, row.others)
  const first = await session.rows(findOrCreate, row.values)
  const [taken] = first
  if (taken && first.length === 1) return { row: taken.slice(1), created: taken[0] === true }
  // The index refused, and the row that holds the text was not visible: another inserter was faster, a text with equal
  // hash holds number 0, or it was another unique index. Or several rows hold the text, which finding explains.
  const found = await find(session, target, row)
  if (found[0]) return { row: found[0], created: false }
  const [created] = await session.safely(inChain, row.values)
  if (created) return { row: created, created: true }
  const again = await find(session, target, row)
  if (again[0]) return { row: again[0], created: false }
  try {
    const [late] = await session.safely(inChainOrRaise, row.values)
    return late ? { row: late, created: true } : undefined
  } catch (error) {
    const refused = serverError(error)
    const ours = refused?.code === SQLSTATE.uniqueViolation && refused.constraint === target.declaration.table.index
    if (ours) return undefined
    throw error
  }
}

/**
 * The row that holds the text, or none.
 *
 * @throws DuplicateTextError if there are several
 * @throws TransactionAbortedError if there are several in the transaction's snapshot only
 */
export async function find(session: Session, target: EntityText, row: PreparedRow): Promise<Row[]> {
  const { find: statement, findStanding, valueCount } = statementsOf(target, row.others)
  const values = row.values.slice(0, valueCount)
  const rows = await session.rows(statement, values)
  if (rows.length <= 1) return rows
  // Above READ COMMITTED a transaction that inserts a text sees it beside the row that held it in its snapshot and that
  // others have deleted since, as with any unique index. A lock looks at what stands now, and fails with 40001.
  const standing = session.inTransaction ? await locked(session.safely(findStanding, values), rows) : rows
  if (standing.length <= 1) return standing
  throw duplicate(target, standing)
}

/** A role that may not lock rows is told of what it sees. */
async function locked(attempt: Promise<Row[]>, seen: Row[]): Promise<Row[]> {
  try {
    return await attempt
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return seen
    throw error
  }
}

function duplicate({ metadata, select, declaration }: EntityText, rows: readonly Row[]): DuplicateTextError {
  const ids = rows.map((row) =>
    Object.fromEntries(
      metadata.primaryColumns.map((column) => [column.propertyPath, row[select.indexOf(column)] ?? null]),
    ),
  )
  return new DuplicateTextError(declaration.name, ids)
}

/** The guard's own errors, as errors of ours. */
export function explain(error: unknown, { declaration }: EntityText): unknown {
  const refused = serverError(error)
  if (refused?.code === SQLSTATE.chainLimit && refused.constraint === declaration.table.index) {
    return new ChainLimitError(declaration.name, error)
  }
  return error
}

function statementsOf(target: EntityText, others: readonly string[]): Statements {
  return remember(target.statements, others, (): Statements => {
    const shape = shapeOf(target, others)
    return {
      find: findStatement(shape),
      findStanding: findStandingStatement(shape),
      valueCount: shape.table.scope.length + shape.table.text.length + 1,
      findOrCreate: findOrCreateStatement(shape),
      inChain: createInChainStatement(shape, 'nothing'),
      inChainOrRaise: createInChainStatement(shape, 'raise'),
    }
  })
}
