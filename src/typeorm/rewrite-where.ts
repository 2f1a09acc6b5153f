import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { orNoHash } from '../sql/text-condition'
import { composedText } from '../sql/text-table'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  registry,
  tableDeclarations,
  tableNames,
} from './registry'
import { knownReady } from './readiness'
import { markFor } from './seen-tables'
import { storedAny, storedEqual, storedJunction, storedRaw } from './stored-operator'
import { storedCondition, type StoredCondition } from './stored-condition'

/**
 * Conditions on an entity, with every unique text in the form that is stored, and with the hash beside each equality, so
 * that the unique index is used. What was given is left as it is; where there is nothing to change, it is what comes back.
 *
 * The hash is added as a condition of its own: wherever the equality holds, it holds.
 *
 * @param prefix of an embedded whose conditions these are, for instance `address.`
 */
export function rewriteWhere(where: ObjectLiteral, metadata: EntityMetadata, prefix = ''): ObjectLiteral {
  const rewritten = tableDeclarations(metadata).reduce((one, text) => rewriteText(one, text, prefix), where)
  return tableNames(metadata).reduce((one, name) => rewriteName(one, name, prefix), rewritten)
}

/**
 * Rewrites conditions on an entity and, in the same object, those on related entities.
 *
 * @param outer objects that these are a part of: an entity can lead back to itself
 */
export function rewriteDeep(
  where: ObjectLiteral,
  metadata: EntityMetadata,
  outer: readonly object[] = [],
): ObjectLiteral {
  const seen = [...outer, where]
  return metadata.relations.reduce(
    (one, { propertyPath, inverseEntityMetadata }) => {
      const path = propertyPath.split('.')
      const related = valueAt(one, path)
      if (!isConditions(related) || seen.includes(related)) return one
      const rewritten = rewriteDeep(related, inverseEntityMetadata, seen)
      return rewritten === related ? one : withValue(one, path, rewritten)
    },
    rewriteWhere(where, metadata),
  )
}

/** An object that TypeORM takes for conditions by property; an operator, brackets and a list are none. */
export const isConditions = (value: unknown): value is ObjectLiteral =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !('@instanceof' in value)

function rewriteText(where: ObjectLiteral, declaration: Declaration, prefix: string): ObjectLiteral {
  const parts = declaration.text.flatMap((part) => {
    const { propertyPath } = part.column
    const path = propertyPath.slice(prefix.length).split('.')
    const given = propertyPath.startsWith(prefix) ? valueAt(where, path) : undefined
    return given === undefined ? [] : [{ path, given, condition: conditionOf(declaration, part, given) }]
  })
  const stored = parts.reduce(
    (one, { path, given, condition }) => (condition.value === given ? one : withValue(one, path, condition.value)),
    where,
  )
  const conditions = parts.map(({ condition }) => condition)
  const indexed = conditions.some((one) => one.indexed)
  if (!indexed && !rewritesQueries(declaration)) return stored
  const whole = prefix === '' && conditions.length === declaration.text.length
  if (indexed && !whole) throw incomplete(declaration)
  const hashes = whole ? hashesOf(declaration, conditions) : undefined
  return hashes ? withHashes(stored, declaration, hashes) : stored
}

/** A name has no hash in the table of its holder, whose index is over the name itself. */
function rewriteName(where: ObjectLiteral, { text }: NameDeclaration, prefix: string): ObjectLiteral {
  const { propertyPath } = text.column
  const given = prefix === '' ? valueAt(where, [propertyPath]) : undefined
  if (given === undefined || given === null) return where
  const { value } = storedCondition(text, given)
  return value === given ? where : withValue(where, [propertyPath], value)
}

/** NULL is a condition only where the DataSource says so. */
function conditionOf({ metadata }: Declaration, part: Declaration['text'][number], given: unknown): StoredCondition {
  if (given !== null) return storedCondition(part, given)
  const { invalidWhereValuesBehavior: behaviour } = dataSourceOf(metadata).options
  return { value: null, texts: behaviour?.null === 'sql-null' ? [null] : undefined }
}

const rewritesQueries = ({ metadata }: Declaration): boolean =>
  registry.settings.get(dataSourceOf(metadata))?.rewriteQueries ?? true

const incomplete = ({ name, metadata, text }: Declaration): DeclarationError =>
  new DeclarationError(
    `textEquals() and textIn() look by the index of "${name}" of ${metadata.name}, which needs a condition on each of ` +
      `${text.map(({ column }) => `"${column.propertyPath}"`).join(', ')}. Give them all beside each other, or use Equal() and In().`,
  )

/** Of every text that can meet the conditions; undefined where they leave it open. Only one of them may name several. */
export function hashesOf(
  { table }: Declaration,
  conditions: readonly Pick<StoredCondition, 'texts'>[],
): readonly string[] | undefined {
  let rows: readonly (readonly (string | null)[])[] = [[]]
  for (const { texts } of conditions) {
    if (!texts || (rows.length > 1 && texts.length > 1)) return undefined
    rows = rows.flatMap((row) => texts.map((text) => [...row, text]))
  }
  // A row without a text has no hash.
  if (table.nullable && rows.some((row) => row.every((text) => text === null))) return undefined
  return [...new Set(rows.map((row) => table.digest.js(composedText(table, row))))]
}

function withHashes(where: ObjectLiteral, declaration: Declaration, hashes: readonly string[]): ObjectLiteral {
  const [hash] = declaration.hidden
  // Where no text is left, the conditions find nothing as they are.
  if (!hash || hash.propertyPath in where || hashes.length === 0) return where
  const equality = hashes.length === 1 ? storedEqual(hashes[0]) : storedAny(hashes)
  const seen = knownReady(declaration) !== undefined
  const none = storedRaw((column) => orNoHash(column, markFor(declaration)))
  return withValue(where, [hash.propertyPath], seen ? equality : storedJunction('or', [equality, none]))
}

/** Of an entity's accessors TypeORM makes no conditions, and what they set is not to be called here. */
export function valueAt(where: unknown, [key, ...rest]: readonly string[]): unknown {
  if (key === undefined) return where
  return isConditions(where) && Object.hasOwn(where, key) ? valueAt(where[key], rest) : undefined
}

/** A copy with another value; an instance stays one of its class. */
function withValue(where: unknown, [key, ...rest]: readonly string[], value: unknown): ObjectLiteral {
  const copy: ObjectLiteral = Object.assign(Object.create(Object.getPrototypeOf(where)) as object, where)
  if (key !== undefined) copy[key] = rest.length === 0 ? value : withValue(copy[key], rest, value)
  return copy
}
