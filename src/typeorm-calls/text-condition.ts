import type { EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { requireManager } from '../rows/call-arguments'
import { pathsBeside } from '../rows/refused-input'
import { holdsValues, NOTHING, orNoHash } from '../sql/text-condition'
import { knownReady } from '../schema/readiness'
import { dataSourceOf, type Declaration, declarationsOf } from '../registry/registry'
import { hashesOf, valueAt } from '../typeorm/rewrite-conditions'
import { markFor } from '../typeorm/seen-tables'
import { storedCondition } from '../typeorm/stored-condition'

/**
 * The condition that a row holds a unique text, for the places where a query builder takes SQL: joins, and conditions on
 * an alias. It uses the unique index; the text is normalized, and one that the normalizer refuses finds nothing. With
 * `ignoreDeleted` a row that is deleted softly holds no text, and is not found.
 *
 * @param alias of the entity in the query
 * @param texts one unique text or several, by their properties; for a text of several columns all of them, null for NULL
 * @returns what `where()`, `andWhere()` and joins of a query builder take, in this order
 * @throws DeclarationError if the properties are not unique texts of the entity, or the values are not strings
 * @example
 * links.createQueryBuilder('l').innerJoin('l.page', 'p', ...textCondition(links.manager, Page, 'p', { url }))
 */
export function textCondition<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  alias: string,
  texts: { readonly [property in keyof Entity]?: unknown },
): [sql: string, parameters: ObjectLiteral] {
  requireManager(manager)
  const metadata = dataSourceOf(manager).getMetadata(entity)
  const meant = declarationsOf(metadata).filter(({ text }) =>
    text.every(({ column }) => given(texts, column.propertyPath) !== undefined),
  )
  const columns = meant.flatMap(({ text }) => text.map(({ column }) => column))
  const known = new Set(columns.map(({ propertyPath }) => propertyPath.split('.')[0]))
  const unknownKey = Object.keys(texts).find((key) => !known.has(key)) ?? pathsBeside(metadata, columns, texts)[0]
  if (unknownKey !== undefined || meant.length === 0) throw notATextOf(metadata.name, unknownKey)
  const parameters: ObjectLiteral = {}
  const parameter = (value: string): string => {
    const name = `unique_text_${(count += 1)}`
    parameters[name] = value
    return name
  }
  const values = meant.map((one) => holdsText(one, alias, texts))
  return [values.map((one) => (one ? one(parameter) : NOTHING)).join(' AND '), parameters]
}

/** Names of parameters must differ within a query, and this function sees only a part of the query. */
let count = 0

const given = (texts: ObjectLiteral, path: string): unknown => valueAt(texts, path.split('.'))

const notATextOf = (entity: string, property: string | undefined): DeclarationError =>
  new DeclarationError(
    property === undefined
      ? `textCondition() expects a unique text of ${entity}, as in { url: 'https://example.com' }. Give one.`
      : `textCondition() expects unique texts of ${entity}, and all columns of each; "${property}" is not one. ` +
          'Add other conditions with andWhere().',
  )

/** SQL that the columns hold the text and its hash; undefined for a text that is refused. */
function holdsText(
  declaration: Declaration,
  alias: string,
  texts: ObjectLiteral,
): ((parameter: (value: string) => string) => string) | undefined {
  const values = new Map<string, string | null>()
  for (const part of declaration.text) {
    const { propertyPath } = part.column
    const value = given(texts, propertyPath)
    const stored = value === null ? [null] : storedCondition(part, value).texts
    if (!stored || stored.length > 1) {
      throw new DeclarationError(`textCondition() expects one text for "${propertyPath}", or null. Pass it.`)
    }
    const [text] = stored
    if (text === undefined) return undefined
    values.set(`${alias}.${propertyPath}`, text)
  }
  const [hash] =
    hashesOf(
      declaration,
      [...values.values()].map((text) => ({ texts: [text] })),
    ) ?? []
  const { metadata, table } = declaration
  const deleteDate = metadata.columns.find(({ databaseName }) => databaseName === table.deleted)
  // The unique index has live rows only, and is used where the condition says the same.
  if (deleteDate) values.set(`${alias}.${deleteDate.propertyPath}`, null)
  const [{ propertyPath }] = declaration.hidden as readonly [Declaration['hidden'][number]]
  if (hash === undefined) return (parameter) => holdsValues(values, parameter)
  const column = `${alias}.${propertyPath}`
  const hashed = new Map([[column, hash]])
  return (parameter) =>
    `${holdsValues(values, parameter)} AND ` +
    (knownReady(declaration)
      ? holdsValues(hashed, parameter)
      : `(${holdsValues(hashed, parameter)} OR ${orNoHash(column, markFor(declaration))})`)
}
