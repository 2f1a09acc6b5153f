import type { DataSource } from 'typeorm'
import { takenTextError } from '../core'
import { DeclarationError, type TextTakenError } from '../errors'
import { kindOf, RULE } from '../options'

/**
 * Explains an error of a plain `save`, `insert`, `update` or `upsert`, or of your own SQL: which text is taken, and by
 * which row. TypeORM's own calls throw a TextTakenError by themselves. This function is for other errors, for instance
 * from another DataSource, from a partition, or inside the error of a library.
 *
 * It queries the database on its own connection, so call it after your transaction has ended. Postgres reports only the
 * hash of the text. The holder is known only if the whole text is among the parameters of the statement. It is not
 * known for a text in the SQL itself, nor for a text of several columns.
 *
 * @param error the caught error; errors in it (`cause`, `driverError`, `errors` of an AggregateError) are checked too
 * @returns undefined for any other error; also if another text with the same hash was faster, and the same call may
 * succeed now
 * @example
 * catch (error) {
 *   const taken = await toTextTakenError(error, dataSource)
 *   throw taken ? new ConflictException(taken.taken) : error
 * }
 */
export async function toTextTakenError(error: unknown, dataSource: DataSource): Promise<TextTakenError | undefined> {
  if (!RULE.dataSource.takes(dataSource)) {
    throw new DeclarationError(`Expected a DataSource, got ${kindOf(dataSource)}. Pass that of the failed call.`)
  }
  return await takenTextError(errorsWithin(error), dataSource)
}

/** Returns the error and all errors within it, from the outside in. */
function errorsWithin(error: unknown, seen = new Set<unknown>()): Error[] {
  if (typeof error !== 'object' || error === null || seen.has(error)) return []
  seen.add(error)
  const { cause, driverError, errors, error: inner } = error as Readonly<Record<string, unknown>>
  const within = [cause, driverError, inner, ...(Array.isArray(errors) ? (errors as unknown[]) : [])]
  return [...(error instanceof Error ? [error] : []), ...within.flatMap((one) => errorsWithin(one, seen))]
}
