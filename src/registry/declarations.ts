import { createHash } from 'node:crypto'
import {
  type EntityMetadata,
  getMetadataArgsStorage,
  InstanceChecker,
  type ObjectLiteral,
  type ValueTransformer,
} from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { indexCondition } from '../sql/alter'
import { fitName, plainName } from '../sql/identifier'
import { checkExpression, type TableName, type TextRows, type TextTable } from '../sql/text-table'
import { type Normalizer, normalizerLabel, normalizeText, Refusal } from '../text/normalizer'
import type { RawDeclaration } from './options'
import { type ColumnMetadata, dataSourceOf, type Declaration } from './registry'
import { isStored } from './operators'

/**
 * Resolves a decorator against the entity's metadata: its columns, and the names of all database objects. It only
 * reads. `attachDeclaration` makes the declaration take effect.
 *
 * @param target the class with the decorator
 * @throws DeclarationError if the declaration contradicts the entity
 */
export function resolveDeclaration(metadata: EntityMetadata, raw: RawDeclaration, target: unknown): Declaration {
  const where = `@UniqueText on ${metadata.name}.${raw.name}`
  const text = raw.columns.map(({ property, prefix, normalizer }) => {
    const column = textColumn(metadata, property, where)
    const transformers = [column.transformer ?? []].flat()
    if (transformers.length === 0) requireString(column, where)
    return { column, prefix, normalizer, transformed: transformers.length > 0, transformers }
  })
  const scope = raw.scope.flatMap((property) => scopeColumns(metadata, property, where))
  const deleted = raw.ignoreDeleted ? deleteDateColumn(metadata, where).databaseName : undefined
  const hidden = findHidden(metadata, raw)
  const names = hidden.map(({ databaseName }) => databaseName) as [string, string, string]
  const named = { ...raw, indexName: indexName(metadata, raw, target) }
  const table = textTable(metadata, named, { text, scope, names, deleted })
  return {
    name: raw.name,
    metadata,
    target,
    text,
    scope,
    hidden: hidden.map(({ column }) => column),
    table,
    lookup: raw.lookup && fitName(`${table.index}_lookup`),
    parse: raw.parse,
    normalizeValues: raw.normalizeValues,
  }
}

/** An index name is unique in a schema, so only its own entity has it. A subclass with a table gets another name. */
function indexName(metadata: EntityMetadata, raw: RawDeclaration, target: unknown): string | undefined {
  if (target === metadata.target) return raw.indexName
  const isTable = getMetadataArgsStorage().tables.some((one) => one.target === target && one.type !== 'entity-child')
  return isTable ? undefined : raw.indexName
}

interface ResolvedColumns extends Pick<Declaration, 'scope'> {
  readonly text: readonly (Declaration['text'][number] & { readonly prefix: string })[]
  /** The database names of hash, hash number and flag. */
  readonly names: readonly [string, string, string]
  /** The database name of the delete date. */
  readonly deleted: string | undefined
}

function textTable(metadata: EntityMetadata, raw: RawDeclaration, resolved: ResolvedColumns): TextTable {
  const { tableName } = metadata
  const { text, scope, names, deleted } = resolved
  const [hash, number, chained] = names
  const scopeNames = scope.map(({ databaseName }) => databaseName)
  const { namingStrategy } = dataSourceOf(metadata)
  const table: Omit<TextTable, 'check'> = {
    name: raw.name,
    schema: writtenSchema(metadata),
    table: tableName,
    text: text.map(({ column, prefix }) => ({ name: column.databaseName, prefix })),
    scope: scopeNames,
    hash,
    number,
    chained,
    index: fitName(
      raw.indexName ?? namingStrategy.indexName(tableName, [...scopeNames, hash, number], indexCondition({ deleted })),
    ),
    digest: raw.digest,
    nullable: text.every(({ column }) => column.isNullable),
    immutable: raw.immutable,
    maxChainLength: raw.maxChainLength,
    deleted,
    normalizers: text.map(({ normalizer }) => normalizerLabel(normalizer)),
    ...(raw.spread === undefined ? {} : { spread: raw.spread }),
    ...(raw.guard ? {} : { guardless: true }),
    guard: plainName('unique_text', tableName, raw.name),
  }
  return { ...table, check: checkOf(table) }
}

