import { QueryFailedError } from 'typeorm'
import { UniqueTextError } from '../errors'

/** The place where an operation was called. */
export interface Caller {
  readonly stack?: string
}

/**
 * Captures the caller's stack, before the operation awaits anything. Node.js keeps ten frames of a stack, and an
 * operation that runs through many functions would leave none for the caller.
 *
 * @param operation the function that was called
 */
export function callerOf(operation: Function): Caller {
  const caller: Caller = {}
  Error.captureStackTrace(caller, operation)
  return caller
}

/**
 * Adds the caller's lines below our own to the stack of every error that the operation throws or returns in a result.
 * An error of the user's own functions stays unchanged.
 */
export const calledFrom = <Result>(caller: Caller, work: Promise<Result>): Promise<Result> =>
  work.then(
    (result) => {
      for (const one of Array.isArray(result) ? (result as { readonly error?: unknown }[]) : []) {
        if (one.error !== undefined) addCaller(one.error, caller)
      }
      return result
    },
    (error: unknown) => {
      addCaller(error, caller)
      throw error
    },
  )

function addCaller(error: unknown, { stack = '' }: Caller): void {
  if (!(error instanceof UniqueTextError || error instanceof QueryFailedError)) return
  const lines = stack.slice(stack.search(/^ {4}at /m))
  // Several rows may have one error.
  if (lines === '' || error.stack === undefined || error.stack.endsWith(lines)) return
  Object.defineProperty(error, 'stack', { value: `${error.stack}\n${lines}`, configurable: true, writable: true })
}
