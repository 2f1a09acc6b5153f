import type { EntityManager } from 'typeorm'
import { openSession } from '../connection/open-session'
import type { Statement } from '../sql/statements'
import type { Asking } from '../schema/readiness'

const BATCH_ROWS = 1_000

/**
 * Removes rows until a batch is not full. Outside a transaction each batch is committed by itself.
 *
 * @param ensure sees that the table is ready
 * @param remove gets the most rows to remove, and returns how many it removed
 * @returns how many rows were removed
 */
export async function removeInBatches(
  manager: EntityManager,
  ensure: (asking: Asking) => unknown,
  remove: Statement<number>,
  batch: number = BATCH_ROWS,
): Promise<number> {
  const session = await openSession(manager)
  try {
    await ensure(session)
    let removed = 0
    for (let last = batch; last === batch; removed += last) {
      last = (await session.rowsOrRollBack(remove, [batch]))[0] ?? 0
    }
    return removed
  } finally {
    await session.close()
  }
}
