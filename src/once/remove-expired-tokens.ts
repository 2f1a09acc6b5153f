import type { EntityManager } from 'typeorm'
import { removeInBatches } from '../find-or-create/remove-in-batches'
import { checkOptions, RULE, type Rules } from '../options'
import { tokensOf } from './tokens'

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
  const { entityText, remove } = tokensOf(manager)
  return await removeInBatches(manager, entityText.declaration, remove, options.batch)
}
