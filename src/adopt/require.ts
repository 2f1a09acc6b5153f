import { addNotNull, type Adopting, requireColumns, validateNotNull } from '../sql/adopt-table'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import type { AdoptStep, PlannedStep } from './steps'
import { goOn, type WorkRun } from './work'

/**
 * Makes columns NOT NULL: by checks that are added as NOT VALID, and validated in one scan that blocks nobody.
 *
 * @param mend called where a row holds NULL; the step is then done again
 */
export async function requireNotNull(
  run: WorkRun,
  on: Adopting,
  columns: readonly string[],
  mend: () => Promise<void>,
): Promise<AdoptStep> {
  const { session } = run
  if (columns.length === 0) return await goOn(run, on, { step: 'clean' })
  await session.locked({ on, step: 'check', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(addNotNull(on, columns))
  })
  run.onProgress({ step: 'check', fraction: undefined, rows: 0 })
  try {
    await session.all(validateNotNull(on, columns))
  } catch (error) {
    if (serverError(error)?.code !== SQLSTATE.checkViolation) throw error
    await mend()
    return 'check'
  }
  await session.locked({ on, step: 'require', mode: 'ACCESS EXCLUSIVE' }, async () => {
    for (const statement of requireColumns(on, columns)) await session.query(statement)
    await goOn(run, on, { step: 'clean' })
  })
  return 'clean'
}

/** What `requireNotNull` will do, to be read. */
export const planRequired = (on: Adopting, columns: readonly string[]): readonly PlannedStep[] =>
  columns.length === 0
    ? []
    : [
        { step: 'check', lock: 'ACCESS EXCLUSIVE', statements: addNotNull(on, columns) },
        { step: 'check', lock: undefined, statements: validateNotNull(on, columns) },
        { step: 'check', lock: 'ACCESS EXCLUSIVE', statements: requireColumns(on, columns) },
      ]
