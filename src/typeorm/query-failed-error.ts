import type { UniqueTextError } from '../errors'

/** By which `instanceof` of our classes tells an error of ours that has TypeORM's prototype. */
const AS_OURS = Symbol.for('typeorm-unique-text.error')

/**
 * Makes an error of ours TypeORM's as well: it is thrown by TypeORM's own calls, where code that was written before
 * looks for `QueryFailedError` and its `driverError`.
 *
 * @param failed the error of TypeORM, which stays its `cause`
 * @returns the error, which is an instance of both classes from here on
 */
export function asQueryFailedError<Ours extends UniqueTextError, Failed extends Error>(
  ours: Ours,
  failed: Failed,
): Failed & Ours {
  const prototype: unknown = Object.getPrototypeOf(ours)
  const { stack } = failed
  for (const [name, value] of Object.entries(failed)) if (!(name in ours)) Object.assign(ours, { [name]: value })
  Object.defineProperty(ours, AS_OURS, { value: prototype })
  Object.setPrototypeOf(ours, Object.getPrototypeOf(failed) as object)
  return withStackOf(ours, stack) as Failed & Ours
}

/** Gives an error the stack lines of TypeORM's own error, which lead to the caller. */
export function withStackOf<One extends Error>(error: One, stack: string | undefined): One {
  const lines = stack?.slice(Math.max(0, stack.search(/^ {4}at /m))) ?? ''
  Object.defineProperty(error, 'stack', {
    value: `${error.name}: ${error.message}\n${lines}`,
    configurable: true,
    writable: true,
  })
  return error
}
