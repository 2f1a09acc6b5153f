import type { DeepPartial, EntityManager, ObjectLiteral } from 'typeorm'
import { isNumbered, scopeOrder } from './scope-order'
import { columnDefaults } from '../sql/catalog'
import { tableName } from '../sql/text-table'
import { ensureReady } from '../typeorm/readiness'
import { byHash, type DistinctRow, inBatches, isMixed } from './batches'
import type { DeletedOption, WatchOptions } from '../rows/call-options'
import { completeMissing } from './complete-missing'
import { type EntityText, onTable } from '../rows/entity-text'
import { listensToInsert, listensToLoad } from '../rows/events'
import type { FindOrCreateResult } from './find-or-create-row'
import { type AskedRow, askedRow } from '../rows/late-row'
import { finish, type RelationsToLoad } from '../rows/load-relations'
import { toRowError } from '../rows/row-error'
import { type FindOrCreateManyResult, goesSingly, writeResult } from './run-batch'
import { runBatches } from './run-batches'
import { Watch } from './watch'
import { openSession } from '../connection/open-session'
import { updateOf, type Updates, withUpdateOf } from '../rows/updates'

/** What happens to rows that are missing, found, or found deleted. */
interface ManyRules<Entity extends ObjectLiteral> {
  readonly create?: ObjectLiteral | ((values: never, index: number) => unknown) | undefined
  readonly updates?: Updates | undefined
  readonly deleted?: DeletedOption | undefined
  /** The caller loads relations, and fires AfterLoad. */
  readonly unfinished?: boolean
  readonly watch?: WatchOptions
  /** Index of the first input among those of the caller. @default 0 */
  readonly first?: number
  /** Calls that have not run yet, and whose rows this one asks for no more. They run before this one is answered. */
  readonly ahead?: readonly PreparedMany<Entity>[]
  /** Rows in one statement. @default 1,000 */
  readonly batchRows?: number
  /** The batches of this call and another one's were in each other's way. */
  readonly onLost?: () => void
}

/** A call in two halves: what needs no connection is done, so that it can be done while another batch is at the server. */
export class PreparedMany<Entity extends ObjectLiteral> {
  /** An input whose row was not reached, for the call has failed, has none. */
  readonly results: FindOrCreateManyResult<Entity>[] = []
  private readonly rows = new Map<string, DistinctRow>()
  readonly watch: Watch
  private readonly shared: { readonly index: number; readonly by: PreparedMany<Entity>; readonly of: number }[] = []
  private length = 0
  private over = false

  /**
   * @param entityText what it selects is what the entities hold
   * @param load undefined: no relations, the eager ones neither
   * @param rules @default rows are created of their values, and returned as they are found
   */
  constructor(
    private readonly entityText: EntityText,
    private readonly load: RelationsToLoad | undefined,
    private readonly rules: ManyRules<Entity> = {},
  ) {
    this.watch = new Watch(rules.watch)
  }

  /** Normalizes and hashes one input. */
  add(values: DeepPartial<Entity>): void {
    const index = this.results.length
    this.results.length += 1
    try {
      const { create, first = 0 } = this.rules
      const ofRow = typeof create === 'function' ? (): unknown => create(values as never, first + index) : create
      const asked = askedRow(this.entityText, values, ofRow)
      const known = this.rows.get(asked.row.identity)
      if (!known && this.isAhead(asked.row.identity, index)) return
      if (known) {
        known.repeats ??= []
        known.repeats.push(index)
        if (this.rules.updates)
          this.rows.set(asked.row.identity, withUpdate(this.entityText, this.rules.updates, known, asked))
      } else {
        const { row, more, create: rest } = asked
        this.rows.set(row.identity, { input: index, repeats: undefined, row, values, more, create: rest })
        for (const value of row.all) if (typeof value === 'string') this.length += value.length
      }
    } catch (error) {
      // A transformer of the user's own may throw anything for one row.
      writeResult(this, { input: index, repeats: undefined }, { error: toRowError(error) })
    }
  }

