import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import type { ColumnMetadata } from '../registry/registry'

/** TypeORM does not export the class. */
export type Relation = EntityMetadata['relations'][number]

export const hasValue = (value: unknown): boolean => value !== undefined && value !== null

export const isObject = (value: unknown): value is ObjectLiteral => typeof value === 'object' && value !== null

/** Whether the value of a relation is the key itself (`author: 1`), and not an object that has it. */
export const isPlainKey = (value: unknown): boolean =>
  !isObject(value) || ArrayBuffer.isView(value) || value instanceof Date

/** The key of the other row stands in this one. */
export const holdsKey = ({ isOwning, isManyToMany }: Relation): boolean => isOwning && !isManyToMany

/** The objects of the properties on the way to a relation in an embedded; without those that are missing. */
function holderOf({ embeddedMetadata }: Relation, entity: ObjectLiteral): ObjectLiteral | undefined {
  let holder: unknown = entity
  for (const name of embeddedMetadata?.parentPropertyNames ?? []) holder = isObject(holder) ? holder[name] : undefined
  return isObject(holder) ? holder : undefined
}

/**
 * What an object has in a relation, or a promise of it. A lazy relation of an entity that TypeORM made is a getter that
 * would ask the database; only what was set counts.
 *
 * @param promises what an entity's setter got, or its getter began to load: TypeORM's own code calls that. @default true
 */
export function givenIn(relation: Relation, entity: ObjectLiteral, promises = true): unknown {
  const holder = holderOf(relation, entity)
  if (!holder) return undefined
  const { propertyName } = relation
  if (!relation.isLazy) return holder[propertyName]
  const promise: unknown = promises ? holder[`__promise_${propertyName}__`] : undefined
  return holder[`__${propertyName}__`] ?? promise ?? Object.getOwnPropertyDescriptor(holder, propertyName)?.value
}

/** What an object has in a relation, once the promise of a lazy relation is kept. */
export const promisedIn = async (relation: Relation, entity: ObjectLiteral): Promise<unknown> =>
  await Promise.resolve(givenIn(relation, entity))

/** Sets a relation as it is, where TypeORM's own would merge two objects into one. */
export function setRelation(relation: Relation, entity: ObjectLiteral, value: unknown): void {
  const holder = holderOf(relation, entity)
  const { propertyName } = relation
  if (!holder) {
    if (value !== undefined) relation.setEntityValue(entity, value)
  } else if (relation.isLazy) {
    Reflect.deleteProperty(holder, `__promise_${propertyName}__`)
    // A promise that was given stands in the way of what it has come to. What TypeORM puts there is a getter.
    if ('value' in (Object.getOwnPropertyDescriptor(holder, propertyName) ?? {})) holder[propertyName] = value
    holder[`__${propertyName}__`] = value
  } else {
    holder[propertyName] = value
  }
}

/** A copy to set relations on: the object is the caller's. Reading a lazy relation of the copy sends no query. */
export function copyOfGiven(
  { embeddeds, relations }: Pick<EntityMetadata, 'embeddeds' | 'relations'>,
  given: ObjectLiteral,
): ObjectLiteral {
  // Defined, not assigned: parsed JSON may have a property "__proto__", which would become the prototype.
  const own = Object.getOwnPropertyDescriptors({ ...given })
  const copy = Object.create(Object.getPrototypeOf(given) as object, own) as ObjectLiteral
  for (const { isLazy, propertyName, embeddedMetadata } of relations) {
    // TypeORM puts a getter on the prototype too, which would load what nobody has set.
    const isOwn = (embeddedMetadata?.relations ?? relations) === relations
    if (isLazy && isOwn && !Object.hasOwn(copy, propertyName)) {
      const value: unknown = copy[`__${propertyName}__`]
      Object.defineProperty(copy, propertyName, { value, configurable: true, writable: true, enumerable: false })
    }
  }
  for (const embedded of embeddeds) {
    const value: unknown = given[embedded.propertyName]
    if (isObject(value) && !embedded.isArray) copy[embedded.propertyName] = copyOfGiven(embedded, value)
  }
  return copy
}

/** @throws DeclarationError unless what `create` gave is an object with properties */
export function requireCreated(entity: string, created: unknown): asserts created is ObjectLiteral {
  if (isObject(created) && !Array.isArray(created)) return
  throw new DeclarationError(`"create" must return an object with properties of ${entity}, got ${kindOf(created)}.`)
}

/**
 * The values with those that `create` gave.
 *
 * @throws DeclarationError for a property that both give, and for what is no object
 */
export function mergeCreated({ name }: EntityMetadata, values: ObjectLiteral, created: unknown): ObjectLiteral {
  requireCreated(name, created)
  const twice = Object.keys(created).find((key) => values[key] !== undefined && values[key] !== created[key])
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
  const merged = Object.create(Object.getPrototypeOf(values) as object | null) as ObjectLiteral
  if (twice === undefined) return Object.assign(merged, created, given)
  throw new DeclarationError(`"${twice}" of ${name} is in the values and in "create". Give it once.`)
}

/**
 * The values with what their lazy relations promise, which an insert needs.
 *
 * @returns the same object where no relation of the entity is lazy
 */
export async function withPromised<Values extends ObjectLiteral>(
  metadata: EntityMetadata,
  values: Values,
): Promise<Values> {
  if (metadata.lazyRelations.length === 0 || !isObject(values) || Array.isArray(values)) return values
  const copy = copyOfGiven(metadata, values)
  for (const relation of metadata.lazyRelations) {
    const given = await promisedIn(relation, values)
    if (given !== undefined) setRelation(relation, copy, given)
  }
  return copy as Values
}

/** The class of an object in a relation: of single table inheritance, a child's. */
export function classOf(relation: Relation, value: ObjectLiteral, where: string): EntityMetadata {
  const metadata = relation.inverseEntityMetadata.findInheritanceMetadata(value)
  const { target } = metadata
  const prototype: unknown = Object.getPrototypeOf(value)
  const isPlain = prototype === null || prototype === Object.prototype
  if (isPlain || typeof target !== 'function' || value instanceof target) return metadata
  throw new DeclarationError(`${where} is ${kindOf(value)}. Give one of ${metadata.name}.`)
}

/** It has its whole primary key. */
export const hasId = ({ primaryColumns }: EntityMetadata, value: ObjectLiteral): boolean =>
  primaryColumns.every((column) => hasValue(column.getEntityValue(value)))

/**
 * An object that stands for a row that exists: it has its generated primary key, or nothing but its key. Its other
 * properties are not written.
 */
export function isReference(relation: Relation, metadata: EntityMetadata, value: ObjectLiteral): boolean {
  const { primaryColumns, columns } = metadata
  if (hasId(metadata, value) && primaryColumns.some(({ isGenerated }) => isGenerated)) return true
  const referenced = relation.isOwning
    ? relation.joinColumns.flatMap(({ referencedColumn }) => (referencedColumn ? [referencedColumn] : []))
    : []
  const key = new Set([...primaryColumns, ...referenced])
  const has = (column: ColumnMetadata): boolean => hasValue(column.getEntityValue(value))
  const isKnown = hasId(metadata, value) || (referenced.length > 0 && referenced.every(has))
  return isKnown && columns.every((column) => key.has(column) || column.getEntityValue(value) === undefined)
}
