import type { Logger } from 'typeorm'

/**
 * A whole logger, which does what it is given and nothing else. TypeORM's pool calls `log` whenever an idle connection
 * ends: a logger without it ends the process.
 */
export const loggerOf = (given: Partial<Logger>): Logger => ({
  logQuery() {},
  logQueryError() {},
  logQuerySlow() {},
  logSchemaBuild() {},
  logMigration() {},
  log() {},
  ...given,
})