  /**
   * Leaves an input to the call that has asked for its row already. One that is over tells nothing: its row may have been
   * deleted since.
   */
  private isAhead(identity: string, index: number): boolean {
    for (const by of this.rules.ahead ?? []) {
      const of = by.over ? undefined : by.rows.get(identity)?.input
      if (of === undefined) continue
      this.shared.push({ index, by, of })
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

  /** For the inputs whose rows a call ahead has asked for, after both have run. */
  answerShared(): void {
    for (const { index, by, of } of this.shared.splice(0)) {
      const result = by.results[of]
      const again = result && 'entity' in result ? { ...result, created: false } : result
      if (again) writeResult(this, { input: index, repeats: undefined }, again)
    }
  }

  /** An input that could not even be read. */
  refuse(error: unknown): void {
    writeResult(this, { input: this.results.length, repeats: undefined }, { error: toRowError(error) })
  }

  async run(manager: EntityManager): Promise<FindOrCreateManyResult<Entity>[]> {
    if (this.rows.size === 0) {
      if (this.inputs > 0) this.watch.report()
      return this.results
    }
    const session = await openSession(manager)
    try {
      const { declaration } = this.entityText
      const entityText = onTable(this.entityText, await ensureReady(declaration, session))
      const { create, updates, deleted = 'return', onLost = noOne, first = 0, batchRows } = this.rules
      const { results, watch } = this
      const base = {
        session,
        entityText,
        defaults: NO_DEFAULTS,
        updates,
        deleted,
        results,
        watch,
        onLost,
        first,
        batchRows,
      }
      const asked = this.inOrder([...this.rows.values()])
      const late = typeof create === 'function'
      const rows = late ? this.inOrder(await completeMissing(base, asked)) : asked
      // Asked anew by each call: a default that was changed meanwhile counts for a single row at once.
      const defaults = isMixed(rows) ? await columnDefaults(session.query, tableName(declaration.table)) : NO_DEFAULTS
      const call = { ...base, defaults }
      const batches = inBatches(call, rows, (row, error) => {
        writeResult(call, row, { error: toRowError(error) })
      })
      // One by one, in the order of the inputs, as users' functions and listeners expect it, and numbers follow it.
      await runBatches(call, batches, {
        mayOverlap: !late && !goesSingly(call) && !isNumbered(this.entityText.metadata),
      })
      if (!this.rules.unfinished) await finish(session, entityText, this.given(), this.load)
    } finally {
      this.over = true
      await session.close()
    }
    return this.results
  }

  /** Of writing. */
  private inOrder(rows: DistinctRow[]): DistinctRow[] {
    const byScope = scopeOrder(this.entityText.metadata)
    return byScope?.(rows, ({ values, more }) => Object.assign({}, values, ...more)) ?? rows.sort(byHash)
  }

  /** Equal texts share an entity. */
  private given(): FindOrCreateResult<Entity>[] {
    const given: FindOrCreateResult<Entity>[] = []
    for (const { input } of this.rows.values()) {
      const result = this.results[input]
      if (result && 'entity' in result) given.push(result)
    }
    return given
  }
}

/** As if one were upserted after the other: the first is created, and each changes what it brings. */
function withUpdate(
  entityText: EntityText,
  updates: Updates,
  first: DistinctRow,
  { row, values, more }: AskedRow,
): DistinctRow {
  const update = updateOf(updates, row)
  const changes = [values, ...more].map((one) => pickColumns(entityText, one, update))
  return {
    ...first,
    row: withUpdateOf(first.row, entityText, row, update),
    more: [...first.more, ...changes],
  }
}

/** The properties that hold these columns; an embedded, or a relation, as a whole. */
function pickColumns({ others }: EntityText, values: ObjectLiteral, names: readonly string[]): ObjectLiteral {
  const columns = others.filter(({ databaseName }) => names.includes(databaseName))
  const properties = columns.map(({ propertyPath }) => propertyPath.split('.')[0] ?? propertyPath)
  return Object.fromEntries(properties.map((property) => [property, values[property]]))
}

const noOne = (): void => {}

const NO_DEFAULTS: ReadonlyMap<string, string> = new Map()

/** For those who count rows and do not look at them: entities hold their primary key only, unless a listener hears them. */
export function withoutColumns(entityText: EntityText): EntityText {
  if (listensToLoad(entityText) || listensToInsert(entityText)) return entityText
  const { primaryColumns } = entityText.metadata
  return { ...entityText, select: primaryColumns, readyTexts: new WeakMap() }
}
