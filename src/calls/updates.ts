import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { type ColumnMetadata, namesOfEntity, textsOfEntity } from '../registry/registry'
import type { SqlOfRows } from '../sql/upsert'
import type { SqlOfRow, UpsertByTextOptions } from './call-options'
import { cached, type EntityText, type Updates } from './entity-text'

/** The further columns that a row sets, by database name. */
interface Brought {
  readonly others: readonly string[]
}

/** @throws DeclarationError for an unknown property, one that cannot be changed, or a function without SQL */
export function updatesOf<Entity>(
  entityText: EntityText,
  { create, update, where, skipUpdateIfNoValuesChanged: skipUnchanged = false }: UpsertByTextOptions<Entity>,
): Updates {
  const given: readonly (readonly [string, unknown])[] = Array.isArray(update)
    ? update.map((name: string) => [name, true] as const)
    : Object.entries(update ?? {})
  const listed = update && given.flatMap(([name, value]) => (value === true ? [name] : []))
  const used = new Set<string>()
  const set = given.flatMap(([name, value]) =>
    typeof value === 'function'
      ? [[setColumn(entityText, name), templateOf(entityText, value as SqlOfRow, used)] as const]
      : [],
  )
  const condition = where ? templateOf(entityText, where, used) : ''
  const created = create ? entityText.others.filter((column) => column.getEntityValue(create) !== undefined) : []
  const sqlKey = [...set.flat(), condition].join('\0')
  const key = [
    String(skipUnchanged),
    listed ? 'listed' : 'all',
    ...(listed ?? []),
    sqlKey,
    ...created.map(({ databaseName }) => databaseName),
  ]
  return cached(entityText.updates, key, () => {
    const columns = listed
      ? listed.flatMap((property) => listedColumns(entityText, property))
      : // The row may be a loaded entity with earlier dates. The update date changes by itself, and a deleted row must
        // not be restored by accident.
        entityText.others.filter(
          (column) =>
            !column.isUpdateDate && !column.isDeleteDate && mayUpdate(entityText, column) && !created.includes(column),
        )
    const both = columns.find((column) => created.includes(column))
    if (both) {
      throw new DeclarationError(
        `"${both.propertyPath}" of ${entityText.metadata.name} is in "create" and in "update", which takes over what the ` +
          'rows themselves give. Give it in the rows, or set it to SQL.',
      )
    }
    return {
      columns: new Set(columns.map(({ databaseName }) => databaseName)),
      skipUnchanged,
      sql: new Map(set.map(([name, template]) => [name, sqlOfRows(template)])),
      where: condition === '' ? undefined : sqlOfRows(condition),
      used,
      sqlKey,
    }
  })
}

/** Returns the columns that a stored row takes over from these values. */
export function updateOf(updates: Updates | undefined, { others }: Brought): string[] {
  return updates ? others.filter((name) => updates.columns.has(name)) : []
}

/** Returns whether a row that is found is changed, and not only found. */
export const isChanging = (updates: Updates | undefined, row: Brought): boolean =>
  updates !== undefined && (updates.sql.size > 0 || updateOf(updates, row).length > 0)

/** @throws DeclarationError if the SQL of the update uses a given value that the row does not have */
export function requireUsed({ metadata, declaration }: EntityText, { used }: Updates, { others }: Brought): void {
  for (const name of used) {
    if (
      others.includes(name) ||
      [...declaration.scope, ...declaration.text.map(({ column }) => column)].some(
        ({ databaseName }) => databaseName === name,
      )
    )
      continue
    const property = metadata.findColumnWithDatabaseName(name)?.propertyPath ?? name
    throw new DeclarationError(
      `A row of ${metadata.name} gives no "${property}", and the SQL of the upsert uses "given.${property}". Give a value, or null.`,
    )
  }
}

/** The delimiter around each column of a template, which consists of a letter and a name. No SQL contains it. */
const MARK = '\u0001'

