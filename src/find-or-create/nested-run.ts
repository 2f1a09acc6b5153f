import type { EntityManager, ObjectLiteral } from 'typeorm'
import { groupBy } from './batches'
import type { EntityText } from '../rows/entity-text'
import { afterLoad } from '../rows/events'
import { firstsOf, isDone, lookUp, setOwners } from './nested-look-up'
import { isNew, type NestedNode, type NewNode, requireRow, scopeOwners } from './nested-plan'
import { givenIn, holdsKey, isPlainKey, type Relation, setRelation } from '../rows/nested-values'
import { PreparedMany } from './prepared-many'
import { openSession } from '../connection/open-session'

type Group = readonly NewNode[]

const nodeEntity = (node: NestedNode): ObjectLiteral =>
  isNew(node) ? requireRow(node).entity : (node.reference as ObjectLiteral)

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
    // A node with the text of another one becomes its row: the first alone decides what is created.
    const firstOf = firstsOf(nodes)
    const firsts = nodes.filter((node) => (firstOf.get(node) ?? node) === node)
    // A row that is found needs no new owner, so none must be created for it.
    const doubtful = firsts.filter((node) => node.entityText && !isDone(node) && !looked.has(node) && bringsNew(node))
    await lookUp(this.manager, doubtful)
    const missing = firsts.filter((node) => !isDone(node))
    await this.resolve(missing.flatMap(({ owners }) => [...owners.values()]).filter((owner) => !owner.begun))
    for (const node of missing) setOwners(node)
    await this.write(missing)
    this.created.push(...missing.filter(({ row }) => row?.created))
    for (const [node, first] of firstOf) node.row ??= { ...requireRow(first), created: false }
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

const bringsNew = ({ owners }: NewNode): boolean => [...owners.values()].some((owner) => !isDone(owner))

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
