import type { DataSource, DeepPartial, EntityManager, ObjectLiteral } from 'typeorm'
import { openSession, PoolSession, withSession } from '../connection/open-session'
import { asOne } from '../connection/transactions'
import type { Session } from '../connection/session'
import { hasSpare, isAwaited } from '../connection/wire'
import { TransactionAbortedError, UniqueTextError } from '../errors'
import { registry } from '../registry/registry'
import { ensureReady, forgetIfChanged } from '../schema/readiness'
import { columnDefaults } from '../sql/catalog'
import { PREPARED_ROWS } from '../sql/batch'
import type { BatchRow } from '../sql/find'
import { isRowError, isSerializationError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { guardError } from '../typeorm/refusals'
import { Attempts } from './attempts'
import {
  type Batch,
  type BatchItem,
  type BatchQuery,
  batchQuery,
  type BatchRules,
  byHash,
  createQueries,
  type DistinctRow,
  findQuery,
  groupBy,
  inBatches,
  isMixed,
  type GivenRow,
  scopeOrder,
} from './batches'
import type { DeletedOption, FindOrCreateProgress, ProgressOptions } from './call-options'
import { type EntityText, keyOnly, onTable, type ReadyText, readyText } from './entity-text'
import { finish, hydrate, listensTo, listensToLoad, type RelationsToLoad, relationsToLoad } from './hydrate'
import { type FindOrCreateResult, findOrCreateRow, isHeard, upsertRow } from './one-row'
import {
  DeferredRow,
  isReplaced,
  type RequestedRow,
  requestedRow,
  type RowValues,
  sameValues,
  withCreated,
  withUpdate,
} from './row-values'
import { type RowError, toRowError, withPromised } from './values'
import { isDeleted, requireDeleteDate } from './look-up'
import { statementsOf } from './statements'
import { isChanging, requireUsed, updateOf } from './updates'

/** The rules for rows that are missing, found, or found deleted. */
interface ManyRules<Entity extends ObjectLiteral> extends Pick<BatchRules, 'updates' | 'batchRows'> {
  readonly create?: ObjectLiteral | ((values: never, index: number) => unknown) | undefined
  readonly deleted?: DeletedOption | undefined
  /** Whether the caller loads relations and fires AfterLoad. */
  readonly unfinished?: boolean
  readonly progress?: ProgressOptions
  /** Index of the first input among those of the caller. @default 0 */
  readonly first?: number | undefined
  /** Calls that have not run yet, whose rows this call does not request again. They run before this one is answered. */
  readonly ahead?: readonly PreparedMany<Entity>[]
  /**
   * Called when a batch must be sent again: it and another batch blocked each other, or its snapshot lacks the writes
   * of others.
   */
  readonly onLost?: (() => void) | undefined
}

/** A call in two halves. The first needs no connection, so it can run while another batch is at the server. */
export class PreparedMany<Entity extends ObjectLiteral> {
  /** The results. An input has none if the call failed before its row was written. */
  readonly results: FindOrCreateManyResult<Entity>[] = []
  readonly progress: Progress
  /** The length of the texts that will be sent. */
  characters = 0
  private readonly load: RelationsToLoad | undefined
  /** The last one takes inputs. */
  private rounds: [Round, ...Round[]] = [new Round()]
  /** The identities whose inputs have a round each, because their merged changes were refused. */
  private readonly apart = new Set<string>()
  /** The rows of earlier rounds that were refused, by their identities. */
  private readonly refused = new Map<string, RefusedRow[]>()
  /** Inputs whose rows another call requests. */
  private shared: (GivenRow & { readonly by: PreparedMany<Entity>; readonly of: number })[] = []
  private isOver = false

  /**
   * @param entityText selects the columns of the entities
   * @param load the relations; undefined loads none, not even eager ones
   * @param rules @default rows are created from their values, and returned as they are found
   * @throws DeclarationError for the rule `deleted` if no row can be softly deleted and hold its text
   */
  constructor(
    private readonly entityText: EntityText,
    load: RelationsToLoad | 'eager' | undefined,
    private readonly rules: ManyRules<Entity> = {},
  ) {
    const { deleted = 'return' } = rules
    if (deleted !== 'return') requireDeleteDate(entityText, 'deleted')
    this.load = load === 'eager' ? relationsToLoad(entityText, {}) : load
    this.progress = new Progress(rules.progress)
  }

  /** Whether another call may run on the server at the same time. No user's code may run for the rows of this one. */
  get mayOverlap(): boolean {
    const { dataSource } = this.entityText
    const runsCode = typeof this.rules.create === 'function' || listensTo('Insert', this.entityText)
    return !runsCode && !hasTenants(dataSource) && hasSpare(dataSource)
  }

  /** Adds the inputs of a call, once all promises of their lazy relations are settled, or at once if there are none. */
  addAll(inputs: readonly DeepPartial<Entity>[]): Promise<void> | undefined {
    const { metadata } = this.entityText
    if (metadata.lazyRelations.length === 0) {
      for (const values of inputs) this.add(values)
      return undefined
    }
    return Promise.allSettled(inputs.map((values) => withPromised(metadata, values))).then((settled) => {
      for (const one of settled) {
        if (one.status === 'fulfilled') this.add(one.value)
        else this.refuse(one.reason)
      }
      return undefined
    })
  }

  /** Returns equal strings for inputs with equal texts in one scope. @throws the error with which `add` refuses them */
  identityOf(values: DeepPartial<Entity>): string {
    return requestedRow(this.entityText, values).row.identity
  }

  /**
   * Normalizes and hashes one input.
   *
   * @param input the index of the input. @default the next one
   */
  add(values: DeepPartial<Entity>, input: number = this.results.length): void {
    this.results.length = Math.max(this.results.length, input + 1)
    try {
      const { create, updates, first = 0 } = this.rules
      const ofRow = typeof create === 'function' ? (): unknown => create(values as never, first + input) : create
      const requested = requestedRow(this.entityText, values, ofRow)
      if (updates) requireUsed(this.entityText, updates, requested.row)
      const known = this.round.rows.get(requested.row.identity)
      if (known) this.repeat(known, requested, input)
      else this.begin(requested, input)
    } catch (error) {
      // The user's own transformer may throw any error for one row.
      writeResult(this, { input, repeats: undefined }, { error: toRowError(error) })
    }
  }

  /** Adds the first input of a round with its text. */
  private begin({ row, values, more, create }: RequestedRow, input: number): void {
    const { identity } = row
    const { updates, ahead = [] } = this.rules
    const refused = this.refused.get(identity)?.find((one) => sameValues(one.row, row))
    if (refused) return writeResult(this, { input, repeats: undefined }, refused.result)
    for (const by of ahead) {
      // The row of a call that is over may have been deleted since.
      const there = by.isOver ? undefined : by.round.rows.get(identity)
      if (there) return void this.shared.push({ input, values, by, of: there.input })
    }
    // SQL may use the row as the previous input left it.
    const state = this.apart.has(identity) || (updates && updates.sqlKey !== '') ? 'apart' : 'open'
    this.round.rows.set(identity, { input, repeats: undefined, row, values, more, create, state })
    for (const value of row.all) if (typeof value === 'string') this.characters += value.length
  }

  /**
   * Adds another input with the text of a row. Changes are merged only if no value is lost, because a value that a later
   * input replaces might be refused.
   */
  private repeat(known: TextRow, requested: RequestedRow, input: number): void {
    const { row, values } = requested
    const { updates } = this.rules
    if (known.state === 'open' && isReplaced(known.row, row, updateOf(updates, row))) known.state = 'full'
    if (known.state !== 'open') return void this.round.waiting.push({ input, values })
    known.repeats ??= []
    known.repeats.push({ input, values })
    if (updates) this.round.rows.set(row.identity, withUpdate(this.entityText, updates, known, requested))
  }

  /**
   * Answers the inputs whose rows a call ahead has requested, after both have run.
   *
   * @param manager the manager to try the inputs that were refused there; undefined leaves them without a result
   */
  async answerShared(manager: EntityManager | undefined): Promise<void> {
    const own: GivenRow[] = []
    for (const { input, values, by, of } of this.shared) {
      const result = by.results[of]
      const stored = storedIn(result)
      if (stored) writeResult(this, { input, repeats: undefined }, { ...stored, created: false })
      else if (result) own.push({ input, values })
    }
    this.shared = []
    if (own.length === 0 || !manager) return
    // The entities of the earlier rounds are finished.
    this.rounds = [new Round()]
    this.addGiven(own)
    await this.run(manager)
  }

  /** Adds an input that could not be read. */
  refuse(error: unknown): void {
    writeResult(this, { input: this.results.length, repeats: undefined }, { error: toRowError(error) })
  }

  async run(manager: EntityManager): Promise<FindOrCreateManyResult<Entity>[]> {
    if (this.round.rows.size === 0) {
      if (this.results.length > 0) this.progress.report()
      return this.results
    }
    const session = await openSession(manager)
    try {
      const { declaration } = this.entityText
      const entityText = onTable(this.entityText, await ensureReady(declaration, session))
      do await (await this.course(session, entityText)).run()
      while (this.beginRound())
      // A list of thousands of rows would cost memory, so it is not made if nobody reads it.
      const isFinished = this.rules.unfinished || (this.rounds.length === 1 && !this.load && !listensToLoad(entityText))
      if (!isFinished) await finish(session, entityText, this.lastOfTexts(), this.load)
    } finally {
      this.isOver = true
      await session.close()
    }
    return this.results
  }

  private get round(): Round {
    return this.rounds.at(-1) as Round
  }

  private async course(session: Session, entityText: ReadyText): Promise<Course<Entity>> {
    const { create, updates, deleted = 'return' } = this.rules
    const { results, progress } = this
    const { metadata, declaration } = entityText
    // An event before the write must be limited to rows that will be inserted, so each row is written by itself.
    const singly = updates
      ? isHeard(entityText) || !mayUpdateMany(session, entityText)
      : listensTo('Insert', entityText)
    const isDeferred = typeof create === 'function'
    const base = { ...this.rules, entityText, session, deleted, results, progress, singly, isDeferred }
    const byScope = scopeOrder(metadata)
    const inOrder = (rows: DistinctRow[]): DistinctRow[] =>
      byScope?.(rows, ({ values, more }) => Object.assign({}, values, ...more)) ?? rows.sort(byHash)
    const requested = inOrder([...this.round.rows.values()])
    const rows = isDeferred ? inOrder(await completeMissing(base, requested)) : requested
    // Each call reads the defaults, so that a changed default takes effect at once, as it does for a single row.
    const defaults = isMixed(rows) ? await columnDefaults(session.query, tableName(declaration.table)) : undefined
    const call = { ...base, defaults }
    const batches = inBatches(call, rows, (row, error) => {
      writeResult(call, row, { error: toRowError(error) })
    })
    // Batches are sent one by one if the user's functions and listeners expect the order of the inputs, or if rows are
    // numbered.
    const isOrdered = isDeferred || byScope || singly || isSpreadUpdate(base)
    const pooled = !isOrdered && !hasTenants(session.dataSource) && session instanceof PoolSession ? session : undefined
    return new Course(call, batches, pooled)
  }

  /**
   * Begins a round with the inputs that are not answered yet: an earlier input with the same text was refused, or is
   * written by now.
   *
   * @returns false if all inputs are answered
   */
  private beginRound(): boolean {
    const { rows, waiting } = this.round
    for (const one of rows.values()) {
      const { input, repeats, row, create } = one
      const result = this.results[input]
      if (!repeats || storedIn(result)) continue
      if (!result) {
        this.apart.add(row.identity)
        waiting.push(one)
      } else if ('error' in result && !create) {
        this.refused.set(row.identity, [...(this.refused.get(row.identity) ?? []), { row, result }])
      }
      for (const repeat of repeats) waiting.push(repeat)
    }
    if (waiting.length === 0) return false
    this.rounds.push(new Round())
    this.addGiven(waiting.toSorted((left, right) => left.input - right.input))
    return true
  }

  private addGiven(inputs: readonly GivenRow[]): void {
    for (const { values, input } of inputs) this.add(values as DeepPartial<Entity>, input)
  }

  /** Returns one entity for equal texts, in the state after the last round and in the order of their first inputs. */
  private lastOfTexts(): FindOrCreateResult<Entity>[] {
    const last = new Map<string, FindOrCreateResult<Entity>>()
    for (const { rows } of this.rounds.toReversed()) {
      for (const [identity, { input, repeats = [] }] of rows) {
        for (const one of [input, ...repeats.map((repeat) => repeat.input)]) {
          const result = storedIn(this.results[one])
          const { entity } = last.get(identity) ?? {}
          if (result && !entity) last.set(identity, result)
          else if (result && entity && result.entity !== entity) this.results[one] = { ...result, entity }
        }
      }
    }
    return [...this.rounds[0].rows.keys()].flatMap((identity) => last.get(identity) ?? [])
  }
}

/** Statements that update rows of several shards would wait for each other. */
const isSpreadUpdate = ({ entityText, updates }: Pick<BatchRules, 'entityText' | 'updates'>): boolean =>
  entityText.ready.distributed === true && updates !== undefined

/** A deadlock of an UPDATE of several shards would abort the caller's transaction. */
const mayUpdateMany = ({ inTransaction }: Session, { ready }: ReadyText): boolean =>
  ready.updatesTogether && !(ready.distributed && inTransaction)

const storedIn = <Entity>(result: FindOrCreateManyResult<Entity> | undefined): FindOrCreateResult<Entity> | undefined =>
  result && 'entity' in result ? result : undefined

/** Whether the connection determines the table of a name. */
const hasTenants = (dataSource: DataSource): boolean => registry.settings.get(dataSource)?.tenantsBySearchPath === true

/** The rows that are written together, at most one for each text. */
class Round {
  /** The rows by their identities. */
  readonly rows = new Map<string, TextRow>()
  /** The inputs of the next round. */
  readonly waiting: GivenRow[] = []
}

/** A row of a round, and what it does with further inputs that have its text. */
interface TextRow extends DistinctRow {
  /**
   * - `open`: an input joins it.
   * - `full`: an input would replace a value of it, so this one and those behind it wait for the next round.
   * - `apart`: inputs that were written together were refused, or SQL uses the row. Each input has a round of its own.
   */
  state: 'open' | 'full' | 'apart'
}

/** A row that was refused. An input with the same values is refused too, unless an earlier input may be stored by then. */
interface RefusedRow {
  readonly row: RowValues
  readonly result: { readonly error: RowError }
}

/** Reports the progress of a call to the caller, and lets the caller end it between two batches. */
export class Progress {
  private done = 0
  private created = 0
  private rejected = 0

  constructor(private readonly options: ProgressOptions = {}) {}

  /** @throws the signal's reason, once it is aborted */
  check(): void {
    this.options.signal?.throwIfAborted()
  }

  /** Counts the result of inputs. Of equal texts, only the first can be created. */
  count(result: { readonly created: boolean } | { readonly error: unknown }, inputs: number): void {
    this.done += inputs
    if ('error' in result) this.rejected += inputs
    else if (result.created) this.created += 1
  }

  get counts(): FindOrCreateProgress {
    const { done, created, rejected } = this
    return { done, created, rejected }
  }

  report(): void {
    this.options.onProgress?.(this.counts)
  }
}

/** Selects only the primary key, for callers that only count rows, unless a listener gets the entity. */
export function withKeyOnly(entityText: EntityText): EntityText {
  return listensToLoad(entityText) || listensTo('Insert', entityText) ? entityText : keyOnly(entityText)
}

/**
 * Runs the batches of a call one after another. Unless the caller's connection is used, a second connection takes the
 * next batch meanwhile, if the pool has one to spare.
 *
 * If a batch fails, no other begins, and the simultaneous one is awaited. No statement is under way when this ends.
 */
class Course<Entity extends ObjectLiteral> {
  private readonly call: ManyCall<Entity>
  private next: IteratorResult<Batch, unknown>
  private failure: { readonly error: unknown } | undefined
  private beside: Promise<void> | undefined
  /** Whether the batches blocked each other, by locks of triggers or by SERIALIZABLE. They are then sent one by one. */
  private lost = false

  /** @param pooled the session of the call; undefined sends one batch at a time */
  constructor(
    call: ManyCall<Entity>,
    private readonly batches: Generator<Batch>,
    private readonly pooled: PoolSession | undefined,
  ) {
    const onLost = (): void => {
      this.lost = true
      call.onLost?.()
    }
    this.call = { ...call, onLost }
    this.next = batches.next()
  }

  /** @throws the error of the first failed batch, and the reason of an aborted signal */
  async run(): Promise<void> {
    const { call, pooled } = this
    try {
      for (let batch = this.take(); batch; batch = this.take()) {
        if (pooled && !this.next.done) {
          // The first connection is taken before the second is requested, so this never waits for the second.
          await pooled.take()
          this.takeSecond()
        }
        await runBatch(call, batch)
        call.progress.report()
      }
    } catch (error) {
      this.failure ??= { error }
    }
    const { beside } = this
    try {
      // The other batch may still wait for a connection. It can get this one.
      if (beside) await pooled?.release()
    } finally {
      await beside
    }
    if (this.failure) throw this.failure.error
  }

  private take(): Batch | undefined {
    if (this.failure) return undefined
    this.call.progress.check()
    if (this.next.done) return undefined
    const { value } = this.next
    this.next = this.batches.next()
    return value
  }

  private takeSecond(): void {
    if (this.beside || this.lost || this.next.done || !hasSpare(this.call.session.dataSource)) return
    this.beside = this.runBeside().finally(() => (this.beside = undefined))
  }

  /** Runs batches on a second connection, until another call waits for a connection. */
  private async runBeside(): Promise<void> {
    const { dataSource } = this.call.session
    const session = new PoolSession(dataSource, 'master')
    const call = { ...this.call, session }
    try {
      // If this fails, the first connection runs the remaining batches. If the server is down, that fails too.
      const taken = await session.take().then(
        () => true,
        () => false,
      )
      while (!this.lost && !isAwaited(dataSource)) {
        const batch = taken ? this.take() : undefined
        if (!batch) break
        await session.take()
        await runBatch(call, batch)
        call.progress.report()
      }
      await session.close()
    } catch (error) {
      this.failure ??= { error }
    }
  }
}

/**
 * Looks for all rows of a call before anything is written. Then calls `create` for missing rows, one after another, in
 * the order of the inputs. The call holds no lock then, even in the caller's transaction.
 *
 * @returns the rows that remain to be found or created. A row that the common look-up did not answer keeps its
 * `create`.
 */
async function completeMissing<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  rows: readonly DistinctRow[],
): Promise<DistinctRow[]> {
  const given = new Map(rows.map((row) => [row.row.identity, row]))
  const left: DistinctRow[] = []
  const missing: DistinctRow[] = []
  const put = (list: DistinctRow[], row: DistinctRow): void => void list.push(given.get(row.row.identity) ?? row)
  const keys = rows.map((row): DistinctRow => {
    const { key } = row.row
    return { ...row, create: undefined, row: { ...row.row, others: [], all: key } }
  })
  for (const { items, alone } of inBatches(call, keys, (row) => put(left, row))) {
    call.progress.check()
    let answer: BatchAnswer | undefined
    try {
      if (!alone) answer = await sendBatch(call, findQuery(call, items))
    } catch (error) {
      // The error then concerns the values of a row.
      if (!isRowError(error)) throw error
    }
    if (answer) {
      const seen = new Set(answer.rows.map(({ index }) => items[index]))
      const unanswered = new Set(items)
      takeAnswers(call, items, answer, unanswered)
      for (const item of unanswered) put(seen.has(item) ? left : missing, item)
    } else for (const item of items) put(left, item)
    call.progress.report()
  }
  await call.session.release()
  for (const row of missing.toSorted((one, other) => one.input - other.input)) {
    try {
      left.push({ ...row, ...(await withCreated(call.entityText, row)) })
    } catch (error) {
      if (error instanceof TransactionAbortedError) throw error
      writeResult(call, row, { error: toRowError(error) })
    }
  }
  return left
}

