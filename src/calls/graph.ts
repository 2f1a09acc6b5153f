import type { EntityManager, ObjectLiteral } from 'typeorm'
import { withSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { asOne } from '../connection/transactions'
import { AttemptsExhaustedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError } from '../errors'
import { isForeignKeyError } from '../sql/sqlstate'
import { Attempts, MAX_DANGLING } from './attempts'
import { groupBy } from './batches'
import {
  type DeletedOption,
  type DeletedOptions,
  type LoadOptions,
  namesFindOrCreate,
  type ProgressOptions,
} from './call-options'
import type { EntityText } from './entity-text'
import {
  type Covers,
  firstsOf,
  type Group,
  isDone,
  isNew,
  lookUp,
  lookUpScoped,
  needsMore,
  newAround,
  type NestedNode,
  type NewNode,
  Planner,
  storedRowOf,
  scopeOwners,
  setOwners,
} from './graph-plan'
import { afterLoad, finish, relationsToLoad } from './hydrate'
import { type FindOrCreateManyResult, isRowsDoing, PreparedMany, Progress } from './many'
import type { FindOrCreateResult } from './one-row'
import {
  givenIn,
  holdsKey,
  isObject,
  isPlainKey,
  mergeCreated,
  type Relation,
  requireObject,
  setRelation,
  toRowError,
} from './values'

/** The most rows that are stored together, all or none. */
const ROWS_AT_ONCE = 1_000

/** How a call treats new objects in the relations of its rows. */
interface NestedCall {
  readonly manager: EntityManager
  readonly entityText: EntityText
  readonly covers: Covers
  readonly load: LoadOptions
  /** The handling of deleted rows of the call itself. A nested object is returned like any other. */
  readonly deleted: DeletedOption
}

type NestedResult = FindOrCreateManyResult<ObjectLiteral>

/**
 * @returns undefined if no relation is found or created
 * @throws DeclarationError if the entity has no relation of that name
 */
export function nestedCall(
  manager: EntityManager,
  entityText: EntityText,
  {
    relations,
    relationLoadStrategy,
    deleted = 'return',
  }: DeletedOptions & Pick<LoadOptions, 'relationLoadStrategy'> & { readonly relations?: unknown },
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
    `relations: 'findOrCreate' applies to a relation of ${entityText.metadata.name} itself, and to everything that is nested in ` +
      `it. Name these only: { relation: 'findOrCreate' }.`,
  )
}

const countNamed = (relations: unknown): number => {
  if (!isObject(relations)) return typeof relations === 'string' ? 1 : 0
  return Object.values(relations).reduce((sum: number, one) => sum + countNamed(one), 0)
}

/**
 * Finds or creates rows with their nested objects. Each row is stored with all of its objects or not at all.
 *
 * @throws the errors that `findOrCreateMany` throws for the whole call
 */
export async function findOrCreateNested<Entity extends ObjectLiteral>(
  call: NestedCall,
  inputs: readonly ObjectLiteral[],
  options: ProgressOptions = {},
): Promise<FindOrCreateManyResult<Entity>[]> {
  const rows = new Rows(call, [...inputs])
  const progress = new Progress(options)
  for (let from = 0; from < inputs.length; from += ROWS_AT_ONCE) {
    progress.check()
    const indexes = [...inputs.keys()].slice(from, from + ROWS_AT_ONCE)
    await rows.run(indexes)
    for (const index of indexes) progress.count(rows.results[index] as NestedResult, 1)
    progress.report()
  }
  progress.check()
  return rows.results as FindOrCreateManyResult<Entity>[]
}

/**
 * Finds or creates a single row with its nested objects. Throws the error that refuses that row.
 *
 * @param create returns or holds values that are used only when the row is created
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

/** Errors that would be the same for every row. */
const OF_ANY_ROW = [AttemptsExhaustedError, SchemaDriftError, UnsupportedDatabaseError]

/** The nodes by the positions of their rows. */
type Nodes = ReadonlyMap<number, NewNode>

interface StoredNodes {
  readonly nodes: Nodes
  readonly attempts: number
}

class Rows {
  readonly results: NestedResult[] = []

  /** @param create further values of the only row */
  constructor(
    private readonly call: NestedCall,
    private readonly inputs: ObjectLiteral[],
    private create?: ObjectLiteral | (() => unknown),
  ) {}

