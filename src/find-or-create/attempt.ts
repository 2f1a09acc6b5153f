import { ChainLimitError, DuplicateTextError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { createInChainStatement, findOrCreateStatement, findStatement, type Statement } from '../sql/statements'
import { type PreparedRow, shapeOf } from './row'
import type { Row, Session } from './session'
import { remember, type Target } from './target'

/** How an attempt ended. `row` is in the order of `shapeOf(target).select`. */
export interface Outcome {
  readonly row: Row
  readonly created: boolean
}

/** One attempt; undefined where others were faster in every step. */
export async function tryOnce(session: Session, target: Target, row: PreparedRow): Promise<Outcome | undefined> {
  const { findOrCreate, inChain, inChainOrRaise } = statementsOf(target, row.others)
  const first = await session.rows(findOrCreate, row.values)
  const [taken] = oneOf(
    target,
    first.map((result) => result.slice(1)),
  )
  if (taken) return { row: taken, created: first[0]?.[0] === true }
  // The index refused, and the row that holds the text was not visible: another inserter was faster, a text with equal
  // hash holds number 0, or it was another unique index.
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

/** @throws DuplicateTextError */
export async function find(session: Session, target: Target, row: PreparedRow): Promise<Row[]> {
  const { find: statement, valueCount } = statementsOf(target, row.others)
  return oneOf(target, await session.rows(statement, row.values.slice(0, valueCount)))
}

/** @throws DuplicateTextError if there are several */
export function oneOf(target: Target, rows: Row[]): Row[] {
  if (rows.length <= 1) return rows
  const { metadata, select, declaration } = target
  const ids = rows.map((row) =>
    Object.fromEntries(
      metadata.primaryColumns.map((column) => [column.propertyPath, row[select.indexOf(column)] ?? null]),
    ),
  )
  throw new DuplicateTextError(declaration.name, ids)
}

/** The guard's own errors, as errors of ours. */
export function explain(error: unknown, { declaration }: Target): unknown {
  const refused = serverError(error)
  if (refused?.code === SQLSTATE.chainLimit && refused.constraint === declaration.table.index) {
    return new ChainLimitError(declaration.name, error)
  }
  return error
}

/** What one set of columns needs. */
export interface Statements {
  readonly find: Statement
  /** Parameters that `find` takes: scope, text and hash. */
  readonly valueCount: number
  readonly findOrCreate: Statement
  readonly inChain: Statement
  readonly inChainOrRaise: Statement
}

function statementsOf(target: Target, others: readonly string[]): Statements {
  return remember(target.statements, others, (): Statements => {
    const shape = shapeOf(target, others)
    return {
      find: findStatement(shape),
      valueCount: shape.table.scope.length + shape.table.text.length + 1,
      findOrCreate: findOrCreateStatement(shape),
      inChain: createInChainStatement(shape, 'nothing'),
      inChainOrRaise: createInChainStatement(shape, 'raise'),
    }
  })
}