/** The result for one input: its row, or the error that refused it. */
export type FindOrCreateManyResult<Entity> = FindOrCreateResult<Entity> | { readonly error: RowError }

/** The data that every step of one call needs. */
interface ManyCall<Entity extends ObjectLiteral>
  extends BatchRules, Pick<ManyRules<Entity>, 'updates' | 'first' | 'onLost'> {
  readonly session: Session
  readonly results: FindOrCreateManyResult<Entity>[]
  readonly deleted: DeletedOption
  readonly progress: Progress
  /** Whether each row has statements of its own. */
  readonly singly: boolean
  /** Whether rows may have a `create` that was not called yet. Each of these has statements of its own. */
  readonly isDeferred: boolean
}

/** The most rows that are sent one by one after one of them was refused. */
const FEW_ROWS = 3

/** @param statementRuns whether the statement itself is known not to cause an error */
async function runBatch<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  { items, alone }: Batch,
  statementRuns = false,
): Promise<void> {
  const together = call.isDeferred ? items.filter(({ create }) => !create) : items
  if (alone || call.singly || together.length === 0) return await runSingly(call, items)
  const left = new Set(items)
  try {
    await runTogether(call, together, left)
  } catch (error) {
    return await runAgain(call, [...left], error, statementRuns)
  }
  if (left.size > 0) await runSingly(call, [...left])
}