  /** Stores rows. A refused row undoes the others with it. Each half is then tried, to find the refused row. */
  async run(indexes: readonly number[]): Promise<void> {
    let stored: StoredNodes
    try {
      const { manager, entityText } = this.call
      stored = await withSession(
        manager,
        async (session) => await this.runAttempts(indexes, new Attempts(session, entityText.declaration.name)),
      )
    } catch (error) {
      if (!isRowsDoing(error) || OF_ANY_ROW.some((one) => error instanceof one)) throw error
      const [first] = indexes
      if (indexes.length === 1 && first !== undefined) this.results[first] = { error: toRowError(error) }
      if (indexes.length < 2) return
      const middle = Math.ceil(indexes.length / 2)
      await this.run(indexes.slice(0, middle))
      await this.run(indexes.slice(middle))
      return
    }
    // An error here must not cause a new attempt, which would count the stored rows as not created.
    await this.finish(stored)
  }

  /** Repeats attempts until one succeeds. */
  private async runAttempts(indexes: readonly number[], attempts: Attempts): Promise<StoredNodes> {
    for (;;) {
      try {
        const nodes = await this.tryOnce(indexes, attempts.session)
        if (nodes) return { nodes, attempts: attempts.count }
      } catch (error) {
        // Somebody may have deleted a row that was found before a row referred to it. Many rows get one more attempt,
        // because trying each half finds the row.
        const isDangling = isForeignKeyError(error) && attempts.count <= (indexes.length > 1 ? 1 : MAX_DANGLING)
        await attempts.againWhole(error, isDangling)
        continue
      }
      // The caller gets an error of `create`, which is no reason for an attempt. It is called once, and may take long.
      const { create } = this
      this.create = undefined
      const created: unknown = await (typeof create === 'function' ? (create as () => unknown)() : create)
      this.inputs[0] = mergeCreated(this.call.entityText.metadata, this.inputs[0] as ObjectLiteral, created)
    }
  }

  /** @returns undefined if `create` must be called first */
  private async tryOnce(indexes: readonly number[], session: Session): Promise<Nodes | undefined> {
    const nodes = await this.plan(indexes)
    const planned = [...new Set(nodes.values())]
    if (this.create || planned.some(needsMore)) {
      const missing = await this.lookUp(nodes)
      if (this.create && missing.size > 0) return undefined
      const roots = planned.filter(({ row }) => !row)
      if (roots.length > 0) await asOne(session, this.call.manager, (own) => new NestedRun(own).run(roots, missing))
    } else await this.writePlain(nodes)
    return nodes
  }

  /**
   * Looks for rows before a transaction begins. If all are found, no transaction is needed.
   *
   * @returns nodes that have no row
   */
  private async lookUp(nodes: Nodes): Promise<ReadonlySet<NewNode>> {
    const { manager, deleted } = this.call
    const onDeleted = new Map([...nodes].toReversed().map(([position, node]) => [node, { deleted, position }]))
    const planned = [...onDeleted.keys()]
    await lookUpScoped(manager, planned, onDeleted)
    return new Set(planned.filter(({ row }) => !row))
  }

  /** Stores rows of one table, with one statement. */
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

  /** Loads the relations that `find` would load onto the entities of stored rows, and sets their results. */
  private async finish({ nodes, attempts }: StoredNodes): Promise<void> {
    const { manager, entityText, load } = this.call
    const written = [...new Set(nodes.values())].filter(({ row }) => row)
    const created = written.filter(({ row }) => row?.created)
    const found = written.filter(({ row }) => !row?.created)
    // Found rows get their stored relations, and not those of the values.
    const paths = found.flatMap(({ brought }) => brought.map(({ relation }) => relation.propertyPath))
    await withSession(manager, async (session) => {
      for (const [group, options] of [
        [created, load],
        [found, load.relations ? load : { ...load, relations: paths }],
      ] as const) {
        const rows = [...new Map(group.map((node) => [storedRowOf(node).entity, storedRowOf(node)])).values()]
        if (rows.length > 0) await finish(session, entityText, rows, relationsToLoad(entityText, options))
      }
    })
    for (const node of created) setBrought(node)
    const seen = new Set<NewNode>()
    for (const [index, node] of nodes) {
      const { row } = node
      if (!row) continue
      this.results[index] = { ...row, created: row.created && !seen.has(node), attempts: row.attempts + attempts - 1 }
      seen.add(node)
    }
  }

