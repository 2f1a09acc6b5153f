import type { EntityManager, EntityMetadata, ObjectLiteral } from 'typeorm'
import { withSession } from '../connection/open-session'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { type ColumnMetadata, dataSourceOf, textsOfEntity } from '../registry/registry'
import { parameterText } from '../sql/types'
import { groupBy } from './batches'
import { type EntityText, entityTextOf, readyText } from './entity-text'
import { afterLoad, hydrate } from './hydrate'
import { afterDeletion, type OnDeleted } from './one-row'
import { checkUnscoped, requestedRow, rowValues } from './row-values'
import {
  classOf,
  copyOfGiven,
  givenIn,
  givenTexts,
  holdsKey,
  isPlainKey,
  isReference,
  type Relation,
  setRelation,
} from './values'
import { findRows } from './look-up'

/** An object that will become a row. It is found or created by its text, or saved. */
export interface NewNode {
  readonly metadata: EntityMetadata
  /** The text to find it by. If it is undefined, the object has no unique text, and TypeORM saves it. */
  readonly entityText: EntityText | undefined
  readonly given: ObjectLiteral
  /** A copy of the given values, without new objects. Each owner is set when it is a row. */
  readonly values: ObjectLiteral
  /** New objects whose keys the node's row holds. */
  readonly owners: Map<Relation, NewNode>
  /** Objects that refer to the node: one-to-many, and one-to-one from the other side. */
  readonly children: { readonly relation: Relation; readonly nodes: readonly NestedNode[] }[]
  readonly joined: { readonly relation: Relation; readonly nodes: readonly NestedNode[] }[]
  /** The relations that the caller gave, for the result. */
  readonly brought: { readonly relation: Relation; readonly value: NestedNode | readonly NestedNode[] | null }[]
  /** The state of the node. */
  row?: NestedRow
  begun?: boolean
}

/** A new object, or a row that exists, given by its key or by an object that has it. */
export type NestedNode = NewNode | { readonly reference: unknown }

interface NestedRow {
  readonly entity: ObjectLiteral
  readonly created: boolean
  readonly attempts: number
}

export function storedRowOf({ row, metadata }: NewNode): NestedRow {
  if (row) return row
  throw new TypeError(`An object of ${metadata.name} is used before it is a row.`)
}

export const isNew = (node: NestedNode): node is NewNode => 'values' in node

/** New objects that refer to a node, or are joined to it. */
export const newAround = ({ children, joined }: NewNode): NewNode[] =>
  [...children, ...joined].flatMap(({ nodes }) => nodes.filter(isNew))

/** Returns whether new objects in a relation are found or created. */
export type Covers = (relation: Relation) => boolean

/** Returns whether a node needs more than its own insert. */
export const needsMore = ({ owners, children, joined }: NewNode): boolean =>
  owners.size + children.length + joined.length > 0

/** Creates nodes from objects. The same object gets the same node. */
export class Planner {
  private readonly nodes = new Map<object, NewNode>()
  /** The objects of the row that is being planned. */
  private ofRow: object[] = []

  /**
   * Plans an object of the call with all objects nested in it.
   *
   * @throws DeclarationError, TextRejectedError before any SQL; other rows' objects stay planned
   */
  async plan(entityText: EntityText, given: ObjectLiteral, covers: Covers): Promise<NewNode> {
    this.ofRow = []
    try {
      const node = await this.nodeOf(entityText.metadata, given, entityText, covers)
      forbidCircles(node)
      return node
    } catch (error) {
      // Objects that are planned only in part must not serve another row.
      for (const object of this.ofRow) this.nodes.delete(object)
      throw error
    }
  }

  private async nodeOf(
    metadata: EntityMetadata,
    given: ObjectLiteral,
    entityText: EntityText | undefined,
    covers: Covers,
    parent?: ParentNode,
  ): Promise<NewNode> {
    const known = this.nodes.get(given)
    const lists = { owners: new Map<Relation, NewNode>(), children: [], joined: [], brought: [] }
    const node: NewNode = known ?? { metadata, given, values: copyOfGiven(metadata, given), ...lists, entityText }
    if (!known) {
      this.nodes.set(given, node)
      this.ofRow.push(given)
      for (const relation of metadata.relations) {
        if (covers(relation) && relation !== parent?.relation) await this.addRelation(node, relation, given)
      }
    }
    // The parent whose list contains the object is its owner.
    if (parent) {
      setRelation(parent.relation, node.values, undefined)
      node.owners.set(parent.relation, parent.node)
    }
    // Values are refused before any SQL as far as possible, because the scope may be a row that does not exist yet.
    if (!known && entityText) (scopeOwners(node).length > 0 ? checkUnscoped : requestedRow)(entityText, node.values)
    return node
  }

