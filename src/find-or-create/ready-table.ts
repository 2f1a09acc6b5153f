import type { Session } from '../connection/session'
import { TransactionAbortedError } from '../errors'
import { type EntityText, onTable, type ReadyText } from '../rows/entity-text'
import { ensureReady, forgetIfChanged } from '../typeorm/readiness'

export async function readyText(session: Session, entityText: EntityText): Promise<ReadyText> {
  return onTable(entityText, await ensureReady(entityText.declaration, session))
}

const CHANGED = 'a table has got a deferrable constraint since the first call'

/** @throws the error, unless the call may succeed once the table is examined again */
export function requireChanged(session: Session, { declaration }: EntityText, error: unknown): void {
  if (!forgetIfChanged(declaration, error)) throw error
  if (session.inTransaction) throw new TransactionAbortedError(error, CHANGED)
}
