import type { EntityManager } from 'typeorm'
import { openSession } from '../connection/open-session'
import { rowValues } from '../rows/row-values'
import { requireNotInside } from './nesting'
import { ensureTokens, tokensOf } from './tokens'

/**
 * Removes one token, with its answer, before it expires: the next call of `once` with the token runs its work. In the
 * caller's transaction the token is forgotten when that commits.
 *
 * Neither waits for work that is under way with the token for the first time, nor ends it.
 *
 * @returns whether there was such a token
 * @throws TextRejectedError, DeclarationError before any SQL; DeclarationError also inside work that runs for the token
 * @throws SchemaDriftError, UnsupportedDatabaseError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 */
export async function forgetToken(manager: EntityManager, token: string): Promise<boolean> {
  const tokens = tokensOf(manager)
  const { key } = rowValues(tokens.entityText, { token })
  requireNotInside(tokens, token, 'forgetToken')
  const session = await openSession(manager)
  try {
    await ensureTokens(tokens, session)
    const [removed = 0] = await session.rowsOrRollBack(tokens.forget, key)
    return removed > 0
  } finally {
    await session.close()
  }
}
