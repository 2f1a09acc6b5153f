/**
 * Decisions depend on SQLSTATE and constraint names, because messages are translated (`lc_messages`).
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
export const SQLSTATE = {
  uniqueViolation: '23505',
  notNullViolation: '23502',
  foreignKeyViolation: '23503',
  checkViolation: '23514',
  exclusionViolation: '23P01',
  /** object_not_in_prerequisite_state; also if a trigger is on another table or undoes the work of the guard. */
  wrongState: '55000',
  diskFull: '53100',
  insufficientPrivilege: '42501',
  /** dependent_objects_still_exist */
  dependentObjects: '2BP01',
  noTransaction: '25P01',
  failedTransaction: '25P02',
  /** invalid_savepoint_specification */
  invalidSavepoint: '3B001',
  /** ON CONFLICT names columns without a unique index, among many other causes. */
  invalidColumnReference: '42P10',
  duplicatePreparedStatement: '42P05',
  serializationFailure: '40001',
  featureNotSupported: '0A000',
  deadlockDetected: '40P01',
  divisionByZero: '22012',
  undefinedTable: '42P01',
  duplicateTable: '42P07',
  duplicateFunction: '42723',
  lockNotAvailable: '55P03',
  /** Raised by `statement_timeout`, a cancel request, or a `lock_timeout` that lost its mark: isBusyError(). */
  queryCanceled: '57014',
  /** program_limit_exceeded, such as a value that is too large for an index */
  tooLarge: '54000',
  /** numeric_value_out_of_range */
  outOfRange: '22003',
  /** Raised by the guard. The class is outside those that Postgres reserves. */
  immutableText: 'UT001',
  /** Raised by the guard. */
  chainLimit: 'UT002',
  /** Raised by the triggers of the table of names if a statement writes a held name directly. */
  heldName: 'UT003',
} as const

/** The properties that `pg` sets on an error of the server. */
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
  /** The context of the error: what the server was doing. Its words are translated. */
  readonly where?: string
  /** The function of the server's source that raised it. */
  readonly routine?: string
}

/**
 * Returns the server's own error, also from TypeORM's QueryFailedError, or undefined for anything else. Only errors of
 * the server have a severity. A network error also has a code, which may be as long as an SQLSTATE (`EPIPE`).
 */
export function serverError(error: unknown): ServerError | undefined {
  if (!(error instanceof Error)) return undefined
  if ('driverError' in error && error.driverError !== error) return serverError(error.driverError)
  return 'severity' in error && 'code' in error && typeof error.code === 'string' ? (error as ServerError) : undefined
}

/**
 * Whether the transaction lost against another one, so that the same work may succeed if it is repeated from its start.
 * If the guard refuses to change a text to another with the same hash, a retry fails. Only that guard error has a hint.
 */
export function isSerializationError(error: unknown): boolean {
  const { code, constraint, hint } = serverError(error) ?? {}
  if (constraint !== undefined && hint !== undefined) return false
  return code === SQLSTATE.serializationFailure || code === SQLSTATE.deadlockDetected
}

/**
 * Whether another session holds what the statement needs, so that it may succeed later. If a `lock_timeout` expires
 * just as its lock is granted, the server may report a cancelled statement (57014): the next wait clears the mark of
 * the timeout. With twenty sessions that wait 10 ms for six rows, this occurs once in 4,000.
 *
 * @see https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/storage/lmgr/proc.c ProcSleep()
 */
export function isBusyError(error: unknown): boolean {
  const code = serverError(error)?.code
  return code === SQLSTATE.lockNotAvailable || code === SQLSTATE.queryCanceled || isSerializationError(error)
}

/** Whether a row refers to a row that does not exist, or no longer exists. */
export const isForeignKeyError = (error: unknown): boolean => serverError(error)?.code === SQLSTATE.foreignKeyViolation

/**
 * Whether a row may have caused the error, because a trigger or a function of the user can raise any SQLSTATE. Excluded
 * are errors of the connection (08), the transaction (25, 40), a lost prepared statement (26), resources (53), operator
 * intervention (57), and the system and its files (58, XX001, XX002).
 */
export function isRowError(error: unknown): boolean {
  const code = serverError(error)?.code
  return code !== undefined && (isUnreadable(error) || !/^(?:08|25|26|40|53|57|58|XX00[12])/.test(code))
}

/** Whether a parameter's bytes are invalid for its type. This violation (08P01) does not affect the connection. */
function isUnreadable(error: unknown): boolean {
  const refused = serverError(error)
  return refused?.code === '08P01' && refused.routine?.startsWith('pq_') === true
}

/**
 * Whether the connection accepts no further statement, or is in an unknown state. Either the server reported its end
 * (connection exceptions, operator intervention, idle timeouts), or the error is not from the server. Then it is from
 * the network or from a time limit of `pg`.
 */
export function endsConnection(error: unknown): boolean {
  return !isUnreadable(error) && /^(?:08|25P03|25P04|57P)/.test(serverError(error)?.code ?? '08')
}

/**
 * Whether the prepared statement may be the cause. The server may have forgotten it or may know it already, its result
 * may have another shape, or its parameters may have types that the table no longer has. If not, a freshly prepared
 * statement fails in the same way.
 */
export function mayBeStale(error: unknown): boolean {
  return /^(?:0A|22|26|42|XX)/.test(serverError(error)?.code ?? '')
}

/** 26000 and 42P05: forgotten, or already known. The other codes: types that changed or were removed. */
const STALE = new Set(['26000', '42P05', '42704', '42804', '42846', '42883'])

/** Excludes from `mayBeStale` the codes that far more often concern a value or the server itself. */
export function isStale(error: unknown): boolean {
  const { code = '', routine } = serverError(error) ?? {}
  // The result has another shape. Citus reports 0A000 for every statement that it does not support.
  return STALE.has(code) || (code === SQLSTATE.featureNotSupported && routine === 'RevalidateCachedQuery')
}

/** Includes errors of a disk's limits and "cache lookup failed" for a recreated type, among many others. */
export function isInternal(error: unknown): boolean {
  return serverError(error)?.code.startsWith('XX') === true
}