/** TypeORM compares checks only by their names, so the name changes with the expression. */
export function checkOf(rows: Omit<TextRows, 'check'>): string {
  // Without a guard, no note records the normalizers.
  const noted = rows.guardless === true ? ` ${JSON.stringify(rows.normalizers)}` : ''
  const made = `${rows.table} ${checkExpression(rows)}${noted}`
  return `CHK_${createHash('sha1').update(made).digest('hex').slice(0, 26)}`
}

/** Returns undefined if TypeORM also leaves out the schema. */
export function writtenSchema(metadata: EntityMetadata): string | undefined {
  return schemaOf(metadata) === searchSchemaOf(metadata) ? undefined : metadata.schema
}

/** The schema of an entity. If it names none, the first of `search_path` when the DataSource was initialised. */
export const schemaOf = (metadata: EntityMetadata): string | undefined => metadata.schema ?? searchSchemaOf(metadata)

/** The first schema of `search_path` when the DataSource was initialised. */
export const searchSchemaOf = (metadata: EntityMetadata): string | undefined =>
  (dataSourceOf(metadata).driver as unknown as { readonly searchSchema?: string }).searchSchema

/** The table of an entity, with its database names. */
export const entityTable = (metadata: EntityMetadata): TableName => ({
  schema: writtenSchema(metadata),
  table: metadata.tableName,
})

const DECLARED_TEXT_TYPES: ReadonlySet<unknown> = new Set(['text', 'varchar', 'character varying', String])

/** @throws DeclarationError unless the property is a column of type text or varchar */
export function textColumn(metadata: EntityMetadata, property: string, where: string): ColumnMetadata {
  const column = columnOf(metadata, property)
  if (!column) throw new DeclarationError(`${where}: there is no column "${property}". Add a @Column.`)
  if (!DECLARED_TEXT_TYPES.has(column.type) || column.isArray) {
    throw new DeclarationError(
      `${where}: "${property}" must be of type text or varchar. For citext use text and lowerCase().`,
    )
  }
  refuseGenerated(column, where)
  return column
}

/** The guard runs before a row is written, and Postgres computes the column after that. */
function refuseGenerated({ generatedType, propertyPath }: ColumnMetadata, where: string): void {
  if (generatedType === undefined) return
  throw new DeclarationError(
    `${where}: "${propertyPath}" is generated (asExpression) after the guard has run. ` +
      `Make it a plain @Column, and set it where you write the row.`,
  )
}

const NO_STRINGS: ReadonlySet<unknown> = new Set([Number, BigInt, Boolean, Date, Array])

/**
 * Reads the type that `emitDecoratorMetadata` emits and reflect-metadata stores.
 *
 * @throws DeclarationError if the class declares another type than string
 */
export function requireString({ target, propertyName, propertyPath }: ColumnMetadata, where: string): void {
  const { getMetadata } = Reflect as { getMetadata?: (key: string, target: object, property: string) => unknown }
  if (typeof target !== 'function' || getMetadata === undefined) return
  const type = getMetadata('design:type', target.prototype as object, propertyName)
  if (typeof type !== 'function' || !NO_STRINGS.has(type)) return
  throw new DeclarationError(
    `${where}: "${propertyPath}" is a ${type.name}, and a text is a string. ` +
      `Declare it as string, or give it a @Column with a transformer.`,
  )
}