/**
 * Runs rows together, by the statements that their table supports.
 *
 * @param left the rows without an answer
 */
async function runTogether<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  left: Set<BatchItem>,
): Promise<void> {
  const { distributed, crashesByPruning } = call.entityText.ready
  const send: Send = async (part, query) => {
    const answer = await sendBatch(call, query)
    takeAnswers(call, part, answer, left)
    return answer
  }
  const isUpdate = (distributed || crashesByPruning) && items.some(({ row }) => isChanging(call.updates, row))
  if (isUpdate && crashesByPruning) await updateLocked(call, items, left)
  else if (isUpdate) await updateSpread(call, items, left, send)
  else if (distributed) await findOrCreateSpread(call, items, send)
  else await send(items, batchQuery(call, items))
}

/** Sends a statement for rows, and takes its answers, so that no later error sends it again for these. */
type Send = (part: readonly BatchItem[], query: BatchQuery) => Promise<BatchAnswer>

/** Looks rows up in a distributed table, then inserts the missing ones. */
async function findOrCreateSpread(rules: BatchRules, items: readonly BatchItem[], send: Send): Promise<void> {
  const found = await send(items, findQuery(rules, items))
  const seen = new Set(found.rows.map(({ index }) => items[index]))
  const missing = items.filter((item) => !seen.has(item))
  for (const { query, part } of createQueries(rules, missing)) await send(part, query)
}

