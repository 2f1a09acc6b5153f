import type { NamesTable, RefusedName } from './name-table'
import { SQLSTATE, type ServerError } from './sqlstate'

/** The names that the triggers of a holder's table refused; undefined for another error. */
export function refusedNames(
  { code, constraint, detail }: ServerError,
  { index }: Pick<NamesTable, 'index'>,
): readonly RefusedName[] | undefined {
  if (code !== SQLSTATE.uniqueViolation || constraint !== index || detail?.startsWith('[') !== true) return undefined
  try {
    return JSON.parse(detail) as RefusedName[]
  } catch {
    return undefined
  }
}
