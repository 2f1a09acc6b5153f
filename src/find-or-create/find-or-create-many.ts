import { setTimeout as sleep } from 'node:timers/promises'
import type { DeepPartial, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { AttemptsExhaustedError, UniqueTextError } from '../errors'
import { isRowError, isSerializationError } from '../sql/sqlstate'
import { arrayLiteral, findOrCreateManyStatement, insertColumns } from '../sql/statements'
import { ensureReady } from '../typeorm/readiness'
import type { ColumnTypes } from '../typeorm/registry'
import { explain } from './attempt'
import { afterLoad, listensToInsert, listensToLoad } from './events'
import { hydrate } from './hydrate'
import { type ByOptions, findOrCreateRow, type FindOrCreateResult } from './find-or-create'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import { type PreparedRow, prepareRow, shapeOf } from './row-values'
import { type Row, type Session, withSession } from './session'
import { type ManyStatement, remember, type EntityText, entityTextOf } from './entity-text'

/** What became of one input: its row, or why there is none. */
export type FindOrCreateManyResult<Entity> = FindOrCreateResult<Entity> | { readonly error: unknown }

/** Rows in one statement: enough that the round trip does not count, few enough that one bad row is found quickly. */
const BATCH_ROWS = 1_000
/** Characters in one statement, so that a few enormous texts do not meet the server's limit of 1 GB a message. */
const BATCH_CHARACTERS = 16 * 2 ** 20

/** A text of the call that no earlier input has, with every place where it stands. */
interface Item<Entity> {
  readonly places: number[]
  readonly row: PreparedRow
  readonly values: DeepPartial<Entity>
}

/**
 * `findOrCreate` for many: the results are aligned with the input. Of equal texts the first gives the other columns
 * and only it can be `created`; all of them get the same entity. An input that is rejected, or that the database
 * refuses, carries its error at its place and sinks no other.
 *
 * Sends batches of up to 1,000 rows; outside a transaction each batch commits by itself.
 *
 * @throws DeclarationError, SchemaDriftError, UnsupportedDatabaseError for the whole call
 * @throws AttemptsExhaustedError for a batch that always loses; what was sent before it is committed
 * @throws TransactionAbortedError, and the driver's own error where the connection or the server fails
 */
export async function findOrCreateMany<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  inputs: readonly DeepPartial<NoInfer<Entity>>[],
  { by }: ByOptions = {},
): Promise<FindOrCreateManyResult<Entity>[]> {
  return await prepareMany<Entity>(entityTextOf(manager, entity, by), inputs).run(manager)
}

/** A call in two halves: what needs no connection is done, so that it can be done while another batch is at the server. */
export interface PreparedMany<Entity> {
  run(manager: EntityManager): Promise<FindOrCreateManyResult<Entity>[]>
}

/** @param target what it selects is what the entities hold */
export function prepareMany<Entity extends ObjectLiteral>(
  target: EntityText,
  inputs: readonly DeepPartial<Entity>[],
): PreparedMany<Entity> {
  const results = Array.from<FindOrCreateManyResult<Entity>>({ length: inputs.length })
  const sorted = [...batches(prepareItems(target, inputs, results))]
  return {
    run: async (manager) => {
      if (sorted.length === 0) return results
      await withSession(manager, async (session) => {
        const types = await ensureReady(target.declaration, session.query)
        for (const batch of sorted) await runBatch({ session, target, types, results }, batch)
      })
      return results
    },
  }
}

/** For those who count rows and do not look at them: entities hold their primary key only, unless a listener hears them. */
export function withoutColumns(target: EntityText): EntityText {
  if (listensToLoad(target) || listensToInsert(target)) return target
  return { ...target, select: target.metadata.primaryColumns, statements: new Map(), manyStatements: new Map() }
}

interface Job<Entity> {
  readonly session: Session
  readonly target: EntityText
  readonly types: ColumnTypes
  readonly results: FindOrCreateManyResult<Entity>[]
}

function prepareItems<Entity extends ObjectLiteral>(
  target: EntityText,
  inputs: readonly DeepPartial<Entity>[],
  results: FindOrCreateManyResult<Entity>[],
): Item<Entity>[] {
  const items = new Map<string, Item<Entity>>()
  for (const [place, values] of inputs.entries()) {
    try {
      const row = prepareRow(target, values)
      const known = items.get(row.key)
      if (known) known.places.push(place)
      else items.set(row.key, { places: [place], row, values })
    } catch (error) {
      if (!(error instanceof UniqueTextError)) throw error
      results[place] = { error }
    }
  }
  return [...items.values()]
}

/** Rows that bring the same columns, sorted by hash: in another order two batches of the same texts would deadlock. */
function* batches<Entity>(items: readonly Item<Entity>[]): Generator<Item<Entity>[]> {
  const groups = new Map<string, Item<Entity>[]>()
  for (const item of items) {
    const columns = item.row.others.join('\n')
    const group = groups.get(columns)
    if (group) group.push(item)
    else groups.set(columns, [item])
  }
  for (const group of groups.values()) {
    let batch: Item<Entity>[] = []
    let characters = 0
    for (const item of group.toSorted(byHash)) {
      if (batch.length === BATCH_ROWS || (batch.length > 0 && characters + item.row.key.length > BATCH_CHARACTERS)) {
        yield batch
        batch = []
        characters = 0
      }
      batch.push(item)
      characters += item.row.key.length
    }
    yield batch
  }
}

