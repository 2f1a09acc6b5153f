import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { RULE } from '../options'
import { type Declaration, textsOfEntity } from '../registry/registry'
import { knownReady } from '../schema/readiness'
import { holdsValues, NOTHING, orNoHash } from '../sql/find'
import { hashesOf, storedCondition, valueAt } from '../typeorm/conditions'
import { markFor } from '../typeorm/seen-tables'
import { pathsBeside } from '../calls/values'

/** A condition as SQL. For each value it names a query parameter, which the given function returns. */
export type AliasCondition = (parameter: (value: string) => string) => string

/**
 * Returns conditions that a row holds unique texts, for SQL that names the row by an alias. There is one for each text,
 * and it is false if the text is refused.
 *
 * @param texts by their properties
 * @throws DeclarationError if the properties are not unique texts of the entity, or the values are not strings
 */
export function aliasConditions(metadata: EntityMetadata, alias: string, texts: ObjectLiteral): AliasCondition[] {
  if (!RULE.name.takes(alias) || typeof texts !== 'object' || (texts as unknown) === null)
    throw notATextOf(metadata.name)
  const meant = textsOfEntity(metadata).filter(({ text }) =>
    text.every(({ column }) => given(texts, column.propertyPath) !== undefined),
  )
  const columns = meant.flatMap(({ text }) => text.map(({ column }) => column))
  const known = new Set(columns.map(({ propertyPath }) => propertyPath.split('.')[0]))
  const unknownKey = Object.keys(texts).find((key) => !known.has(key)) ?? pathsBeside(metadata, columns, texts)[0]
  if (unknownKey !== undefined || meant.length === 0) throw notATextOf(metadata.name, unknownKey)
  return meant.map((one) => aliasCondition(one, alias, texts) ?? ((): string => NOTHING))
}

const given = (texts: ObjectLiteral, path: string): unknown => valueAt(texts, path.split('.'))

const notATextOf = (entity: string, property?: string): DeclarationError =>
  new DeclarationError(
    property === undefined
      ? `textCondition() expects an alias and a unique text of ${entity}, as in { url: 'https://example.com' }. Give both.`
      : `textCondition() expects unique texts of ${entity}, and all columns of each; "${property}" is not one. ` +
          'Add other conditions with andWhere().',
  )

/** @returns undefined for a refused text */
function aliasCondition(declaration: Declaration, alias: string, texts: ObjectLiteral): AliasCondition | undefined {
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
  // The unique index contains only live rows, so the condition must state this for the index to be used.
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
