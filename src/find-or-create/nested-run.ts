import type { EntityManager, ObjectLiteral } from 'typeorm'
import { ensureReady } from '../schema/readiness'
import { groupBy } from './batches'
import { afterDeletion, type OnDeleted } from './deleted-rows'
import { type EntityText, onTable } from '../rows/entity-text'
import { afterLoad } from '../rows/events'
import { findRows } from './try-once'
import { hydrate } from '../rows/hydrate'
import { isNew, type NestedNode, type NewNode, requireRow, scopeOwners } from './nested-plan'
import { givenIn, isPlainKey, type Relation, setRelation } from '../rows/nested-values'
import { PreparedMany } from './prepared-many'
import { rowValues } from '../rows/row-values'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'

type Group = readonly NewNode[]

const isDone = ({ row }: NewNode): boolean => row !== undefined

const nodeEntity = (node: NestedNode): ObjectLiteral => (isNew(node) ? requireRow(node).entity : node.reference)

/** For the rows of the call itself: their AfterLoad fires once they have their relations. */
interface LookUpOptions {
  readonly onDeleted?: (node: NewNode) => OnDeleted
}

/**
 * Looks for the rows of nodes that have a text. Rows that are found are as `find` gives them.
 *
 * @throws TextTakenError as `onDeleted` says, and for a row of another class
 */
async function lookUp(manager: EntityManager, nodes: Group, options: LookUpOptions = {}): Promise<void> {
  const session = await openSession(manager)
  try {
    for (const [entityText, group] of groupBy(nodes, (node) => node.entityText)) {
      if (!entityText) continue
      const entities = await lookUpGroup(session, entityText, group, options)
      if (!options.onDeleted) await afterLoad(session, entityText, entities)
    }
  } finally {
    await session.close()
  }
}

/**
 * Looks for the rows of nodes whose scope may be a new object. The scope's row is looked for first: if it is missing,
 * so is the row of the node.
 *
 * @throws as `lookUp`
 */
export async function lookUpScoped(manager: EntityManager, nodes: Group, options: LookUpOptions = {}): Promise<void> {
  const owners = [...new Set(nodes.flatMap(scopeOwners))].filter((owner) => !isDone(owner))
  if (owners.length > 0) await lookUpScoped(manager, owners)
  for (const node of nodes) setOwners(node)
  await lookUp(
    manager,
    nodes.filter((node) => scopeOwners(node).every(isDone)),
    options,
  )
}

async function lookUpGroup(
  session: Session,
  entityText: EntityText,
  nodes: Group,
  { onDeleted }: LookUpOptions,
): Promise<ObjectLiteral[]> {
  const ready = onTable(entityText, await ensureReady(entityText.declaration, session))
  const requested = nodes.map((node) => ({ node, row: rowValues(entityText, node.values) }))
  const found = await findRows(
    session,
    ready,
    requested.map(({ row }) => row),
  )
  const entities = new Map<string, ObjectLiteral>()
  for (const { node, row } of requested) {
    const held = found.get(row.identity)
    const stored = onDeleted ? await afterDeletion(session, ready, { stored: held, row }, onDeleted(node)) : held
    if (!stored) continue
    const entity = entities.get(row.identity) ?? hydrate(entityText, session, stored)
    entities.set(row.identity, entity)
    node.row = { entity, created: false, attempts: 1 }
  }
  return [...entities.values()]
}

/** Makes rows of nodes: owners before the row, what refers to it afterwards. One use each. */
export class NestedRun {
  private readonly depths = new Map<NewNode, number>()
  private readonly created: NewNode[] = []
  private readonly roots = new Set<NewNode>()

  /** @param manager of a transaction, or with a savepoint: the first error leaves everything half done */
  constructor(private readonly manager: EntityManager) {}

  /**
   * @param roots keep their entities as they are: the caller attaches what they brought
   * @param looked roots that were looked for, and have no row
   */
  async run(roots: Group, looked: ReadonlySet<NewNode>): Promise<void> {
    for (const root of roots) this.roots.add(root)
    let wave: Group = roots
    for (let waves = 0; wave.length > 0; waves += 1) {
      const before = this.created.length
      await this.resolve(wave, waves === 0 ? looked : new Set())
      wave = this.created.slice(before).flatMap(nextOf)
    }
    for (const node of this.created) await this.adopt(node)
    await this.join()
    for (const node of this.created.filter((one) => !this.roots.has(one))) attach(node)
  }

  private async resolve(nodes: Group, looked: ReadonlySet<NewNode> = new Set()): Promise<void> {
    const groups = [...groupBy(nodes, (node) => this.orderOf(node))].sort(([left], [right]) => (left < right ? -1 : 1))
    for (const [, group] of groups) await this.resolveGroup(group, looked)
  }

  /** Owners before what refers to them; then by table, so that two calls meet in the same order. */
  private orderOf(node: NewNode): string {
    const depth = String(this.depthOf(node)).padStart(9, '0')
    return `${depth} ${node.metadata.tablePath} ${node.metadata.name} ${node.entityText?.declaration.name ?? ''}`
  }

  private depthOf(node: NewNode): number {
    const known = this.depths.get(node)
    if (known !== undefined) return known
    const depth = Math.max(0, ...[...node.owners.values()].map((owner) => this.depthOf(owner) + 1))
    this.depths.set(node, depth)
    return depth
  }

