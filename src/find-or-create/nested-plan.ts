import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { declarationsOf } from '../registry/registry'
import { type EntityText, entityTextOf } from '../rows/entity-text'
import {
  classOf,
  copyOfGiven,
  isObject,
  isPlainKey,
  isReference,
  promisedIn,
  type Relation,
  setRelation,
} from '../rows/nested-values'
import { requireObject } from '../rows/refused-input'
import { checkUnscoped, newRowValues } from '../rows/row-values'

/** A row that exists, given by its key. */
interface ReferenceNode {
  readonly reference: ObjectLiteral
}

/** An object that will become a row: found or created by its text, or saved. */
export interface NewNode {
  readonly metadata: EntityMetadata
  /** undefined: it has no unique text, and TypeORM saves it. */
  readonly entityText: EntityText | undefined
  /** A copy of what was given, without its new objects; each owner is set when it is a row. */
  readonly values: ObjectLiteral
  /** New objects whose keys its own row holds. */
  readonly owners: Map<Relation, NewNode>
  /** What refers to it: one-to-many, and one-to-one from the other side. */
  readonly children: { readonly relation: Relation; readonly nodes: readonly NestedNode[] }[]
  readonly joined: { readonly relation: Relation; readonly nodes: readonly NestedNode[] }[]
  /** The object that the caller gave, for the result. */
  readonly brought: { readonly relation: Relation; readonly value: NestedNode | readonly NestedNode[] | null }[]
  /** The state of the node. */
  row?: NestedRow
  begun?: boolean
}

export type NestedNode = NewNode | ReferenceNode

interface NestedRow {
  readonly entity: ObjectLiteral
  readonly created: boolean
  readonly attempts: number
}

export function requireRow({ row, metadata }: NewNode): NestedRow {
  if (row) return row
  throw new TypeError(`An object of ${metadata.name} is used before it is a row.`)
}

export const isNew = (node: NestedNode): node is NewNode => 'values' in node

/** Whether new objects in a relation are found or created. */
export type Covers = (relation: Relation) => boolean

const everything: Covers = () => true

/** Whether it needs more than its own insert. */
export const needsMore = ({ owners, children, joined }: NewNode): boolean =>
  owners.size + children.length + joined.length > 0

/** Makes nodes of objects. The same object gives the same node. */
export class Planner {
  private readonly nodes = new Map<object, NewNode>()
  /** Objects of the row that is being planned. */
  private ofRow: object[] = []

  constructor(private readonly dataSource: DataSource) {}

  /**
   * Plans a row of the call with everything that it brings.
   *
   * @throws DeclarationError, TextRejectedError, before any SQL; other rows' objects stay planned
   */
  async plan(entityText: EntityText, given: ObjectLiteral, covers: Covers): Promise<NewNode> {
    requireObject(entityText, given)
    this.ofRow = []
    try {
      const node = await this.nodeOf({ metadata: entityText.metadata, entityText, given, covers })
      forbidCircles(node)
      return node
    } catch (error) {
      // Objects that are only half planned must not serve another row.
      for (const object of this.ofRow) this.nodes.delete(object)
      throw error
    }
  }

  private async nodeOf({ metadata, entityText, given, covers, parent }: Planned): Promise<NewNode> {
    const known = this.nodes.get(given)
    const node = known ?? emptyNode(metadata, entityText, copyOfGiven(metadata, given))
    if (parent) {
      setRelation(parent.relation, node.values, undefined)
      node.owners.set(parent.relation, parent.node)
    }
    if (known) return node
    this.nodes.set(given, node)
    this.ofRow.push(given)
    // The list that an object stands in says whose it is.
    const relations = metadata.relations.filter((relation) => covers(relation) && relation !== parent?.relation)
    for (const relation of relations) await this.addRelation(node, relation, given)
    if (entityText) checkValues(entityText, node)
    return node
  }

  private async addRelation(node: NewNode, relation: Relation, given: ObjectLiteral): Promise<void> {
    const value = await promisedIn(relation, given)
    if (value === undefined || typeof value === 'function') return
    const where = `"${relation.propertyPath}" of ${node.metadata.name}`
    if (relation.isOwning && !relation.isManyToMany) return await this.addOwner(node, relation, { value, where })
    const { inverseRelation } = relation
    const parent = relation.isManyToMany || !inverseRelation ? undefined : { relation: inverseRelation, node }
    const nodes = await this.itemsOf(relation, { value, where, parent })
    setRelation(relation, node.values, undefined)
    const isMany = relation.isManyToMany || relation.isOneToMany
    node.brought.push({ relation, value: isMany ? nodes : (nodes[0] ?? null) })
    if (nodes.length === 0) return
    if (relation.isManyToMany) node.joined.push({ relation, nodes })
    else node.children.push({ relation, nodes })
  }

