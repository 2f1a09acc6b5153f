import { expect } from 'vitest'
import { type FindOrCreateManyResult, type FindOrCreateResult, TextTakenError } from '../../src'
import { rejection } from './ledger'

/** The result of one row of a list; throws the error of a row that is refused. */
export function rowOf<Entity>(result: FindOrCreateManyResult<Entity> | undefined): FindOrCreateResult<Entity> {
  if (!result || 'error' in result) throw result?.error
  return result
}

/** The result of a list of one row. */
export const onlyRowOf = async <Entity>(
  results: Promise<readonly FindOrCreateManyResult<Entity>[]>,
): Promise<FindOrCreateResult<Entity>> => rowOf((await results)[0])

export const errorOf = (result: FindOrCreateManyResult<unknown> | undefined): unknown =>
  result && 'error' in result ? result.error : undefined

/** What a call is refused with that would store a taken text. */
export async function takenBy(call: Promise<unknown>): Promise<TextTakenError> {
  const error = await rejection(call)
  expect(error).toBeInstanceOf(TextTakenError)
  return error as TextTakenError
}
