import type { EntityManager } from 'typeorm'
import { DeclarationError } from '../errors'
import { openSession } from '../connection/open-session'
import { requireManager } from '../rows/call-arguments'
import { releaseExpiredStatement } from '../sql/name-statements'
import { ensureReady } from '../typeorm/readiness'
import { namesTable, namesText } from '../typeorm/name-tables'
import { dataSourceOf } from '../typeorm/registry'
import { checkNameOptions } from './name-call-options'

/** Options of `releaseExpired`. */
export interface ReleaseExpiredOptions {
  /** How many names one statement removes; outside a transaction each commits by itself. @default 1000 */
  readonly batch?: number
}

const BATCH = 1_000

/**
 * Removes former names whose time is over. They are free for everybody also if this never runs: it keeps the table small.
 * Names that somebody is just taking are left to them; several calls at once share the work.
 *
 * @returns how many were removed
 * @throws SchemaDriftError, UnsupportedDatabaseError, DeclarationError
 * @example
 * setInterval(() => void releaseExpired(dataSource.manager), 3_600_000)
 */
export async function releaseExpired(manager: EntityManager, options: ReleaseExpiredOptions = {}): Promise<number> {
  checkNameOptions('releaseExpired', options, { batch: 'number' })
  requireManager(manager)
  const { batch = BATCH } = options
  if (!Number.isSafeInteger(batch) || batch < 1) {
    throw new DeclarationError('releaseExpired(): batch must be a whole number from 1.')
  }
  const dataSource = dataSourceOf(manager)
  const statement = releaseExpiredStatement(namesTable(dataSource))
  const session = await openSession(manager)
  try {
    await ensureReady(namesText(dataSource), session)
    for (let removed = 0; ;) {
      const [count = 0] = await session.rowsOrRollBack(statement, [batch])
      removed += count
      if (count < batch) return removed
    }
  } finally {
    await session.close()
  }
}
