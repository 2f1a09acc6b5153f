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
  type Former,
  type NumberDeclaration,
  numbersOfTable,
  registry,
  type RowsChange,
} from '../registry/registry'
import { registerTriggers } from '../schema/table'
import type { Change, FilledColumn } from '../sql/alter'
import { fitName, plainName } from '../sql/identifier'
import type { RemovedFrom, RemovedRows } from '../sql/trigger-set'
import {
  asNumberNote,
  dropScopes,
  guardScopes,
  makeScopes,
  type NumberNote,
  numberRows,
  renumberRows,
} from './sql/scopes'
import type { NumberTable } from '../sql/numbers'
import { HIGHEST, numberTriggers } from './sql/triggers'

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
registry.removals.set('numbers', removedNumbers)

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

function resolveNumber(attached: Attached, raw: RawNumber): NumberDeclaration {
  refuseEmbedded(attached)
  const { index, metadata, where } = attached
  if (metadata.tableType === 'entity-child' || !isOrExtends(metadata.target, index.target)) {
    throw new DeclarationError(
      `${where}: it stands on a class that shares its table with others, whose rows have no such number. ` +
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
    set: numberTriggers(table),
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
  const install: Change = table.citus ? NOTHING : { up: [makeScopes(table)], down: [dropScopes(table)] }
  const rows: RowsChange = {
    filled: filledBy(numbered),
    fill: { up: [numberAll(numbered, numberRows)], down: [] },
    install,
    created: install,
    tables: { up: install.up, down: [] },
    triggers: { up: guardScopes(table), down: [] },
    follow: (before) => {
      const note = asNumberNote(before)
      return note
        ? followNote(numbered, note)
        : { fill: { up: [numberAll(numbered, renumberRows)], down: [] }, install }
    },
    again: (before) => {
      const note = asNumberNote(before)
      return note?.reuse === false ? followNote(numbered, note) : rows
    },
  }
  return rows
}

/** Removes the number with its column. A revert numbers the rows anew, in key order. */
function removedNumbers(note: Former, { schema, table, primary }: RemovedFrom): RemovedRows {
  const had = asNumberNote(note)
  if (!had) return {}
  const rows: NumberTable = { ...had, schema, table, index: '', triggers: had.prefix }
  return {
    change: had.citus ? NOTHING : { up: [dropScopes(rows)], down: [makeScopes(rows)] },
    filled: [{ name: had.number, type: had.type, nullable: false }],
    fill: [numberRows({ table: rows, primary })],
  }
}

const NOTHING: Change = { up: [], down: [] }

/**
 * Replaces a table of scopes by another, which keeps the numbers that are not given again.
 *
 * @param places the place of each column of the new scope in the former one, if both have the same columns
 */
const nextScopes = (from: NumberTable, to: NumberTable, places: readonly number[] | undefined): string[] => [
  ...(to.citus
    ? []
    : [makeScopes(to, places && from.reuse === false && to.reuse === false ? { table: from, places } : undefined)]),
  ...(from.citus || (from.triggers === to.triggers && !to.citus) ? [] : [dropScopes(from)]),
]

const filledBy = ({ table: { number, type } }: Numbered): FilledColumn[] => [{ name: number, type, nullable: false }]

const primaryOf = ({ primaryColumns }: EntityMetadata): string[] =>
  primaryColumns.map(({ databaseName }) => databaseName)

const numberAll = ({ table, metadata }: Numbered, by: typeof numberRows): string =>
  by({ table, primary: primaryOf(metadata) })

/**
 * A revert makes the former index while columns have their new names, so it first corrects rows that this index would
 * refuse. It makes the former table of scopes after the index, when columns have their former names.
 */
function followNote(numbered: Numbered, note: NumberNote): RowsChange {
  const { table, metadata } = numbered
  // The former table, with the current names of columns that were renamed.
  const was: NumberTable = {
    ...table,
    scope: note.scope.map((one, position) =>
      isColumnName(metadata, one.name) ? one : { ...one, name: table.scope[position]?.name ?? one.name },
    ),
  }
  const isThere = was.scope.every(({ name }) => isColumnName(metadata, name))
  const renumbered =
    isThere && !isNarrower(was, table) ? [renumberRows({ table: was, primary: primaryOf(metadata) })] : []
  // The former table, with the former names of columns.
  const { scope, number, type, count, reuse, start, citus, deleted, prefix } = note
  const had: NumberTable = { ...table, scope, number, type, count, reuse, start, citus, deleted, triggers: prefix }
  const isSame = isNarrower(table, was) && isNarrower(was, table)
  const places = (of: NumberTable, by: NumberTable): number[] | undefined =>
    isSame ? of.scope.map(({ name }) => by.scope.findIndex((one) => one.name === name)) : undefined
  return {
    filled: filledBy(numbered),
    fill: { up: [numberAll(numbered, isNarrower(table, was) ? numberRows : renumberRows)], down: renumbered },
    install: { up: nextScopes(had, table, places(table, was)), down: [] },
    leave: { up: [], down: nextScopes(table, had, places(was, table)) },
  }
}

const isColumnName = ({ columns }: EntityMetadata, name: string): boolean =>
  columns.some(({ databaseName }) => databaseName === name)

/** Whether the scope of `one` is narrower. Numbers that are unique in a wider scope are unique in a narrower one. */
const isNarrower = (one: NumberTable, other: NumberTable): boolean =>
  other.scope.every(({ name }) => one.scope.some((column) => column.name === name))

const NUMBER_RULES: Rules<NumberWithinOptions> = {
  scope: RULE.properties,
  count: RULE.boolean,
  reuse: RULE.boolean,
  start: RULE.positive,
  citus: RULE.boolean,
  name: RULE.name,
}
