import type { EntityManager, EntityMetadata, ObjectLiteral } from 'typeorm'
import { groupBy } from '../find-or-create/batches'
import { type EntityText, onTable } from '../rows/entity-text'
import { findRows } from '../find-or-create/find-many'
import { hydrate } from '../rows/hydrate'
import { textOfObject } from '../find-or-create/nested-plan'
import {
  classOf,
  copyOfGiven,
  givenIn,
  hasId,
  isObject,
  promisedIn,
  type Relation,
  setRelation,
} from '../rows/nested-values'
import { givenTexts } from '../rows/key-values'
import { rowValues } from '../rows/row-values'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { ensureReady } from '../typeorm/readiness'
import { dataSourceOf, type Declaration } from '../typeorm/registry'

/** A relation of an object that holds other objects. */
interface Place {
  readonly holder: ObjectLiteral
  readonly metadata: EntityMetadata
  readonly relation: Relation
  readonly value: unknown
}

/** A new object whose text a row may hold. */
interface Candidate {
  readonly object: ObjectLiteral
  readonly entityText: EntityText
  /** The object, with the one that lists it as its owner. */
  readonly values: ObjectLiteral
  /** Its scope is known; that of another one may be a new object. */
  readonly scoped: boolean
}

/** The nested objects of a graph for which rows exist already. */
export class KnownTexts {
  /** How many objects have become rows that exist. */
  found = 0
  private readonly undoing: (() => void)[] = []
  private readonly declarations = new Set<Declaration>()
  private readonly decided = new Set<ObjectLiteral>()

  constructor(private readonly metadata: EntityMetadata) {}

  /**
   * Makes objects into the rows that hold their texts, and objects of equal texts into one.
   *
   * @param entities stay what they are
   */
  async find(manager: EntityManager, entities: readonly ObjectLiteral[]): Promise<void> {
    const session = await openSession(manager)
    try {
      // A row that is found may be the scope of others.
      for (;;) {
        const places = await this.placesOf(entities)
        const candidates = this.candidatesAt(places, new Set(entities))
        const scoped = candidates.filter((one) => one.scoped)
        const becomes = scoped.length > 0 ? await this.takeAll(session, scoped) : twinsOf(candidates)
        if (becomes.size === 0) return
        this.unite(places, becomes)
      }
    } finally {
      await session.close()
    }
  }

  /** Whether the error means that somebody stored one of the texts that were not found. */
  isTaken(error: unknown): boolean {
    const refused = serverError(error) ?? serverError(error instanceof Error ? error.cause : undefined)
    if (refused?.code !== SQLSTATE.uniqueViolation) return false
    return [...this.declarations].some(({ table }) => table.index === refused.constraint)
  }

  /** Restores all objects to what they were. */
  undo(): void {
    for (const undo of this.undoing.toReversed()) undo()
  }

