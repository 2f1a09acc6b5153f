import { isNativeError } from 'node:util/types'
import type { DataSource, EntityMetadata, EntityTarget, ObjectLiteral, QueryFailedError } from 'typeorm'
import { DeclarationError, TextRejectedError, type UniqueTextError } from '../errors'
import { kindOf } from '../options'
import { normalizedValues } from '../registry/declarations'
import { type ColumnMetadata, namesOfEntity, numbersOfTable, textsOfEntity } from '../registry/registry'
import { hashOfTexts } from '../sql/text-table'
import { parameterText } from '../sql/types'
import { normalizeText, unstorable } from '../text/normalizer'
import type { EntityColumns, EntityText } from './entity-text'

/** The values that identify a row. */
export interface KeyValues {
  /** Scope, text and hash: the parameters of statements that only look rows up. */
  readonly key: readonly unknown[]
  /**
   * A string that is equal for equal texts of one scope, among rows of one EntityText. It does not identify a row,
   * because two scopes that the database stores as equal values (`'a'` and `'a '` of a `char(2)`) can differ here.
   */
  readonly identity: string
  /** The hash as a literal, which sorts bytewise. */
  readonly hash: string
}

/**
 * Returns scope, text and hash of an entity. Values that depend on each other must be normalized already.
 *
 * @throws TextRejectedError, DeclarationError
 */
export function keyValues(entityText: EntityText, entity: ObjectLiteral): KeyValues {
  const { scope, text, table } = entityText.declaration
  const [part] = text
  // Nearly always the text alone identifies the row, and no lists are made, which matters for thousands of rows.
  const alone = part && text.length === 1 && scope.length === 0 ? textValue(entityText, part, entity) : null
  if (alone !== null) {
    const hash = hashOfTexts(table, [alone])
    return { key: [alone, hash], hash, identity: alone }
  }
  const key: unknown[] = []
  // The identity consists of the texts that are sent, because a scope may be a BigInt. Texts contain no U+0000.
  const sent: (string | null)[] = []
  for (const column of scope) {
    const value = scopeValue(entityText, column, entity)
    key.push(value)
    sent.push(spelling(entityText, column, value))
  }
  const texts = textsOf(entityText, entity)
  const hash = hashOfTexts(table, texts)
  // The end shows which texts are NULL, not empty.
  let nulls = ''
  for (const text of texts) {
    key.push(text)
    sent.push(text)
    nulls += text === null ? '0' : '1'
  }
  key.push(hash)
  sent.push(nulls)
  // A list that has grown takes twice the memory of its copy.
  return { key: [...key], hash, identity: sent.join('\0') }
}

function textsOf(entityText: EntityText, entity: ObjectLiteral): (string | null)[] {
  const { declaration } = entityText
  const texts = declaration.text.map((part) => textValue(entityText, part, entity))
  if (texts.some((text) => text !== null)) return texts
  throw new TextRejectedError({ property: declaration.name, reason: 'it is null, and only a text can be looked up' })
}

/**
 * Returns the texts of values whose scope is not known yet, in the form in which they are stored.
 *
 * @throws TextRejectedError
 */
export const givenTexts = (entityText: EntityText, given: ObjectLiteral): readonly (string | null)[] =>
  textsOf(entityText, normalized(entityText, given))

/**
 * Returns scope and text of a change; undefined for each value that stays unchanged.
 *
 * @throws TextRejectedError
 * @throws DeclarationError if a value of the scope is null
 */
export function changedKey(entityText: EntityText, changes: ObjectLiteral): unknown[] {
  const { scope, text } = entityText.declaration
  const isGiven = (column: ColumnMetadata): boolean => valueIn(column, changes) !== undefined
  return [
    ...scope.map((column) => (isGiven(column) ? scopeValue(entityText, column, changes) : undefined)),
    ...text.map((part) => (isGiven(part.column) ? textValue(entityText, part, changes) : undefined)),
  ]
}