/** Types of which different texts in a call are different values once they are stored. */
const EXACT = /^(?:smallint|integer|bigint|uuid)$/

/**
 * Updates rows of a distributed table, looks up those that may need no update, then inserts the others. Of rows that may
 * be equal once they are stored, only the first is sent.
 *
 * @param left the rows without an answer
 */
async function updateSpread(
  rules: BatchRules,
  items: readonly BatchItem[],
  left: ReadonlySet<BatchItem>,
  send: Send,
): Promise<void> {
  const { updates, entityText } = rules
  const isExact = entityText.declaration.table.scope.every((name) =>
    EXACT.test(entityText.ready.types.get(name)?.type ?? ''),
  )
  const first = new Map(items.toReversed().map((item) => [item.row.hash, item]))
  let rest = isExact ? items : items.filter((item) => first.get(item.row.hash) === item)
  // A statement for every shard costs more than a few for one.
  if (rest.length <= FEW_ROWS) return
  for (const isUnchanged of updates?.skipUnchanged || updates?.where ? [false, true] : [false]) {
    if (rest.length > 0) await send(rest, batchQuery(rules, rest, isUnchanged))
    rest = rest.filter((item) => left.has(item))
  }
  for (const { query, part } of createQueries(rules, rest)) await send(part, query)
}

