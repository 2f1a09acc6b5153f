import type { DeepPartial, EntityManager, ObjectLiteral } from 'typeorm'
import { byHash, type DistinctRow, inBatches, isMixed, isNumbered, type Repeat, scopeOrder } from './batches'
import { columnDefaults } from '../sql/catalog'
import { tableName } from '../sql/text-table'
import { ensureReady } from '../schema/readiness'
import type { DeletedOption, ProgressOptions } from '../rows/call-options'
import { completeMissing, runBatches } from './run-batches'
import { type EntityText, onTable, type ReadyText } from '../rows/entity-text'
import { listensToInsert, listensToLoad } from '../rows/events'
import type { FindOrCreateResult } from './try-once'
import { type RequestedRow, requestedRow } from '../rows/deferred-row'
import { finish, finishes, type RelationsToLoad, relationsToLoad } from '../rows/load-relations'
import { withPromised } from '../rows/nested-values'
import type { Session } from '../connection/session'
import { toRowError } from '../rows/refused-input'
import { type FindOrCreateManyResult, goesSingly, writeResult } from './run-batch'
import { Progress } from './progress'
import { openSession } from '../connection/open-session'
import { hasSpare } from '../connection/pg-client'
import { registry } from '../registry/registry'
import { requireDeleteDate } from './deleted-rows'
import { isReplaced, isSame, updateOf, type Updates, withUpdate } from '../rows/updates'

/** What to do with rows that are missing, found, or found deleted. */
interface ManyRules<Entity extends ObjectLiteral> {
  readonly create?: ObjectLiteral | ((values: never, index: number) => unknown) | undefined
  readonly updates?: Updates | undefined
  readonly deleted?: DeletedOption | undefined
  /** The caller loads relations, and fires AfterLoad. */
  readonly unfinished?: boolean
  readonly progress?: ProgressOptions
  /** Index of the first input among those of the caller. @default 0 */
  readonly first?: number
  /**
   * Calls that have not run yet, and whose rows this call does not request again. They run before this one is answered.
   */
  readonly ahead?: readonly PreparedMany<Entity>[]
  /** Rows in one statement. @default 1,000 */
  readonly batchRows?: number
  /** Called when batches of this call and of another one blocked each other. */
  readonly onLost?: () => void
}

/** A call in two halves: the first needs no connection, and so can run while another batch is at the server. */
export class PreparedMany<Entity extends ObjectLiteral> {
  /** The results. An input whose row was not reached because the call failed has none. */
  readonly results: FindOrCreateManyResult<Entity>[] = []
  private readonly load: RelationsToLoad | undefined
  private readonly rows = new Map<string, DistinctRow>()
  readonly progress: Progress
  private readonly shared: (Given & { readonly by: PreparedMany<Entity>; readonly of: number })[] = []
  /** Inputs that wait until an earlier input with the same text is written. */
  private later: Given[] = []
  /** Texts, by their identity, of which an input waits. */
  private readonly waiting = new Set<string>()
  /** Texts whose inputs were refused when they were written together. */
  private readonly apart = new Set<string>()
  /** Rows of earlier rounds, by their identity. */
  private readonly before = new Map<string, DistinctRow[]>()
  private length = 0
  private over = false

  /**
   * @param entityText the entities hold the columns that it selects
   * @param load undefined: no relations, not even eager ones
   * @param rules @default rows are created of their values, and returned as they are found
   * @throws DeclarationError for the rule `deleted` where no row can be deleted softly and hold its text
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

  /** Whether another call may go to the server beside this one: nothing of the user's runs for its rows. */
  get mayOverlap(): boolean {
    const { dataSource } = this.entityText
    const tenants = registry.settings.get(dataSource)?.tenantsBySearchPath === true
    const runsCode = typeof this.rules.create === 'function' || listensToInsert(this.entityText)
    return !runsCode && !tenants && hasSpare(dataSource)
  }

  /** As `add`, once the promises of lazy relations are kept; at once where the entity has none. */
  addPromised(values: DeepPartial<Entity>): void | Promise<void> {
    const { metadata } = this.entityText
    if (metadata.lazyRelations.length === 0) return this.add(values)
    return withPromised(metadata, values).then(
      (kept) => this.add(kept),
      (error: unknown) => this.refuse(error),
    )
  }

