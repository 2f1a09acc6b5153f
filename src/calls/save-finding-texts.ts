import type { DeepPartial, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral, SaveOptions } from 'typeorm'
import { withSession } from '../connection/open-session'
import { asOne, requireCurrentSnapshot } from '../connection/transactions'
import { TextTakenError } from '../errors'
import { dataSourceOf } from '../registry/registry'
import { watched } from './watch'
import { isForeignKeyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { Attempts, MAX_DANGLING } from './attempts'
import { requireManager } from './call-options'
import { calledFrom, callerOf } from './caller'
import {
  type Begun,
  firstsOf,
  isNew,
  lookUpScoped,
  type NewNode,
  ownerOf,
  Planner,
  storedRowOf,
  textOfObject,
} from './graph-plan'
import { copyOfGiven, hasId, hasValue, isObject, requireObject, setRelation } from './values'

/**
 * Saves entities as TypeORM's `save` does, but does not store nested objects a second time. If a nested object has no
 * primary key and a row holds its unique text, the object becomes that row, with its stored values. Its own columns and
 * relations are not written. Objects with equal texts become one. If no row holds the text, the object is saved if the
 * relation cascades. If the entities' own text is taken, the call fails, as `save` does.
 *
 * Runs in a transaction of its own, or with a savepoint in yours, which stays usable. If others store a text at the
 * same moment, the next of up to 10 attempts finds it. If the call fails, your objects are restored.
 *
 * @example
 * const link = await saveFindingTexts(manager, Link, { page: { url: 'http://example.com/' } })
 *
 * @returns the given objects, as `save` does
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError
 * @throws TextTakenError if a row of another class holds a nested text
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @throws the errors of `save`
 * @function
 */
export const saveFindingTexts: typeof saveFindingTextsImpl = watched('saveFindingTexts', 'text', saveFindingTextsImpl)

async function saveFindingTextsImpl<Entity extends ObjectLiteral, Given extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: readonly Given[],
  options?: SaveOptions,
): Promise<(Given & Entity)[]>
async function saveFindingTextsImpl<Entity extends ObjectLiteral, Given extends DeepPartial<NoInfer<Entity>>>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  given: Given,
  options?: SaveOptions,
): Promise<Given & Entity>
async function saveFindingTextsImpl(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  given: ObjectLiteral | readonly ObjectLiteral[],
  options?: SaveOptions,
): Promise<unknown> {
  requireManager(manager)
  const metadata = dataSourceOf(manager).getMetadata(entity)
  const entities = (Array.isArray(given) ? given : [given]) as ObjectLiteral[]
  for (const one of entities) requireObject({ metadata }, one)
  const saved = withSession(manager, async (session) => {
    const attempts = new Attempts(session, metadata.name)
    let known = 0
    for (;;) {
      const texts = new KnownTexts(metadata)
      try {
        return await asOne(session, manager, async (own) => {
          await texts.find(own, entities)
          // A transaction is open already, perhaps one that SQL began and TypeORM does not know of.
          return await own.save(metadata.target, given, { ...options, transaction: false })
        })
      } catch (error) {
        texts.undo()
        const isTaken = texts.isTaken(error)
        // Somebody stored a text that was not found, or deleted a row that was found before anything referred to it.
        const isRace = isTaken
          ? attempts.count === 1 || texts.found > known
          : attempts.count <= MAX_DANGLING && texts.found > 0 && isForeignKeyError(error)
        const isOfNobody = error instanceof TextTakenError && error.taken.every(({ id }) => id === undefined)
        if (!isRace && isTaken && isOfNobody) await requireCurrentSnapshot(session, error)
        known = texts.found
        await attempts.againWhole(error, isRace)
      }
    }
  })
  return await calledFrom(callerOf(saveFindingTexts), saved)
}

/** Returns the initial state of a node without a text to look for. */
const begunOf = (metadata: EntityMetadata, given: ObjectLiteral): Begun => ({
  entityText: undefined,
  ...(hasId(metadata, given) && { row: { entity: given, created: false, attempts: 1 } }),
})

