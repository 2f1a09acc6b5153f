import type { EntityManager, ObjectLiteral } from 'typeorm'
import { openSession } from '../connection/open-session'
import { asOne } from '../connection/whole-transaction'
import { AttemptsExhaustedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError } from '../errors'
import {
  type DeletedOption,
  type DeletedOptions,
  type LoadOptions,
  namesFindOrCreate,
  type ProgressOptions,
} from '../rows/call-options'
import type { EntityText } from '../rows/entity-text'
import { finish, relationsToLoad } from '../rows/load-relations'
import { isObject, mergeCreated } from '../rows/nested-values'
import { requireObject, toRowError } from '../rows/refused-input'
import { isForeignKeyError } from '../sql/sqlstate'
import { Attempts, MAX_DANGLING } from './attempts'
import { type Covers, CREATING, needsMore, type NewNode, Planner, requireRow } from './nested-plan'
import { lookUpScoped } from './nested-look-up'
import { attach, NestedRun } from './nested-run'
import { PreparedMany } from './prepared-many'
import { Progress } from './progress'
import { type FindOrCreateManyResult, isRowsDoing } from './run-batch'
import type { FindOrCreateResult } from './try-once'

/** Most rows that are stored together, all or none. */
const ROWS_AT_ONCE = 1_000

/** How a call treats new objects in the relations of its rows. */
interface NestedCall {
  readonly manager: EntityManager
  readonly entityText: EntityText
  readonly covers: Covers
  readonly load: LoadOptions
  /** Of the rows themselves; an object that they bring is given back like any other. */
  readonly deleted: DeletedOption
}

interface NestedCallOptions extends DeletedOptions, Pick<LoadOptions, 'relationLoadStrategy'> {
  readonly relations?: unknown
}

type Result = FindOrCreateManyResult<ObjectLiteral>

/**
 * @returns undefined if no relation is found or created
 * @throws DeclarationError for a name that is no relation of the entity
 */
export function nestedCall(
  manager: EntityManager,
  entityText: EntityText,
  { relations, relationLoadStrategy, deleted = 'return' }: NestedCallOptions,
): NestedCall | undefined {
  if (!namesFindOrCreate(relations)) return undefined
  const call = { manager, entityText, deleted }
  const load = relationLoadStrategy ? { relationLoadStrategy } : {}
  if (!isObject(relations)) return { ...call, covers: () => true, load }
  const covers: Covers = ({ propertyPath }) => {
    let named: unknown = relations
    for (const name of propertyPath.split('.')) named = isObject(named) ? named[name] : undefined
    return typeof named === 'string'
  }
  const requested = { ...load, relations }
  // A name that is not a relation is reported before anything is written.
  relationsToLoad(entityText, requested)
  if (entityText.metadata.relations.filter(covers).length === countNamed(relations))
    return { ...call, covers, load: requested }
  throw new DeclarationError(
    `relations: 'findOrCreate' stands for a relation of ${entityText.metadata.name} itself, and for all that is nested in ` +
      `it. Name these only: { relation: 'findOrCreate' }.`,
  )
}

const countNamed = (relations: unknown): number => {
  if (!isObject(relations)) return typeof relations === 'string' ? 1 : 0
  return Object.values(relations).reduce((sum: number, one) => sum + countNamed(one), 0)
}

/**
 * Finds or creates rows with the objects that they bring. Each row is stored with all of its objects or not at all.
 *
 * @throws what `findOrCreateMany` throws for the whole call
 */
export async function findOrCreateNested(
  call: NestedCall,
  inputs: readonly ObjectLiteral[],
  options: ProgressOptions = {},
): Promise<Result[]> {
  const rows = new Rows(call, [...inputs])
  const progress = new Progress(options)
  for (let from = 0; from < inputs.length; from += ROWS_AT_ONCE) {
    progress.check()
    const indexes = [...inputs.keys()].slice(from, from + ROWS_AT_ONCE)
    await rows.run(indexes)
    for (const index of indexes) progress.count(rows.results[index] as Result, 1)
    progress.report()
  }
  progress.check()
  return rows.results
}

/**
 * Finds or creates a single row with its nested objects; throws whatever refuses that row.
 *
 * @param create gives values that are used only when the row is created
 */
export async function findOrCreateOneNested<Entity extends ObjectLiteral>(
  call: NestedCall,
  values: ObjectLiteral,
  create?: ObjectLiteral | (() => unknown),
): Promise<FindOrCreateResult<Entity>> {
  const rows = new Rows(call, [values], create)
  await rows.run([0])
  const [result] = rows.results
  if (!result || 'error' in result) throw result?.error
  return result as FindOrCreateResult<Entity>
}

/** Whether the error would be the same for every row. */
const isCallsDoing = (error: unknown): boolean =>
  error instanceof AttemptsExhaustedError ||
  error instanceof SchemaDriftError ||
  error instanceof UnsupportedDatabaseError

/** By the position of the row. */
type Nodes = ReadonlyMap<number, NewNode>

interface StoredNodes {
  readonly nodes: Nodes
  readonly attempts: number
}

class Rows {
  readonly results: Result[] = []

  /** @param create of the only row */
  constructor(
    private readonly call: NestedCall,
    private readonly inputs: ObjectLiteral[],
    private create?: ObjectLiteral | (() => unknown),
  ) {}