/** Types whose `=` is in an extension's schema, which the guard's fixed search_path does not include. */
const EXTENSION_TYPES: ReadonlySet<unknown> = new Set([
  'citext',
  'cube',
  'geography',
  'geometry',
  'halfvec',
  'hstore',
  'ltree',
  'vector',
])

/**
 * Returns the columns of one property of the scope: the column itself, or the join columns of a relation.
 *
 * @throws DeclarationError if there are none, or if the unique index could not distinguish rows by one of them
 */
export function scopeColumns(metadata: EntityMetadata, property: string, where: string): ColumnMetadata[] {
  const column = columnOf(metadata, property)
  const relation = metadata.relations.find(({ propertyPath }) => propertyPath === property)
  const columns = column ? [column] : (relation?.joinColumns ?? [])
  if (columns.length === 0) {
    throw new DeclarationError(
      `${where}: the scope names "${property}", but there is no such column. Correct the name, or add a @Column.`,
    )
  }
  for (const scope of columns) {
    const { isNullable, type } = scope
    refuseGenerated(scope, where)
    // NULLs are never equal in a unique index, so two rows without a scope could hold the same text.
    if (isNullable) {
      const remedy = relation
        ? 'Pass { nullable: false } to the relation.'
        : 'Remove "nullable: true" from its @Column.'
      throw new DeclarationError(`${where}: the scope "${property}" must be NOT NULL. ${remedy}`)
    }
    if (EXTENSION_TYPES.has(type)) {
      throw new DeclarationError(
        `${where}: the scope "${property}" cannot be of type ${String(type)}. Use text or varchar.`,
      )
    }
  }
  return columns
}

/** @throws DeclarationError unless the entity has a delete date, which TypeORM always makes nullable */
function deleteDateColumn({ columns }: EntityMetadata, where: string): ColumnMetadata {
  const column = columns.find(({ isDeleteDate }) => isDeleteDate)
  if (!column) {
    throw new DeclarationError(
      `${where}: ignoreDeleted needs a @DeleteDateColumn, and there is none. Add one, or remove the option.`,
    )
  }
  return column
}

/** A hidden column, with a name that fits. Postgres would truncate a long name, and TypeORM would see a difference. */
interface HiddenColumn {
  readonly column: ColumnMetadata
  readonly databaseName: string
}

/** Returns the columns for hash, hash number and flag, in this order. The decorator has added them to the metadata. */
function findHidden(metadata: EntityMetadata, { name }: RawDeclaration): HiddenColumn[] {
  return ['Hash', 'HashNumber', 'HashChained'].map((suffix) => {
    const column = columnOf(metadata, name + suffix)
    if (!column) throw new DeclarationError(`${metadata.name}: TypeORM lost the hidden column "${name}${suffix}".`)
    return { column, databaseName: fitName(column.databaseName) }
  })
}

function columnOf(metadata: EntityMetadata, property: string): ColumnMetadata | undefined {
  return metadata.columns.find(({ propertyPath }) => propertyPath === property)
}

/**
 * Makes TypeORM normalize the values that it writes to a column or compares with it, after the user's own transformers.
 *
 * Stored values stay as they are. When TypeORM compares an entity with its row to find changes, a text that another
 * writer stored without normalizing it is unchanged. It must not fail if the normalizer refuses it. If an entity's text
 * equals the row's once normalized, the entity gets the row's, because TypeORM does not report that it wrote nothing.
 */
export function normalizeColumn(column: ColumnMetadata, normalizer: Normalizer): void {
  const given = [column.transformer ?? []].flat()
  const ours = new NormalizingTransformer(column.propertyName, normalizer)
  column.transformer = [...given, ours]
  const read = column.getEntityValue.bind(column)
  const isRow = rowTest(column)
  let last: ObjectLiteral | undefined
  column.getEntityValue = (entity, transform) => {
    if (transform !== true) {
      if (!last) queueMicrotask(() => (last = undefined))
      last = entity
      return read(entity, transform) as unknown
    }
    const condition: unknown = read(entity)
    // TypeORM 0.3 would pass the operator to the user's transformers.
    if (isStored(condition)) return condition
    if (!isRow(entity)) return read(entity, transform) as unknown
    const value = given.reduce((one: unknown, transformer) => transformer.to(one) as unknown, condition)
    const compared = last
    ours.compareWith(value, () => {
      if (compared) setProperty(column, compared, condition)
    })
    return value
  }
}