/** Returns normalized values over the object, which is the caller's and stays unchanged. */
export function normalized({ declaration }: EntityText, given: ObjectLiteral): ObjectLiteral {
  if (!declaration.normalizeValues) return given
  const values = normalizedValues(declaration, given)
  if (values === given) return given
  // A copy takes a quarter of the time, but a copy of an entity would call its getters.
  if (Object.getPrototypeOf(given) === Object.prototype) return { ...given, ...values }
  return Object.create(given, Object.getOwnPropertyDescriptors(values)) as ObjectLiteral
}

function scopeValue(entityText: EntityText, column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const { propertyPath } = column
  let value = insertValue(entityText, column, entity)
  // TypeORM knows the row's default unless SQL computes it. Only the database knows that one.
  if (value === undefined && ['string', 'number', 'boolean'].includes(typeof column.default)) value = column.default
  if (value === undefined || value === null || typeof value === 'function') {
    const unique = `"${entityText.declaration.name}" of ${entityText.metadata.name} is unique within "${propertyPath}"`
    throw new DeclarationError(
      typeof value === 'function'
        ? `${unique}, and a function does not show who holds the text there. Give a value.`
        : `${unique}. Give its value.`,
    )
  }
  // Postgres would refuse U+0000. The driver would send U+FFFD for a lone surrogate, which would make two scopes one.
  const problem = typeof value === 'string' ? unstorable(value) : undefined
  if (problem) throw new TextRejectedError({ property: propertyPath, ...problem })
  return value
}

export function textValue(
  entityText: EntityText,
  { column, normalizer, transformed }: EntityText['declaration']['text'][number],
  entity: ObjectLiteral,
): string | null {
  const given: unknown = valueIn(column, entity)
  const several = entityText.declaration.text.length > 1
  if (given === undefined && !several) requireProperty(column, entity)
  if (given === null || (given === undefined && several)) {
    if (column.isNullable) return null
    throw new TextRejectedError({ property: column.propertyPath, reason: `expected a string, got ${String(given)}` })
  }
  // The user's own transformer runs first. The normalizer is the last one in the list.
  const stored: unknown = transformed ? entityText.dataSource.driver.preparePersistentValue(given, column) : given
  return normalizeText(normalizer, column.propertyPath, stored)
}

/** Requires the property. The message lists the given names, so that a misspelt one is visible. */
function requireProperty({ propertyName, propertyPath }: ColumnMetadata, entity: ObjectLiteral): void {
  if (propertyName !== propertyPath || propertyName in entity) return
  const names = Object.keys(entity).slice(0, MAX_NAMES_SHOWN)
  const given = names.length === 0 ? 'nothing was given' : `given: ${names.map((name) => `"${name}"`).join(', ')}`
  throw new TextRejectedError({ property: propertyPath, reason: `the property is missing; ${given}` })
}

const MAX_NAMES_SHOWN = 10

/** Returns the value to insert; undefined if the column is left out and gets its default. */
export function insertValue(
  { dataSource }: Pick<EntityText, 'dataSource'>,
  column: ColumnMetadata,
  entity: ObjectLiteral,
): unknown {
  const value = valueIn(column, entity)
  if (value === undefined) return undefined
  const stored: unknown = dataSource.driver.preparePersistentValue(value, column)
  requireNoNul(column, stored)
  return stored
}

/**
 * The server refuses U+0000 in every column, without the name of the column (22021).
 *
 * @throws TextRejectedError
 */
export function requireNoNul({ propertyPath }: ColumnMetadata, value: unknown): void {
  const problem = typeof value === 'string' && value.includes('\0') ? unstorable(value) : undefined
  if (problem) throw new TextRejectedError({ property: propertyPath, ...problem })
}

/** Reads a value as `getEntityValue` does, also in embeddeds and in related entities. */
export function valueIn(column: ColumnMetadata, entity: ObjectLiteral): unknown {
  const { embeddedMetadata, referencedColumn } = column
  return embeddedMetadata || referencedColumn ? column.getEntityValue(entity) : entity[column.propertyName]
}