  private async addOwner(node: NewNode, relation: Relation, { value, where }: Given): Promise<void> {
    if (Array.isArray(value)) throw new DeclarationError(`${where} is an array. Give one object, or its key.`)
    setRelation(relation, node.values, value)
    if (value === null) node.brought.push({ relation, value })
    if (isPlainKey(value)) return
    const owner = await this.itemOf(relation, { value, where })
    node.brought.push({ relation, value: owner })
    if (!isNew(owner)) return
    setRelation(relation, node.values, undefined)
    node.owners.set(relation, owner)
  }

  private async itemsOf(relation: Relation, { value, where, parent }: Given): Promise<NestedNode[]> {
    if (value === null) return []
    const isMany = relation.isManyToMany || relation.isOneToMany
    if (isMany !== Array.isArray(value)) {
      throw new DeclarationError(`${where} is ${kindOf(value)}. Give ${isMany ? 'an array' : 'one object'}.`)
    }
    const nodes: NestedNode[] = []
    for (const item of isMany ? (value as readonly unknown[]) : [value]) {
      nodes.push(await this.itemOf(relation, { value: item, where, parent }))
    }
    return nodes
  }

  private async itemOf(relation: Relation, { value: given, where, parent }: Given): Promise<NestedNode> {
    if (!isObject(given) || Array.isArray(given)) {
      throw new DeclarationError(`${where} holds ${kindOf(given)}. Give objects.`)
    }
    const metadata = classOf(relation, given, where)
    if (isReference(relation, metadata, given)) return { reference: given }
    const entityText = textOfObject(this.dataSource, metadata, given, where)
    return await this.nodeOf({ metadata, entityText, given, covers: everything, parent })
  }
}

/**
 * The text that a nested object is found by; undefined where it has none.
 *
 * @param where for messages
 * @throws DeclarationError for an object with several
 */
export function textOfObject(
  dataSource: DataSource,
  metadata: EntityMetadata,
  given: ObjectLiteral,
  where: string,
): EntityText | undefined {
  const declarations = declarationsOf(metadata)
  const brought = declarations.filter(({ text }) =>
    text.some(({ column }) => (column.getEntityValue(given) ?? undefined) !== undefined),
  )
  const [chosen = declarations.find(({ table }) => !table.nullable), another] = brought
  if (!chosen) return undefined
  if (another) {
    const names = brought.map(({ name }) => `"${name}"`).join(', ')
    throw new DeclarationError(
      `${where} holds a ${metadata.name} with several unique texts (${names}). ` +
        `Call findOrCreate() for it with the option "by", and pass the entity that you get.`,
    )
  }
  return entityTextOf(dataSource.manager, metadata.target, chosen.name)
}

/** The object that another one stands in a list of, or opposite to. */
interface Parent {
  /** Of the child, which holds the key. */
  readonly relation: Relation
  readonly node: NewNode
}

interface Given {
  readonly value: unknown
  /** For messages. */
  readonly where: string
  readonly parent?: Parent | undefined
}

interface Planned {
  readonly metadata: EntityMetadata
  readonly entityText: EntityText | undefined
  readonly given: ObjectLiteral
  readonly covers: Covers
  readonly parent?: Parent | undefined
}

function emptyNode(metadata: EntityMetadata, entityText: EntityText | undefined, values: ObjectLiteral): NewNode {
  return { metadata, entityText, values, owners: new Map(), children: [], joined: [], brought: [] }
}

/** Refuses values before any SQL, as far as possible: the scope may be a row that does not exist yet. */
function checkValues(entityText: EntityText, node: NewNode): void {
  if (!waitsForScope(node)) return void newRowValues(entityText, node.values)
  checkUnscoped(entityText, node.values)
}

/** Owners that must be rows before this one can be looked for. */
export function scopeOwners({ entityText, owners }: NewNode): NewNode[] {
  const scope = entityText?.declaration.scope ?? []
  return [...owners].flatMap(([{ joinColumns }, owner]) =>
    joinColumns.some((column) => scope.includes(column)) ? [owner] : [],
  )
}

const waitsForScope = (node: NewNode): boolean => scopeOwners(node).length > 0

/** Visits every new object that can be reached once. */
function forbidCircles(first: NewNode): void {
  const safe = new Set<NewNode>()
  const waiting = [first]
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (safe.has(node)) continue
    forbidCircle(node, new Set(), safe)
    const around = [...node.children, ...node.joined].flatMap(({ nodes }) => nodes.filter(isNew))
    waiting.push(...node.owners.values(), ...around.filter((one) => !safe.has(one)))
  }
}

function forbidCircle(node: NewNode, way: Set<NewNode>, safe: Set<NewNode>): void {
  if (safe.has(node)) return
  if (way.has(node)) {
    throw new DeclarationError(
      `${node.metadata.name}: new objects form a cycle, and none can be the first row. ` +
        `Create one of them without its relation, and set that afterwards.`,
    )
  }
  way.add(node)
  for (const owner of node.owners.values()) forbidCircle(owner, way, safe)
  safe.add(node)
}