const sqlOfRows =
  (template: string): SqlOfRows =>
  (stored, given) =>
    `(${template
      .split(MARK)
      .map((part, index) => (index % 2 === 0 ? part : (part.startsWith('s') ? stored : given)(part.slice(1))))
      .join('')})`

/** @throws DeclarationError for an unknown property, and for a result that is not SQL */
function templateOf(entityText: EntityText, sqlOf: SqlOfRow, used: Set<string>): string {
  const columns = (letter: string): Record<string, string> =>
    new Proxy<Record<string, string>>(
      {},
      {
        get: (_, property) => {
          const { databaseName } = oneColumn(entityText, String(property))
          if (letter === 'g') used.add(databaseName)
          return `${MARK}${letter}${databaseName}${MARK}`
        },
      },
    )
  const sql: unknown = sqlOf({ stored: columns('s'), given: columns('g') })
  if (typeof sql === 'string' && sql.trim() !== '') return sql
  throw new DeclarationError(
    `A function of upsertByText() of ${entityText.metadata.name} must return SQL, got ${kindOf(sql)}.`,
  )
}

/** @throws DeclarationError unless the property has a column of its own */
function oneColumn({ metadata }: EntityText, property: string): ColumnMetadata {
  const [column, another] = metadata.findColumnsWithPropertyPath(property)
  if (column && !another) return column
  throw new DeclarationError(
    `upsertByText() cannot use "${property}" of ${metadata.name} in SQL: it is not the property of one column.`,
  )
}

/** @throws DeclarationError for a column that SQL may not set */
function setColumn(entityText: EntityText, property: string): string {
  const { metadata, otherTexts } = entityText
  const column = oneColumn(entityText, property)
  listedColumns(entityText, property)
  const texts = [...otherTexts, ...namesOfEntity(metadata).map(({ text }) => ({ text: [text] }))]
  if (texts.every(({ text }) => text.every((part) => part.column !== column))) return column.databaseName
  throw new DeclarationError(
    `upsertByText() cannot set "${property}" of ${metadata.name} to SQL: only a value is normalized. Give it in the rows.`,
  )
}

/** Returns the columns of a property: its own column, a relation's join columns, or all columns of an embedded. */
function listedColumns(entityText: EntityText, property: string): ColumnMetadata[] {
  const { metadata, declaration } = entityText
  const columns = [
    ...metadata.findColumnsWithPropertyPath(property),
    ...(metadata.findEmbeddedWithPropertyPath(property)?.columnsFromTree ?? []),
  ]
  const reasons = columns.map((column) => reasonAgainst(entityText, column)).filter((reason) => reason !== undefined)
  const reason = columns.length === 0 ? `${metadata.name} has no such column` : reasons[0]
  if (reason === undefined) return columns
  throw new DeclarationError(
    `upsertByText() by "${declaration.name}" cannot update "${property}": ${reason}. Leave it out of "update".`,
  )
}

export function mayUpdate(entityText: EntityText, column: ColumnMetadata): boolean {
  return reasonAgainst(entityText, column) === undefined
}

/** Returns why an upsert does not change a column; undefined if it may change it. */
function reasonAgainst({ metadata, declaration }: EntityText, column: ColumnMetadata): string | undefined {
  const { text, scope } = declaration
  if (text.some((one) => one.column === column)) return 'the row is found by it'
  if (scope.includes(column)) return 'the text is unique within it, and so the row is found by it'
  if (textsOfEntity(metadata).some(({ hidden }) => hidden.includes(column))) return 'the guard maintains it'
  if (column.isPrimary) return 'it is the primary key'
  if (column.isGenerated || column.generatedType !== undefined) return 'the database generates it'
  if (column.isCreateDate) return 'it is the creation date'
  if (column.isVersion) return 'every update increments it'
  if (column.isDiscriminator) return 'it is the discriminator, which determines the class of the row'
  return column.isInsert && column.isUpdate
    ? undefined
    : 'its column is declared with "insert: false" or "update: false"'
}