/** TypeORM does not export the class. */
export type Relation = EntityMetadata['relations'][number]

export const hasValue = (value: unknown): boolean => value !== undefined && value !== null

export const isObject = (value: unknown): value is ObjectLiteral => typeof value === 'object' && value !== null

/** Returns whether the value of a relation is the key itself (`author: 1`), and not an object with the key. */
export const isPlainKey = (value: unknown): boolean =>
  !isObject(value) || ArrayBuffer.isView(value) || value instanceof Date

/** Returns whether the row with the relation holds the key of the other row. */
export const holdsKey = ({ isOwning, isManyToMany }: Relation): boolean => isOwning && !isManyToMany

/** Returns the object with the relation's property, which may be in an embedded; undefined if it is missing. */
function holderOf({ embeddedMetadata }: Relation, entity: ObjectLiteral): ObjectLiteral | undefined {
  let holder: unknown = entity
  for (const name of embeddedMetadata?.parentPropertyNames ?? []) holder = isObject(holder) ? holder[name] : undefined
  return isObject(holder) ? holder : undefined
}

/**
 * Returns the value of a relation, or a promise of it. A lazy relation of an entity that TypeORM created is a getter
 * that would query the database. Only a value that was set counts.
 *
 * @param promises whether to return promises that an entity's setter got, or that its getter loads. @default true
 */
export function givenIn(relation: Relation, entity: ObjectLiteral, promises = true): unknown {
  const holder = holderOf(relation, entity)
  if (!holder) return undefined
  const { propertyName } = relation
  if (!relation.isLazy) return holder[propertyName]
  const promise: unknown = promises ? holder[`__promise_${propertyName}__`] : undefined
  return holder[`__${propertyName}__`] ?? promise ?? Object.getOwnPropertyDescriptor(holder, propertyName)?.value
}

/** Sets a relation to this very value. TypeORM's own method would merge two objects into one. */
export function setRelation(relation: Relation, entity: ObjectLiteral, value: unknown): void {
  const holder = holderOf(relation, entity)
  const { propertyName } = relation
  if (!holder) {
    if (value !== undefined) relation.setEntityValue(entity, value)
  } else if (relation.isLazy) {
    Reflect.deleteProperty(holder, `__promise_${propertyName}__`)
    // A given promise would hide the value to which it resolved. A property of TypeORM's is a getter instead.
    if ('value' in (Object.getOwnPropertyDescriptor(holder, propertyName) ?? {})) holder[propertyName] = value
    holder[`__${propertyName}__`] = value
  } else {
    holder[propertyName] = value
  }
}