function byHash(left: Item<unknown>, right: Item<unknown>): number {
  if (left.row.hash !== right.row.hash) return left.row.hash < right.row.hash ? -1 : 1
  return left.row.key < right.row.key ? -1 : 1
}

async function runBatch<Entity extends ObjectLiteral>(job: Job<Entity>, batch: readonly Item<Entity>[]): Promise<void> {
  // An event before the insert must know which rows will be inserted, so each row goes its own way.
  if (listensToInsert(job.target)) return await runSingly(job, batch)
  let rows: Row[]
  let attempts: number
  try {
    ;({ rows, attempts } = await send(job, batch))
  } catch (error) {
    if (!isRowError(error)) throw error
    return await divide(job, batch, error)
  }
  const byPlace = new Map<number, Row[]>()
  for (const [place, ...row] of rows) byPlace.set(Number(place), [...(byPlace.get(Number(place)) ?? []), row])
  const left: Item<Entity>[] = []
  const loaded: Entity[] = []
  for (const [index, item] of batch.entries()) {
    const [found, another] = byPlace.get(index + 1) ?? []
    // Neither took, or several rows hold the text: what that means is found out one by one.
    if (!found || another) {
      left.push(item)
      continue
    }
    const [created, ...row] = found
    const entity = hydrate(job.session, job.target, row) as Entity
    if (created !== true) loaded.push(entity)
    write(job, item, { entity, created: created === true, attempts })
  }
  await afterLoad(job.session, job.target, loaded)
  await runSingly(job, left)
}

/** A row of the batch is refused for what it holds: the halves tell which one. */
async function divide<Entity extends ObjectLiteral>(
  job: Job<Entity>,
  batch: readonly Item<Entity>[],
  error: unknown,
): Promise<void> {
  const [only] = batch
  if (only && batch.length === 1) {
    await settle(job, only, () => Promise.reject(error))
    return
  }
  const middle = Math.ceil(batch.length / 2)
  await runBatch(job, batch.slice(0, middle))
  await runBatch(job, batch.slice(middle))
}

async function runSingly<Entity extends ObjectLiteral>(
  job: Job<Entity>,
  items: readonly Item<Entity>[],
): Promise<void> {
  // A row that is refused must not take the caller's transaction from those after it.
  const session: Session = { ...job.session, rows: job.session.safely }
  for (const item of items) {
    await settle(job, item, async () => await findOrCreateRow<Entity>(session, job.target, item.row, item.values))
  }
}

/** Writes what the work gives; an error that says something of this row only is its result. */
async function settle<Entity extends ObjectLiteral>(
  job: Job<Entity>,
  item: Item<Entity>,
  work: () => Promise<FindOrCreateResult<Entity>>,
): Promise<void> {
  try {
    write(job, item, await work())
  } catch (cause) {
    const error = explain(cause, job.target)
    if (!isRowError(error) && !(error instanceof UniqueTextError && error.code !== 'TRANSACTION_ABORTED')) throw error
    write(job, item, { error })
  }
}

/** Only the first place of a text can have created its row. */
function write<Entity extends ObjectLiteral>(
  { results }: Job<Entity>,
  { places }: Item<Entity>,
  result: FindOrCreateManyResult<Entity>,
): void {
  for (const [index, place] of places.entries()) {
    results[place] = 'entity' in result && index > 0 ? { ...result, created: false } : result
  }
}

async function send<Entity>(
  { session, target, types }: Job<Entity>,
  batch: readonly Item<Entity>[],
): Promise<{ rows: Row[]; attempts: number }> {
  const { statement, isArray } = statementFor(target, batch[0]?.row.others ?? [], types)
  const arrays = isArray.map((nested, column) =>
    batch.map(({ row }) => {
      const value = row.values[column]
      return nested && Array.isArray(value) ? arrayLiteral(value) : value
    }),
  )
  const started = performance.now()
  for (let attempts = 1; ; attempts += 1) {
    try {
      return { rows: await session.safely(statement, arrays), attempts }
    } catch (error) {
      if (session.inTransaction || !isSerializationError(error)) throw error
      const { name } = target.declaration
      if (attempts === MAX_ATTEMPTS)
        throw new AttemptsExhaustedError(name, attempts, performance.now() - started, error)
      await sleep(backoffMilliseconds(attempts, Math.random()))
    }
  }
}

function statementFor(target: EntityText, others: readonly string[], types: ColumnTypes): ManyStatement {
  return remember(target.manyStatements, others, () => {
    const shape = shapeOf(target, others)
    const isArray = insertColumns(shape).map((name) => types.get(name)?.endsWith('[]') ?? false)
    return { statement: findOrCreateManyStatement(shape, types), isArray }
  })
}