  /** @returns a node for each row that is not refused already; an object that is given twice has one node */
  private async plan(indexes: readonly number[]): Promise<Nodes> {
    const { entityText, covers } = this.call
    const planner = new Planner()
    const nodes = new Map<number, NewNode>()
    for (const index of indexes) {
      try {
        const given = this.inputs[index] as ObjectLiteral
        requireObject(entityText, given)
        nodes.set(index, await planner.plan(entityText, given, covers))
      } catch (error) {
        this.results[index] = { error: toRowError(error) }
      }
    }
    return nodes
  }
}

const nodeEntity = (node: NestedNode): ObjectLiteral =>
  isNew(node) ? storedRowOf(node).entity : (node.reference as ObjectLiteral)

/** Stores nodes as rows: first owners, then the row, then the objects that refer to it. An instance is used once. */
class NestedRun {
  private readonly depths = new Map<NewNode, number>()
  private readonly created: NewNode[] = []
  private readonly roots = new Set<NewNode>()

  /** @param manager manager of a transaction or with a savepoint, because an error leaves the rows incomplete */
  constructor(private readonly manager: EntityManager) {}

  /**
   * @param roots nodes whose entities stay unchanged, because the caller sets their relations
   * @param looked roots that were looked for and have no row
   */
  async run(roots: Group, looked: ReadonlySet<NewNode>): Promise<void> {
    for (const root of roots) this.roots.add(root)
    let wave: Group = roots
    for (let waves = 0; wave.length > 0; waves += 1) {
      const before = this.created.length
      await this.resolve(wave, waves === 0 ? looked : new Set())
      wave = this.created.slice(before).flatMap((node) => newAround(node).filter(({ begun }) => !begun))
    }
    for (const node of this.created) await this.adopt(node)
    await this.join()
    for (const node of this.created.filter((one) => !this.roots.has(one))) setBrought(node)
  }

  private async resolve(nodes: Group, looked: ReadonlySet<NewNode> = new Set()): Promise<void> {
    // Sorts owners before nodes that refer to them, and then by table, so that all calls use the same order.
    const groups = groupBy(nodes, (node) => {
      const depth = String(this.depthOf(node)).padStart(9, '0')
      return `${depth} ${node.metadata.tablePath} ${node.metadata.name} ${node.entityText?.declaration.name ?? ''}`
    })
    for (const [, group] of [...groups].sort(([left], [right]) => (left < right ? -1 : 1))) {
      await this.resolveGroup(group, looked)
    }
  }

  private depthOf(node: NewNode): number {
    const known = this.depths.get(node)
    if (known !== undefined) return known
    const depth = Math.max(0, ...[...node.owners.values()].map((owner) => this.depthOf(owner) + 1))
    this.depths.set(node, depth)
    return depth
  }

  /** Resolves nodes of one class and text. None of them owns another one. */
  private async resolveGroup(group: Group, looked: ReadonlySet<NewNode>): Promise<void> {
    const nodes = [...new Set(group)].filter((node) => !node.begun)
    for (const node of nodes) node.begun = true
    await this.resolve(nodes.flatMap(scopeOwners).filter((owner) => !owner.begun))
    for (const node of nodes) setOwners(node)
    // A node with the text of another one becomes its row, and the first alone determines what is created.
    const firstOf = firstsOf(nodes)
    const firsts = nodes.filter((node) => (firstOf.get(node) ?? node) === node)
    // A row that is found needs no new owner, so none must be created for it.
    const doubtful = firsts.filter(
      (node) =>
        node.entityText && !isDone(node) && !looked.has(node) && [...node.owners.values()].some((one) => !isDone(one)),
    )
    await lookUp(this.manager, doubtful)
    const missing = firsts.filter((node) => !isDone(node))
    await this.resolve(missing.flatMap(({ owners }) => [...owners.values()]).filter((owner) => !owner.begun))
    for (const node of missing) setOwners(node)
    const [some] = missing
    if (some?.entityText) await this.findOrCreate(some.entityText, missing)
    else if (some) await this.save(some.metadata.target, missing)
    this.created.push(...missing.filter(({ row }) => row?.created))
    for (const [node, first] of firstOf) node.row ??= { ...storedRowOf(first), created: false }
  }

