import type { ObjectLiteral, UpdateEvent } from 'typeorm'
import { setProperty } from './write-back'
import { type ColumnMetadata, dataSourceOf, type NumberDeclaration, tableNumbers } from './registry'

/**
 * A row that moves to another scope is numbered there by a trigger, and TypeORM reads nothing of it back. The old number,
 * left on the entity, would be written by its next `save`.
 */
export async function readMovedNumbers(event: UpdateEvent<ObjectLiteral>): Promise<void> {
  const { metadata, entity, manager } = event
  if (!entity) return
  const moved = tableNumbers(metadata).filter((one) => isMoved(one, event) && !isGiven(one, entity, event))
  const [first, ...others] = moved.map(({ name }, index) => [`row.${name}`, `n${index}`] as const)
  if (!first) return
  const query = manager.createQueryBuilder(metadata.target, 'row').select(...first)
  for (const other of others) query.addSelect(...other)
  const row = await query.withDeleted().whereInIds(metadata.getEntityIdMap(entity)).getRawOne<ObjectLiteral>()
  const { driver } = dataSourceOf(metadata)
  for (const [index, { column }] of moved.entries()) {
    if (row) setProperty(column, entity, driver.prepareHydratedValue(row[`n${index}`], column))
  }
}

type Changes = Pick<UpdateEvent<ObjectLiteral>, 'updatedColumns' | 'updatedRelations'>

/** Of single table inheritance, each class has columns of its own. */
const isWritten = (column: ColumnMetadata, { updatedColumns, updatedRelations }: Changes): boolean =>
  updatedColumns.some(({ propertyPath }) => propertyPath === column.propertyPath) ||
  updatedRelations.some(({ propertyPath }) => propertyPath === column.relationMetadata?.propertyPath)

const isMoved = ({ scope }: NumberDeclaration, changes: Changes): boolean =>
  scope.some((column) => isWritten(column, changes))

const isGiven = ({ column }: NumberDeclaration, entity: ObjectLiteral, changes: Changes): boolean =>
  isWritten(column, changes) && (column.getEntityValue(entity) ?? null) !== null
