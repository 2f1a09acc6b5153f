import { setTimeout as sleep } from 'node:timers/promises'
import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { AttemptsExhaustedError, ChainLimitError, DuplicateTextError } from '../errors'
import { isSerializationError, SQLSTATE, serverError } from '../sql/sqlstate'
import {
  createInChainStatement,
  findOrCreateStatement,
  findStatement,
  type RowShape,
  type Statement,
} from '../sql/statements'
import { ensureReady } from '../typeorm/readiness'
import { afterInsert, afterLoad, beforeInsert, listensToInsert } from './events'
import { hydrate } from './hydrate'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import { type PreparedRow, prepareRow, shapeOf } from './row'
import { type Row, type Session, withSession } from './session'
import { type Target, targetOf } from './target'

/** Options of every operation. */
export interface ByOptions {
  /** Which of the entity's texts; required where it has several. @default the only one */
  readonly by?: string
}

/** A row, and how it came. */
export interface FindOrCreateResult<Entity> {
  readonly entity: Entity
  /** This call inserted the row. Of equal texts in one call, only the first can be created. */
  readonly created: boolean
  /** 1 where the first try was enough; retries are one fewer. */
  readonly attempts: number
}

/**
 * Gives the row that holds the text, and inserts it where there is none: in one round trip, exact for texts with equal
 * hash, and without a unique violation that would abort the caller's transaction.
 *
 * Tries up to 10 times, with full jitter up to 500 ms. Properties beside text and scope are used only when the row is
 * created. A row that is deleted softly still holds its text and is found.
 *
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError, DuplicateTextError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws the driver's own error for everything else, a violation of another unique index included
 */
export async function findOrCreate<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  { by }: ByOptions = {},
): Promise<FindOrCreateResult<Entity>> {
  const target = targetOf(manager, entity, by)
  const row = prepareRow(target, values)
  return await withSession(manager, async (session) => {
    await ensureReady(target.declaration, session.query)
    return await findOrCreateRow<Entity>(session, target, row, values)
  })
}

/**
 * Gives the row that holds the text, or null. Looks it up by hash, so that the unique index is used.
 *
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError, DuplicateTextError
 */
export async function findByText<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: DeepPartial<NoInfer<Entity>>,
  { by }: ByOptions = {},
): Promise<Entity | null> {
  const target = targetOf(manager, entity, by)
  const row = prepareRow(target, values)
  return await withSession(manager, async (session) => {
    await ensureReady(target.declaration, session.query)
    const [found] = await find(session, target, row)
    if (!found) return null
    const loaded = hydrate<Entity>(session, target, found)
    await afterLoad(session, target, [loaded])
    return loaded
  })
}

/** The loop; `values` is the caller's object, of which listeners get an entity. */
export async function findOrCreateRow<Entity extends ObjectLiteral>(
  session: Session,
  target: Target,
  given: PreparedRow,
  values: DeepPartial<Entity>,
): Promise<FindOrCreateResult<Entity>> {
  const started = performance.now()
  const listened = listensToInsert(target) ? new ListenedInsert<Entity>(session, target, values) : undefined
  let row = given
  let cause: unknown
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
    if (attempt > 1) await sleep(backoffMilliseconds(attempt - 1, Math.random()))
    try {
      const [found] = listened ? await find(session, target, row) : []
      if (!found && listened) row = await listened.before(row)
      const outcome = found ? { row: found, created: false } : await tryOnce(session, target, row)
      if (outcome) {
        const entity = hydrate<Entity>(session, target, outcome.row)
        if (outcome.created) await listened?.after(entity)
        else await afterLoad(session, target, [entity])
        return { entity, created: outcome.created, attempts: attempt }
      }
    } catch (error) {
      if (session.inTransaction || !isSerializationError(error)) throw explain(error, target)
      cause = error
    }
  }
  throw new AttemptsExhaustedError(target.declaration.name, MAX_ATTEMPTS, performance.now() - started, cause)
}

/** BeforeInsert fires once, on an entity whose changes count; AfterInsert only where the row was inserted. */
class ListenedInsert<Entity extends ObjectLiteral> {
  private prepared: PreparedRow | undefined