/**
 * Updates rows of a table of which the server must not prune partitions after it has waited for a row. A first statement
 * locks the rows, so that the second one never waits. Then the others are inserted.
 *
 * The first statement may omit a row for which it has waited, because the server then prunes by the values of another
 * row. That row is locked, is not inserted, and is updated by itself.
 *
 * @param left the rows without an answer
 */
async function updateLocked<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  left: Set<BatchItem>,
): Promise<void> {
  // These statements open all partitions, and a statement for one row opens one.
  if (items.length <= PREPARED_ROWS) return
  const { session, entityText } = call
  const attempts = new Attempts(session, entityText.declaration.name)
  const tryOnce = async (
    own: Session,
  ): Promise<{ locked: ReadonlySet<number>; held: BatchItem[]; rows: BatchRow[] }> => {
    const indexes = await own.rows(statementsOf(entityText).lockMany, findQuery(call, items).values)
    const locked = new Set(indexes)
    const held = items.filter((_, index) => locked.has(index))
    if (held.length === 0) return { locked, held, rows: [] }
    const { statement, values } = batchQuery(call, held)
    return { locked, held, rows: await own.rows(statement, values) }
  }
  let answer
  while (!answer) {
    try {
      answer = await asOne(session, session.queryRunner.manager, async (own) => await withSession(own, tryOnce))
    } catch (error) {
      if (attempts.mayHelp(error)) call.onLost?.()
      await attempts.againWhole(error, false)
    }
  }
  const { locked, held, rows } = answer
  takeAnswers(call, held, { rows, attempts: attempts.count }, left)
  const missing = items.filter((_, index) => !locked.has(index))
  if (missing.length === 0) return
  // A row that is found, and not created, still has to be updated.
  const others = await sendBatch(call, batchQuery({ ...call, updates: undefined }, missing))
  takeAnswers(call, missing, { ...others, rows: others.rows.filter(({ created }) => created) }, left)
}

