import { type QueryRunner, type Table, TableColumn } from 'typeorm'
import { quote } from '../sql/identifier'
import { hashOf, tableName, textIsNull, type TextTable } from '../sql/text-table'
import { dataSourceOf } from './declaration'
import { emit } from './emit'
import { type ColumnMetadata, type Declaration } from './registry'

const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'character varying'])

/**
 * Does by other statements what TypeORM would do by dropping the text: its own comparison, which comes after, then finds
 * the column as it wants it.
 *
 * @param table the builder's picture of the table, which is brought up to date
 */
export async function keepTexts(queryRunner: QueryRunner, declaration: Declaration, table: Table): Promise<void> {
  for (const { column } of declaration.text) await changeType(queryRunner, declaration.table, column, table)
  await backfillHash(queryRunner, declaration, table)
}

/** TypeORM drops a column and adds it anew where its type or length differ. */
async function changeType(
  queryRunner: QueryRunner,
  names: TextTable,
  column: ColumnMetadata,
  table: Table,
): Promise<void> {
  const { driver } = dataSourceOf(column.entityMetadata)
  const found = table.findColumnByName(column.databaseName)
  const [type, length] = [driver.normalizeType(column), driver.getColumnLength(column)]
  if (!found || !TEXT_TYPES.has(found.type) || (found.type === type && found.length === length)) return
  const alter = (to: string, limit: string): string =>
    `ALTER TABLE ${tableName(names)} ALTER COLUMN ${quote(found.name)} TYPE ${to}${limit ? `(${limit})` : ''}`
  await emit(queryRunner, [alter(type, length)], [alter(found.type, found.length)])
  found.type = type
  found.length = length
}

/** TypeORM would add a NOT NULL column without a value, which fails on a table with rows. */
async function backfillHash(
  queryRunner: QueryRunner,
  { table: names, hidden, text }: Declaration,
  table: Table,
): Promise<void> {
  const [hash] = hidden
  if (!hash || table.findColumnByName(names.hash)) return
  // A text column that is new itself has nothing to hash.
  if (text.some(({ column }) => !table.findColumnByName(column.databaseName))) return
  const type = dataSourceOf(hash.entityMetadata).driver.normalizeType(hash)
  const alter = `ALTER TABLE ${tableName(names)}`
  await emit(
    queryRunner,
    [
      `${alter} ADD ${quote(names.hash)} ${type}`,
      `UPDATE ${tableName(names)} SET ${quote(names.hash)} = ${hashOf(names, '')}${names.nullable ? ` WHERE NOT (${textIsNull(names, '')})` : ''}`,
      ...(names.nullable ? [] : [`${alter} ALTER COLUMN ${quote(names.hash)} SET NOT NULL`]),
    ],
    [`${alter} DROP COLUMN ${quote(names.hash)}`],
  )
  table.addColumn(new TableColumn({ name: names.hash, type, isNullable: names.nullable }))
}
