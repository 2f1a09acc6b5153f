import { serverError } from '../core'
import { UniqueTextError } from '../errors'
import { printable } from './terminal'

/**
 * Why a line was refused, as one clause. From the database's own errors it takes only the code and the constraint or
 * column: their messages may quote the text ('invalid input syntax for …: "…"').
 */
export function refusalReason(error: unknown): string {
  const refused = serverError(error)
  if (refused) {
    return `the database refuses it (${codeAndName(refused)})`
  }
  if (!(error instanceof Error)) return 'it is refused'
  if (!isOurs(error)) return `the declaration's "parse" threw a ${error.name} for it`
  const { reason, offset } = error as Partial<Record<'reason' | 'offset', unknown>>
  if (typeof reason !== 'string') return error.message
  return typeof offset === 'number' ? `${reason} (code point ${offset})` : reason
}

/** Recognized by its code, since a declaration may come from another copy of this package. */
function isOurs(error: Error): error is UniqueTextError {
  return error instanceof UniqueTextError || ('code' in error && error.code === 'TEXT_REJECTED')
}

/**
 * Classes of SQLSTATE whose messages tell of connections, names, privileges and limits, never of a row's values. A user's
 * trigger may put the text in its message, and a data exception quotes it.
 */
const TELLS_NO_VALUES = /^(?:0[8A]|25|28|3D|3F|40|42|5[3-8])/

/** An error that ends the command, in its own words where those cannot hold a text; printable, perhaps several lines. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return printableLines(String(error))
  // A connection that was tried over IPv4 and IPv6: the outer error has no words.
  if (error instanceof AggregateError && error.message === '') {
    return [...new Set(error.errors.map(describeError))].join('; ')
  }
  const refused = serverError(error)
  if (!refused) return printableLines(error.message === '' ? error.name : error.message)
  const message = TELLS_NO_VALUES.test(refused.code) ? printable(error.message) : 'the database refuses a statement'
  return `${message} (${codeAndName(refused)})`
}

function codeAndName({ code, constraint, column }: NonNullable<ReturnType<typeof serverError>>): string {
  const name = constraint ?? column
  return name === undefined ? `SQLSTATE ${code}` : `SQLSTATE ${code}, "${printable(name)}"`
}

const printableLines = (text: string): string => text.split('\n').map(printable).join('\n')
