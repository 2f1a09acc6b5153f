import { setTimeout as sleep } from 'node:timers/promises'
import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { AttemptsExhaustedError, UniqueTextError } from '../errors'
import { isRowError, isSerializationError } from '../sql/sqlstate'
import { arrayLiteral, type BatchRow, findOrCreateManyStatement, insertColumns } from '../sql/statements'
import { ensureReady } from '../typeorm/readiness'
import type { ColumnTypes } from '../typeorm/registry'
import { explain } from './attempt'
import { type BatchStatement, cached, type EntityText, entityTextOf } from './entity-text'
import { afterLoad, listensToInsert, listensToLoad } from './events'
import { type ByOptions, findOrCreateRow, type FindOrCreateResult } from './find-or-create'
import { hydrate } from './hydrate'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import { rowShape, rowValues, type RowValues } from './row-values'
import { Session } from './session'

/** What became of one input: its row, or the reason why there is none. */
export type FindOrCreateManyResult<Entity> = FindOrCreateResult<Entity> | { readonly error: unknown }

/** Rows in one statement: enough that the round trip does not count, few enough that one bad row is found quickly. */
const BATCH_ROWS = 1_000
/** Characters in one statement, so that a few enormous texts do not meet the server's limit of 1 GB a message. */
const BATCH_CHARACTERS = 16 * 2 ** 20

/** A row of the call that no earlier input has, and every input that asks for it. */
interface DistinctRow<Entity> {
  /** Indexes of the inputs; the first gives the other columns. */
  readonly inputs: number[]
  readonly row: RowValues
  readonly values: DeepPartial<Entity>
}

/**
 * `findOrCreate` for many inputs. The results have the order of the inputs. Of several inputs with equal texts the first
 * gives the other columns, and only the first can be `created`; all of them get the same entity. An input that is
 * rejected, or that the database refuses, has its error at its index and affects no other input.
 *
 * Sends batches of up to 1,000 rows; outside a transaction each batch commits by itself.
 *
 * @example
 * for (const result of await findOrCreateMany(manager, Page, [{ url: 'http://example.com/' }])) {
 *   if ('error' in result) console.error(result.error)
 *   else console.log(result.entity.id, result.created)
 * }
 *
 * @throws DeclarationError, SchemaDriftError, UnsupportedDatabaseError for the whole call
 * @throws AttemptsExhaustedError for a batch that always loses; what was sent before it is committed
 * @throws TransactionAbortedError, and QueryFailedError where the connection or the server fails
 */
export async function findOrCreateMany<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  inputs: readonly DeepPartial<NoInfer<Entity>>[],
  { by }: ByOptions = {},
): Promise<FindOrCreateManyResult<Entity>[]> {
  const prepared = new PreparedMany<Entity>(entityTextOf(manager, entity, by))
  for (const values of inputs) prepared.add(values)
  return await prepared.run(manager)
}

/** A call in two halves: what needs no connection is done, so that it can be done while another batch is at the server. */
export class PreparedMany<Entity extends ObjectLiteral> {
  private readonly results: FindOrCreateManyResult<Entity>[] = []
  private readonly rows = new Map<string, DistinctRow<Entity>>()

  /** @param entityText what it selects is what the entities hold */
  constructor(private readonly entityText: EntityText) {}

  /** Normalizes and hashes one input. */
  add(values: DeepPartial<Entity>): void {
    const index = this.results.length
    this.results.length += 1
    try {
      const row = rowValues(this.entityText, values)
      const known = this.rows.get(row.identity)
      if (known) known.inputs.push(index)
      else this.rows.set(row.identity, { inputs: [index], row, values })
    } catch (error) {
      if (!(error instanceof UniqueTextError)) throw error
      this.results[index] = { error }
    }
  }

  async run(manager: EntityManager): Promise<FindOrCreateManyResult<Entity>[]> {
    const { entityText, results } = this
    if (this.rows.size === 0) return results
    const session = await Session.open(manager)
    try {
      const types = await ensureReady(entityText.declaration, session.query)
      for (const batch of inBatches([...this.rows.values()])) {
        await runBatch({ session, entityText, types, results }, batch)
      }
    } finally {
      await session.close()
    }
    return results
  }
}

/** For those who count rows and do not look at them: entities hold their primary key only, unless a listener hears them. */
export function withoutColumns(entityText: EntityText): EntityText {
  if (listensToLoad(entityText) || listensToInsert(entityText)) return entityText
  const { primaryColumns } = entityText.metadata
  return { ...entityText, select: primaryColumns, rowStatements: new Map(), batchStatements: new Map() }
}

/** What every step of one call needs. */
interface ManyCall<Entity> {
  readonly session: Session
  readonly entityText: EntityText
  readonly types: ColumnTypes
  readonly results: FindOrCreateManyResult<Entity>[]
}

/** Rows that bring the same columns, sorted by hash: in another order two batches of the same texts would deadlock. */
function* inBatches<Entity>(rows: readonly DistinctRow<Entity>[]): Generator<DistinctRow<Entity>[]> {
  const groups = groupBy(rows, ({ row }) => row.others.join('\n'))
  for (const group of groups.values()) {
    let batch: DistinctRow<Entity>[] = []
    let characters = 0
    for (const item of group.toSorted(byHash)) {
      const { length } = item.row.identity
      if (batch.length === BATCH_ROWS || (batch.length > 0 && characters + length > BATCH_CHARACTERS)) {
        yield batch
        batch = []
        characters = 0
      }
      batch.push(item)
      characters += length
    }
    yield batch
  }
}

