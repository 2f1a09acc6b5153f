import type { QueryRunner, Table } from 'typeorm'
import { changeType } from '../sql/alter'
import type { TextTable } from '../sql/text-table'
import { emit } from './record-ddl'
import { type ColumnMetadata, dataSourceOf } from './registry'

const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'character varying'])

/** Changes a text column's type in place. TypeORM would drop the column and add it again. */
export async function keepType(
  queryRunner: QueryRunner,
  names: TextTable,
  column: ColumnMetadata,
  table: Table,
): Promise<void> {
  const { driver } = dataSourceOf(column.entityMetadata)
  const found = table.findColumnByName(column.databaseName)
  const to = { type: driver.normalizeType(column), length: driver.getColumnLength(column) }
  if (!found || !TEXT_TYPES.has(found.type) || (found.type === to.type && found.length === to.length)) return
  await emit(queryRunner, changeType(names, found.name, found, to))
  Object.assign(found, to)
}