  /** A row that the database refuses undoes the others with it; trying each half tells which row it was. */
  async run(indexes: readonly number[]): Promise<void> {
    let stored: StoredNodes
    try {
      stored = await this.runAttempts(indexes)
    } catch (error) {
      if (!isRowsDoing(error) || isCallsDoing(error)) throw error
      const [first] = indexes
      if (indexes.length === 1 && first !== undefined) this.results[first] = { error: toRowError(error) }
      if (indexes.length < 2) return
      const middle = Math.ceil(indexes.length / 2)
      await this.run(indexes.slice(0, middle))
      await this.run(indexes.slice(middle))
      return
    }
    // Not a new attempt: it would find what is stored already, and count it as not created.
    await this.finish(stored)
  }

  /** The loop of attempts. */
  private async runAttempts(indexes: readonly number[]): Promise<StoredNodes> {
    const attempts = await Attempts.of(this.call.manager, this.call.entityText.declaration.name)
    for (;;) {
      try {
        const nodes = await this.tryOnce(indexes)
        if (nodes) return { nodes, attempts: attempts.count }
      } catch (error) {
        // Somebody may have deleted a row that was found before anything referred to it. With many rows this is tried
        // once, since trying each half tells which row it was.
        const isDangling = isForeignKeyError(error) && attempts.count <= (indexes.length > 1 ? 1 : MAX_DANGLING)
        await attempts.againWhole(error, isDangling)
        continue
      }
      // Not an attempt of ours: the caller gets what it throws.
      await this.takeCreated()
    }
  }

  /** @returns undefined if values must be created first */
  private async tryOnce(indexes: readonly number[]): Promise<Nodes | undefined> {
    const nodes = await this.plan(indexes)
    const planned = [...new Set(nodes.values())]
    if (this.create || planned.some(needsMore)) {
      const missing = await this.lookUp(nodes)
      if (this.create && missing.size > 0) return undefined
      const roots = planned.filter(({ row }) => !row)
      if (roots.length > 0) await asOne(this.call.manager, (own) => new NestedRun(own).run(roots, missing))
    } else await this.writePlain(nodes)
    return nodes
  }

  /**
   * Before a transaction begins: rows that are all found need none.
   *
   * @returns those that have no row
   */
  private async lookUp(nodes: Nodes): Promise<ReadonlySet<NewNode>> {
    const { manager, deleted } = this.call
    const onDeleted = new Map([...nodes].toReversed().map(([position, node]) => [node, { deleted, position }]))
    const planned = [...onDeleted.keys()]
    await lookUpScoped(manager, planned, { onDeleted })
    return new Set(planned.filter(({ row }) => !row))
  }

  /** Only rows of one table: one statement stores them. */
  private async writePlain(nodes: Nodes): Promise<void> {
    const { entityText, manager, deleted } = this.call
    const prepared = new PreparedMany<ObjectLiteral>(entityText, undefined, { deleted, unfinished: true })
    const distinct = [...new Set(nodes.values())]
    for (const { values } of distinct) prepared.add(values)
    const results = await prepared.run(manager)
    const resultOf = new Map(distinct.map((node, nth) => [node, results[nth]]))
    for (const [index, node] of nodes) {
      const result = resultOf.get(node)
      if (!result) continue
      if ('error' in result) this.results[index] = result
      else node.row = result
    }
  }

  private async finish({ nodes, attempts }: StoredNodes): Promise<void> {
    const written = [...new Set(nodes.values())].filter(({ row }) => row)
    await loadOnto(this.call, written)
    for (const node of written.filter(({ row }) => row?.created)) attach(node)
    const seen = new Set<NewNode>()
    for (const [index, node] of nodes) {
      const { row } = node
      if (!row) continue
      const created = row.created && !seen.has(node)
      this.results[index] = { ...row, created, attempts: row.attempts + attempts - 1 }
      seen.add(node)
    }
  }

  /** @returns a node for each row that is not refused already; one object given twice has one node */
  private async plan(indexes: readonly number[]): Promise<Nodes> {
    const { entityText, covers } = this.call
    const planner = new Planner(CREATING)
    const nodes = new Map<number, NewNode>()
    for (const index of indexes) {
      try {
        const given = this.inputs[index] as ObjectLiteral
        requireObject(entityText, given)
        nodes.set(index, await planner.plan(entityText.metadata, given, { entityText }, covers))
      } catch (error) {
        this.results[index] = { error: toRowError(error) }
      }
    }
    return nodes
  }

  /** Calls it once, and looks for the row again: the call may have taken long. */
  private async takeCreated(): Promise<void> {
    const { create } = this
    this.create = undefined
    const created: unknown = await (typeof create === 'function' ? (create as () => unknown)() : create)
    this.inputs[0] = mergeCreated(this.call.entityText.metadata, this.inputs[0] as ObjectLiteral, created)
  }
}

interface Loading {
  readonly manager: EntityManager
  readonly entityText: EntityText
  readonly load: LoadOptions
}

/**
 * Loads what `find` would load onto the entities of stored rows. Rows that were found get their stored relations,
 * whatever the values brought for them.
 */
async function loadOnto({ manager, entityText, load }: Loading, nodes: readonly NewNode[]): Promise<void> {
  const found = nodes.filter(({ row }) => !row?.created)
  const paths = found.flatMap(({ brought }) => brought.map(({ relation }) => relation.propertyPath))
  const session = await openSession(manager)
  try {
    for (const [group, options] of [
      [nodes.filter(({ row }) => row?.created), load],
      [found, load.relations ? load : { ...load, relations: paths }],
    ] as const) {
      const rows = [...new Map(group.map((node) => [requireRow(node).entity, requireRow(node)])).values()]
      if (rows.length > 0) await finish(session, entityText, rows, relationsToLoad(entityText, options))
    }
  } finally {
    await session.close()
  }
}