  private async addRelation(node: NewNode, relation: Relation, given: ObjectLiteral): Promise<void> {
    const value = await givenIn(relation, given)
    if (value === undefined || typeof value === 'function') return
    const where = `"${relation.propertyPath}" of ${node.metadata.name}`
    const isMany = relation.isManyToMany || relation.isOneToMany
    if (value !== null && isMany !== Array.isArray(value)) {
      const wanted = isMany ? 'an array' : `one object${holdsKey(relation) ? ', or its key' : ''}`
      throw new DeclarationError(`${where} is ${kindOf(value)}. Give ${wanted}.`)
    }
    if (holdsKey(relation)) await this.addOwner(node, relation, value, where)
    else await this.addOthers(node, relation, value, where)
  }

  private async addOwner(node: NewNode, relation: Relation, value: unknown, where: string): Promise<void> {
    setRelation(relation, node.values, value)
    if (value === null) node.brought.push({ relation, value })
    if (isPlainKey(value)) return
    const owner = await this.itemOf(relation, value, where)
    node.brought.push({ relation, value: owner })
    if (!isNew(owner)) return
    setRelation(relation, node.values, undefined)
    node.owners.set(relation, owner)
  }

  private async addOthers(node: NewNode, relation: Relation, value: unknown, where: string): Promise<void> {
    const { inverseRelation, isManyToMany } = relation
    const parent = isManyToMany || !inverseRelation ? undefined : { relation: inverseRelation, node }
    const nodes: NestedNode[] = []
    for (const item of value === null ? [] : [value].flat()) {
      nodes.push(await this.itemOf(relation, item, where, parent))
    }
    setRelation(relation, node.values, undefined)
    node.brought.push({ relation, value: isManyToMany || relation.isOneToMany ? nodes : (nodes[0] ?? null) })
    if (nodes.length > 0) (isManyToMany ? node.joined : node.children).push({ relation, nodes })
  }

  private async itemOf(relation: Relation, value: unknown, where: string, parent?: ParentNode): Promise<NestedNode> {
    if (isPlainKey(value) || Array.isArray(value)) {
      throw new DeclarationError(`${where} holds ${kindOf(value)}. Give objects.`)
    }
    const given = value as ObjectLiteral
    const metadata = classOf(relation, given, where)
    if (isReference(relation, metadata, given)) return { reference: given }
    return await this.nodeOf(metadata, given, textOfObject(metadata, given, where), () => true, parent)
  }
}

/**
 * Returns the text by which a nested object is found; undefined if it has none.
 *
 * @param where the place of the object, for messages
 * @throws DeclarationError for an object with several texts
 */
function textOfObject(metadata: EntityMetadata, given: ObjectLiteral, where: string): EntityText | undefined {
  const declarations = textsOfEntity(metadata)
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
  return entityTextOf(dataSourceOf(metadata).manager, metadata.target, chosen.name)
}

/** The object whose relation contains another object, in a list or as a single value. */
interface ParentNode {
  /** The child's relation, which holds the key. */
  readonly relation: Relation
  readonly node: NewNode
}

/** Returns the new object whose key a column holds. */
const ownerOf = ({ owners }: NewNode, column: ColumnMetadata): NewNode | undefined =>
  [...owners].find(([{ joinColumns }]) => joinColumns.includes(column))?.[1]

/** Returns the owners that must be rows before a look-up for this node. */
export const scopeOwners = (node: NewNode): NewNode[] =>
  (node.entityText?.declaration.scope ?? []).flatMap((column) => ownerOf(node, column) ?? [])

function forbidCircles(first: NewNode): void {
  const safe = new Set<NewNode>()
  const visit = (node: NewNode, way: Set<NewNode>): void => {
    if (safe.has(node)) return
    if (way.has(node)) {
      throw new DeclarationError(
        `${node.metadata.name}: new objects form a cycle, and none can be the first row. ` +
          `Create one of them without its relation, and set that afterwards.`,
      )
    }
    way.add(node)
    for (const owner of node.owners.values()) visit(owner, way)
    safe.add(node)
  }
  const waiting = [first]
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (safe.has(node)) continue
    visit(node, new Set())
    waiting.push(...newAround(node).filter((one) => !safe.has(one)))
  }
}