  /** Every relation in the graph that brings objects, each object once. */
  private async placesOf(entities: readonly ObjectLiteral[]): Promise<Place[]> {
    const places: Place[] = []
    const seen = new Set(entities)
    const waiting = entities.map((holder) => ({ holder, metadata: this.metadata.findInheritanceMetadata(holder) }))
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const { holder, metadata } = next
      for (const relation of metadata.relations) {
        const value = await promisedIn(relation, holder)
        const place = { holder, metadata, relation, value }
        if (isObject(value)) places.push(place)
        for (const object of objectsAt(place).filter((one) => !seen.has(one))) {
          seen.add(object)
          waiting.push({ holder: object, metadata: classOf(relation, object, nameOf(place)) })
        }
      }
    }
    return places
  }

  private candidatesAt(places: readonly Place[], entities: ReadonlySet<ObjectLiteral>): Candidate[] {
    const candidates = new Map<ObjectLiteral, Candidate>()
    for (const place of places) {
      for (const object of objectsAt(place)) {
        if (entities.has(object) || this.decided.has(object) || candidates.has(object)) continue
        const candidate = candidateAt(place, object)
        if (candidate) candidates.set(object, candidate)
      }
    }
    return [...candidates.values()]
  }

  /** @returns for each object the one that it becomes, which may be itself */
  private async takeAll(
    session: Session,
    candidates: readonly Candidate[],
  ): Promise<ReadonlyMap<ObjectLiteral, ObjectLiteral>> {
    const becomes = new Map<ObjectLiteral, ObjectLiteral>()
    for (const [entityText, group] of groupBy(candidates, (one) => one.entityText)) {
      for (const [object, other] of await this.take(session, entityText, group)) becomes.set(object, other)
    }
    return becomes
  }

  private async take(
    session: Session,
    entityText: EntityText,
    candidates: readonly Candidate[],
  ): Promise<ReadonlyMap<ObjectLiteral, ObjectLiteral>> {
    this.declarations.add(entityText.declaration)
    const ready = onTable(entityText, await ensureReady(entityText.declaration, session))
    const requested = candidates.map(({ object, values }) => ({ object, row: rowValues(entityText, values) }))
    const rows = requested.map(({ row }) => row)
    const found = await findRows(session, ready, rows)
    const firsts = new Map<string, ObjectLiteral>()
    const becomes = new Map<ObjectLiteral, ObjectLiteral>()
    for (const { object, row } of requested) {
      this.decided.add(object)
      const stored = found.get(row.identity)
      const first = firsts.get(row.identity) ?? object
      firsts.set(row.identity, first)
      becomes.set(object, first)
      if (stored && first === object) this.adopt(entityText, object, hydrate(entityText, session, stored))
    }
    return becomes
  }

  /**
   * Copies the columns as they are stored, so that `save` finds nothing to write, and removes everything it would
   * cascade to.
   */
  private adopt({ metadata, select }: EntityText, object: ObjectLiteral, row: ObjectLiteral): void {
    this.found += 1
    this.remember(metadata, object)
    for (const relation of metadata.relations) {
      setRelation(relation, object, undefined)
      if (!relation.embeddedMetadata && !relation.isLazy) Reflect.deleteProperty(object, relation.propertyName)
    }
    for (const column of select) {
      const value: unknown = column.getEntityValue(row)
      if (value !== undefined) column.setEntityValue(object, value)
    }
  }

  private unite(places: readonly Place[], becomes: ReadonlyMap<ObjectLiteral, ObjectLiteral>): void {
    for (const { holder, metadata, relation, value } of places) {
      const one = (object: unknown): unknown => becomes.get(object as ObjectLiteral) ?? object
      const united = Array.isArray(value) ? [...new Set(value.map(one))] : one(value)
      if (isSame(united, value)) continue
      this.remember(metadata, holder)
      setRelation(relation, holder, united)
    }
  }

  /** Its embedded objects are written to as well, so it gets copies of them. */
  private remember(metadata: EntityMetadata, object: ObjectLiteral): void {
    const before = Object.getOwnPropertyDescriptors(object)
    Object.assign(object, copyOfGiven(metadata, object))
    this.undoing.push(() => {
      for (const name of Object.keys(object)) if (!(name in before)) Reflect.deleteProperty(object, name)
      Object.defineProperties(object, before)
    })
  }
}

const isSame = (one: unknown, other: unknown): boolean =>
  Array.isArray(one) && Array.isArray(other)
    ? one.length === other.length && one.every((item, index) => item === other[index])
    : one === other

const nameOf = ({ metadata, relation }: Place): string => `"${relation.propertyPath}" of ${metadata.name}`

const objectsAt = ({ value }: Pick<Place, 'value'>): ObjectLiteral[] =>
  (Array.isArray(value) ? (value as readonly unknown[]) : [value]).filter(
    (one): one is ObjectLiteral => isObject(one) && !ArrayBuffer.isView(one) && !(one instanceof Date),
  )

/** undefined: it has its primary key, or no text. */
function candidateAt(place: Place, object: ObjectLiteral): Candidate | undefined {
  const { relation, holder } = place
  const metadata = classOf(relation, object, nameOf(place))
  if (hasId(metadata, object)) return undefined
  const entityText = textOfObject(dataSourceOf(metadata), metadata, object, nameOf(place))
  if (!entityText) return undefined
  const values = copyOfGiven(metadata, object)
  const { inverseRelation } = relation
  if (inverseRelation && !relation.isOwning && !relation.isManyToMany) setRelation(inverseRelation, values, holder)
  const scoped = entityText.declaration.scope.every((column) => (column.getEntityValue(values) ?? null) !== null)
  return { object, entityText, values, scoped }
}

/** Of objects whose scope is a new object too: for each with the scope and the text of an earlier one, that one. */
function twinsOf(candidates: readonly Candidate[]): ReadonlyMap<ObjectLiteral, ObjectLiteral> {
  const numbers = new Map<unknown, number>()
  const numberOf = (object: unknown): number => {
    const number = numbers.get(object) ?? numbers.size
    numbers.set(object, number)
    return number
  }
  const firsts = new Map<string, ObjectLiteral>()
  const twins = new Map<ObjectLiteral, ObjectLiteral>()
  for (const { object, entityText, values } of candidates) {
    const scope = entityText.declaration.scope.map((column) => {
      const { relationMetadata: relation } = column
      const owner = relation && givenIn(relation, values)
      return isObject(owner) ? numberOf(owner) : String(column.getEntityValue(values) ?? numberOf(object))
    })
    const key = JSON.stringify([numberOf(entityText), scope, givenTexts(entityText, values)])
    const first = firsts.get(key)
    if (first) twins.set(object, first)
    else firsts.set(key, object)
  }
  return twins
}
