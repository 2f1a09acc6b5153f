import { UniqueTextError } from '../errors'
import { serverError } from '../sql/sqlstate'

/**
 * Why a line was refused, as one clause. Of the database's own errors only the code and the constraint: their messages
 * may quote the text ('invalid input syntax for …: "…"').
 */
export function refusalReason(error: unknown): string {
  const refused = serverError(error)
  if (refused) {
    const by = refused.constraint === undefined ? '' : `, "${refused.constraint}"`
    return `the database refuses it (SQLSTATE ${refused.code}${by})`
  }
  if (!(error instanceof Error)) return 'it is refused'
  if (!isOurs(error)) return `it made the declaration's "parse" throw a ${error.name}`
  const { reason, offset } = error as Partial<Record<'reason' | 'offset', unknown>>
  if (typeof reason !== 'string') return error.message
  return typeof offset === 'number' ? `${reason} (code point ${offset})` : reason
}

/** By its code, since a declaration may come from another copy of this package. */
function isOurs(error: Error): error is UniqueTextError {
  return error instanceof UniqueTextError || ('code' in error && error.code === 'TEXT_REJECTED')
}

/**
 * An error that ends the command, in its own words. Without the `detail` of the server's errors, which may quote the
 * text.
 */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // A connection that was tried over IPv4 and IPv6: the outer error has no words.
  if (error instanceof AggregateError && error.message === '') {
    return [...new Set(error.errors.map(describeError))].join('; ')
  }
  const code = serverError(error)?.code
  const message = error.message === '' ? error.name : error.message
  return code === undefined ? message : `${message} (SQLSTATE ${code})`
}