  /** Of one class and text; none of them owns another one. */
  private async resolveGroup(group: Group, looked: ReadonlySet<NewNode>): Promise<void> {
    const nodes = [...new Set(group)].filter((node) => !node.begun)
    for (const node of nodes) node.begun = true
    await this.resolve(nodes.flatMap(scopeOwners).filter((owner) => !owner.begun))
    for (const node of nodes) setOwners(node)
    const twins = twinsOf(nodes)
    // A row that is found needs no new owner, so none must be created for it.
    const firsts = nodes.filter((node) => !twins.has(node))
    const doubtful = firsts.filter((node) => node.entityText && !isDone(node) && !looked.has(node) && bringsNew(node))
    await lookUp(this.manager, doubtful)
    const missing = firsts.filter((node) => !isDone(node))
    await this.resolve(missing.flatMap(({ owners }) => [...owners.values()]).filter((owner) => !owner.begun))
    for (const node of missing) setOwners(node)
    await this.write(missing)
    this.created.push(...missing.filter(({ row }) => row?.created))
    for (const [twin, first] of twins) twin.row ??= { ...requireRow(first), created: false }
  }

  private async write(nodes: Group): Promise<void> {
    const [first] = nodes
    if (!first) return
    if (first.entityText) await this.findOrCreate(first.entityText, nodes)
    else await this.save(first, nodes)
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
    await this.tellLoaded(entityText, nodes)
  }

  /** Events of the call's own rows fire once they have their relations. */
  private async tellLoaded(entityText: EntityText, nodes: Group): Promise<void> {
    const found = nodes.filter(({ row }) => row && !row.created).filter((node) => !this.roots.has(node))
    const session = await openSession(this.manager)
    await afterLoad(session, entityText, [...new Set(found.map(nodeEntity))])
    await session.close()
  }

  private async save({ metadata }: NewNode, nodes: Group): Promise<void> {
    const entities = nodes.map(savable)
    // A transaction is open already, perhaps one that SQL began and TypeORM does not know of.
    await this.manager.save(metadata.target, entities, { transaction: false })
    for (const [index, node] of nodes.entries()) {
      node.row = { entity: entities[index] ?? {}, created: true, attempts: 1 }
    }
  }

  /** Rows that existed refer to the new one from now on. */
  private async adopt(node: NewNode): Promise<void> {
    for (const { relation, nodes } of node.children) {
      const known = nodes.filter((child) => !isNew(child) || child.row?.created === false).map(nodeEntity)
      if (known.length === 0) continue
      const query = this.manager.createQueryBuilder().relation(node.metadata.target, relation.propertyPath)
      const row = query.of(requireRow(node).entity)
      await (relation.isOneToMany ? row.add(known) : row.set(known[0]))
    }
  }

  /** The rows of join tables, all of one table at once. */
  private async join(): Promise<void> {
    const pairs = this.created.flatMap((node) =>
      node.joined.flatMap(({ relation, nodes }) =>
        nodes.map((other) => joinRow(relation, requireRow(node).entity, nodeEntity(other))),
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

/** Postgres takes 65,535 parameters, and a row has a handful. */
const JOINED_AT_ONCE = 1_000

const nextOf = ({ children, joined }: NewNode): NewNode[] =>
  [...children, ...joined].flatMap(({ nodes }) => nodes.filter(isNew)).filter(({ begun }) => !begun)

/** Nodes with the text of another one, which alone decides what is created. */
function twinsOf(nodes: Group): ReadonlyMap<NewNode, NewNode> {
  const firsts = new Map<string, NewNode>()
  const twins = new Map<NewNode, NewNode>()
  for (const node of nodes) {
    if (!node.entityText) continue
    const { identity } = rowValues(node.entityText, node.values)
    const first = firsts.get(identity)
    if (first) twins.set(node, first)
    else firsts.set(identity, node)
  }
  return twins
}

const bringsNew = ({ owners }: NewNode): boolean => [...owners.values()].some((owner) => !isDone(owner))

function setOwners({ owners, values }: NewNode): void {
  for (const [relation, owner] of owners) {
    if (owner.row) setRelation(relation, values, owner.row.entity)
  }
}

/** For `save`: its columns and the keys of its owners, so that no cascade goes further. */
function savable({ metadata, values }: NewNode): ObjectLiteral {
  const entity: ObjectLiteral = metadata.create()
  for (const column of metadata.nonVirtualColumns) {
    if (column.relationMetadata) continue
    const value: unknown = column.getEntityValue(values)
    if (value !== undefined) column.setEntityValue(entity, value)
  }
  for (const relation of metadata.relations.filter(holdsKey)) {
    const value = givenIn(relation, values)
    if (value !== undefined) setRelation(relation, entity, isPlainKey(value) ? value : joinKey(relation, value))
  }
  return entity
}

const holdsKey = ({ isOwning, isManyToMany }: Relation): boolean => isOwning && !isManyToMany

function joinKey({ inverseEntityMetadata, joinColumns }: Relation, owner: unknown): ObjectLiteral {
  const columns = joinColumns.flatMap(({ referencedColumn }) => (referencedColumn ? [referencedColumn] : []))
  const maps = [...inverseEntityMetadata.primaryColumns, ...columns].map((column) =>
    column.getEntityValueMap(owner as ObjectLiteral),
  )
  return Object.assign({}, ...maps) as ObjectLiteral
}

interface JoinRow {
  readonly junction: Relation['inverseEntityMetadata']
  readonly row: Record<string, unknown>
}

function joinRow(relation: Relation, entity: ObjectLiteral, other: ObjectLiteral): JoinRow {
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

/** The result holds what the row was created with, and nothing that would form a cycle. */
export function attach({ row, brought }: NewNode): void {
  if (!row) return
  for (const { relation, value } of brought) {
    const given = Array.isArray(value) ? value.map(nodeEntity) : value && nodeEntity(value as NestedNode)
    setRelation(relation, row.entity, given)
  }
}
