import type { DataSource, QueryRunner } from 'typeorm'
import { UniqueTextError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { decided, undecided } from '../sql/text-condition'
import { ensureReady, isOneOfMany, knownReady } from './readiness'
import { declarationsIn } from './refused-text'
import { dataSourceOf, type Declaration } from './registry'

/** What a statement is sent by, and what asks for it. */
export interface Sending {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly query: (sql: string, parameters?: unknown[]) => Promise<unknown>
}

/**
 * By which a condition on a hash says whose table must be seen. Where tenants have tables of their own nothing is seen
 * once and for all, and the condition stays right for rows without a hash.
 */
export const placeOf = (declaration: Declaration): number | undefined =>
  isOneOfMany(declaration) ? undefined : declarationsIn(dataSourceOf(declaration.metadata)).indexOf(declaration)

/**
 * The statement with its conditions decided: by the hash where index, check and guard stand, and by the text alone where
 * they do not, for then a row may have no hash, or a wrong one. Conditions are made before anything can be asked, so the
 * first statement asks on its own connection; statements that come meanwhile are sent as they are, which is right too.
 */
export async function decide(sql: string, sending: Sending): Promise<string> {
  const declarations = declarationsIn(sending.dataSource)
  const answers = new Map<number, boolean | undefined>()
  for (const place of undecided(sql)) {
    const declaration = declarations[place]
    if (declaration) answers.set(place, await isSeen(declaration, sending))
  }
  return decided(sql, answers)
}

/** What is known of a table that was not ready when somebody asked. */
interface Unready {
  answer: false | undefined
  isAsking: boolean
  /** How many statements go by the last answer before one asks again. */
  wait: number
  nextWait: number
}

/** A table that never gets ready (a trigger was switched off for good) is asked for by few statements. */
const LONGEST_WAIT = 64

const unready = new WeakMap<Declaration, Unready>()

async function isSeen(declaration: Declaration, sending: Sending): Promise<boolean | undefined> {
  if (knownReady(declaration)) return true
  const state = unready.get(declaration) ?? { answer: undefined, isAsking: false, wait: 0, nextWait: 1 }
  unready.set(declaration, state)
  if (state.isAsking) return state.answer
  if (state.wait > 0) {
    state.wait -= 1
    return state.answer
  }
  state.isAsking = true
  try {
    const query = async (...of: Parameters<Sending['query']>): Promise<readonly unknown[]> =>
      (await sending.query(...of)) as readonly unknown[]
    await ensureReady(declaration, { query, shared: true, letGo: async () => {} })
    return true
  } catch (error) {
    if (!(error instanceof UniqueTextError)) {
      // What has aborted the caller's transaction is told here: the statement itself could only say that it is aborted.
      if (sending.queryRunner.isTransactionActive && serverError(error)?.code !== SQLSTATE.failedTransaction)
        throw error
      return state.answer
    }
    state.answer = false
    state.wait = state.nextWait
    state.nextWait = Math.min(state.nextWait * 2, LONGEST_WAIT)
    return false
  } finally {
    state.isAsking = false
  }
}