/** Copies the caller's object, to set relations on. Reading lazy relations of the copy sends no query. */
export function copyOfGiven(
  { embeddeds, relations }: Pick<EntityMetadata, 'embeddeds' | 'relations'>,
  given: ObjectLiteral,
): ObjectLiteral {
  // Properties are defined, not assigned, because "__proto__" of parsed JSON would become the prototype.
  const own = Object.getOwnPropertyDescriptors({ ...given })
  const copy = Object.create(Object.getPrototypeOf(given) as object, own) as ObjectLiteral
  for (const { isLazy, propertyName, embeddedMetadata } of relations) {
    // TypeORM also defines a getter on the prototype, which would load a relation that nobody has set.
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

/** @throws DeclarationError unless the result of `create` is an object with properties */
export function requireCreated(entity: string, created: unknown): asserts created is ObjectLiteral {
  if (isObject(created) && !Array.isArray(created)) return
  throw new DeclarationError(`"create" must return an object with properties of ${entity}, got ${kindOf(created)}.`)
}

/**
 * Returns the values with those of `create`.
 *
 * @throws DeclarationError for a property with different values in both, and for a result that is not an object
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
 * Returns the values with the resolved promises of their lazy relations, which an insert needs.
 *
 * @returns the same object if no relation of the entity is lazy
 */
export async function withPromised<Values extends ObjectLiteral>(
  metadata: EntityMetadata,
  values: Values,
): Promise<Values> {
  if (metadata.lazyRelations.length === 0 || !isObject(values) || Array.isArray(values)) return values
  const copy = copyOfGiven(metadata, values)
  for (const relation of metadata.lazyRelations) {
    const given = await givenIn(relation, values)
    if (given !== undefined) setRelation(relation, copy, given)
  }
  return copy as Values
}

/** Returns the class of an object in a relation, which may be a child class in single table inheritance. */
export function classOf(relation: Relation, value: ObjectLiteral, where: string): EntityMetadata {
  const metadata = relation.inverseEntityMetadata.findInheritanceMetadata(value)
  const { target } = metadata
  const prototype: unknown = Object.getPrototypeOf(value)
  const isPlain = prototype === null || prototype === Object.prototype
  if (isPlain || typeof target !== 'function' || value instanceof target) return metadata
  throw new DeclarationError(`${where} is ${kindOf(value)}. Give one of ${metadata.name}.`)
}

/** Returns whether an object has its whole primary key. */
const hasId = ({ primaryColumns }: EntityMetadata, value: ObjectLiteral): boolean =>
  primaryColumns.every((column) => hasValue(column.getEntityValue(value)))

/**
 * Returns whether an object represents an existing row: it has its generated primary key, or nothing but its key. Its
 * other properties are not written.
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

/**
 * Refuses values that our insert would drop or store unchanged, although `save` handles them.
 *
 * @throws DeclarationError that names the property
 */
export function requireInsertable(entityText: EntityText, values: ObjectLiteral): void {
  const { declaration, others, properties } = entityText
  for (const column of declaration.scope) refuseFunction(entityText, column, values)
  for (let index = 0; index < others.length; index += 1) {
    const column = others[index]
    const name = properties[index]
    if (column && (name === undefined || values[name] !== undefined)) refuseFunction(entityText, column, values)
  }
  requireSaved(entityText, values)
}

/**
 * Refuses values that only `save` handles. Values that TypeORM's own INSERT handles are allowed.
 *
 * @throws DeclarationError that names the property
 */
export function requireSaved(columns: EntityColumns, values: ObjectLiteral): void {
  const { treeType, relations } = columns.metadata
  if (treeType !== undefined) refuseTrees(columns)
  for (const relation of relations) refuseUnsaved(columns, relation, values)
  requireKeyValues(columns, values)
}

/**
 * Refuses changes to a stored row that only `save` handles. The row keeps its place in a tree.
 *
 * @throws DeclarationError that names the property
 */
export function requireUpdatable(columns: EntityColumns, changes: ObjectLiteral): void {
  const { treeParentRelation, relations } = columns.metadata
  if (treeParentRelation && givenIn(treeParentRelation, changes, false) !== undefined) refuseTrees(columns)
  for (const relation of relations) refuseUnsaved(columns, relation, changes)
  requireKeyValues(columns, changes)
}

/** The number of bits of integer key types. */
const BITS: Readonly<Record<string, number>> = { smallint: 16, integer: 32, bigint: 64 }
const UUID = /^\{?[\da-f]{4}(?:-?[\da-f]{4}){7}\}?$/iu

/**
 * Refuses a value of another type, which the server would quote in an error that ends in logs. A function is SQL.
 *
 * @throws DeclarationError that names the property
 */
export function requireKeyValues({ dataSource: { driver }, metadata }: EntityColumns, values: ObjectLiteral): void {
  for (const column of metadata.primaryColumns) {
    const given = valueIn(column, values)
    if (given === undefined || given === null || typeof given === 'function') continue
    const type = driver.normalizeType(column)
    if (isOfType(type, driver.preparePersistentValue(given, column))) continue
    throw new DeclarationError(
      `"${column.propertyPath}" of ${metadata.name} must be a value of type ${type}, got ${kindOf(given)}. Give the primary key of a row.`,
    )
  }
}

/**
 * Returns the text that is sent, which is one for all spellings of an integer or a UUID. Values of other types that the
 * server stores as equal can differ here.
 */
export function spelling(
  { dataSource: { driver } }: Pick<EntityColumns, 'dataSource'>,
  column: ColumnMetadata | undefined,
  value: unknown,
): string | null {
  const text = parameterText(value)
  // A number has only one spelling.
  if (typeof value === 'number' || text === null || !column) return text
  const type = driver.normalizeType(column)
  if (!isOfType(type, text)) return text
  if (type === 'uuid') return text.replaceAll(/[{}-]/g, '').toLowerCase()
  return type in BITS ? String(BigInt(text)) : text
}

/** Checks integers and UUIDs. Only the server knows the values of other types. */
function isOfType(type: string, value: unknown): boolean {
  if (typeof value === 'symbol' || Number.isNaN(value instanceof Date ? value.getTime() : value)) return false
  const bits = BITS[type]
  if (bits === undefined) return type !== 'uuid' || UUID.test(String(value))
  const whole = /^\s*[+-]?\d+\s*$/u.test(String(value)) ? BigInt(String(value)) : undefined
  return whole !== undefined && BigInt.asIntN(bits, whole) === whole
}

/** @throws DeclarationError unless an entity of the call declares a unique text, a name or a number */
export function requireUniqueText(
  dataSource: DataSource,
  entries: readonly (readonly [EntityTarget<ObjectLiteral>, ...unknown[]])[],
): void {
  const metadatas = entries.map(([target]) => dataSource.getMetadata(target))
  if (metadatas.some((one) => [textsOfEntity, namesOfEntity, numbersOfTable].some((of) => of(one).length > 0))) return
  throw new DeclarationError(
    `${metadatas.map(({ name }) => name).join(' and ')} declares no unique text. ` +
      `Put @UniqueText() on a property of it, or use TypeORM's own call.`,
  )
}

/** @throws DeclarationError unless it is an object with properties */
export function requireObject({ metadata }: Pick<EntityColumns, 'metadata'>, values: ObjectLiteral): void {
  if (typeof values === 'object' && values !== null && !Array.isArray(values)) return
  const next = Array.isArray(values)
    ? 'For several rows in find-or-create, call findOrCreateMany().'
    : 'Name the property, as in { url: text }.'
  throw new DeclarationError(`Expected an object with properties of ${metadata.name}, got ${kindOf(values)}. ${next}`)
}

/**
 * Refuses a property that the entity does not have, because it is misspelt and its value would be dropped. An instance
 * of the entity's class may have further properties.
 *
 * @throws DeclarationError that names it
 */
export function requireKnown({ metadata }: EntityColumns, values: ObjectLiteral): void {
  if (typeof metadata.target === 'function' && values instanceof metadata.target) return
  let names = properties.get(metadata)
  if (!names) {
    const { columns, relations, embeddeds, relationIds, lazyRelations } = metadata
    // Parsed JSON may have `__proto__` as a property of its own, which sets no value.
    names = new Set(['__proto__'])
    for (const { propertyName } of [...embeddeds, ...relationIds]) names.add(propertyName)
    for (const { propertyPath } of [...columns, ...relations]) names.add(propertyPath.split('.')[0] ?? propertyPath)
    // TypeORM keeps these properties beside a lazy relation.
    for (const { propertyName } of lazyRelations) {
      for (const prefix of ['', '_has', '_promise']) names.add(`_${prefix}_${propertyName}__`)
    }
    properties.set(metadata, names)
  }
  for (const name of Object.keys(values)) {
    if (names.has(name) || values[name] === undefined) continue
    throw new DeclarationError(
      `${metadata.name} has no property "${name}", and its value would be dropped. Correct the name, or leave it out.`,
    )
  }
}

/** The names of columns, relations and embeddeds. */
const properties = new WeakMap<EntityMetadata, Set<string>>()

/** Returns the paths of given properties other than these columns, also in an embedded that contains one of these. */
export function pathsBeside(
  { columns }: EntityMetadata,
  wanted: readonly ColumnMetadata[],
  values: ObjectLiteral,
): string[] {
  const rootOf = ({ propertyPath }: ColumnMetadata): string => propertyPath.split('.')[0] ?? propertyPath
  const known = new Set(wanted.map(rootOf))
  const within = columns.filter((column) => column.embeddedMetadata && known.has(rootOf(column)))
  return [
    ...Object.keys(values).filter((name) => values[name] !== undefined && !known.has(name)),
    ...within
      .filter((column) => !wanted.includes(column) && column.getEntityValue(values) !== undefined)
      .map(({ propertyPath }) => propertyPath),
  ]
}

/**
 * Checks one row of a call that writes all of its rows or none. Adds the row to an error.
 *
 * @param row 0-based position in the call
 */
export function inRow<T>(row: number, look: () => T): T {
  try {
    return look()
  } catch (error) {
    if (error instanceof TextRejectedError) {
      const { property, reason, offset, cause } = error
      throw new TextRejectedError({ property, reason, offset, row, cause })
    }
    if (error instanceof DeclarationError && row > 0) throw new DeclarationError(`Row ${row}: ${error.message}`)
    throw error
  }
}

function refuseTrees({ metadata }: EntityColumns): void {
  const { treeType } = metadata
  if (treeType === undefined || treeType === 'adjacency-list') return
  throw new DeclarationError(
    `${metadata.name} is a tree (${treeType}), and only TypeORM's save() writes its path. ` +
      `Look the row up with findOneByText(), and save() it if there is none.`,
  )
}

function refuseFunction({ metadata }: EntityText, column: ColumnMetadata, values: ObjectLiteral): void {
  if (typeof valueIn(column, values) !== 'function') return
  throw new DeclarationError(
    `"${column.propertyPath}" of ${metadata.name} is a function, which would be stored as its source. ` +
      `Give a value, or leave it out and let a default of the column compute it.`,
  )
}

const NESTED = `findOrCreate() does that with relations: 'findOrCreate'`

/** Refuses related objects that must be saved. Join columns are enough for existing rows only. */
function refuseUnsaved({ metadata }: EntityColumns, relation: Relation, values: ObjectLiteral): void {
  const { propertyPath, joinColumns } = relation
  const value = givenIn(relation, values, false)
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return
  const name = `"${propertyPath}" of ${metadata.name}`
  const other = relation.inverseEntityMetadata.name
  if (!relation.isOwning || relation.isManyToMany) {
    throw new DeclarationError(
      `${name} is a relation that is stored in other rows, and would be lost. ` +
        `Leave it out, and save the ${other} rows when this row has its id; ${NESTED}.`,
    )
  }
  if (value instanceof Promise) throw new DeclarationError(`${name} is a promise. Await it first.`)
  if (typeof value !== 'object') return
  if (joinColumns.every((column) => hasValue(column.getEntityValue(values)))) return
  throw new DeclarationError(
    `${name} holds no key of ${other}, so that the object would be lost. Save or find it first, and pass the entity that you get; ${NESTED}.`,
  )
}

/** The error of an input: ours, the database's, or one that a normalizer, transformer, listener or `create` threw. */
export type RowError = UniqueTextError | QueryFailedError | Error

/** Returns an Error, because a function can throw any value. In tests, an error may be of another realm. */
export function toRowError(thrown: unknown): RowError {
  if (thrown instanceof Error || isNativeError(thrown)) return thrown
  const what = typeof thrown === 'object' ? 'an object' : `a ${typeof thrown}`
  return new Error(`A function threw ${what} that is not an Error.`, { cause: thrown })
}
