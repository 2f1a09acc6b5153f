import type { EntityManager, ObjectLiteral } from 'typeorm'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { type EntityText, onTable } from '../rows/entity-text'
import { afterLoad } from '../rows/events'
import { hydrate } from '../rows/hydrate'
import { givenTexts } from '../rows/key-values'
import { setRelation } from '../rows/nested-values'
import { rowValues } from '../rows/row-values'
import { ensureReady } from '../schema/readiness'
import { parameterText } from '../sql/parameter-text'
import { groupBy } from './batches'
import { afterDeletion, type OnDeleted } from './deleted-rows'
import { type NewNode, ownerOf, scopeOwners } from './nested-plan'
import { findRows } from './try-once'

type Group = readonly NewNode[]

interface LookUpOptions {
  /** For the rows of the call itself: their AfterLoad fires once they have their relations. */
  readonly onDeleted?: ReadonlyMap<NewNode, OnDeleted>
  /** Nobody gets the entities, and so no AfterLoad fires. @default false */
  readonly unseen?: boolean
}

export const isDone = ({ row }: NewNode): boolean => row !== undefined

/** Gives its values the owners that are rows. */
export function setOwners({ owners, values }: NewNode): void {
  for (const [relation, owner] of owners) {
    if (owner.row) setRelation(relation, values, owner.row.entity)
  }
}

/**
 * Looks for the rows of nodes whose scope may be a new object. The scope's row is looked for first: if it is missing,
 * so is the row of the node.
 *
 * @throws as `lookUp`
 */
export async function lookUpScoped(manager: EntityManager, nodes: Group, options: LookUpOptions): Promise<void> {
  const waiting = new Set(nodes)
  for (const node of waiting) for (const owner of scopeOwners(node)) if (!isDone(owner)) waiting.add(owner)
  for (;;) {
    const ready = [...waiting].filter((node) => scopeOwners(node).every(isDone))
    if (ready.length === 0) return
    for (const node of ready) {
      waiting.delete(node)
      setOwners(node)
    }
    await lookUp(manager, ready, options)
  }
}

/**
 * Looks for the rows of nodes that have a text. Rows that are found are as `find` gives them.
 *
 * @throws TextTakenError as `onDeleted` says, and for a row of another class
 */
export async function lookUp(manager: EntityManager, nodes: Group, options: LookUpOptions = {}): Promise<void> {
  const session = await openSession(manager)
  try {
    for (const [entityText, group] of groupBy(nodes, (node) => node.entityText)) {
      if (entityText) await lookUpGroup(session, entityText, group, options)
    }
  } finally {
    await session.close()
  }
}

async function lookUpGroup(
  session: Session,
  entityText: EntityText,
  nodes: Group,
  { onDeleted, unseen = false }: LookUpOptions,
): Promise<void> {
  const ready = onTable(entityText, await ensureReady(entityText.declaration, session))
  const requested = nodes.map((node) => ({ node, row: rowValues(entityText, node.values) }))
  const rows = requested.map(({ row }) => row)
  const found = await findRows(session, ready, rows)
  const entities = new Map<string, ObjectLiteral>()
  const told = new Set<ObjectLiteral>()
  for (const { node, row } of requested) {
    const held = found.get(row.identity)
    const deletion = onDeleted?.get(node)
    const stored = deletion ? await afterDeletion(session, ready, { stored: held, row }, deletion) : held
    if (!stored) continue
    const entity = entities.get(row.identity) ?? hydrate(entityText, session, stored)
    entities.set(row.identity, entity)
    if (!deletion) told.add(entity)
    node.row = { entity, created: false, attempts: 1 }
  }
  if (!unseen) await afterLoad(session, entityText, [...told])
}

/** For each node with a text, the first with its text and its scope, which may be a new object too. */
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
    const text = textWithin(node, node.entityText, (owner) => numberOf(firstOf(owner)))
    const key = JSON.stringify([numberOf(node.entityText), text])
    const first = byText.get(key) ?? node
    byText.set(key, first)
    firsts.set(node, first)
    return first
  }
  for (const node of nodes) firstOf(node)
  return firsts
}

/** Text and scope of a node, in which a number stands for a new object. */
function textWithin(node: NewNode, entityText: EntityText, numberOf: (owner: NewNode) => number): unknown {
  const { values } = node
  if (scopeOwners(node).every(isDone)) return rowValues(entityText, values).identity
  const scope = entityText.declaration.scope.map((column) => {
    const owner = ownerOf(node, column)
    return owner && !isDone(owner) ? numberOf(owner) : parameterText(column.getEntityValue(values))
  })
  return [scope, givenTexts(entityText, values)]
}
