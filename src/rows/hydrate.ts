import type { EntityMetadata, ObjectLiteral, QueryRunner } from 'typeorm'
import { TextTakenError } from '../errors'
import { returningList, type StoredRow } from '../sql/statements'
import { type ColumnMetadata, rootOf } from '../registry/registry'
import type { EntityColumns } from './entity-text'

/** Hash numbers of the entities given back, where they are not 0: too few to weigh, and no property would be free. */
const hashNumbers = new WeakMap<object, number>()

/** The hash number that the row of this entity had when find-or-create returned it. */
export function hashNumberOf(entity: object): number {
  return hashNumbers.get(entity) ?? 0
}

/** An entity, and what is called by its name in an error: the text, or the name, that the row holds. */
type NamedColumns = EntityColumns & { readonly declaration: { readonly name: string } }

/** Columns in the order of `select`; then the discriminator, where that is not among them. */
type Row = Pick<StoredRow, 'columns' | 'hashNumber'>

/**
 * An entity as `find` would give it, without relations.
 *
 * @param session whose query runner a lazy relation asks first, as those of `find` do
 * @param row its columns in the order of `rowShape(entityText).select`
 * @param into takes the columns. @default a new one
 * @throws TextTakenError for a row of another class of the table
 */
export function hydrate(
  entityText: NamedColumns,
  session: { readonly queryRunner: QueryRunner },
  row: Row,
  into?: ObjectLiteral,
): ObjectLiteral {
  const hasOneClass = entityText.metadata.discriminatorColumn === undefined
  const metadata = into || hasOneClass ? entityText.metadata : requireClass(entityText, row)
  const entity: ObjectLiteral = into ?? newEntity(metadata, session)
  fill(entityText, metadata, row.columns, entity)
  if (row.hashNumber > 0) hashNumbers.set(entity, row.hashNumber)
  return entity
}

/** One of a class without lazy relations needs no query runner. */
export function newEntity(metadata: EntityMetadata, session: { readonly queryRunner: QueryRunner }): ObjectLiteral {
  const queryRunner = metadata.lazyRelations.length > 0 ? session.queryRunner : undefined
  return metadata.create(queryRunner, { fromDeserializer: true })
}

/**
 * Sets the columns of an entity.
 *
 * @param metadata of its class
 * @param values in the order of `select`
 */
export function fill(
  { dataSource, metadata: { childEntityMetadatas }, select }: EntityColumns,
  metadata: EntityMetadata,
  values: readonly unknown[],
  entity: ObjectLiteral,
): void {
  const hasChildren = childEntityMetadatas.length > 0
  const { driver } = dataSource
  for (let index = 0; index < select.length; index += 1) {
    const column = select[index]
    if (!column || (hasChildren && !isOfThatClass(metadata, column))) continue
    const value: unknown = driver.prepareHydratedValue(values[index], column)
    if (value !== undefined) column.setEntityValue(entity, value)
  }
}

/** As `find` chooses columns: those of the row's class, of which a parent's metadata holds its children's too. */
function isOfThatClass({ columns, childEntityMetadatas }: EntityMetadata, column: ColumnMetadata): boolean {
  return (
    columns.some(({ propertyPath }) => propertyPath === column.propertyPath) &&
    !childEntityMetadatas.some(({ target }) => target === column.target)
  )
}

function requireClass(entityText: NamedColumns, row: Row): EntityMetadata {
  const metadata = classOfRow(entityText, row)
  if (!metadata) throw otherClass(entityText, row)
  return metadata
}

/** The value of the row's discriminator column; undefined where there is none. */
function discriminatorOf({ metadata, select }: NamedColumns, { columns }: Row): unknown {
  const { discriminatorColumn } = metadata
  if (!discriminatorColumn) return undefined
  const index = select.findIndex(({ databaseName }) => databaseName === discriminatorColumn.databaseName)
  return columns[index === -1 ? select.length : index]
}

/** Of single table inheritance, the class that the row's discriminator names; undefined if `find` would not give it. */
function classOfRow(entityText: NamedColumns, row: Row): EntityMetadata | undefined {
  const { metadata } = entityText
  if (!metadata.discriminatorColumn) return metadata
  const value = discriminatorOf(entityText, row)
  const named = [metadata, ...metadata.childEntityMetadatas].find((one) => one.discriminatorValue === value)
  // Of a value that no class has, TypeORM makes an instance of the root.
  return named ?? (metadata === rootOf(metadata) ? metadata : undefined)
}

/** `find` would give the row: it is of the entity's class, or of a child of it. */
export function isEntityOfClass(entityText: NamedColumns, row: Row): boolean {
  return classOfRow(entityText, row) !== undefined
}

function otherClass(entityText: NamedColumns, row: Row): TextTakenError {
  const { metadata, declaration } = entityText
  const root = rootOf(metadata)
  const value = discriminatorOf(entityText, row)
  const holder = [root, ...root.childEntityMetadatas].find((one) => one.discriminatorValue === value)
  const entity: ObjectLiteral = {}
  fill({ ...entityText, metadata: root }, root, row.columns, entity)
  const held = { entity: (holder ?? root).name, property: declaration.name, id: root.getEntityIdMap(entity), row: 0 }
  const classes = [...new Set([holder?.name, root.name])].filter((name) => name !== undefined).join(' or ')
  return new TextTakenError([held], undefined, `No row of ${metadata.name} can hold it too: pass ${classes}.`)
}

/** The RETURNING of TypeORM's own statements: the columns that `fill` takes. */
export const returnedBy = ({ select, spatial }: EntityColumns): string =>
  returningList({ select: select.map(({ databaseName }) => databaseName), spatial })
