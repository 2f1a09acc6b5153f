import { type QueryRunner, type Table, TableColumn } from 'typeorm'
import { changeType, type TypeAndLength } from '../sql/alter'
import type { TextTable } from '../sql/text-table'
import { emit } from './record-ddl'
import { type ColumnMetadata, dataSourceOf, type Declaration } from './registry'

const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'character varying'])

/** Changes a text column's type in place. TypeORM would drop the column and add it again. */
export async function keepType(
  queryRunner: QueryRunner,
  names: Pick<TextTable, 'schema' | 'table'>,
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

const DATE_TYPES: ReadonlySet<string> = new Set(['timestamp without time zone', 'timestamp with time zone', 'date'])

/** The precision of a date column that declares none. */
const DEFAULT_PRECISION = 6

/**
 * Changes the type of the delete date in place. If TypeORM dropped the column, Postgres would drop the unique index
 * too, whose condition names it.
 */
export async function keepDeleteDate(
  queryRunner: QueryRunner,
  names: TextTable,
  { metadata }: Pick<Declaration, 'metadata'>,
  table: Table,
): Promise<void> {
  const column = metadata.columns.find(({ databaseName }) => databaseName === names.deleted)
  const found = column && table.findColumnByName(column.databaseName)
  if (!found) return
  const { driver } = dataSourceOf(metadata)
  const type = driver.normalizeType(column)
  const precision = column.precision === undefined ? found.precision : column.precision
  const same = found.type === type && found.precision === precision
  if (same || !DATE_TYPES.has(found.type) || !DATE_TYPES.has(type)) return
  const full = (one: string, digits: number | null | undefined): TypeAndLength => {
    const said = digits === undefined || digits === DEFAULT_PRECISION ? {} : { precision: digits }
    return { type: driver.createFullType(new TableColumn({ name: found.name, type: one, ...said })), length: '' }
  }
  await emit(queryRunner, changeType(names, found.name, full(found.type, found.precision), full(type, precision)))
  Object.assign(found, { type, precision })
}
