import { QueryFailedError } from 'typeorm'
import type { Statement } from '../sql/statements'
import { ownTransaction } from '../sql/transaction-commands'
import { announce, log, notifyFailure, notifySuccess, type SentQuery } from './query-events'
import type { Session } from './session'

/** One of several statements that are all done or all undone. */
export interface Step<Row> {
  readonly statement: Statement<Row>
  readonly values: readonly unknown[]
  /** Checks the rows of the step; an error that it throws undoes everything. */
  readonly check?: (rows: readonly Row[]) => void
}

/** The result of a step at the server. */
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
  const [only, another] = steps
  if (!only) return []
  if (another) return await runTogether(session, steps)
  const rows = await session.rowsOrRollBack(only.statement, only.values)
  only.check?.(rows)
  return [rows]
}

async function runTogether<Row>(session: Session, steps: readonly Step<Row>[]): Promise<(readonly Row[])[]> {
  // Subscribers are called before and after: a statement that one of them sends would wait for ours to end.
  const announced = (await session.isUnheard()) ? steps.map((step) => sentOf(session, step)) : []
  for (const one of announced) await announce(one)
  const course: Course<Row> = { announced, answers: [] }
  const logCommand = (sql: string): void => {
    if (announced.length > 0 && !session.inTransaction) log(sentOf(session, { statement: { sql }, values: [] }))
  }
  logCommand(ownTransaction.set)
  try {
    await runSteps(session, steps, course)
  } catch (error) {
    logCommand(ownTransaction.rollBack)
    await notifyEnd(course, error)
    throw error
  }
  logCommand(ownTransaction.release)
  await notifyEnd(course)
  return course.answers.map(({ rows }) => rows)
}

async function notifyEnd<Row>({ announced, answers }: Course<Row>, error?: unknown): Promise<void> {
  for (const [index, { rows, milliseconds }] of answers.entries()) {
    const sent = announced[index]
    if (sent) await notifySuccess(sent, milliseconds, rows)
  }
  const failed = announced[answers.length]
  if (failed && error instanceof QueryFailedError) await notifyFailure(failed, error.driverError as Error)
}

/** What happened to the steps. */
interface Course<Row> {
  /** Of each step, where nobody else tells TypeORM of it. */
  readonly announced: readonly SentQuery[]
  readonly answers: Answer<Row>[]
}

async function runSteps<Row>(
  session: Session,
  steps: readonly Step<Row>[],
  { announced, answers }: Course<Row>,
): Promise<void> {
  let checking = false
  try {
    await session.together(async (send) => {
      for (const { statement, values, check } of steps) {
        const sent = announced[answers.length]
        if (sent) log(sent)
        const started = performance.now()
        const rows = (await send(statement.sql, values)).map((row) => statement.parse(row, values))
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
  by: Session,
  { statement, values }: { readonly statement: { readonly sql: string }; readonly values: readonly unknown[] },
): SentQuery => ({ by, sql: statement.sql, values })
