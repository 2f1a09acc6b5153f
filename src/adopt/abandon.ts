import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { checkOptions, type Rules } from '../options'
import { forgetState } from '../sql/adopt-chains'
import { endFollowing } from '../triggers/adopt-follow'
import { beside } from '../triggers/adopt-swap'
import { createAdoptions, leave } from '../sql/adopt-table'
import { guardOf } from '../triggers/guard'
import { type AdoptOptions, withTarget } from './adopt'
import { LOCK_RULES, type LockOption, MILLISECONDS } from './options'
import type { AdoptionLock, Seams } from './session'
import { guardedAs } from './renormalize'
import { stateOf } from './steps'
import { refuseTaken } from './swap'
import { findDeclaration } from './target'
import { abandonWork } from './work'
import { findWork } from './works'

/** Options of `abandon`; as those of `adopt`. */
export type AbandonOptions = Pick<AdoptOptions, LockOption | 'holdMilliseconds'>

const RULES: Rules<AbandonOptions> = { ...LOCK_RULES, holdMilliseconds: MILLISECONDS }

/**
 * Removes guard, hidden columns, index and check, and whatever an adoption has left, in one short transaction while the
 * application runs. No text is changed. It also undoes an adoption that is only half done: where that is to change a
 * declaration, the guard that stood before it stays.
 *
 * @throws AdoptionError if an adoption is running, and if there is no such table
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function abandon(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AbandonOptions = {},
): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  checkOptions('abandon()', options, RULES)
  return await abandonWith(dataSource, entity, options, {})
}

/** @param seams of tests */
async function abandonWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AbandonOptions,
  seams: Seams,
): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  const find = findWork(dataSource, entity, options.property)
  if (find) return await abandonWork({ dataSource, find, options, seams })
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withTarget({ dataSource, declaration, options, seams }, async (session, target) => {
    const { on } = target
    const state = await stateOf({ session, target })
    if (state === undefined && guardedAs(target) === 'none') refuseTaken(target)
    await session.all(createAdoptions(on))
    // A guard of another declaration stands, and stays.
    const gone =
      state?.swaps === true
        ? leave(beside(on))
        : [...guardOf(on.table).drop, ...endFollowing(on), ...leave(on, declaration.lookup)]
    await session.locked({ on, step: 'abandon', mode: 'ACCESS EXCLUSIVE' }, async () => {
      await session.all(gone)
      await session.query(forgetState(on), [on.table.guard])
    })
    return { locks: session.locks }
  })
}
