import type { EntityManager } from 'typeorm'
import { rowValues } from '../core'
import { checkOptions, RULE, type Rules } from '../options'
import { requireNotInside, tokensOf, withTokens } from './tokens'

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
  return await withTokens(manager, tokens, async ({ session }) => {
    const [removed = 0] = await session.rowsOrRollBack(tokens.forget, key)
    return removed > 0
  })
}

/** Options of `removeExpiredTokens`. */
export interface RemoveExpiredTokensOptions {
  /** How many tokens one statement removes. @default 1000 */
  readonly batch?: number
}

/**
 * Removes tokens that have expired, in batches, each of which is committed by itself outside a transaction. A token
 * that a call of `once` is taking over at this moment stays. Correctness does not depend on it: an expired token counts
 * as none.
 *
 * @returns how many tokens were removed
 * @throws DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @example
 * setInterval(() => removeExpiredTokens(dataSource.manager).catch(report), 3_600_000)
 */
export async function removeExpiredTokens(
  manager: EntityManager,
  options: RemoveExpiredTokensOptions = {},
): Promise<number> {
  checkOptions('removeExpiredTokens()', options, { batch: RULE.positive } satisfies Rules<RemoveExpiredTokensOptions>)
  const tokens = tokensOf(manager)
  return await withTokens(manager, tokens, async (operation) => {
    return await operation.removeAll(tokens.remove, options.batch)
  })
}
