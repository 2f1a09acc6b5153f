/**
 * Decisions are made by SQLSTATE and constraint name: messages are translated (`lc_messages`).
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
export const SQLSTATE = {
  uniqueViolation: '23505',
  notNullViolation: '23502',
  foreignKeyViolation: '23503',
  checkViolation: '23514',
  exclusionViolation: '23P01',
  /** object_not_in_prerequisite_state; also where a trigger stands on another table, or undoes what the guard does. */
  wrongState: '55000',
  diskFull: '53100',
  insufficientPrivilege: '42501',
  noTransaction: '25P01',
  failedTransaction: '25P02',
  /** invalid_savepoint_specification */
  invalidSavepoint: '3B001',
  /** ON CONFLICT names columns without a unique index, among much else. */
  invalidColumnReference: '42P10',
  duplicatePreparedStatement: '42P05',
  serializationFailure: '40001',
  featureNotSupported: '0A000',
  deadlockDetected: '40P01',
  divisionByZero: '22012',
  undefinedTable: '42P01',
  lockNotAvailable: '55P03',
  /** Raised by `statement_timeout`, by a cancel request, or by a `lock_timeout` whose mark another wait has cleared: isBusyError(). */
  queryCanceled: '57014',
  /** numeric_value_out_of_range */
  outOfRange: '22003',
  /** Raised by the guard; the class is outside those that Postgres reserves. */
  immutableText: 'UT001',
  /** Raised by the guard. */
  chainLimit: 'UT002',
  /** Raised by the triggers of the table of names: a held name is written directly. */
  heldName: 'UT003',
} as const

/** Options of a RAISE in a trigger: they name the table in the error. */
export const OF_TABLE = 'SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME'

/** What `pg` puts on an error of the server. */
export interface ServerError extends Error {
  readonly code: string
  readonly constraint?: string
  readonly schema?: string
  readonly table?: string
  /** The column that must not be NULL. */
  readonly column?: string
  readonly detail?: string
  readonly hint?: string
  /** The statement of a function that failed. */
  readonly internalQuery?: string
  /** Where it was raised: what the server was doing. Its words are translated. */
  readonly where?: string
  /** The function of the server's source that raised it. */
  readonly routine?: string
}

/**
 * The server's own error, also from inside TypeORM's QueryFailedError; undefined for anything else. Only those of the
 * server have a severity: an error of the network has a code as well, which may be as long as an SQLSTATE (`EPIPE`).
 */
export function serverError(error: unknown): ServerError | undefined {
  if (!(error instanceof Error)) return undefined
  if ('driverError' in error && error.driverError !== error) return serverError(error.driverError)
  return 'severity' in error && 'code' in error && typeof error.code === 'string' ? (error as ServerError) : undefined
}

/**
 * The transaction lost against another one; the same work may succeed when it is done again from its start. Except if
 * the guard refuses to change a text into another one of equal hash: only that one of its errors has a hint.
 */
export function isSerializationError(error: unknown): boolean {
  const { code, constraint, hint } = serverError(error) ?? {}
  if (constraint !== undefined && hint !== undefined) return false
  return code === SQLSTATE.serializationFailure || code === SQLSTATE.deadlockDetected
}

/**
 * Somebody else has what the statement needs; it may succeed later. A `lock_timeout` that comes due just as its lock is
 * granted is at times reported as a cancelled statement (57014): the next wait clears the mark that it was a timeout.
 * Twenty sessions that wait 10 ms for six rows see that once in 4,000.
 *
 * @see https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/storage/lmgr/proc.c ProcSleep()
 */
export function isBusyError(error: unknown): boolean {
  const code = serverError(error)?.code
  return code === SQLSTATE.lockNotAvailable || code === SQLSTATE.queryCanceled || isSerializationError(error)
}

/** A row refers to one that is not there, or not any more. */
export const isForeignKeyError = (error: unknown): boolean => serverError(error)?.code === SQLSTATE.foreignKeyViolation

/**
 * What the server says may be a row's doing: a trigger or a function of the user's raises any SQLSTATE. It is not where
 * it tells of the connection (08), the transaction (25, 40), a prepared statement that is gone (26), resources (53),
 * operator intervention (57), or the system and its files (58, XX001, XX002).
 */
export function isRowError(error: unknown): boolean {
  const code = serverError(error)?.code
  return code !== undefined && (isUnreadable(error) || !/^(?:08|25|26|40|53|57|58|XX00[12])/.test(code))
}

/** A parameter's bytes are no value of its type: a protocol violation (08P01) that leaves the connection as it is. */
function isUnreadable(error: unknown): boolean {
  const refused = serverError(error)
  return refused?.code === '08P01' && refused.routine?.startsWith('pq_') === true
}

/**
 * The connection takes no further statement, or its state is unknown: the server reported its end (connection
 * exceptions, operator intervention, idle timeouts), or what failed was not the server's doing but the network's or a
 * time limit of `pg`.
 */
export function endsConnection(error: unknown): boolean {
  return !isUnreadable(error) && /^(?:08|25P03|25P04|57P)/.test(serverError(error)?.code ?? '08')
}

/**
 * What was prepared may be why the statement failed: the server has forgotten it or knows it already, its result has
 * another shape now, its parameters have types that the table has no longer. A statement that is prepared afresh fails
 * in the same way where this is not so.
 */
export function mayBeStale(error: unknown): boolean {
  return /^(?:0A|22|26|42|XX)/.test(serverError(error)?.code ?? '')
}

/** 26000 and 42P05: forgotten, or known already; the others: types that changed or are gone. */
const STALE = new Set(['26000', '42P05', '42704', '42804', '42846', '42883'])

/** Excludes from `mayBeStale` the codes that far more often concern a value or the server itself. */
export function isStale(error: unknown): boolean {
  const { code = '', routine } = serverError(error) ?? {}
  // Another result. Citus says 0A000 of every statement that it does not take.
  return STALE.has(code) || (code === SQLSTATE.featureNotSupported && routine === 'RevalidateCachedQuery')
}

/** Among much else, a disk's limits too, "cache lookup failed" for a type that was made anew. */
export function isInternal(error: unknown): boolean {
  return serverError(error)?.code.startsWith('XX') === true
}
