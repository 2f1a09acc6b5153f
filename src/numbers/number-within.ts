import type { EntityMetadata, EntitySchemaOptions } from 'typeorm'
import { declareInSchema, declareProperty, type PropertyDeclaration } from '../declare/column'
import { type Attached, attachTo, refuseEmbedded, requireOneClass } from '../declare/data-source'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { scopeColumns, writtenSchema } from '../registry/declarations'
import {
  type ColumnMetadata,
  dataSourceOf,
  isOrExtends,
  type NumberDeclaration,
  numbersOfTable,
  registry,
  type RemovedRows,
  type RowsChange,
} from '../registry/registry'
import { registerTriggers } from '../schema/table'
import type { FilledColumn } from '../sql/alter'
import { fitName, plainName } from '../sql/identifier'
import type { NumberTable } from '../sql/numbers'
import type { Declared, NumberedDeclaration } from '../triggers/kinds'
import { fillOf, fillRows, handOver, numberOf } from './sql/declared'

/** Options of `@NumberWithin`, and of one entry of `numberWithinSchema()`. */
export interface NumberWithinOptions {
  /**
   * Properties within which rows are numbered. All must be NOT NULL. A relation represents its join columns.
   *
   * @default []: the whole table
   */
  readonly scope?: readonly string[]
  /**
   * Keep a count of the rows of each scope, for `countWithin()`. Rows that are deleted softly do not count. Tables with
   * partitions keep no count.
   *
   * @default false
   */
  readonly count?: boolean
  /**
   * Whether a number may be given again after the newest row of its scope was deleted or moved to another scope.
   *
   * @default true
   */
  readonly reuse?: boolean
  /** The first number of a scope; a new row never gets a lower one. @default 1 */
  readonly start?: number
  /**
   * Whether Citus keeps the rows in shards, by a column of the scope, or in one shard. Inserts into one shard then wait
   * for each other. It excludes `count` and `reuse: false`.
   *
   * @default false
   */
  readonly citus?: boolean
  /** The name of the column. @default the naming strategy's, or the one in `@Column` */
  readonly name?: string
}

/** A PropertyDecorator for a property that can be a number. TypeORM returns a bigint as a string. */
type NumberDecorator = <Target extends object, Name extends string | symbol>(
  target: Target,
  property: Name extends keyof Target
    ? NonNullable<Target[Name]> extends number | bigint | string
      ? Name
      : never
    : Name,
) => void

/**
 * Numbers the rows of each scope: a new row gets the highest number there plus 1, or `start`. There is no sequence, and
 * a rollback leaves no gap. It also declares the column, as an integer. You can add a `@Column` of type bigint or
 * smallint, in either order.
 *
 * A number that is given is kept. A row that moves to another scope gets the next number there.
 *
 * @throws DeclarationError when the class is defined, if the options make no sense, and when the DataSource is
 * initialised, if they contradict the entity
 * @example
 * ```ts
 * @Entity()
 * class Comment {
 *   @PrimaryGeneratedColumn('identity') id!: number
 *   @Column({ type: 'integer' }) post!: number
 *   @NumberWithin({ scope: ['post'], count: true }) number!: number
 * }
 * ```
 */
export function NumberWithin(options: NumberWithinOptions = {}, ...applied: unknown[]): NumberDecorator {
  return declareProperty(NUMBER, options, applied)
}

/**
 * Does for EntitySchema options what `@NumberWithin` does for a class, because plain JavaScript has no decorators.
 *
 * @param numbers the options of each property that is such a number
 * @returns new options for `new EntitySchema(…)`; the passed options are left unchanged
 * @throws DeclarationError as the decorator does
 * @example
 * ```js
 * const Comment = new EntitySchema(
 *   numberWithinSchema(
 *     { name: 'Comment', columns: { id: { type: Number, primary: true, generated: true }, post: { type: Number } } },
 *     { number: { scope: ['post'] } },
 *   ),
 * )
 * ```
 */
export function numberWithinSchema<T>(
  schema: EntitySchemaOptions<T>,
  numbers: Readonly<Record<string, NumberWithinOptions>>,
): EntitySchemaOptions<T> {
  return declareInSchema(NUMBER, schema, numbers)
}

/** The options with every default filled in. */
interface RawNumber extends Required<Omit<NumberWithinOptions, 'name'>> {
  readonly property: string
}

// A DataSource that declares no numbers may have to remove those of earlier declarations.
registry.removals.set('number', removedNumbers)

const NUMBER: PropertyDeclaration<NumberWithinOptions> = {
  decorator: '@NumberWithin',
  inSchema: { name: 'numberWithinSchema', takes: "the numbers: { number: { scope: ['post'] } }" },
  columnOf: ({ name }, beside = { type: 'integer' }) => ({ ...beside, ...(name === undefined ? {} : { name }) }),
  unique: true,
  attachment: (where, property, options) => {
    checkOptions(where, options, NUMBER_RULES)
    const { scope = [], count = false, reuse = true, start = 1, citus = false } = options
    if (citus && (count || !reuse)) {
      throw new DeclarationError(
        `${where}: the shards of Citus store no counts and no numbers of rows that are gone. Leave out "citus", or "count" and "reuse".`,
      )
    }
    return (index) => attachNumber(index, { property, scope, count, reuse, start, citus })
  },
}

/**
 * Resolves a number for TypeORM and makes it take effect, as `attachDeclaration` does for a text.
 *
 * @param index the IndexMetadata on which TypeORM calls the unique index's `columns` function
 * @returns the property paths of that index
 * @throws DeclarationError, UnsupportedDatabaseError
 */
