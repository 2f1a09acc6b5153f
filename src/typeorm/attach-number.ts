import type { EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { fitName, plainName } from '../sql/identifier'
import type { NumberTable } from '../sql/number-table'
import { numberTriggers } from '../sql/number-triggers'
import { attachDataSource, type IndexMetadata, requireOneClass } from './attach-data-source'
import { scopeColumns } from './declared-columns'
import type { RawNumber } from './number-options'
import { numberedRows } from './number-rows'
import {
  type ColumnMetadata,
  dataSourceOf,
  isOrExtends,
  type NumberDeclaration,
  registry,
  rootOf,
  tableNumbers,
  type TriggerWork,
} from './registry'
import { foreignSchema } from './resolve-declaration'
import { requireMetadataInternals } from './supported'
import { registerTriggers } from './trigger-sets'

/**
 * The door to TypeORM for a number, as `attachDeclaration` is for a text: resolves it, and makes it take effect.
 *
 * @param index the IndexMetadata that TypeORM calls the `columns` function of the unique index on
 * @returns the property paths of that index
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export function attachNumber(index: object, raw: RawNumber): string[] {
  requireMetadataInternals(index)
  const door = index as IndexMetadata
  const metadata = rootOf(door.entityMetadata)
  const where = `@NumberWithin on ${metadata.name}.${raw.property}`
  attachDataSource(dataSourceOf(metadata), where)
  const known = tableNumbers(metadata).find(({ name }) => name === raw.property)
  if (known) requireOneClass('@NumberWithin', known, door)
  const declaration = known ?? attach(door, metadata, { raw, where })
  returnNumber(door.entityMetadata, declaration)
  return [...declaration.scope, declaration.column].map(({ propertyPath }) => propertyPath)
}

interface Declared {
  readonly raw: RawNumber
  readonly where: string
}

function attach(door: IndexMetadata, metadata: EntityMetadata, { raw, where }: Declared): NumberDeclaration {
  if (door.embeddedMetadata !== undefined) {
    throw new DeclarationError(
      `${where}: a property of an embedded cannot declare it. Declare it on a property of the entity itself.`,
    )
  }
  if (metadata.tableType === 'entity-child' || !isOrExtends(metadata.target, door.target)) {
    throw new DeclarationError(
      `${where}: it stands on a class that shares its table with others, whose rows have no such number. ` +
        `Declare it on the class that has the @Entity and the @TableInheritance.`,
    )
  }
  const column = numberColumn(metadata, raw.property, where)
  const scope = raw.scope.flatMap((property) => scopeColumns(metadata, property, where))
  const table = numberTable(metadata, { raw, column, scope })
  const declaration: NumberDeclaration = { name: raw.property, metadata, target: door.target, column, scope, table }
  registry.numbers.set(metadata, [...tableNumbers(metadata), declaration])
  door.givenName = table.index
  registerTriggers(metadata, `number ${raw.property}`, () => workOf(declaration))
  return declaration
}

const TYPES: ReadonlySet<unknown> = new Set([Number, 'int', 'integer', 'int4', 'bigint', 'int8', 'smallint', 'int2'])

function numberColumn(metadata: EntityMetadata, property: string, where: string): ColumnMetadata {
  const column = metadata.columns.find(({ propertyPath }) => propertyPath === property)
  if (!column) throw new DeclarationError(`${where}: there is no column "${property}". Add a @Column.`)
  if (!TYPES.has(column.type) || column.isArray) {
    throw new DeclarationError(`${where}: "${property}" must be of type integer, bigint or smallint.`)
  }
  const wrong = [
    column.isNullable && 'nullable, because every row has a number',
    (column.default !== undefined || column.isGenerated || column.generatedType !== undefined) &&
      'given a default, because the triggers give it its value',
    column.isPrimary && 'part of the primary key, which must identify a row before it has a number',
  ].find((one) => typeof one === 'string')
  if (wrong) throw new DeclarationError(`${where}: "${property}" cannot be ${wrong}. Change its @Column.`)
  return column
}

function numberTable(
  metadata: EntityMetadata,
  resolved: { readonly raw: RawNumber; readonly column: ColumnMetadata; readonly scope: readonly ColumnMetadata[] },
): NumberTable {
  const { raw, column, scope } = resolved
  const { tableName, columns } = metadata
  const names = [...scope, column].map(({ databaseName }) => databaseName)
  return {
    name: raw.property,
    schema: foreignSchema(metadata),
    table: tableName,
    scope: scope.map((one) => ({ name: one.databaseName, type: typeOf(one) })),
    number: column.databaseName,
    type: typeOf(column),
    index: fitName(dataSourceOf(metadata).namingStrategy.indexName(tableName, names)),
    count: raw.count,
    deleted: columns.find(({ isDeleteDate }) => isDeleteDate)?.databaseName,
    triggers: plainName('numbers', tableName, raw.property),
  }
}

function typeOf(column: ColumnMetadata): string {
  const { driver } = dataSourceOf(column.entityMetadata)
  return `${driver.normalizeType(column)}${column.isArray ? '[]' : ''}`
}

/** TypeORM then puts it on the entity, in the round trip of the INSERT. */
function returnNumber(metadata: EntityMetadata, { column }: NumberDeclaration): void {
  const original = metadata.getInsertionReturningColumns.bind(metadata)
  const own = metadata.columns.find(({ propertyPath }) => propertyPath === column.propertyPath)
  metadata.getInsertionReturningColumns = () => {
    const others = original().filter((one) => one !== own)
    return own ? [...others, own] : others
  }
}

const workOf = ({ table, scope, metadata }: NumberDeclaration): TriggerWork => ({
  set: numberTriggers(table),
  rows: numberedRows({ table, metadata }),
  indexes: [{ name: table.index, columns: [...scope.map(({ databaseName }) => databaseName), table.number] }],
})
