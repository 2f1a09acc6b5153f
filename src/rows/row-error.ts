import { isNativeError } from 'node:util/types'
import type { QueryFailedError } from 'typeorm'
import type { UniqueTextError } from '../errors'

/** Why an input has no row: ours; the database's; or what a normalizer, a transformer, a listener or `create` threw. */
export type RowError = UniqueTextError | QueryFailedError | Error

/** A user's function can throw anything. In tests, an error may come from another realm. */
export function toRowError(thrown: unknown): RowError {
  if (thrown instanceof Error || isNativeError(thrown)) return thrown
  return new Error(
    `A function threw ${typeof thrown === 'object' ? 'an object' : `a ${typeof thrown}`} that is not an Error.`,
    {
      cause: thrown,
    },
  )
}