function attachNumber(index: object, raw: RawNumber): string[] {
  const attached = attachTo(index, '@NumberWithin', raw.property)
  const known = numbersOfTable(attached.metadata).find(({ name }) => name === raw.property)
  if (known) requireOneClass('@NumberWithin', known, attached.index)
  const declaration = known ?? resolveNumber(attached, raw)
  // TypeORM puts the number on the entity, in the round trip of the INSERT.
  const { entityMetadata } = attached.index
  const original = entityMetadata.getInsertionReturningColumns.bind(entityMetadata)
  const own = entityMetadata.columns.find(({ propertyPath }) => propertyPath === declaration.column.propertyPath)
  entityMetadata.getInsertionReturningColumns = () => {
    const others = original().filter((one) => one !== own)
    return own ? [...others, own] : others
  }
  return [...declaration.scope, declaration.column].map(({ propertyPath }) => propertyPath)
}

/** The highest number of each type. */
const HIGHEST: Readonly<Record<string, string>> = {
  smallint: '32767',
  integer: '2147483647',
  bigint: '9223372036854775807',
}

function resolveNumber(attached: Attached, raw: RawNumber): NumberDeclaration {
  refuseEmbedded(attached)
  const { index, metadata, where } = attached
  if (metadata.tableType === 'entity-child' || !isOrExtends(metadata.target, index.target)) {
    throw new DeclarationError(
      `${where}: it is declared on a class that shares its table with others, whose rows have no such number. ` +
        `Declare it on the class that has the @Entity and the @TableInheritance.`,
    )
  }
  const column = numberColumn(metadata, raw.property, where)
  const type = numberTypeOf(column)
  if (raw.start > Number(HIGHEST[type])) {
    throw new DeclarationError(`${where}: start is above the highest ${type}. Lower it, or make the column a bigint.`)
  }
  const scope = raw.scope.flatMap((property) => scopeColumns(metadata, property, where))
  const { tableName, columns } = metadata
  const names = [...scope, column].map(({ databaseName }) => databaseName)
  const table: NumberTable = {
    name: raw.property,
    schema: writtenSchema(metadata),
    table: tableName,
    scope: scope.map((one) => ({ name: one.databaseName, type: numberTypeOf(one) })),
    number: column.databaseName,
    type,
    index: fitName(dataSourceOf(metadata).namingStrategy.indexName(tableName, names)),
    count: raw.count,
    reuse: raw.reuse ? undefined : false,
    start: raw.start === 1 ? undefined : raw.start,
    citus: raw.citus || undefined,
    deleted: columns.find(({ isDeleteDate }) => isDeleteDate)?.databaseName,
    triggers: plainName('numbers', tableName, raw.property),
  }
  const declaration: NumberDeclaration = { name: raw.property, metadata, target: index.target, column, scope, table }
  registry.numbers.set(metadata, [...numbersOfTable(metadata), declaration])
  index.givenName = table.index
  registerTriggers(metadata, `number ${raw.property}`, () => ({
    declared: {
      ...numberOf(table),
      handOver: (former) =>
        handOver(table, former as NumberedDeclaration, formerScope({ table, metadata }, former as NumberedDeclaration)),
    },
    rows: numberedRows({ table, metadata }),
    indexes: [{ name: table.index, columns: names }],
  }))
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

function numberTypeOf(column: ColumnMetadata): string {
  const { driver } = dataSourceOf(column.entityMetadata)
  return `${driver.normalizeType(column)}${column.isArray ? '[]' : ''}`
}

/** A number, and the entity whose rows have it. */
interface Numbered {
  readonly table: NumberTable
  readonly metadata: EntityMetadata
}

/** Returns the changes of existing rows when they are numbered for the first time, or in another way. */
function numberedRows(numbered: Numbered): RowsChange {
  const { table } = numbered
  const filled: FilledColumn[] = [{ name: table.number, type: table.type, nullable: false }]
  const rows: RowsChange = {
    filled,
    fill: { up: [fillRows(table, false)], down: [] },
    follow: (had) => {
      const was = formerScope(numbered, had as NumberedDeclaration)
      const former = { ...(had as NumberedDeclaration), number: table.number, scope: was }
      const isThere = was.every((name) => isColumnName(numbered.metadata, name))
      // A revert makes the former index, so it first corrects the rows that this index would refuse.
      const down = isThere && !isNarrower(was, scopeNames(table)) ? [fillOf(table, former, true)] : []
      return { filled, fill: { up: [fillRows(table, !isNarrower(scopeNames(table), was))], down } }
    },
    again: () => rows,
  }
  return rows
}

const scopeNames = ({ scope }: NumberTable): string[] => scope.map(({ name }) => name)

/** The former scope, with the present names of columns that were renamed. */
const formerScope = ({ table, metadata }: Numbered, { scope }: NumberedDeclaration): string[] =>
  scope.map((name, position) => (isColumnName(metadata, name) ? name : (table.scope[position]?.name ?? name)))

/** Removes the number with its column. A revert numbers the rows anew, in key order. */
function removedNumbers(had: Declared, table: Pick<NumberTable, 'schema' | 'table'>): RemovedRows {
  const { number, type, ...rules } = had as NumberedDeclaration
  return { filled: [{ name: number, type, nullable: false }], fill: [fillOf(table, { number, ...rules }, false)] }
}

const isColumnName = ({ columns }: EntityMetadata, name: string): boolean =>
  columns.some(({ databaseName }) => databaseName === name)

/** Whether a scope is narrower. Numbers that are unique in a wider scope are unique in a narrower one. */
const isNarrower = (one: readonly string[], other: readonly string[]): boolean =>
  other.every((name) => one.includes(name))

const NUMBER_RULES: Rules<NumberWithinOptions> = {
  scope: RULE.properties,
  count: RULE.boolean,
  reuse: RULE.boolean,
  start: RULE.positive,
  citus: RULE.boolean,
  name: RULE.name,
}
