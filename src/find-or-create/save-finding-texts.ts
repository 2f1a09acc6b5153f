import type { DeepPartial, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral, SaveOptions } from 'typeorm'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { asOne, requireCurrentSnapshot } from '../connection/whole-transaction'
import { TextTakenError, TransactionAbortedError } from '../errors'
import { Attempts, MAX_DANGLING } from './attempts'
import { groupBy } from './batches'
import { calledFrom, callerOf } from './caller'
import { textOfObject } from './nested-plan'
import { findRows } from './try-once'
import { requireManager } from '../rows/call-arguments'
import { type EntityText, onTable } from '../rows/entity-text'
import { hydrate } from '../rows/hydrate'
import { givenTexts } from '../rows/key-values'
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
import { rowValues } from '../rows/row-values'
import { isForeignKeyError, isSerializationError, serverError, SQLSTATE } from '../sql/sqlstate'
import { ensureReady } from '../schema/readiness'
import { dataSourceOf, type Declaration } from '../registry/registry'

/**
 * TypeORM's `save`, whose new nested objects are not stored a second time: one without a primary key whose unique text
 * a row holds becomes that row, as it stands. Its own columns and relations are not written; objects with equal texts
 * become one. An object whose text no row holds is saved, if the relation cascades. The entities themselves are saved
 * as `save` does it: where their own text is taken, it fails.
 *
 * Runs in a transaction of its own, or behind a savepoint of yours, which stays usable. If others store a text at the
 * same moment, the next of up to 10 attempts finds it. If it fails, your objects are as they were.
 *
 * @example
 * const link = await saveFindingTexts(manager, Link, { page: { url: 'http://example.com/' } })
 *
 * @returns what was given, as `save` does
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError
 * @throws TextTakenError where a row of another class holds a nested text
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws what `save` throws
 */
export async function saveFindingTexts<Entity extends ObjectLiteral, Given extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: readonly Given[],
  options?: SaveOptions,
): Promise<(Given & Entity)[]>
export async function saveFindingTexts<Entity extends ObjectLiteral, Given extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: Given,
  options?: SaveOptions,
): Promise<Given & Entity>
export async function saveFindingTexts(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  given: ObjectLiteral | readonly ObjectLiteral[],
  options?: SaveOptions,
): Promise<unknown> {
  return await calledFrom(callerOf(saveFindingTexts), saveAll(manager, entity, given, options))
}

async function saveAll(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  given: ObjectLiteral | readonly ObjectLiteral[],
  options?: SaveOptions,
): Promise<unknown> {
  requireManager(manager)
  const metadata = dataSourceOf(manager).getMetadata(entity)
  const session = await openSession(manager)
  await session.close()
  const attempts = new Attempts(session, metadata.name)
  let known = 0
  for (;;) {
    const texts = new KnownTexts(metadata)
    try {
      return await asOne(manager, async (own) => {
        await texts.find(own, Array.isArray(given) ? given : [given])
        // A transaction is open already, perhaps one that SQL began and TypeORM does not know of.
        return await own.save(metadata.target, given, { ...options, transaction: false })
      })
    } catch (error) {
      texts.undo()
      const isRace = lostRace(error, texts, { known, attempt: attempts.count })
      if (!isRace && (session.inTransaction || !isLost(error))) await refuse(session, texts, error)
      known = texts.found
      await attempts.next(error)
    }
  }
}

/** Somebody stored a text that was not found, or deleted a row that was found before anything referred to it. */
function lostRace(
  error: unknown,
  texts: KnownTexts,
  { known, attempt }: { readonly known: number; readonly attempt: number },
): boolean {
  if (texts.isTaken(error)) return attempt === 1 || texts.found > known
  return attempt <= MAX_DANGLING && texts.found > 0 && isForeignKeyError(error)
}

/** @throws what the error means */
async function refuse(session: Session, texts: KnownTexts, error: unknown): Promise<never> {
  if (texts.isTaken(error) && isOfNobody(error)) await requireCurrentSnapshot(session, error)
  throw error
}

const isOfNobody = (error: unknown): boolean =>
  error instanceof TextTakenError && error.taken.every(({ id }) => id === undefined)

const isLost = (error: unknown): boolean =>
  isSerializationError(error instanceof TransactionAbortedError ? error.cause : error)

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
class KnownTexts {
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