  constructor(
    private readonly session: Session,
    private readonly target: Target,
    private readonly values: DeepPartial<Entity>,
  ) {}

  async before(row: PreparedRow): Promise<PreparedRow> {
    if (this.prepared) return this.prepared
    const { metadata, dataSource } = this.target
    const entity = dataSource.manager.create(metadata.target, this.values as ObjectLiteral) as ObjectLiteral
    await beforeInsert(this.session, metadata, entity)
    const changed = prepareRow(this.target, entity)
    // A listener may fill in columns; another text would make this another operation.
    this.prepared = changed.key === row.key ? changed : { ...changed, values: row.values, others: row.others }
    return this.prepared
  }

  async after(entity: Entity): Promise<void> {
    await afterInsert(this.session, this.target.metadata, entity)
  }
}

interface Outcome {
  readonly row: Row
  readonly created: boolean
}

/** One attempt; undefined where others were faster in every step. */
async function tryOnce(session: Session, target: Target, row: PreparedRow): Promise<Outcome | undefined> {
  const { findOrCreate, inChain, inChainOrRaise } = statementsOf(target, row.others)
  const first = await session.rows(findOrCreate, row.values)
  const [taken] = oneOf(
    target,
    first.map((result) => result.slice(1)),
  )
  if (taken) return { row: taken, created: first[0]?.[0] === true }
  // The index refused, and the row that holds the text was not visible: another inserter was faster, a text with equal
  // hash holds number 0, or it was another unique index.
  const found = await find(session, target, row)
  if (found[0]) return { row: found[0], created: false }
  const [created] = await session.safely(inChain, row.values)
  if (created) return { row: created, created: true }
  const again = await find(session, target, row)
  if (again[0]) return { row: again[0], created: false }
  try {
    const [late] = await session.safely(inChainOrRaise, row.values)
    return late ? { row: late, created: true } : undefined
  } catch (error) {
    const refused = serverError(error)
    const ours = refused?.code === SQLSTATE.uniqueViolation && refused.constraint === target.declaration.table.index
    if (ours) return undefined
    throw error
  }
}

async function find(session: Session, target: Target, row: PreparedRow): Promise<Row[]> {
  const { find: statement, valueCount } = statementsOf(target, row.others)
  return oneOf(target, await session.rows(statement, row.values.slice(0, valueCount)))
}

/** @throws DuplicateTextError if there are several */
export function oneOf(target: Target, rows: Row[]): Row[] {
  if (rows.length <= 1) return rows
  const { metadata, select, declaration } = target
  const ids = rows.map((row) =>
    Object.fromEntries(
      metadata.primaryColumns.map((column) => [column.propertyPath, row[select.indexOf(column)] ?? null]),
    ),
  )
  throw new DuplicateTextError(declaration.name, ids)
}

/** The guard's own errors, as errors of ours. */
export function explain(error: unknown, { declaration }: Target): unknown {
  const refused = serverError(error)
  if (refused?.code === SQLSTATE.chainLimit && refused.constraint === declaration.table.index) {
    return new ChainLimitError(declaration.name, error)
  }
  return error
}

interface Statements {
  readonly find: Statement
  /** Parameters that `find` takes: scope, text and hash. */
  readonly valueCount: number
  readonly findOrCreate: Statement
  readonly inChain: Statement
  readonly inChainOrRaise: Statement
}

const statementCache = new WeakMap<Target, Map<string, Statements>>()

function statementsOf(target: Target, others: readonly string[]): Statements {
  let byColumns = statementCache.get(target)
  if (!byColumns) statementCache.set(target, (byColumns = new Map()))
  const key = others.join('\n')
  let statements = byColumns.get(key)
  if (!statements) byColumns.set(key, (statements = makeStatements(shapeOf(target, others))))
  return statements
}

function makeStatements(shape: RowShape): Statements {
  return {
    find: findStatement(shape),
    valueCount: shape.table.scope.length + shape.table.text.length + 1,
    findOrCreate: findOrCreateStatement(shape),
    inChain: createInChainStatement(shape, 'nothing'),
    inChainOrRaise: createInChainStatement(shape, 'raise'),
  }
}