/** The nested objects of a graph that exist as rows already. */
class KnownTexts {
  /** The number of objects that became existing rows. */
  found = 0
  private readonly undoing: (() => void)[] = []
  private candidates: readonly NewNode[] = []

  constructor(private readonly metadata: EntityMetadata) {}

  /**
   * Turns objects into the rows that hold their texts, and merges objects with equal texts.
   *
   * @param entities objects that are not replaced
   */
  async find(manager: EntityManager, entities: readonly unknown[]): Promise<void> {
    const written = new Set(entities)
    const planner = new Planner({
      asksBack: true,
      refuse: () => {},
      // An object without a primary key that the call does not write itself may become the row with its text.
      begin: (_, metadata, given, where) => {
        const begun = begunOf(metadata, given)
        return begun.row || written.has(given) ? begun : { entityText: textOfObject(metadata, given, where) }
      },
      end: (node) => {
        const scope = node.entityText?.declaration.scope ?? []
        const isKnown = scope.every((column) => ownerOf(node, column) ?? hasValue(column.getEntityValue(node.values)))
        if (!isKnown) node.entityText = undefined
      },
    })
    const roots: NewNode[] = []
    for (const given of entities.filter(isObject)) {
      const metadata = this.metadata.findInheritanceMetadata(given)
      roots.push(await planner.plan(metadata, given, begunOf(metadata, given)))
    }
    this.candidates = [...planner.planned].filter(({ entityText }) => entityText)
    await lookUpScoped(manager, this.candidates, { unseen: true })
    this.apply(roots, firstsOf(this.candidates))
  }

  /** Returns whether the error means that somebody stored one of the texts that were not found. */
  isTaken(error: unknown): boolean {
    const refused = serverError(error) ?? serverError(error instanceof Error ? error.cause : undefined)
    if (refused?.code !== SQLSTATE.uniqueViolation) return false
    return this.candidates.some(({ entityText }) => entityText?.declaration.table.index === refused.constraint)
  }

  /** Restores all objects to what they were. */
  undo(): void {
    for (const undo of this.undoing.toReversed()) undo()
  }

  /** Changes the objects. Objects nested in one that becomes an existing row stay unchanged. */
  private apply(roots: readonly NewNode[], firsts: ReadonlyMap<NewNode, NewNode>): void {
    const reached = new Set(roots)
    for (const node of reached) {
      if (node.entityText && node.row) {
        this.adopt(node)
        continue
      }
      for (const { relation, value } of node.brought) {
        const before = value === null ? [] : [value].flat()
        const after = [...new Set(before.map((one) => (isNew(one) ? (firsts.get(one) ?? one) : one)))]
        for (const one of after) if (isNew(one)) reached.add(one)
        if (after.length === before.length && after.every((one, index) => one === before[index])) continue
        this.remember(node)
        const united = after.map((one) => (isNew(one) ? one.given : one.reference))
        setRelation(relation, node.given, Array.isArray(value) ? united : united[0])
      }
    }
  }

  /**
   * Copies the stored columns, so that `save` finds nothing to write, and removes all relations to which it would
   * cascade.
   */
  private adopt(node: NewNode): void {
    const { metadata, given: object, entityText } = node
    this.found += 1
    this.remember(node)
    for (const relation of metadata.relations) {
      setRelation(relation, object, undefined)
      if (!relation.embeddedMetadata && !relation.isLazy) Reflect.deleteProperty(object, relation.propertyName)
    }
    for (const column of entityText?.select ?? []) {
      const value: unknown = column.getEntityValue(storedRowOf(node).entity)
      if (value !== undefined) column.setEntityValue(object, value)
    }
  }

  /** Remembers an object's state. Embedded objects are replaced by copies, because they are changed too. */
  private remember({ metadata, given: object }: NewNode): void {
    const before = Object.getOwnPropertyDescriptors(object)
    Object.assign(object, copyOfGiven(metadata, object))
    this.undoing.push(() => {
      for (const name of Object.keys(object)) if (!(name in before)) Reflect.deleteProperty(object, name)
      Object.defineProperties(object, before)
    })
  }
}