export type Group = readonly NewNode[]

/** Deletion rules for the call's own rows, whose AfterLoad fires once they have their relations. */
type DeletionRules = ReadonlyMap<NewNode, OnDeleted>

export const isDone = ({ row }: NewNode): boolean => row !== undefined

/** Sets the owners that are rows in the values of a node. */
export function setOwners({ owners, values }: NewNode): void {
  for (const [relation, owner] of owners) {
    if (owner.row) setRelation(relation, values, owner.row.entity)
  }
}

/**
 * Looks for the rows of nodes whose scope may be a new object. It first looks for the scope's row: if that is missing,
 * so is the node's row.
 *
 * @throws the errors of `lookUp`
 */
export async function lookUpScoped(manager: EntityManager, nodes: Group, onDeleted: DeletionRules): Promise<void> {
  const waiting = new Set(nodes)
  for (const node of waiting) for (const owner of scopeOwners(node)) if (!isDone(owner)) waiting.add(owner)
  for (;;) {
    const ready = [...waiting].filter((node) => scopeOwners(node).every(isDone))
    if (ready.length === 0) return
    for (const node of ready) {
      waiting.delete(node)
      setOwners(node)
    }
    await lookUp(manager, ready, onDeleted)
  }
}

/**
 * Looks for the rows of nodes that have a text. Found rows have the form that `find` returns.
 *
 * @throws TextTakenError if `onDeleted` requires it, and for a row of another class
 */
export async function lookUp(manager: EntityManager, nodes: Group, onDeleted?: DeletionRules): Promise<void> {
  await withSession(manager, async (session) => {
    for (const [entityText, group] of groupBy(nodes, (node) => node.entityText)) {
      if (!entityText) continue
      const ready = await readyText(session, entityText)
      const requested = group.map((node) => ({ node, row: rowValues(entityText, node.values) }))
      const rows = requested.map(({ row }) => row)
      const found = await findRows(session, ready, rows)
      const entities = new Map<string, ObjectLiteral>()
      const notified = new Set<ObjectLiteral>()
      for (const { node, row } of requested) {
        const held = found.get(row.identity)
        const deletion = onDeleted?.get(node)
        const stored = deletion ? await afterDeletion(session, ready, held, row, deletion) : held
        if (!stored) continue
        const entity = entities.get(row.identity) ?? hydrate(entityText, session, stored)
        entities.set(row.identity, entity)
        if (!deletion) notified.add(entity)
        node.row = { entity, created: false, attempts: 1 }
      }
      await afterLoad(session, entityText, [...notified])
    }
  })
}

/** Returns, for each node with a text, the first node with the same text and scope. A scope may be a new object too. */
export function firstsOf(nodes: Iterable<NewNode>): ReadonlyMap<NewNode, NewNode> {
  const numbers = new Map<unknown, number>()
  const numberOf = (object: unknown): number => {
    const number = numbers.get(object) ?? numbers.size
    numbers.set(object, number)
    return number
  }
  const firsts = new Map<NewNode, NewNode>()
  const byText = new Map<string, NewNode>()
  const firstOf = (node: NewNode): NewNode => {
    const known = firsts.get(node)
    if (known || !node.entityText) return known ?? node
    // New objects may be each other's scopes.
    firsts.set(node, node)
    const { entityText, values } = node
    // In a scope, a number represents a new object.
    const scopeOf = (column: ColumnMetadata): unknown => {
      const owner = ownerOf(node, column)
      return owner && !isDone(owner) ? numberOf(firstOf(owner)) : parameterText(column.getEntityValue(values))
    }
    const text = scopeOwners(node).every(isDone)
      ? rowValues(entityText, values).identity
      : [entityText.declaration.scope.map(scopeOf), givenTexts(entityText, values)]
    const key = JSON.stringify([numberOf(entityText), text])
    const first = byText.get(key) ?? node
    byText.set(key, first)
    firsts.set(node, first)
    return first
  }
  for (const node of nodes) firstOf(node)
  return firsts
}
