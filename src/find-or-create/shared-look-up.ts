import type { EntityManager, ReplicationMode } from 'typeorm'
import { openSession } from '../connection/open-session'
import { type BatchRow, findTogetherStatement } from '../sql/batch-statement'
import { parameterText } from '../sql/parameter-text'
import type { Statement, StoredRow } from '../sql/statements'
import { ensureReady } from '../typeorm/readiness'
import { type EntityText, onTable, type ReadyText } from '../rows/entity-text'
import { rowShape, type RowValues } from '../rows/row-values'

/** A call that looks up a text outside any transaction. */
interface LookUp {
  readonly manager: EntityManager
  readonly row: RowValues
}

/**
 * Looks up the texts of several calls in one statement.
 *
 * @returns for each call the row, or null; undefined if several rows hold the text
 */
export async function lookUpTogether(
  entityText: EntityText,
  mode: ReplicationMode,
  lookUps: readonly LookUp[],
): Promise<readonly (StoredRow | null | undefined)[]> {
  const [first] = lookUps
  if (!first) return []
  const session = await openSession(first.manager, mode)
  const found: (StoredRow | null | undefined)[] = lookUps.map(() => null)
  try {
    const ready = onTable(entityText, await ensureReady(entityText.declaration, session))
    const keys = first.row.key.map((_, index) => lookUps.map(({ row }) => parameterText(row.key[index])))
    for (const stored of await session.rows(statementOf(ready), keys)) {
      found[stored.index] = found[stored.index] === null ? stored : undefined
    }
  } finally {
    await session.close()
  }
  return found
}

const statements = new WeakMap<ReadyText, Statement<BatchRow>>()

function statementOf(ready: ReadyText): Statement<BatchRow> {
  const known = statements.get(ready)
  if (known) return known
  const shape = { ...rowShape(ready, []), types: ready.ready.types, defaults: new Map<string, string>() }
  const statement = findTogetherStatement(shape)
  statements.set(ready, statement)
  return statement
}

/**
 * Copies a row for one more call: two entities must not share the objects that their columns hold.
 *
 * @returns undefined if it holds an object other than a Date, which we do not know how to copy
 */
export function copyOf(stored: StoredRow): StoredRow | undefined {
  const columns: unknown[] = []
  for (const value of stored.columns) {
    if (typeof value !== 'object' || value === null) columns.push(value)
    else if (Object.getPrototypeOf(value) === Date.prototype) columns.push(new Date(value as Date))
    else return undefined
  }
  return { ...stored, columns }
}
