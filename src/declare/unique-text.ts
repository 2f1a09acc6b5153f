import {
  type ColumnOptions,
  type EntitySchemaOptions,
  type EntityTarget,
  getMetadataArgsStorage,
  type ObjectLiteral,
} from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions } from '../options'
import { normalizeColumn, resolveDeclaration } from '../registry/declarations'
import {
  CLASS_RULES,
  PROPERTY_RULES,
  type RawDeclaration,
  toRawDeclaration,
  type UniqueTextClassOptions,
  type UniqueTextColumn,
  type UniqueTextPropertyOptions,
} from '../registry/options'
import { type Declaration, isOrExtends, registry } from '../registry/registry'
import { indexCondition } from '../sql/alter'
import { checkExpression } from '../sql/text-table'
import { sendHash } from '../typeorm/subscriber'
import { type Attached, attachTo, refuseEmbedded, requireOneClass } from './data-source'
import {
  declareColumn,
  forbidForeignKeys,
  forbidOtherIndexes,
  forbidSharedColumns,
  forbidTakenNames,
  HIDDEN_MARK,
  hiddenColumns,
  isNonArrayObject,
  nameColumn,
  requireCall,
  requireLegacy,
  textColumnOf,
  type TextDecorator,
} from './column'

const DECORATOR = '@UniqueText'

// If options fit no overload, TypeScript 7 reports the last overload. Most mistakes are made on a property.
/**
 * Makes several columns unique together. Each keeps its own `@Column`.
 *
 * @example
 * ```ts
 * @Entity()
 * @UniqueText({ as: 'address', columns: ['path', { property: 'query', prefix: '?' }], scope: ['host'] })
 * class Link {
 *   @PrimaryGeneratedColumn('identity') id!: number
 *   @Column({ type: 'text' }) host!: string
 *   @Column({ type: 'text' }) path!: string
 *   @Column({ type: 'text', nullable: true }) query!: string | null
 * }
 * ```
 */
export function UniqueText(options: UniqueTextClassOptions): ClassDecorator
/**
 * Makes a text column unique at any length. It is also the column decorator. The property may also have a `@Column` of
 * type text or varchar, in either order.
 *
 * @throws DeclarationError when the class is defined, for invalid options, and when the DataSource is initialised, for
 * options that contradict the entity
 * @example
 * ```ts
 * @Entity()
 * class Page {
 *   @PrimaryGeneratedColumn('identity') id!: number
 *   @UniqueText({ normalize: url() }) url!: string
 * }
 * ```
 */
export function UniqueText(options?: UniqueTextPropertyOptions): TextDecorator
export function UniqueText(
  options: UniqueTextPropertyOptions | UniqueTextClassOptions = {},
  ...applied: unknown[]
): TextDecorator & ClassDecorator {
  requireCall(DECORATOR, options, applied)
  return (target: object | undefined, property?: unknown): void => {
    requireLegacy(DECORATOR, property)
    if (property === undefined) {
      const { name } = target as Function
      return declareHidden(target as Function, classDeclaration(name, options as UniqueTextClassOptions))
    }
    const on = (target as object).constructor
    if (typeof property !== 'string') {
      throw new DeclarationError(`@UniqueText on ${on.name}: a symbol cannot be a column. Use a named property.`)
    }
    const given: UniqueTextPropertyOptions = options
    const raw = propertyDeclaration(`${on.name}.${property}`, property, given)
    declareColumn(DECORATOR, on, property, (beside) => textColumnOf(given, beside))
    declareHidden(on, raw)
  }
}

function declareHidden(target: Function, raw: RawDeclaration): void {
  const storage = getMetadataArgsStorage()
  for (const { property, options } of hiddenColumns(raw)) {
    const args = { target, propertyName: property, mode: 'virtual' as const, options, [HIDDEN_MARK]: true }
    storage.columns.push(args)
  }
  storage.indices.push({ target, ...indexOf(raw) })
}

/**
 * Declares unique texts as `@UniqueText` does, in EntitySchema options: plain JavaScript has no decorators.
 *
 * @param texts one entry per text: the property's options, or those of several columns under the name for `by`
 * @returns new options for `new EntitySchema(…)`; the arguments are left unchanged
 * @throws DeclarationError as the decorator does
 * @example
 * ```js
 * const Page = new EntitySchema(
 *   uniqueTextSchema(
 *     { name: 'Page', columns: { id: { type: Number, primary: true, generated: true } } },
 *     { url: { normalize: url() } },
 *   ),
 * )
 * ```
 */
