import type { EntityManager } from 'typeorm'
import { namesOf, operate } from '../core'
import { checkOptions, RULE, type Rules } from '../options'

/** Options of `releaseExpired`. */
export interface ReleaseExpiredOptions {
  /** How many names one statement removes. Outside a transaction each statement commits by itself. @default 1000 */
  readonly batch?: number
}

/**
 * Removes former names whose time is over. They are free for everybody even if this never runs; it keeps the table
 * small. A name that somebody is just taking is left alone. Several calls at once share the work.
 *
 * @returns how many names were removed
 * @throws SchemaDriftError, UnsupportedDatabaseError, DeclarationError
 * @example
 * setInterval(() => void releaseExpired(dataSource.manager), 3_600_000)
 */
export async function releaseExpired(manager: EntityManager, options: ReleaseExpiredOptions = {}): Promise<number> {
  checkOptions('releaseExpired()', options, { batch: RULE.positive } satisfies Rules<ReleaseExpiredOptions>)
  const names = namesOf(manager)
  return await operate(manager, { text: names.text() }, async (operation) => {
    return await operation.removeAll(names.releaseExpired(), options.batch)
  })
}
