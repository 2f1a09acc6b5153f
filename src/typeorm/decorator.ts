import { type ColumnOptions, type EntitySchemaOptions, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError } from '../errors'
import { attachDeclaration } from './attach-declaration'
import {
  checkOptions,
  type RawDeclaration,
  toRawDeclaration,
  type UniqueTextClassOptions,
  type UniqueTextColumn,
  type UniqueTextPropertyOptions,
} from './options'

/** Found in no entity, in no select and in no insert; in DDL and in `where` it is a column like any other. */
const HIDDEN: ColumnOptions = { select: false, insert: false, update: false }

type IndexColumns = () => string[]

/**
 * Makes a text column unique at any length. It is the column decorator too; a `@Column` of type text or varchar may
 * stand beside it, in whatever order.
 *
 * @throws DeclarationError at class definition for options without sense, and when the DataSource is initialised for
 * what contradicts the entity.
 */
export function UniqueText(options?: UniqueTextPropertyOptions): PropertyDecorator
/** Makes several columns unique together; each keeps its own `@Column`. */
export function UniqueText(options: UniqueTextClassOptions): ClassDecorator
export function UniqueText(
  options: UniqueTextPropertyOptions | UniqueTextClassOptions = {},
): PropertyDecorator & ClassDecorator {
  return (target: object, property?: string | symbol): void => {
    if (property === undefined) declareOnClass(target as Function, options as UniqueTextClassOptions)
    else declareOnProperty(target.constructor, property, options)
  }
}

function declareOnClass(target: Function, options: UniqueTextClassOptions): void {
  const raw = classDeclaration(target.name, options)
  declareHidden(target, raw, () => false)
}

function declareOnProperty(target: Function, property: string | symbol, options: UniqueTextPropertyOptions): void {
  if (typeof property !== 'string') throw new DeclarationError(`@UniqueText on ${target.name}: a symbol is no column.`)
  const raw = propertyDeclaration(`${target.name}.${property}`, property, options)
  const storage = getMetadataArgsStorage()
  // TypeORM takes the first column of a property, and decorators run from the bottom up: so ours says what the user's
  // @Column says, whichever was first.
  const args: (typeof storage.columns)[number] = {
    target,
    propertyName: property,
    get mode() {
      return other()?.mode ?? 'regular'
    },
    get options() {
      return { ...(other()?.options ?? { type: 'text' }), ...columnOptions(options) }
    },
  }
  const other = (): typeof args | undefined =>
    storage.columns.find((column) => column !== args && column.target === target && column.propertyName === property)
  storage.columns.push(args)
  declareHidden(target, raw, () => args.options.nullable === true)
}

function declareHidden(target: Function, raw: RawDeclaration, nullable: () => boolean): void {
  const storage = getMetadataArgsStorage()
  for (const { property, options } of hiddenColumns(raw)) {
    storage.columns.push({
      target,
      propertyName: property,
      mode: 'virtual',
      get options() {
        return { ...options, nullable: property.endsWith('Hash') && nullable() }
      },
    })
  }
  storage.indices.push({
    target,
    unique: true,
    columns: indexColumns(raw),
    ...(raw.indexName === undefined ? {} : { name: raw.indexName }),
  })
}

/**
 * The same for EntitySchema options: plain JavaScript has no decorators.
 *
 * @param texts one entry per text: the property's options, or those of several columns under the name for `by`
 * @returns new options for `new EntitySchema(…)`; what was passed stays as it is
 * @throws DeclarationError as the decorator does
 */
export function uniqueTextSchema<T>(
  schema: EntitySchemaOptions<T>,
  texts: Readonly<Record<string, UniqueTextPropertyOptions | Omit<UniqueTextClassOptions, 'as'>>>,
): EntitySchemaOptions<T> {
  const columns: Record<string, unknown> = { ...schema.columns }
  const indices = [...(schema.indices ?? [])]
  for (const [name, options] of Object.entries(texts)) {
    const several = 'columns' in options
    const raw = several
      ? classDeclaration(schema.name, { ...options, as: name })
      : propertyDeclaration(`${schema.name}.${name}`, name, options)
    if (!several) columns[name] = { type: 'text', ...(columns[name] as object | undefined), ...columnOptions(options) }
    const nullable = !several && (columns[name] as ColumnOptions).nullable === true
    for (const { property, options: hidden } of hiddenColumns(raw)) {
      columns[property] = { ...hidden, virtual: true, nullable: property.endsWith('Hash') && nullable }
    }
    indices.push({
      unique: true,
      columns: indexColumns(raw),
      ...(raw.indexName === undefined ? {} : { name: raw.indexName }),
    })
  }
  return Object.assign({}, schema, { columns: columns as EntitySchemaOptions<T>['columns'], indices })
}

function columnOptions({ name, nullable }: UniqueTextPropertyOptions): ColumnOptions {
  return { ...(name === undefined ? {} : { name }), ...(nullable === undefined ? {} : { nullable }) }
}

function propertyDeclaration(where: string, property: string, options: UniqueTextPropertyOptions): RawDeclaration {
  checkOptions(where, options)
  if ('columns' in options || 'as' in options) {
    throw new DeclarationError(`@UniqueText on ${where}: "columns" and "as" belong on the class.`)
  }
  const { normalize } = options
  return toRawDeclaration(where, property, [{ property, ...(normalize === undefined ? {} : { normalize }) }], options)
}

function classDeclaration(where: string, options: UniqueTextClassOptions): RawDeclaration {
  checkOptions(where, options)
  if (options.as === undefined || options.columns === undefined) {
    throw new DeclarationError(`@UniqueText on ${where}: on a class, "as" and "columns" are required.`)
  }
  const columns = options.columns.map((column: string | UniqueTextColumn): UniqueTextColumn =>
    typeof column === 'string' ? { property: column } : column,
  )
  return toRawDeclaration(where, options.as, columns, options)
}

/** Each says in the database what it is, for who finds it there without an entity; TypeORM compares comments too. */
function hiddenColumns({ name, digest, hidden }: RawDeclaration): { property: string; options: ColumnOptions }[] {
  const column = (given: string | undefined, what: string): ColumnOptions => ({
    ...HIDDEN,
    ...(given === undefined ? {} : { name: given }),
    comment: `typeorm-unique-text: ${what}; maintained by the guard, do not write it.`,
  })
  const hash = column(hidden.hash, `hash of "${name}"`)
  const number = column(hidden.number, `0, or 1 and more where another "${name}" has the same hash`)
  const chained = column(hidden.chained, `others have, or had, the same hash of "${name}"`)
  return [
    { property: `${name}Hash`, options: { ...hash, type: digest.type } },
    { property: `${name}HashNumber`, options: { ...number, type: 'integer', default: 0 } },
    { property: `${name}HashChained`, options: { ...chained, type: 'boolean', default: false } },
  ]
}

/**
 * No arrow function: TypeORM calls it as a method of IndexMetadata, at the one moment when the entity's columns have
 * their final names and checks are not yet built.
 */
function indexColumns(raw: RawDeclaration): IndexColumns {
  return function columns(this: unknown): string[] {
    return attachDeclaration(this, raw)
  }
}
