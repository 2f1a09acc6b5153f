import type { NamesTable, RefusedName } from './name-table'
import { SQLSTATE, type ServerError } from './sqlstate'

/** Strings, and whole numbers that JavaScript would round. */
const STRING_OR_LONG = /"(?:[^"\\]|\\.)*"|-?\b\d{16,}\b/g

/**
 * The names that the triggers of a holder's table refused; undefined for another error. Numbers of a key that JavaScript
 * has not are strings.
 */
export function refusedNames(
  { code, constraint, detail }: ServerError,
  { index }: Pick<NamesTable, 'index'>,
): readonly RefusedName[] | undefined {
  if (code !== SQLSTATE.uniqueViolation || constraint !== index || detail?.startsWith('[') !== true) return undefined
  const exact = detail.replaceAll(STRING_OR_LONG, (found) => (found.startsWith('"') ? found : `"${found}"`))
  try {
    return JSON.parse(exact) as RefusedName[]
  } catch {
    return undefined
  }
}