  private async findOrCreate(entityText: EntityText, nodes: Group): Promise<void> {
    const prepared = new PreparedMany<ObjectLiteral>(entityText, undefined, { unfinished: true })
    for (const { values } of nodes) prepared.add(values)
    const results = await prepared.run(this.manager)
    for (const [index, result] of results.entries()) {
      if ('error' in result) throw result.error
      const node = nodes[index]
      if (node) node.row = result
    }
    // The events of the call's own rows fire once they have their relations.
    const found = nodes.filter(({ row }) => row && !row.created).filter((node) => !this.roots.has(node))
    await withSession(this.manager, async (session) => {
      await afterLoad(session, entityText, [...new Set(found.map(nodeEntity))])
    })
  }

  private async save(target: NewNode['metadata']['target'], nodes: Group): Promise<void> {
    const entities = nodes.map(savable)
    // A transaction is open already, perhaps one that SQL began and TypeORM does not know of.
    await this.manager.save(target, entities, { transaction: false })
    for (const [index, node] of nodes.entries()) {
      node.row = { entity: entities[index] ?? {}, created: true, attempts: 1 }
    }
  }

  /** Makes existing rows refer to the new one. */
  private async adopt(node: NewNode): Promise<void> {
    for (const { relation, nodes } of node.children) {
      const known = nodes.filter((child) => !isNew(child) || child.row?.created === false).map(nodeEntity)
      if (known.length === 0) continue
      const query = this.manager.createQueryBuilder().relation(node.metadata.target, relation.propertyPath)
      const row = query.of(storedRowOf(node).entity)
      await (relation.isOneToMany ? row.add(known) : row.set(known[0]))
    }
  }

  /** Inserts the rows of join tables, all rows of one table at once. */
  private async join(): Promise<void> {
    const pairs = this.created.flatMap((node) =>
      node.joined.flatMap(({ relation, nodes }) =>
        nodes.map((other) => joinRow(relation, storedRowOf(node).entity, nodeEntity(other))),
      ),
    )
    for (const [table, group] of groupBy(pairs, ({ junction }) => junction)) {
      const rows = [...new Map(group.map(({ row }) => [JSON.stringify(Object.values(row)), row])).values()]
      for (let from = 0; from < rows.length; from += JOINED_AT_ONCE) {
        const insert = this.manager.createQueryBuilder().insert().into(table.tablePath)
        const part = rows.slice(from, from + JOINED_AT_ONCE)
        await insert.values(part).orIgnore().updateEntity(false).execute()
      }
    }
  }
}

/** The most rows of one INSERT. Postgres takes 65,535 parameters, and a row has a handful. */
const JOINED_AT_ONCE = 1_000

/** Returns an entity for `save` with its columns and the keys of its owners, so that nothing is cascaded. */
function savable({ metadata, values }: NewNode): ObjectLiteral {
  const entity: ObjectLiteral = metadata.create()
  for (const column of metadata.nonVirtualColumns) {
    if (column.relationMetadata) continue
    const value: unknown = column.getEntityValue(values)
    if (value !== undefined) column.setEntityValue(entity, value)
  }
  for (const relation of metadata.relations.filter(holdsKey)) {
    const value = givenIn(relation, values)
    if (isPlainKey(value)) {
      if (value !== undefined) setRelation(relation, entity, value)
      continue
    }
    const referenced = relation.joinColumns.flatMap(({ referencedColumn }) => referencedColumn ?? [])
    const keys = [...relation.inverseEntityMetadata.primaryColumns, ...referenced].map((column) =>
      column.getEntityValueMap(value as ObjectLiteral),
    )
    setRelation(relation, entity, Object.assign({}, ...keys))
  }
  return entity
}

function joinRow(relation: Relation, entity: ObjectLiteral, other: ObjectLiteral) {
  const junction = relation.junctionEntityMetadata
  if (!junction) throw new TypeError(`"${relation.propertyPath}" has no join table.`)
  const [owner, inverse] = relation.isManyToManyOwner ? [entity, other] : [other, entity]
  const row: Record<string, unknown> = {}
  for (const [columns, side] of [
    [junction.ownerColumns, owner],
    [junction.inverseColumns, inverse],
  ] as const) {
    for (const column of columns) row[column.databaseName] = column.referencedColumn?.getEntityValue(side)
  }
  return { junction, row }
}

/** Sets the relations that the row was created with, except those that would form a cycle. */
function setBrought({ row, brought }: NewNode): void {
  if (!row) return
  for (const { relation, value } of brought) {
    const given = Array.isArray(value) ? [...new Set(value.map(nodeEntity))] : value && nodeEntity(value as NestedNode)
    setRelation(relation, row.entity, given)
  }
}