/** Finds the rows of a batch that was refused for some of them, by sending them in smaller parts. */
async function runAgain<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  error: unknown,
  statementRuns: boolean,
): Promise<void> {
  const changed = await onChanged(call, error)
  if (changed) return await runBatch(changed, { items, alone: false }, statementRuns)
  if (!isRowError(error) && !isOfBatch(call, error)) throw error
  if (items.length <= FEW_ROWS || isOfBatch(call, error)) return await runSingly(call, items)
  if (statementRuns || (await runsWithoutRows(call, items))) {
    // A row is refused for its values. Trying each half finds it.
    const middle = Math.ceil(items.length / 2)
    await runBatch(call, { items: items.slice(0, middle), alone: false }, true)
    return await runBatch(call, { items: items.slice(middle), alone: false }, true)
  }
  // The statement is refused, perhaps for a column that only some rows set.
  const sets = groupBy(items, ({ row }) => row.others.join('\n'))
  if (sets.size === 1) for (const item of items) writeError(call, item, error)
  else for (const set of sets.values()) await runBatch(call, { items: set, alone: false })
}

/**
 * Returns the call for the table as it is now, after a deferrable constraint was added or the table was distributed.
 * Nothing was done yet, or it was undone.
 *
 * @returns undefined if the error has another cause
 */
