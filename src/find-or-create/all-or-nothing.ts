import { QueryFailedError } from 'typeorm'
import { ownTransaction, type Statement } from '../sql/statements'
import { type SentQuery, tellFailure, tellStart, tellSuccess } from './query-events'
import type { Session } from './session'

/** A statement of several that stand or fall together. */
export interface Step<Row> {
  readonly statement: Statement<Row>
  readonly values: readonly unknown[]
  /** Looks at its rows; an error of it undoes everything. */
  readonly check?: (rows: readonly Row[]) => void
}

/** What became of a step at the server. */
interface Answer<Row> {
  readonly rows: readonly Row[]
  readonly milliseconds: number
}

/**
 * Runs all steps, or undoes them; the caller's transaction stays usable. One step outside a transaction is one round trip.
 *
 * @returns the rows of each step
 * @throws TransactionAbortedError, QueryFailedError, and what a check throws
 */
export async function allOrNothing<Row>(session: Session, steps: readonly Step<Row>[]): Promise<(readonly Row[])[]> {
  const [only] = steps
  if (only && steps.length === 1) {
    const rows = await session.rowsOrRollBack(only.statement, only.values)
    only.check?.(rows)
    return [rows]
  }
  // Subscribers are told before and after, for a statement that one of them sends would wait for ours to end.
  const told = (await session.isUnheard()) ? steps.map((step) => sentOf(session, step)) : []
  for (const one of told) await tellStart(one)
  const answers: Answer<Row>[] = []
  try {
    await runSteps(session, steps, answers)
  } catch (error) {
    const failed = told[answers.length]
    if (failed && error instanceof QueryFailedError) await tellFailure(failed, error.driverError as Error)
    throw error
  } finally {
    for (const [index, { rows, milliseconds }] of answers.entries()) {
      const sent = told[index]
      if (sent) await tellSuccess(sent, milliseconds, rows)
    }
  }
  return answers.map(({ rows }) => rows)
}

async function runSteps<Row>(session: Session, steps: readonly Step<Row>[], answers: Answer<Row>[]): Promise<void> {
  let checking = false
  try {
    await session.together(async (send) => {
      for (const { statement, values, check } of steps) {
        const started = performance.now()
        const rows = (await send(statement.sql, values)).map(statement.parse)
        answers.push({ rows, milliseconds: performance.now() - started })
        checking = true
        check?.(rows)
        checking = false
      }
    })
  } catch (error) {
    if (checking || !(error instanceof Error)) throw error
    const step = steps[answers.length]
    throw await session.failure(step?.statement.sql ?? ownTransaction.release, error)
  }
}

const sentOf = (
  { dataSource, queryRunner }: Session,
  { statement, values }: Pick<Step<unknown>, 'statement' | 'values'>,
): SentQuery => ({ dataSource, queryRunner, sql: statement.sql, values })
