import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { parameterOptions } from '../connection/pg-client'
import type { Session } from '../connection/session'
import type { TakenText } from '../errors'
import { parameterText } from '../sql/parameter-text'
import { takenKeysStatement } from '../sql/taken-keys'
import { idOf } from '../typeorm/refused-text'
import { type ColumnMetadata, rootOf, tableDeclarations, tableNumbers } from '../typeorm/registry'
import { groupBy } from './batches'

/** A row of a call, for its primary key and the ordinary unique columns that it brings. */
export interface WrittenRow {
  readonly metadata: EntityMetadata
  /** 0-based position of the row in what was asked. */
  readonly row: number
  readonly values: ObjectLiteral
  /** Primary key of the stored row to change; undefined for a row to insert. */
  readonly id?: ObjectLiteral
}

interface UniqueKey {
  readonly name: string
  readonly columns: readonly ColumnMetadata[]
}

/**
 * Which primary keys, unique columns and numbers that the rows bring are taken, as far as it can be known: not where an
 * index has a condition, or where a column gets its value from the database.
 */
export async function takenKeys(session: Session, rows: readonly WrittenRow[]): Promise<TakenText[]> {
  const taken: TakenText[] = []
  const groups = groupBy(rows, ({ metadata, id }) => `${rootOf(metadata).tablePath} ${id === undefined}`)
  for (const group of groups.values()) taken.push(...(await takenOf(session, group)))
  return taken
}

async function takenOf(session: Session, rows: readonly WrittenRow[]): Promise<TakenText[]> {
  const [{ metadata, id }] = rows as [WrittenRow]
  const root = rootOf(metadata)
  const asked = keysOf(root)
    .map((key) => ({ key, rows: rows.filter((row) => brings(row, key)) }))
    .filter((one) => one.rows.length > 0)
  if (asked.length === 0) return []
  const statement = takenKeysStatement({
    schema: root.schema,
    table: root.tableName,
    primary: root.primaryColumns.map(({ databaseName }) => databaseName),
    keys: asked.map(({ key }) => key.columns.map(({ databaseName }) => databaseName)),
    standing: id !== undefined,
  })
  const json = asked.map((one) => JSON.stringify(one.rows.map((row) => recordOf(session, row, one.key.columns))))
  // A value that its column cannot hold has been refused for that, or has a type whose text is no JSON.
  const found = await session.rowsOrRollBack(statement, json).catch(() => [])
  return found.flatMap(({ key, index, holder }) => {
    const one = asked[key]
    const row = one?.rows[index]
    if (!one || !row) return []
    return [{ entity: row.metadata.name, property: one.key.name, id: holder && idOf(root, holder), row: row.row }]
  })
}

function keysOf(root: EntityMetadata): UniqueKey[] {
  const ofTexts = new Set(tableDeclarations(root).map(({ table }) => table.index))
  const numbers = new Map(tableNumbers(root).map(({ table, name }) => [table.index, name]))
  const indices = root.indices.filter(({ name, isUnique, where }) => isUnique && !where && !ofTexts.has(name))
  const named = (columns: readonly ColumnMetadata[]): string => columns.map((one) => one.propertyPath).join(', ')
  return [
    { columns: root.primaryColumns, name: named(root.primaryColumns) },
    ...[...root.uniques, ...indices].map(({ name, columns }) => ({
      columns,
      name: numbers.get(name) ?? named(columns),
    })),
  ].filter(({ columns }) => columns.length > 0)
}

const isValue = (value: unknown): boolean => value !== undefined && value !== null && typeof value !== 'function'

function brings({ values, id }: WrittenRow, { columns }: UniqueKey): boolean {
  const given = columns.map((column): unknown => column.getEntityValue(values))
  return id === undefined ? given.every(isValue) : given.some(isValue) && !given.includes(null)
}

/** As `takenKeysStatement` takes it. */
function recordOf(session: Session, { metadata, values, id }: WrittenRow, columns: readonly ColumnMetadata[]): object {
  const { dataSource } = session
  const options = parameterOptions(dataSource)
  const record = (of: ObjectLiteral, some: readonly ColumnMetadata[]): object =>
    Object.fromEntries(
      some.flatMap((column) => {
        const value: unknown = column.getEntityValue(of)
        if (!isValue(value)) return []
        return [[column.databaseName, parameterText(dataSource.driver.preparePersistentValue(value, column), options)]]
      }),
    )
  return id === undefined
    ? record(values, columns)
    : { key: record(id, metadata.primaryColumns), set: record(values, columns) }
}