async function onChanged<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  error: unknown,
): Promise<ManyCall<Entity> | undefined> {
  const { entityText, session } = call
  if (!forgetIfChanged(entityText.declaration, error)) return undefined
  const changed = await readyText(session, entityText)
  const { deferrable, distributed } = entityText.ready
  const isSame = changed.ready.deferrable === deferrable && changed.ready.distributed === distributed
  return isSame ? undefined : { ...call, entityText: changed }
}

/**
 * Returns whether the rows of a distributed table may each be written by themselves after this error: Citus does not
 * support the SQL for several rows, or an UPDATE locked its rows in another order than others.
 */
const isOfBatch = (call: BatchRules, error: unknown): boolean =>
  (call.entityText.ready.distributed === true && serverError(error)?.code === SQLSTATE.featureNotSupported) ||
  (isSpreadUpdate(call) && isSerializationError(error))

/** Returns whether the statement runs without rows. A missing privilege, for instance, refuses it for any rows. */
async function runsWithoutRows<Entity extends ObjectLiteral>(
  { session, ...rules }: ManyCall<Entity>,
  items: readonly BatchItem[],
): Promise<boolean> {
  // Each of these statements takes as many parameters as it has rows.
  if (rules.entityText.ready.distributed) return true
  const { statement, values } = batchQuery(rules, items)
  try {
    await session.rowsOrRollBack(
      statement,
      values.map(() => []),
    )
    return true
  } catch (error) {
    if (!isRowError(error)) throw error
    return false
  }
}

/** The rows that a batch's statement returned, and the number of attempts. */
interface BatchAnswer {
  readonly rows: readonly BatchRow[]
  readonly attempts: number
}

