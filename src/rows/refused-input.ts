import { isNativeError } from 'node:util/types'
import type { DataSource, EntityMetadata, EntityTarget, ObjectLiteral, QueryFailedError } from 'typeorm'
import { DeclarationError, TextRejectedError, type UniqueTextError } from '../errors'
import { kindOf } from '../options'
import { type ColumnMetadata, declarationsOf, namesOfEntity, tableNumbers } from '../registry/registry'
import type { EntityColumns, EntityText } from './entity-text'
import { valueIn } from './key-values'
import { givenIn, hasValue } from './nested-values'

/**
 * Refuses values that an insert of ours would drop or store unchanged, although `save` gives them a meaning.
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
 * Refuses values that only `save` gives a meaning. Values that TypeORM's own INSERT understands are allowed.
 *
 * @throws DeclarationError that names the property
 */
export function requireSaved(entityText: EntityColumns, values: ObjectLiteral): void {
  const { treeType, relations } = entityText.metadata
  if (treeType !== undefined) refuseTrees(entityText)
  for (const relation of relations) refuseUnsaved(entityText, relation, values)
  requireKeyValues(entityText, values)
}

/**
 * Refuses changes to a stored row that only `save` gives a meaning. The row keeps its place in a tree.
 *
 * @throws DeclarationError that names the property
 */
export function requireUpdatable(entityText: EntityColumns, changes: ObjectLiteral): void {
  const { treeParentRelation, relations } = entityText.metadata
  if (treeParentRelation && givenIn(treeParentRelation, changes, false) !== undefined) refuseTrees(entityText)
  for (const relation of relations) refuseUnsaved(entityText, relation, changes)
  requireKeyValues(entityText, changes)
}

/** Bits of the types of keys that hold whole numbers. */
const BITS: Readonly<Record<string, number>> = { smallint: 16, integer: 32, bigint: 64 }
const UUID = /^\{?[\da-f]{4}(?:-?[\da-f]{4}){7}\}?$/iu

/**
 * The server would quote a value that is none of the key's type, in an error that ends in logs. A function is SQL.
 *
 * @throws DeclarationError that names the property
 */
export function requireKeyValues({ dataSource: { driver }, metadata }: EntityColumns, values: ObjectLiteral): void {
  for (const column of metadata.primaryColumns) {
    const given = valueIn(column, values)
    if (!hasValue(given) || typeof given === 'function') continue
    const type = driver.normalizeType(column)
    if (isOfType(type, driver.preparePersistentValue(given, column))) continue
    throw new DeclarationError(
      `"${column.propertyPath}" of ${metadata.name} must be a value of type ${type}, got ${kindOf(given)}. Give the primary key of a row.`,
    )
  }
}

/** As far as it can be known here: of integers and UUIDs. */
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
  if (metadatas.some((one) => [declarationsOf, namesOfEntity, tableNumbers].some((of) => of(one).length > 0))) return
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
 * A property that the entity does not have is misspelt, and its value would be dropped. The entity's class may declare
 * further properties, which are allowed.
 *
 * @throws DeclarationError that names it
 */
export function requireKnown({ metadata }: EntityColumns, values: ObjectLiteral): void {
  if (typeof metadata.target === 'function' && values instanceof metadata.target) return
  const known = properties.get(metadata) ?? propertiesOf(metadata)
  for (const name of Object.keys(values)) {
    if (known.has(name) || values[name] === undefined) continue
    throw new DeclarationError(
      `${metadata.name} has no property "${name}", and its value would be dropped. Correct the name, or leave it out.`,
    )
  }
}

const properties = new WeakMap<EntityMetadata, ReadonlySet<string>>()

/** Of columns, relations and embeddeds; of a lazy relation also what TypeORM keeps beside it. */
function propertiesOf(metadata: EntityMetadata): ReadonlySet<string> {
  const { columns, relations, embeddeds, relationIds } = metadata
  // Parsed JSON may have `__proto__` as a property of its own; it brings no value.
  const names = new Set(['__proto__'])
  for (const { propertyName } of [...embeddeds, ...relationIds]) names.add(propertyName)
  for (const { propertyPath } of [...columns, ...relations]) names.add(propertyPath.split('.')[0] ?? propertyPath)
  for (const { propertyName } of metadata.lazyRelations) {
    for (const prefix of ['', '_has', '_promise']) names.add(`_${prefix}_${propertyName}__`)
  }
  properties.set(metadata, names)
  return names
}

/** Property paths of what values bring beside some columns, also in an embedded that one of these is in. */
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
 * Looks at one row of a call that writes all of its rows or none: what is refused says which row it is.
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

type Relation = EntityText['metadata']['relations'][number]

/** A relation to rows that exist is a matter of its join columns; anything else needs rows of other tables. */
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

/** Why an input has no row: ours; the database's; or what a normalizer, a transformer, a listener or `create` threw. */
export type RowError = UniqueTextError | QueryFailedError | Error

/** A user's function can throw anything. In tests, an error may come from another realm. */
export function toRowError(thrown: unknown): RowError {
  if (thrown instanceof Error || isNativeError(thrown)) return thrown
  return new Error(
    `A function threw ${typeof thrown === 'object' ? 'an object' : `a ${typeof thrown}`} that is not an Error.`,
    {
      cause: thrown,
    },
  )
}