  /** Equal for inputs of equal texts in one scope. @throws what `add` refuses them for */
  identityOf(values: DeepPartial<Entity>): string {
    return requestedRow(this.entityText, values).row.identity
  }

  /** Normalizes and hashes one input. */
  add(values: DeepPartial<Entity>): void {
    const input = this.results.length
    this.results.length += 1
    this.place({ input, values })
  }

  private place({ input, values }: Given): void {
    try {
      const { create, first = 0 } = this.rules
      const ofRow = typeof create === 'function' ? (): unknown => create(values as never, first + input) : create
      const requested = requestedRow(this.entityText, values, ofRow)
      const { row, more } = requested
      const known = this.rows.get(row.identity)
      if (known) return this.repeat(known, requested, input)
      if (this.isAhead(row.identity, { input, values })) return
      this.rows.set(row.identity, { input, repeats: undefined, row, values, more, create: requested.create })
      for (const value of row.all) if (typeof value === 'string') this.length += value.length
    } catch (error) {
      // The user's own transformer may throw anything for one row.
      writeResult(this, { input, repeats: undefined }, { error: toRowError(error) })
    }
  }

  /**
   * Adds another input with the same text. Changes are merged only if no value is lost: a value that a later input
   * replaces might be refused.
   */
  private repeat(known: DistinctRow, requested: RequestedRow, input: number): void {
    const { identity } = requested.row
    const { updates } = this.rules
    const update = updateOf(updates, requested.row)
    if (this.waiting.has(identity) || this.apart.has(identity) || isReplaced(known.row, requested.row, update)) {
      this.waiting.add(identity)
      this.later.push({ input, values: requested.values })
      return
    }
    known.repeats ??= []
    known.repeats.push({
      input,
      values: requested.values,
      isSame: requested.create === undefined && isSame(known.row, requested.row),
    })
    if (updates) this.rows.set(identity, withUpdate(this.entityText, updates, known, requested))
  }

  /**
   * Leaves an input to a call that has requested its row already. A call that is over says nothing: its row may have
   * been deleted since.
   */
  private isAhead(identity: string, given: Given): boolean {
    for (const by of this.rules.ahead ?? []) {
      const of = by.over ? undefined : by.rows.get(identity)?.input
      if (of === undefined) continue
      this.shared.push({ ...given, by, of })
      return true
    }
    return false
  }

  /** How many inputs were added. */
  get inputs(): number {
    return this.results.length
  }

  /** Of the texts that will be sent. */
  get characters(): number {
    return this.length
  }

  /**
   * For the inputs whose rows a call ahead has asked for, after both have run.
   *
   * @param manager tries here the inputs that were refused there; undefined leaves them without a result
   */
  async answerShared(manager: EntityManager | undefined): Promise<void> {
    const own: Given[] = []
    for (const { input, values, by, of } of this.shared.splice(0)) {
      const result = by.results[of]
      if (result && 'entity' in result) {
        writeResult(this, { input, repeats: undefined }, { ...result, created: false })
      } else if (result) own.push({ input, values })
    }
    if (own.length === 0 || !manager) return
    this.startRound(own)
    await this.run(manager)
  }

  /** An input that could not even be read. */
  refuse(error: unknown): void {
    writeResult(this, { input: this.results.length, repeats: undefined }, { error: toRowError(error) })
  }

  async run(manager: EntityManager): Promise<FindOrCreateManyResult<Entity>[]> {
    if (this.rows.size === 0) {
      if (this.inputs > 0) this.progress.report()
      return this.results
    }
    const session = await openSession(manager)
    try {
      const { declaration } = this.entityText
      const entityText = onTable(this.entityText, await ensureReady(declaration, session))
      for (;;) {
        await this.runRound(session, entityText)
        const again = this.again()
        if (again.length === 0) break
        this.startRound(again)
      }
      // Of thousands of rows, a list that nobody reads would count.
      const isOver = this.rules.unfinished || (this.before.size === 0 && !finishes(entityText, this.load))
      if (!isOver) await finish(session, entityText, this.given(), this.load)
    } finally {
      this.over = true
      await session.close()
    }
    return this.results
  }