class NormalizingTransformer implements ValueTransformer {
  #stored: unknown
  #onEqual: (() => void) | undefined

  constructor(
    private readonly property: string,
    private readonly normalizer: Normalizer,
  ) {}

  /**
   * TypeORM reads the entity's value, then the row's, and then transforms the entity's, all synchronously.
   *
   * @param onEqual called if the entity's value differs and is equal once it is normalized
   */
  compareWith(stored: unknown, onEqual: () => void): void {
    this.#stored = stored
    this.#onEqual = onEqual
    queueMicrotask(() => {
      this.#forget()
    })
  }

  to(value: unknown): unknown {
    const [stored, onEqual] = [this.#stored, this.#onEqual]
    this.#forget()
    // NULL, SQL from a function and operators in conditions are passed on. Any other value must be a string.
    const isNoText = value === undefined || value === null || typeof value === 'function'
    if (value === stored || isNoText || InstanceChecker.isFindOperator(value)) return value
    const normalized = normalizeText(this.normalizer, this.property, value)
    if (normalized === stored) onEqual?.()
    return normalized
  }

  #forget(): void {
    this.#stored = undefined
    this.#onEqual = undefined
  }

  from(value: unknown): unknown {
    return value
  }
}

/**
 * TypeORM reads with `transform` from rows that it loaded and from conditions of a caller. A row is an instance of its
 * class. For an EntitySchema without a class, it is an object that TypeORM filled.
 */
function rowTest(column: ColumnMetadata): (entity: ObjectLiteral) => boolean {
  const { target } = column.entityMetadata
  if (typeof target === 'function') return (entity) => entity instanceof target
  const filled = new WeakSet<ObjectLiteral>()
  const write = column.setEntityValue.bind(column)
  column.setEntityValue = (entity: ObjectLiteral, value: unknown) => {
    filled.add(entity)
    write(entity, value)
  }
  return (entity) => filled.has(entity)
}

/** Writes the stored, normalized text back to the property of an entity. */
export function writeBack(
  { column, normalizer, transformers }: Declaration['text'][number],
  entity: ObjectLiteral,
): void {
  const given = transformers.reduce((one: unknown, each) => each.to(one) as unknown, column.getEntityValue(entity))
  if (typeof given !== 'string') return
  const stored = normalizer.normalize(given)
  if (stored === given) return
  setProperty(
    column,
    entity,
    transformers.reduceRight((one: unknown, each) => each.from(one) as unknown, stored),
  )
}

/** Sets a property. A frozen object keeps its value, and so does a property without a setter. */
export function setProperty(column: ColumnMetadata, entity: ObjectLiteral, value: unknown): void {
  const path = column.embeddedMetadata?.parentPropertyNames ?? []
  const holder = path.reduce((one: unknown, name) => (one as ObjectLiteral | undefined)?.[name], entity)
  // `setEntityValue` would record the object as a row.
  if (typeof holder === 'object' && holder !== null) Reflect.set(holder, column.propertyName, value)
}

/**
 * Returns the properties that the option `normalizeValues` sets on an entity, or none without that option.
 *
 * @throws TextRejectedError if it refuses the values, and any other error that it throws
 */
export function normalizedValues({ name, normalizeValues }: Declaration, entity: ObjectLiteral): object {
  try {
    return normalizeValues?.(entity) ?? {}
  } catch (error) {
    if (error instanceof Refusal) throw new TextRejectedError({ property: name, reason: error.reason })
    throw error
  }
}
