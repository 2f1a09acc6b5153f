import { QueryFailedError } from 'typeorm'
import { UniqueTextError } from '../errors'

/** Where an operation was called. */
export interface Caller {
  readonly stack?: string
}

/**
 * Must be called before the operation awaits anything. For operations that go through many functions: Node.js keeps ten
 * frames of a stack, and ours would leave none for the caller.
 *
 * @param operation the function that was called
 */
export function callerOf(operation: Function): Caller {
  const caller: Caller = {}
  Error.captureStackTrace(caller, operation)
  return caller
}

/**
 * Puts the caller's lines below our own in the stack of every error that the operation throws or gives as a result. An
 * error of the user's own functions stays as it is.
 */
export async function calledFrom<Result>(caller: Caller, work: Promise<Result>): Promise<Result> {
  try {
    const result = await work
    if (Array.isArray(result)) for (const one of result) addCaller((one as { error?: unknown }).error, caller)
    return result
  } catch (error) {
    addCaller(error, caller)
    throw error
  }
}

function addCaller(error: unknown, { stack = '' }: Caller): void {
  if (!(error instanceof UniqueTextError || error instanceof QueryFailedError)) return
  const lines = stack.slice(stack.search(/^ {4}at /m))
  // Several rows may have one error.
  if (lines === '' || error.stack === undefined || error.stack.endsWith(lines)) return
  Object.defineProperty(error, 'stack', { value: `${error.stack}\n${lines}`, configurable: true, writable: true })
}