  private async runRound(session: Session, entityText: ReadyText): Promise<void> {
    const { create, updates, deleted = 'return', onLost = noOne, first = 0, batchRows } = this.rules
    const { results, progress } = this
    const base = {
      session,
      entityText,
      defaults: NO_DEFAULTS,
      updates,
      deleted,
      results,
      progress,
      onLost,
      first,
      batchRows,
    }
    const requested = this.inOrder([...this.rows.values()])
    const isDeferred = typeof create === 'function'
    const rows = isDeferred ? this.inOrder(await completeMissing(base, requested)) : requested
    // Each call asks anew, so that a changed default takes effect at once, as it does for a single row.
    const table = tableName(entityText.declaration.table)
    const defaults = isMixed(rows) ? await columnDefaults(session.query, table) : NO_DEFAULTS
    const call = { ...base, defaults }
    const batches = inBatches(call, rows, (row, error) => {
      writeResult(call, row, { error: toRowError(error) })
    })
    // One by one, in the order of the inputs, as users' functions and listeners expect it, and numbers follow it.
    await runBatches(call, batches, {
      mayOverlap: !isDeferred && !goesSingly(call) && !isNumbered(this.entityText.metadata),
    })
  }

  /**
   * The inputs that have no answer yet, in their order: an earlier input with the same text was refused, or is written
   * by now.
   */
  private again(): Given[] {
    const again = this.later
    this.later = []
    this.waiting.clear()
    for (const { input, values, row, repeats } of this.rows.values()) {
      const result = this.results[input]
      if (!repeats || (result && 'entity' in result)) continue
      if (!result) {
        this.apart.add(row.identity)
        again.push({ input, values }, ...repeats)
        continue
      }
      for (const repeat of repeats) {
        if (repeat.isSame) writeResult(this, { input: repeat.input, repeats: undefined }, result)
        else again.push(repeat)
      }
    }
    return again.toSorted((left, right) => left.input - right.input)
  }

  private startRound(inputs: readonly Given[]): void {
    for (const row of this.rows.values()) {
      const { identity } = row.row
      this.before.set(identity, [...(this.before.get(identity) ?? []), row])
    }
    this.rows.clear()
    for (const one of inputs) this.place(one)
  }

  /** Of writing. */
  private inOrder(rows: DistinctRow[]): DistinctRow[] {
    const byScope = scopeOrder(this.entityText.metadata)
    return byScope?.(rows, ({ values, more }) => Object.assign({}, values, ...more)) ?? rows.sort(byHash)
  }

  /** Equal texts share an entity, in the state after the last round. */
  private given(): FindOrCreateResult<Entity>[] {
    const given = new Map<string, FindOrCreateResult<Entity>>()
    for (const rows of [...this.before.values(), this.rows.values()]) {
      for (const { input, row } of rows) {
        const result = this.results[input]
        if (result && 'entity' in result) given.set(row.identity, result)
      }
    }
    for (const [identity, rows] of this.before) {
      const entity = given.get(identity)?.entity
      const inputs = rows.flatMap(({ input, repeats = [] }) => [input, ...repeats.map((repeat) => repeat.input)])
      for (const input of entity ? inputs : []) {
        const result = this.results[input]
        if (entity && result && 'entity' in result) this.results[input] = { ...result, entity }
      }
    }
    return [...given.values()]
  }
}

/** An input to find or create. */
type Given = Pick<Repeat, 'input' | 'values'>

const noOne = (): void => {}

const NO_DEFAULTS: ReadonlyMap<string, string> = new Map()

/** For those who count rows and do not look at them: entities hold their primary key only, unless a listener hears them. */
export function withoutColumns(entityText: EntityText): EntityText {
  if (listensToLoad(entityText) || listensToInsert(entityText)) return entityText
  const { primaryColumns } = entityText.metadata
  return { ...entityText, select: primaryColumns, readyTexts: new WeakMap() }
}
