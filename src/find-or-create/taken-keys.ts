import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { parameterOptions } from '../connection/pg-client'
import type { Session } from '../connection/session'
import type { TakenText } from '../errors'
import { parameterText } from '../sql/parameter-text'
import type { UnusualIndex } from '../sql/catalog'
import { takenKeysStatement } from '../sql/taken-keys'
import { knownReady } from '../typeorm/readiness'
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
  /** It has a condition or an expression. */
  readonly index?: UnusualIndex
}

/**
 * Which primary keys, unique columns and numbers that the rows bring are taken, as far as it can be known: not where a
 * column gets its value from a trigger, an identity or a sequence.
 */
export async function takenKeys(session: Session, rows: readonly WrittenRow[]): Promise<TakenText[]> {
  const taken: TakenText[] = []
  const groups = groupBy(rows, ({ metadata, id }) => `${rootOf(metadata).tablePath} ${id === undefined}`)
  for (const group of groups.values()) taken.push(...(await takenOf(session, group)))
  return taken
}

async function takenOf(session: Session, rows: readonly WrittenRow[]): Promise<TakenText[]> {
  const [{ metadata }] = rows as [WrittenRow]
  const root = rootOf(metadata)
  return [
    ...(await takenOfKeys(session, rows, keysOf(root))),
    // In a statement of its own: an expression may fail for a value that its row would not be refused for.
    ...(await takenOfKeys(session, rows, unusualKeysOf(root))),
  ]
}

async function takenOfKeys(
  session: Session,
  rows: readonly WrittenRow[],
  keys: readonly UniqueKey[],
): Promise<TakenText[]> {
  const [{ metadata, id }] = rows as [WrittenRow]
  const root = rootOf(metadata)
  const requested = keys
    .map((key) => ({ key, rows: rows.filter((row) => brings(row, key)) }))
    .filter((one) => one.rows.length > 0)
  if (requested.length === 0) return []
  const statement = takenKeysStatement({
    schema: root.schema,
    table: root.tableName,
    primary: root.primaryColumns.map(({ databaseName }) => databaseName),
    keys: requested.map(({ key }) => ({
      columns: key.columns.map(({ databaseName }) => databaseName),
      index: key.index,
    })),
    standing: id !== undefined,
  })
  const json = requested.map((one) => JSON.stringify(one.rows.map((row) => recordOf(session, row, one.key))))
  // A value that its column cannot hold has been refused for that, or has a type whose text is no JSON.
  const found = await session.rowsOrRollBack(statement, json).catch(() => [])
  return found.flatMap(({ key, index, holder }) => {
    const one = requested[key]
    const row = one?.rows[index]
    if (!one || !row) return []
    return [{ entity: row.metadata.name, property: one.key.name, id: holder && idOf(root, holder), row: row.row }]
  })
}

/** As they were when the table was found ready: declared, or made by SQL. */
const unusualKeysOf = (root: EntityMetadata): UniqueKey[] =>
  (
    tableDeclarations(root)
      .map(knownReady)
      .find((one) => one !== undefined)?.unusual ?? []
  ).flatMap((index) => {
    const columns = columnsNamed(root, index.columns)
    if (columns.length === 0) return []
    return [{ name: named(columns), columns: columnsNamed(root, Object.keys(index.reads)), index }]
  })

const columnsNamed = (root: EntityMetadata, names: readonly string[]): ColumnMetadata[] =>
  root.columns.filter(({ databaseName }) => names.includes(databaseName))

const named = (columns: readonly ColumnMetadata[]): string => columns.map((one) => one.propertyPath).join(', ')

function keysOf(root: EntityMetadata): UniqueKey[] {
  const ofTexts = new Set(tableDeclarations(root).map(({ table }) => table.index))
  const numbers = new Map(tableNumbers(root).map(({ table, name }) => [table.index, name]))
  const indices = root.indices.filter(({ name, isUnique, where }) => isUnique && !where && !ofTexts.has(name))
  return [
    { columns: root.primaryColumns, name: named(root.primaryColumns) },
    ...[...root.uniques, ...indices].map(({ name, columns }) => ({
      columns,
      name: numbers.get(name) ?? named(columns),
    })),
  ].filter(({ columns }) => columns.length > 0)
}

const isValue = (value: unknown): boolean => value !== undefined && value !== null && typeof value !== 'function'

function brings({ values, id }: WrittenRow, { columns, index }: UniqueKey): boolean {
  const given = columns.map((column): unknown => column.getEntityValue(values))
  if (index) return given.some(isValue)
  return id === undefined ? given.every(isValue) : given.some(isValue) && !given.includes(null)
}

/** As `takenKeysStatement` takes it. */
function recordOf(session: Session, { metadata, values, id }: WrittenRow, { columns, index }: UniqueKey): object {
  const { dataSource } = session
  const options = parameterOptions(dataSource)
  const record = (of: ObjectLiteral, some: readonly ColumnMetadata[]): object =>
    Object.fromEntries(
      some.flatMap((column) => {
        const value: unknown = column.getEntityValue(of)
        // A NULL that is given keeps a default away, and may be what a condition asks for.
        if (!isValue(value) && !(index && value === null)) return []
        return [[column.databaseName, parameterText(dataSource.driver.preparePersistentValue(value, column), options)]]
      }),
    )
  return id === undefined
    ? record(values, columns)
    : { key: record(id, metadata.primaryColumns), set: record(values, columns) }
}