function groupBy<Key, Value>(values: readonly Value[], keyOf: (value: Value) => Key): ReadonlyMap<Key, Value[]> {
  const groups = new Map<Key, Value[]>()
  for (const value of values) {
    const key = keyOf(value)
    const group = groups.get(key)
    if (group) group.push(value)
    else groups.set(key, [value])
  }
  return groups
}

function byHash(left: DistinctRow<unknown>, right: DistinctRow<unknown>): number {
  if (left.row.hash !== right.row.hash) return left.row.hash < right.row.hash ? -1 : 1
  return left.row.identity < right.row.identity ? -1 : 1
}

async function runBatch<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  batch: readonly DistinctRow<Entity>[],
): Promise<void> {
  // An event before the insert must know which rows will be inserted, so each row goes its own way.
  if (listensToInsert(call.entityText)) return await runSingly(call, batch)
  let answer: BatchAnswer
  try {
    answer = await sendBatch(call, batch)
  } catch (error) {
    if (!isRowError(error)) throw error
    return await divide(call, batch, error)
  }
  await runSingly(call, await takeAnswers(call, batch, answer))
}

/** The rows that a batch's statement gave, and after how many attempts. */
interface BatchAnswer {
  readonly rows: readonly BatchRow[]
  readonly attempts: number
}

/** @returns the rows that have no answer, or several: what that means is found out one by one */
async function takeAnswers<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  batch: readonly DistinctRow<Entity>[],
  { rows, attempts }: BatchAnswer,
): Promise<DistinctRow<Entity>[]> {
  const answers = groupBy(rows, ({ index }) => index)
  const unanswered: DistinctRow<Entity>[] = []
  const loaded: Entity[] = []
  for (const [index, item] of batch.entries()) {
    const [stored, another] = answers.get(index) ?? []
    if (!stored || another) {
      unanswered.push(item)
      continue
    }
    const entity = hydrate(call.entityText, call.session.queryRunner, stored) as Entity
    if (!stored.created) loaded.push(entity)
    writeResult(call, item, { entity, created: stored.created, attempts })
  }
  await afterLoad(call.session, call.entityText, loaded)
  return unanswered
}

/** A row of the batch is refused for what it holds: the halves tell which one. */
async function divide<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  batch: readonly DistinctRow<Entity>[],
  error: unknown,
): Promise<void> {
  const [only] = batch
  if (only && batch.length === 1) return writeError(call, only, error)
  const middle = Math.ceil(batch.length / 2)
  await runBatch(call, batch.slice(0, middle))
  await runBatch(call, batch.slice(middle))
}

/** Behind savepoints: a row that is refused must not take the caller's transaction from those after it. */
async function runSingly<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  rows: readonly DistinctRow<Entity>[],
): Promise<void> {
  const session = call.session.withSavepoints()
  for (const item of rows) {
    try {
      writeResult(call, item, await findOrCreateRow<Entity>(session, call.entityText, item.row, item.values))
    } catch (error) {
      writeError(call, item, error)
    }
  }
}

/** @throws the error, unless it says something of this row only */
function writeError<Entity>(call: ManyCall<Entity>, item: DistinctRow<Entity>, cause: unknown): void {
  const error = explain(cause, call.entityText)
  if (!isRowError(error) && !(error instanceof UniqueTextError && error.code !== 'TRANSACTION_ABORTED')) throw error
  writeResult(call, item, { error })
}

/** Only the first input of a text can have created its row. */
function writeResult<Entity>(
  { results }: ManyCall<Entity>,
  { inputs }: DistinctRow<Entity>,
  result: FindOrCreateManyResult<Entity>,
): void {
  for (const [nth, index] of inputs.entries()) {
    results[index] = 'entity' in result && nth > 0 ? { ...result, created: false } : result
  }
}

/** The loop of a batch's attempts. */
async function sendBatch<Entity>(
  { session, entityText, types }: ManyCall<Entity>,
  batch: readonly DistinctRow<Entity>[],
): Promise<BatchAnswer> {
  const { statement, isArray } = batchStatement(entityText, batch[0]?.row.others ?? [], types)
  const arrays = isArray.map((nested, column) =>
    batch.map(({ row }) => {
      const value = row.all[column]
      return nested && Array.isArray(value) ? arrayLiteral(value) : value
    }),
  )
  const started = performance.now()
  for (let attempts = 1; ; attempts += 1) {
    try {
      return { rows: await session.rowsOrRollBack(statement, arrays), attempts }
    } catch (error) {
      if (session.inTransaction || !isSerializationError(error)) throw error
      if (attempts === MAX_ATTEMPTS) {
        const { name } = entityText.declaration
        throw new AttemptsExhaustedError(name, attempts, performance.now() - started, error)
      }
      await sleep(backoffMilliseconds(attempts, Math.random()))
    }
  }
}

function batchStatement(entityText: EntityText, others: readonly string[], types: ColumnTypes): BatchStatement {
  return cached(entityText.batchStatements, others, () => {
    const shape = rowShape(entityText, others)
    const isArray = insertColumns(shape).map((name) => types.get(name)?.endsWith('[]') ?? false)
    return { statement: findOrCreateManyStatement(shape, types), isArray }
  })
}
