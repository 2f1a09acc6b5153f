import type { Action } from './action'
import { UniqueTextError } from '../../src'
import { serverError } from '../../src/sql/sqlstate'

/** How an action ended, in a word to count by: a SQLSTATE, the code of one of our errors, or a name. */
export function outcomeOf(error: unknown): string {
  if (error instanceof UniqueTextError) return error.code
  const server = serverError(error)
  if (server) return server.constraint?.startsWith('PK_') ? `${server.code} on the primary key` : server.code
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error)
}

/** Losses that anybody who writes at the same time as others must expect. */
const EXPECTED_OF_ALL = new Set(['40001', '40P01', '55P03'])

/** Refusals that only those who write past our operations may meet. */
const EXPECTED_OF_WRITERS = new Set([...EXPECTED_OF_ALL, '23505', 'TEXT_TAKEN'])

/** What our own operations may say, in a transaction and outside; never a unique violation. */
const EXPECTED_OF_OPERATIONS = new Set([...EXPECTED_OF_ALL, 'TRANSACTION_ABORTED', 'ATTEMPTS_EXHAUSTED'])

export function isExpected({ name, expected = [] }: Pick<Action, 'name' | 'expected'>, outcome: string): boolean {
  if (expected.includes(outcome)) return true
  if (!/^(?:find|once|upsertByText|insertOrFail|updateOrFail)/.test(name)) return EXPECTED_OF_WRITERS.has(outcome)
  return EXPECTED_OF_OPERATIONS.has(outcome)
}
