import type { EntityManager } from 'typeorm'
import { checkOptions, RULE, type Rules } from '../options'
import { removeInBatches } from '../find-or-create/remove-in-batches'
import { requireManager } from '../rows/call-arguments'
import { releaseExpiredStatement } from '../sql/name-statements'
import { namesTable, namesText } from '../typeorm/names'
import { type Asking, ensureReady } from '../schema/readiness'
import { dataSourceOf } from '../registry/registry'

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
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const statement = releaseExpiredStatement(namesTable(dataSource))
  const ensure = async (asking: Asking): Promise<unknown> => await ensureReady(namesText(dataSource), asking)
  return await removeInBatches(manager, ensure, statement, options.batch)
}