export function uniqueTextSchema<T>(
  schema: EntitySchemaOptions<T>,
  texts: Readonly<Record<string, UniqueTextPropertyOptions | Omit<UniqueTextClassOptions, 'as'>>>,
): EntitySchemaOptions<T> {
  if (![schema, texts].every(isNonArrayObject)) {
    throw new DeclarationError(
      'uniqueTextSchema() takes the options of an EntitySchema, and an object with the unique texts: { url: {} }.',
    )
  }
  const columns: Record<string, unknown> = { ...schema.columns }
  const indices = [...(schema.indices ?? [])]
  const own = new Set(
    [schema.columns, schema.relations, schema.embeddeds, texts].flatMap((one) => Object.keys(one ?? {})),
  )
  for (const [name, options] of Object.entries(texts)) {
    const several = isNonArrayObject(options) && 'columns' in options
    const raw = several
      ? classDeclaration(schema.name, { ...options, as: name })
      : propertyDeclaration(`${schema.name}.${name}`, name, options)
    if (!several) columns[name] = textColumnOf(options, columns[name] as ColumnOptions | undefined)
    for (const { property, options: hidden } of hiddenColumns(raw)) {
      if (own.has(property)) {
        throw new DeclarationError(
          `uniqueTextSchema() for ${schema.name}.${name}: it needs the property name "${property}" for a hidden ` +
            `column. Rename your property of that name.`,
        )
      }
      columns[property] = { ...hidden, virtual: true }
    }
    indices.push(indexOf(raw))
  }
  return Object.assign({}, schema, { columns: columns as EntitySchemaOptions<T>['columns'], indices })
}

function propertyDeclaration(where: string, property: string, options: UniqueTextPropertyOptions): RawDeclaration {
  if (isNonArrayObject(options) && ('columns' in options || 'as' in options)) {
    throw new DeclarationError(`@UniqueText on ${where}: "columns" and "as" belong on the class.`)
  }
  checkOptions(`@UniqueText on ${where}`, options, PROPERTY_RULES)
  const { normalize } = options
  return toRawDeclaration(where, property, [{ property, ...(normalize === undefined ? {} : { normalize }) }], options)
}

function classDeclaration(where: string, options: UniqueTextClassOptions): RawDeclaration {
  checkOptions(`@UniqueText on ${where}`, options, CLASS_RULES)
  if (options.as === undefined || options.columns === undefined) {
    throw new DeclarationError(`@UniqueText on ${where}: on a class, "as" and "columns" are required.`)
  }
  const columns = options.columns.map((column: string | UniqueTextColumn): UniqueTextColumn =>
    typeof column === 'string' ? { property: column } : column,
  )
  return toRawDeclaration(where, options.as, columns, options)
}

/** Returns the unique index of a declaration, as TypeORM expects it. */
function indexOf(raw: RawDeclaration): {
  readonly name?: string
  readonly unique: true
  readonly columns: () => string[]
} {
  // Not an arrow function: TypeORM calls it as a method of its IndexMetadata. See
  // maintainers/how-it-hooks-into-typeorm.md.
  function columns(this: object): string[] {
    return attachDeclaration(this, raw)
  }
  const name = raw.indexName === undefined ? {} : { name: raw.indexName }
  return { unique: true, columns: Object.assign(columns, { [RAW]: raw }), ...name }
}

/** The key of the declaration on the function, for code that has the class or the EntitySchema but no DataSource. */
const RAW: unique symbol = Symbol.for('typeorm-unique-text.declaration')

/** Returns the declarations of a class or an EntitySchema. Empty for an entity's name, which leads to neither. */
export function rawDeclarationsOf(entity: EntityTarget<ObjectLiteral>): RawDeclaration[] {
  if (typeof entity === 'function') {
    return getMetadataArgsStorage()
      .indices.filter(({ target }) => isOrExtends(entity, target))
      .flatMap(rawDeclarationOf)
  }
  if (typeof entity !== 'object' || (entity as unknown) === null) return []
  if ('options' in entity) return (entity.options.indices ?? []).flatMap(rawDeclarationOf)
  return rawDeclarationsOf(entity.type as EntityTarget<ObjectLiteral>)
}

