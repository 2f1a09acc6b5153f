import { type QueryRunner, type Table, TableColumn } from 'typeorm'
import { addHash, changeType, renamedColumns, renameText } from '../sql/alter'
import type { GuardNote } from '../sql/guard'
import type { TextTable } from '../sql/text-table'
import { emit } from './record-ddl'
import { type ColumnMetadata, dataSourceOf, type Declaration, declarationsOf } from './registry'

const TEXT_TYPES: ReadonlySet<string> = new Set(['text', 'varchar', 'character varying'])

/**
 * Does by other statements what TypeORM would do by dropping the text: its own comparison, which comes after, then finds
 * the column as it wants it.
 *
 * @param table the builder's picture of the table, which is brought up to date
 * @param notes of the guards that are installed on it
 */
export async function keepTexts(
  queryRunner: QueryRunner,
  declaration: Declaration,
  table: Table,
  notes: readonly GuardNote[],
): Promise<void> {
  const before = renamedFrom(declaration, table, notes)
  if (before) await rename(queryRunner, declaration, table, before)
  for (const { column } of declaration.text) await keepType(queryRunner, declaration.table, column, table)
  await backfillHash(queryRunner, declaration, table)
}

/**
 * A renamed property changes the names of four columns at once, and TypeORM follows a change of one only. As there, one
 * text that is gone and one that is new count as renamed.
 */
async function rename(
  queryRunner: QueryRunner,
  { table: to }: Declaration,
  table: Table,
  from: GuardNote,
): Promise<void> {
  await emit(queryRunner, renameText(from, to))
  const renamed = renamedColumns(from, to)
  for (const one of table.columns) one.name = renamed.get(one.name) ?? one.name
  for (const one of table.indices) {
    if (one.name === from.index) one.name = to.index
    one.columnNames = one.columnNames.map((name) => renamed.get(name) ?? name)
  }
  for (const one of table.checks) if (one.name === from.check) one.name = to.check
}

/** The guard of a text that the table has and the entity no longer does, if this declaration is the only new one. */
function renamedFrom(declaration: Declaration, table: Table, notes: readonly GuardNote[]): GuardNote | undefined {
  const { metadata } = declaration
  const has = (name: string): boolean => table.findColumnByName(name) !== undefined
  const isNew = ({ table: one }: Declaration): boolean => !has(one.hash) && one.text.every(({ name }) => !has(name))
  const declared = new Set(metadata.columns.map(({ databaseName }) => databaseName))
  const gone = notes.filter(
    ({ hash, text }) => has(hash) && [hash, ...text.map(({ name }) => name)].every((name) => !declared.has(name)),
  )
  const [only] = gone
  const whole =
    table.checks.some(({ name }) => name === only?.check) && table.indices.some(({ name }) => name === only?.index)
  const sole = gone.length === 1 && declarationsOf(metadata).filter(isNew).length === 1
  return sole && whole && isNew(declaration) && only?.text.length === declaration.table.text.length ? only : undefined
}

/** TypeORM drops a column and adds it anew where its type or length differ. */
async function keepType(
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

/** TypeORM would add a NOT NULL column without a value, which fails on a table with rows. */
async function backfillHash(
  queryRunner: QueryRunner,
  { table: names, text }: Declaration,
  table: Table,
): Promise<void> {
  if (table.findColumnByName(names.hash)) return
  // A text column that is new itself has nothing to hash.
  if (text.some(({ column }) => !table.findColumnByName(column.databaseName))) return
  await emit(queryRunner, addHash(names))
  table.addColumn(new TableColumn({ name: names.hash, type: names.digest.type, isNullable: names.nullable }))
}
