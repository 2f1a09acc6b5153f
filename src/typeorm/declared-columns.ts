import type { EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { fitName } from '../sql/identifier'
import type { RawDeclaration } from './options'
import { type ColumnMetadata, dataSourceOf } from './registry'

const TEXT_TYPES: ReadonlySet<unknown> = new Set(['text', 'varchar', 'character varying', String])

/** @throws DeclarationError unless the property is a column of type text or varchar */
export function textColumn(metadata: EntityMetadata, property: string, where: string): ColumnMetadata {
  const column = columnOf(metadata, property)
  if (!column) throw new DeclarationError(`${where}: there is no column "${property}". Add a @Column.`)
  if (!TEXT_TYPES.has(column.type) || column.isArray) {
    throw new DeclarationError(`${where}: "${property}" must be of type text or varchar.`)
  }
  refuseGenerated(column, where)
  return column
}

/** The guard acts before a row is written, and Postgres computes the column after that. */
function refuseGenerated({ generatedType, propertyPath }: ColumnMetadata, where: string): void {
  if (generatedType === undefined) return
  throw new DeclarationError(
    `${where}: "${propertyPath}" is a generated column (asExpression), and the guard needs its value ` +
      `before Postgres computes it. Make it a plain @Column, and set it where you write the row.`,
  )
}

const NO_STRINGS: ReadonlySet<unknown> = new Set([Number, BigInt, Boolean, Date, Array])

/**
 * By the type that TypeScript leaves behind with `emitDecoratorMetadata`, and reflect-metadata keeps.
 *
 * @throws DeclarationError where the class says that the property is no string
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

/** Types whose `=` lives in an extension's schema, which the guard's fixed search_path leaves out. */
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

/** Types whose values are the same JSON in every session, and come out of it by the type's name alone. */
const KEY_TYPES =
  /^(?:smallint|integer|bigint|numeric|uuid|boolean|text|character(?: varying)?|date|timestamp with(?:out)? time zone|inet|cidr|macaddr)$/

/**
 * The table of names holds the key of each holder as JSON, and reads it back by the type of its column.
 *
 * @throws DeclarationError for another type
 */
export function requireKeyTypes(metadata: EntityMetadata, where: string): void {
  const { driver } = dataSourceOf(metadata)
  for (const column of metadata.primaryColumns) {
    const type = driver.normalizeType(column)
    if (KEY_TYPES.test(type) && !column.isArray) continue
    throw new DeclarationError(
      `${where}: the primary key "${column.propertyPath}" cannot be of type ${type}${column.isArray ? '[]' : ''}. ` +
        `Use text, uuid or a number.`,
    )
  }
}

/**
 * The columns of one property of the scope: the column itself, or the join columns of a relation.
 *
 * @throws DeclarationError where there are none, or one that the unique index could not hold rows apart by
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
    // NULLs are never equal in a unique index, so two rows without a scope could hold one text.
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
export function deleteDateColumn({ columns }: EntityMetadata, where: string): ColumnMetadata {
  const column = columns.find(({ isDeleteDate }) => isDeleteDate)
  if (!column) {
    throw new DeclarationError(
      `${where}: ignoreDeleted needs a @DeleteDateColumn, and there is none. Add one, or remove the option.`,
    )
  }
  return column
}

/** A hidden column, and its name made to fit: TypeORM would let Postgres cut it, and then find a difference. */
export interface HiddenColumn {
  readonly column: ColumnMetadata
  readonly databaseName: string
}

/** The columns for hash, hash number and flag, in this order; the decorator has put them into the metadata. */
export function findHidden(metadata: EntityMetadata, { name }: RawDeclaration): HiddenColumn[] {
  return ['Hash', 'HashNumber', 'HashChained'].map((suffix) => {
    const column = columnOf(metadata, name + suffix)
    if (!column) throw new DeclarationError(`${metadata.name}: TypeORM lost the hidden column "${name}${suffix}".`)
    return { column, databaseName: fitName(column.databaseName) }
  })
}

function columnOf(metadata: EntityMetadata, property: string): ColumnMetadata | undefined {
  return metadata.columns.find(({ propertyPath }) => propertyPath === property)
}
