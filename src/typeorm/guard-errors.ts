import { ChainLimitError, ImmutableTextError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { declarationsOn, writtenTable } from './refused-text'
import type { Declaration } from './registry'

/**
 * Translates an error of the guard into one of ours.
 *
 * @param declarations those whose guards may have said it
 * @returns undefined for any other error
 */
export function guardError(
  error: unknown,
  declarations: readonly Declaration[],
): ChainLimitError | ImmutableTextError | undefined {
  const refused = serverError(error)
  const written = refused && error instanceof Error && refused.table === undefined ? writtenTable(error) : undefined
  // An error from another node of a cluster names neither constraint nor table.
  const named = declarations.filter(({ table }) =>
    written === undefined ? table.index === refused?.constraint : table.table === written,
  )
  // Of a partition, the table has another name.
  const declaration = (refused && declarationsOn(refused, named)[0]) ?? named[0]
  if (!declaration) return undefined
  const code = refused?.code
  if (code === SQLSTATE.chainLimit) return new ChainLimitError(declaration.name, error)
  return code === SQLSTATE.immutableText ? new ImmutableTextError(declaration.name, error) : undefined
}
