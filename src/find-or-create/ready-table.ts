import type { Session } from '../connection/session'
import { TransactionAbortedError } from '../errors'
import { type EntityText, onTable, type ReadyText } from '../rows/entity-text'
import { ensureReady, forgetIfChanged } from '../schema/readiness'

/** At once where the table was found ready before. */
export function readyText(session: Session, entityText: EntityText): ReadyText | Promise<ReadyText> {
  const ready = ensureReady(entityText.declaration, session)
  return ready instanceof Promise ? ready.then((table) => onTable(entityText, table)) : onTable(entityText, ready)
}

/** What is said of a text, before its table was seen ready. */
export type OnAnyTable<One> = Omit<One, 'entityText'> & { readonly entityText: EntityText }

/** @throws SchemaDriftError, UnsupportedDatabaseError */
export async function onReadyTables<One extends { readonly entityText: ReadyText }>(
  session: Session,
  given: readonly OnAnyTable<One>[],
): Promise<One[]> {
  const ready: One[] = []
  for (const one of given) ready.push({ ...one, entityText: await readyText(session, one.entityText) } as One)
  return ready
}

const CHANGED = 'a table has got a deferrable constraint since the first call'

/** @throws the error, unless the call may succeed once the table is examined again */
export function requireChanged(session: Session, { declaration }: EntityText, error: unknown): void {
  if (!forgetIfChanged(declaration, error)) throw error
  if (session.inTransaction) throw new TransactionAbortedError(error, CHANGED)
}
