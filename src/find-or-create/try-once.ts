import type { ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { DuplicateTextError } from '../errors'
import { DeferredRow, isDeferred, type RequestedRow } from '../rows/deferred-row'
import { cached, type EntityText, type ReadyText, type RowStatements } from '../rows/entity-text'
import { afterInsert } from '../rows/events'
import { hydrate } from '../rows/hydrate'
import { rowShape, type RowValues } from '../rows/row-values'
import type { BatchRow } from '../sql/batch-statement'
import { createStatement } from '../sql/spread'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import {
  createInChainStatement,
  findOrCreateStatement,
  findStandingStatement,
  findStatement,
  type StoredRow,
} from '../sql/statements'
import { asQueryFailedError } from '../typeorm/explain-errors'
import { takenNamesError } from '../typeorm/names'
import {
  collisionError,
  findTextHolder,
  guardError,
  type QueryRows,
  type RefusedText,
  refusedText,
  takenError,
  UNKNOWN,
} from '../typeorm/refused-text'
import { tableNames } from '../registry/registry'
import { Attempts } from './attempts'
import { type BatchQuery, type BatchRules, findQuery, groupBy, inBatches } from './batches'
import { afterDeletion, type OnDeleted, RETURN } from './deleted-rows'

/** A row, and how it came about. */
export interface FindOrCreateResult<Entity> {
  readonly entity: Entity
  /** This call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** 1 if the first attempt was enough; there is one retry fewer than attempts. */
  readonly attempts: number
}

/**
 * The loop of attempts. The caller must finish its result: AfterLoad has not fired yet for a row that was found.
 *
 * There is no function around each step: the caller's line must stay in the stack of the driver's error.
 */
export async function findOrCreateRow<Entity extends ObjectLiteral>(
  session: Session,
  entityText: ReadyText,
  requested: RequestedRow,
  onDeleted: OnDeleted = RETURN,
): Promise<FindOrCreateResult<Entity>> {
  const attempts = new Attempts(session, entityText.declaration.name)
  const late = isDeferred(entityText, requested) ? new DeferredRow(session, entityText, requested) : undefined
  let row = late ? undefined : requested.row
  for (;;) {
    let found: StoredRow | undefined
    let stored: StoredRow | undefined
    try {
      found = await (row ? tryOnce(session, entityText, row) : find(session, entityText, requested.row))
      stored = await afterDeletion(session, entityText, { stored: found, row: requested.row }, onDeleted)
    } catch (error) {
      await attempts.again(await explain(session, entityText, row, error))
      continue
    }
    if (stored) {
      tell(requested, stored)
      const { created } = stored
      const entity = entityOf(session, entityText, stored, late) as Entity
      if (created) await afterInsert(session, entityText, entity)
      return { entity, created, attempts: attempts.count }
    }
    if (found || row || !late) await attempts.again()
    else row = await late.complete()
  }
}

function tell({ notify: told }: RequestedRow, stored: StoredRow): void {
  told?.(stored)
}

/** A row that was created becomes the object that BeforeInsert has seen, and AfterInsert sees the same. */
const entityOf = (
  session: Session,
  entityText: ReadyText,
  stored: StoredRow,
  late: DeferredRow | undefined,
): ObjectLiteral => hydrate(entityText, session, stored, stored.created ? late?.entity : undefined)

/**
 * Once so many calls in a row have found their rows, the next ones look first: a statement that could insert costs the
 * server nearly twice as much. A new text then takes one more round trip, which is at worst one in 65 calls.
 */
const MANY_FOUND = 64

/** One attempt; undefined where others were faster in every step. */
export async function tryOnce(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const statements = statementsOf(entityText, row.others)
  const { streak } = entityText
  const { distributed } = entityText.ready
  if (distributed || streak.found >= MANY_FOUND) {
    const rows = await session.rows(statements.find, row.key)
    const seen = rows.length > 1 ? await theOne(session, entityText, row, rows) : rows[0]
    if (seen) return seen
  }
  const insert = distributed ? statements.create : statements.findOrCreate
  const [first, another] = await (mayRaise(entityText)
    ? session.rowsOrRollBack(insert, row.all).catch(noneIfTaken)
    : session.rows(insert, row.all))
  streak.found = first && !first.created ? streak.found + 1 : 0
  return first && !another ? first : await insertBeside(session, entityText, row)
}

/**
 * The row where neither a look-up nor an insert at number 0 gave it.
 *
 * @returns undefined where others were faster once more
 */
async function insertBeside(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  // The index refused, and the row that holds the text was not visible: another inserter was faster, a text with equal
  // hash holds number 0, or it was another unique index. Or several rows hold the text, which finding explains.
  const found = await find(session, entityText, row)
  if (found) return found
  const { createInChain } = statementsOf(entityText, row.others)
  const [created] = await session.rowsOrRollBack(createInChain, row.all).catch(noneIfTaken)
  return created ?? (await find(session, entityText, row)) ?? (await createOrRaise(session, entityText, row))
}

/** A deferrable constraint, and a name that is taken, refuse the row with an error in place of nothing. */
const mayRaise = ({ ready, metadata }: ReadyText): boolean => ready.deferrable || tableNames(metadata).length > 0

function noneIfTaken(error: unknown): StoredRow[] {
  if (serverError(error)?.code === SQLSTATE.uniqueViolation) return []
  throw error
}

/** Finds out which other index refused the row, and throws its error; undefined if it was our index after all. */
async function createOrRaise(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const { createInChainOrRaise } = statementsOf(entityText, row.others)
  try {
    const [created] = await session.rowsOrRollBack(createInChainOrRaise, row.all)
    return created
  } catch (error) {
    const { declaration } = entityText
    const { code, constraint } = serverError(error) ?? {}
    const refused = error instanceof Error ? refusedText(error, [declaration]) : undefined
    if (refused) await requireNoCollision(session, refused, [row.key.slice(declaration.scope.length, -1)])
    if (refused || (code === SQLSTATE.uniqueViolation && constraint === declaration.table.index)) return undefined
    throw error
  }
}

/** @throws HashCollisionError where another text of equal hash has the place of the refused one, and no guard moves on */
export async function requireNoCollision(
  session: Session,
  refused: RefusedText,
  texts: readonly (readonly unknown[])[],
): Promise<void> {
  if (refused.declaration.table.guardless !== true) return
  const collision = collisionError(refused, await findTextHolder(refused, rowsOf(session), texts))
  if (collision) throw collision
}

const rowsOf =
  (session: Session): QueryRows =>
  async (...requested) =>
    await session.byTypeOrm(async (runner) => (await runner.query(...requested)) as Awaited<ReturnType<QueryRows>>)

/**
 * The row that holds the text, or undefined.
 *
 * @throws DuplicateTextError if there are several
 * @throws TransactionAbortedError if there are several in the transaction's snapshot only
 */
export async function find(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const rows = await session.rows(statementsOf(entityText, row.others).find, row.key)
  return rows.length > 1 ? await theOne(session, entityText, row, rows) : rows[0]
}

/** Of several rows that were seen, the one that stands. */
async function theOne(
  session: Session,
  entityText: ReadyText,
  row: RowValues,
  rows: StoredRow[],
): Promise<StoredRow | undefined> {
  const { findStanding } = statementsOf(entityText, row.others)
  // Above READ COMMITTED a transaction that inserts a text sees it beside the row that held it in its snapshot and that
  // others have deleted since, as with any unique index. A lock looks at what stands now, and fails with 40001.
  const standing = session.inTransaction ? await orSeen(session.rowsOrRollBack(findStanding, row.key), rows) : rows
  if (standing.length <= 1) return standing[0]
  throw duplicate(entityText, standing)
}

/** A role that may not lock rows gets the rows that it sees. */
async function orSeen(locked: Promise<StoredRow[]>, seen: StoredRow[]): Promise<StoredRow[]> {
  try {
    return await locked
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return seen
    throw error
  }
}

function duplicate({ metadata, select, declaration }: EntityText, rows: readonly StoredRow[]): DuplicateTextError {
  const ids = rows.map(({ columns }) =>
    Object.fromEntries(
      metadata.primaryColumns.map((column) => [column.propertyPath, columns[select.indexOf(column)] ?? null]),
    ),
  )
  return new DuplicateTextError(declaration.name, ids)
}

/**
 * What the server refused, as an error of ours: a full chain, or another text of the entity that is taken. The second
 * is also TypeORM's `QueryFailedError`, as is a violation of any other index.
 */
export async function explain(
  session: Session,
  { declaration, otherTexts, dataSource }: EntityText,
  row: RowValues | undefined,
  failure: unknown,
): Promise<unknown> {
  const ofNames = takenNamesError(failure, dataSource)
  if (ofNames) return asQueryFailedError(ofNames, failure as Error)
  const ofGuard = guardError(failure, [declaration, ...otherTexts])
  const refused = failure instanceof Error ? refusedText(failure, otherTexts) : undefined
  if (ofGuard || !refused || !row) return ofGuard ?? failure
  const given = refused.declaration.table.text.map(
    ({ name }) => row.all[row.all.length - row.others.length + row.others.indexOf(name)],
  )
  const holder = await findTextHolder(refused, rowsOf(session), [given]).catch(() => UNKNOWN)
  const explained = holder.isFree ? collisionError(refused, holder) : takenError(refused, holder)
  return explained ? asQueryFailedError(explained, refused.error) : failure
}

function statementsOf(entityText: ReadyText, others: readonly string[]): RowStatements {
  return cached(entityText.rowStatements, others, (): RowStatements => {
    const shape = rowShape(entityText, others)
    return {
      find: findStatement(shape),
      findStanding: findStandingStatement(shape),
      findOrCreate: findOrCreateStatement(shape),
      create: createStatement(shape),
      createInChain: createInChainStatement(shape, 'nothing'),
      createInChainOrRaise: createInChainStatement(shape, 'raise'),
    }
  })
}

const NO_DEFAULTS: ReadonlyMap<string, string> = new Map()

/** No input is answered by position, and nothing is created. */
const UNASKED = { input: 0, repeats: undefined, values: {}, more: [], create: undefined }

/**
 * Returns the rows that hold the texts, by the identities of the inputs. Looks them up in batches.
 *
 * @throws DuplicateTextError, and what parameters of the scope that have no text throw
 */
export async function findRows(
  session: Session,
  entityText: ReadyText,
  rows: readonly RowValues[],
): Promise<ReadonlyMap<string, StoredRow>> {
  const requested = new Map(rows.map((row) => [row.identity, { ...row, others: [], all: row.key }]))
  const distinct = [...requested.values()].map((row) => ({ ...UNASKED, row }))
  const rules: BatchRules = { entityText, defaults: NO_DEFAULTS }
  const found = new Map<string, StoredRow>()
  const batches = inBatches(rules, distinct, (_, error) => {
    throw error
  })
  for (const { items, alone } of batches) {
    const answers = groupBy(alone ? [] : await look(session, findQuery(rules, items)), ({ index }) => index)
    for (const [index, { row }] of items.entries()) {
      const [stored, another] = answers.get(index) ?? []
      const one = alone || another ? await find(session, entityText, row) : stored
      if (one) found.set(row.identity, one)
    }
  }
  return found
}

const look = (session: Session, { statement, values }: BatchQuery): Promise<BatchRow[]> =>
  session.rowsOrRollBack(statement, values)