/** Returns the declaration that created an index. Empty for the user's own index. */
function rawDeclarationOf({ columns }: { readonly columns?: unknown }): [] | [RawDeclaration] {
  return typeof columns === 'function' && RAW in columns ? [columns[RAW] as RawDeclaration] : []
}

/**
 * The entry point from TypeORM, called while a DataSource builds the metadata of an entity. At that moment the columns
 * have their final names, and the checks are not built yet. It resolves the declaration once per DataSource, registers
 * it, names its columns and index, adds its check and normalizes its texts. However the DataSource was created, it gets
 * the schema hook, our subscribers and our query builders. maintainers/how-it-hooks-into-typeorm.md describes the whole
 * process.
 *
 * @param index the IndexMetadata on which TypeORM calls the index's `columns` function
 * @returns the property paths of the unique index, as TypeORM expects
 * @throws DeclarationError, UnsupportedDatabaseError
 */
function attachDeclaration(index: object, raw: RawDeclaration): string[] {
  const attached = attachTo(index, '@UniqueText', raw.name)
  const known = registry.declarations.get(attached.metadata)?.find(({ name }) => name === raw.name)
  if (known) requireOneClass('@UniqueText', known, attached.index)
  const declaration = known ?? resolveText(attached, raw)
  // Otherwise RETURNING includes these columns with defaults, and TypeORM merges them into entities and generatedMaps.
  const own = attached.index.entityMetadata
  const original = own.getInsertionReturningColumns.bind(own)
  own.getInsertionReturningColumns = () => original().filter((column) => !declaration.hidden.includes(column))
  return [...declaration.scope, ...declaration.hidden.slice(0, 2)].map(({ propertyPath }) => propertyPath)
}

function resolveText(attached: Attached, raw: RawDeclaration): Declaration {
  refuseEmbedded(
    attached,
    `Declare it on the entity instead: @UniqueText({ as: 'name', columns: ['embedded.${raw.name}'] }).`,
  )
  const { index, metadata, where } = attached
  const declaration = resolveDeclaration(metadata, raw, index.target)
  const { table, hidden, text } = declaration
  forbidTakenNames(declaration)
  forbidForeignKeys(declaration)
  const others = registry.declarations.get(metadata) ?? []
  forbidOtherSpreads(declaration, others)
  const columns = text.map(({ column }) => column)
  forbidSharedColumns(where, metadata, columns)
  registry.declarations.set(metadata, [...others, declaration])
  index.givenName = table.index
  const condition = indexCondition(table)
  if (condition !== undefined) index.where = condition
  const names = [table.hash, table.number, table.chained]
  for (const [position, column] of hidden.entries()) {
    nameColumn(column, names[position] ?? column.databaseName)
    // In single table inheritance, TypeORM makes a child class's columns nullable, for the rows of the other classes.
    column.isNullable = table.nullable && position === 0
    // An EntitySchema cannot declare this, and `save` would set null on its objects.
    column.isVirtual = true
  }
  if (table.spread !== undefined || table.guardless === true) sendHash(declaration)
  // TypeORM's CheckMetadata is not exported. TypeORM and the schema builder use only these parts of it.
  const check = {
    entityMetadata: metadata,
    name: table.check,
    givenName: table.check,
    expression: checkExpression(table),
    // TypeORM builds checks after all indexes and unique constraints, so these can be read here first.
    build: () => {
      forbidOtherIndexes(declaration)
      return check
    },
  }
  metadata.checks.push(check)
  for (const { column, normalizer } of text) normalizeColumn(column, normalizer)
  return declaration
}

/** Refuses declarations that no index can enforce if the table is spread by a hash. */
function forbidOtherSpreads(declaration: Declaration, others: readonly Declaration[]): void {
  const { metadata, name, table } = declaration
  const [other] = others
  const spread = [declaration, ...others].some((one) => one.table.spread !== undefined)
  if (spread && other) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: a table that is spread by the hash of one text can hold no other unique ` +
        `text. Remove spread, or "${other.name}".`,
    )
  }
  if (table.spread !== undefined && table.nullable) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: a text by whose hash the table is spread cannot be NULL. Remove nullable.`,
    )
  }
}