/** @param left keeps the rows with no answer, several answers, or an unwanted deleted row: each is handled by itself */
function takeAnswers<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
  { rows, attempts }: BatchAnswer,
  left: Set<BatchItem>,
): void {
  const answers: (BatchRow | undefined)[] = []
  const doubled = new Set<number>()
  for (const row of rows) {
    if (answers[row.index]) doubled.add(row.index)
    answers[row.index] = row
  }
  for (const [index, item] of items.entries()) {
    const stored = answers[index]
    if (!stored || doubled.has(index) || (call.deleted !== 'return' && isDeleted(call.entityText, stored))) continue
    left.delete(item)
    try {
      const entity = hydrate(call.entityText, call.session, stored) as Entity
      writeResult(call, item, { entity, created: stored.created, attempts })
    } catch (error) {
      writeError(call, item, error)
    }
  }
}

/** Runs rows one by one with savepoints, because a refused row must not abort the caller's transaction. */
async function runSingly<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  items: readonly BatchItem[],
): Promise<void> {
  const session = call.session.withSavepoints()
  for (const item of items) {
    const onDeleted = { deleted: call.deleted, position: (call.first ?? 0) + item.input }
    const thrown: unknown[] = []
    const { create } = item
    const noting = async (): Promise<unknown> => {
      try {
        return await create?.()
      } catch (error) {
        // An error that a user's function throws concerns its row only.
        thrown.push(error)
        throw error
      }
    }
    const requested = create ? { ...item, create: noting } : item
    try {
      const { updates } = call
      const run = async ({ entityText }: ManyCall<Entity>): Promise<FindOrCreateResult<Entity>> =>
        await (updates && isChanging(updates, item.row)
          ? upsertRow<Entity>(session, entityText, requested, updates)
          : findOrCreateRow<Entity>(
              session,
              entityText,
              requested,
              new DeferredRow(session, entityText, requested),
              onDeleted,
            ))
      const result = await run(call).catch(async (error: unknown) => {
        const changed = await onChanged(call, error)
        if (!changed) throw error
        return await run(changed)
      })
      writeResult(call, item, result)
    } catch (error) {
      if (thrown.includes(error) && !(error instanceof TransactionAbortedError))
        writeResult(call, item, { error: toRowError(error) })
      else writeError(call, item, error)
    }
  }
}

/** @throws the error, unless it concerns only this row */
function writeError<Entity extends ObjectLiteral>(call: ManyCall<Entity>, item: DistinctRow, cause: unknown): void {
  const error = guardError(cause, [call.entityText.declaration]) ?? cause
  if (!isRowsDoing(error)) throw error
  writeResult(call, item, { error: toRowError(error) })
}

/** Returns whether an error concerns one row, and not the connection, the transaction or the server. */
export const isRowsDoing = (error: unknown): boolean =>
  isRowError(error) || (error instanceof UniqueTextError && !OF_NO_ROW.has(error.code))

const OF_NO_ROW: ReadonlySet<string> = new Set(['DATA_SOURCE_DESTROYED', 'TRANSACTION_ABORTED', 'WAITS_FOR_ITSELF'])

/**
 * Writes a result. Only the first input with a text can have created its row. An error is that of the first alone, and
 * the others are tried by themselves. If their changes were merged, so is the first.
 */
function writeResult<Entity extends ObjectLiteral>(
  { results, progress, updates }: Pick<ManyCall<Entity>, 'results' | 'progress' | 'updates'>,
  { input, repeats }: Pick<DistinctRow, 'input' | 'repeats'>,
  result: FindOrCreateManyResult<Entity>,
): void {
  if ('error' in result && repeats) {
    if (updates) return
    results[input] = result
    return progress.count(result, 1)
  }
  results[input] = result
  progress.count(result, 1 + (repeats?.length ?? 0))
  if (!repeats) return
  const again = { ...result, created: false }
  for (const repeat of repeats) results[repeat.input] = again
}

/** Sends a batch, and repeats attempts until one succeeds, unless its rows can be written one by one. */
async function sendBatch<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  { statement, values }: BatchQuery,
): Promise<BatchAnswer> {
  const { session, entityText, onLost } = call
  const attempts = new Attempts(session, entityText.declaration.name)
  for (;;) {
    try {
      return { rows: await session.rowsOrRollBack(statement, values), attempts: attempts.count }
    } catch (error) {
      if (attempts.mayHelp(error)) onLost?.()
      if (isOfBatch(call, error)) throw error
      await attempts.again(error)
    }
  }
}
