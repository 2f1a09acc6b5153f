import { type ColumnOptions, type EntityMetadata, type EntitySchemaOptions, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError } from '../errors'
import type { RawDeclaration } from '../registry/options'
import { type ColumnMetadata, type Declaration, namesOfTable, textsOfTable } from '../registry/registry'

/** A PropertyDecorator for properties that can hold a text, and for private ones, which the compiler does not see. */
export type TextDecorator = <Target extends object, Name extends string | symbol>(
  target: Target,
  property: Name extends keyof Target
    ? NonNullable<Target[Name]> extends number | bigint | boolean | Date
      ? never
      : Name
    : Name,
) => void

/** A mark on the columns that any copy of this package gives to TypeORM: the decorator's name. */
const TEXT_MARK: unique symbol = Symbol.for('typeorm-unique-text.text')

/**
 * Refuses a decorator without parentheses, which receives the class, or the prototype and the property.
 *
 * @param decorator the name with its @
 * @throws DeclarationError
 */
export function requireCall(decorator: string, options: unknown, applied: readonly unknown[]): void {
  if (applied.length === 0 && typeof options !== 'function') return
  throw new DeclarationError(`${decorator} is not called: write ${decorator}(), with parentheses.`)
}

/** @throws DeclarationError if the compiler compiled it as a standard (TC39) decorator */
export function requireLegacy(decorator: string, context: unknown): void {
  if (typeof context !== 'object' || context === null || !('kind' in context)) return
  const { name } = context as { readonly name?: unknown }
  throw new DeclarationError(
    `${decorator} on ${String(name)}: it is compiled as a standard decorator, and TypeORM's are not. ` +
      `Set "experimentalDecorators": true in tsconfig.json.`,
  )
}

/** Whether a value is an object and not an array. */
export const isNonArrayObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The declaration of one property: its decorator, and its function for EntitySchema options. */
export interface PropertyDeclaration<Options extends object> {
  /** The name with its @. */
  readonly decorator: string
  /** The function, and its argument after the options of an EntitySchema. */
  readonly inSchema: { readonly name: string; readonly takes: string }
  /** @param beside the options of the property's own `@Column`, if it has one */
  readonly columnOf: (options: Options, beside: ColumnOptions | undefined) => ColumnOptions
  /** Whether the index that TypeORM gets is unique. @default false */
  readonly unique?: true
  /**
   * Returns the function that TypeORM calls with its IndexMetadata to get the columns of an index.
   *
   * @param where names the declaration in an error
   * @throws DeclarationError for an option that is wrong
   */
  readonly attachment: (where: string, property: string, options: Options) => (index: object) => string[]
}

/** The index through which TypeORM calls us. */
function attachingIndex<Options extends object>(
  { decorator, unique, attachment }: PropertyDeclaration<Options>,
  holder: string,
  property: string,
  options: Options,
): { readonly unique?: true; readonly columns: () => string[] } {
  const attach = attachment(`${decorator} on ${holder}.${property}`, property, options)
  // Not an arrow function: TypeORM calls it as a method of its IndexMetadata.
  function columns(this: object): string[] {
    return attach(this)
  }
  return { ...(unique && { unique }), columns }
}

/** @throws DeclarationError */
export function declareProperty<Options extends object>(
  declaration: PropertyDeclaration<Options>,
  options: Options,
  applied: readonly unknown[],
): (target: object, property: unknown) => void {
  const { decorator, columnOf } = declaration
  requireCall(decorator, options, applied)
  return (target, property) => {
    requireLegacy(decorator, property)
    if (typeof property !== 'string') {
      throw new DeclarationError(`${decorator}: it belongs on a property with a name, and makes a column of it.`)
    }
    const { constructor } = target
    const index = attachingIndex(declaration, constructor.name, property, options)
    declareColumn(decorator, constructor, property, (beside) => columnOf(options, beside))
    getMetadataArgsStorage().indices.push({ target: constructor, ...index })
  }
}

/**
 * @param declared the options of each property
 * @throws DeclarationError
 */
export function declareInSchema<T, Options extends object>(
  declaration: PropertyDeclaration<Options>,
  schema: EntitySchemaOptions<T>,
  declared: Readonly<Record<string, Options>>,
): EntitySchemaOptions<T> {
  const { inSchema, columnOf } = declaration
  if (![schema, declared].every(isNonArrayObject)) {
    throw new DeclarationError(
      `${inSchema.name}() takes the options of an EntitySchema, and an object with ${inSchema.takes}.`,
    )
  }
  const columns: Record<string, unknown> = { ...schema.columns }
  const indices = [...(schema.indices ?? [])]
  for (const [property, options] of Object.entries(declared)) {
    indices.push(attachingIndex(declaration, schema.name, property, options))
    columns[property] = columnOf(options, columns[property] as ColumnOptions | undefined)
  }
  return Object.assign({}, schema, { columns: columns as EntitySchemaOptions<T>['columns'], indices })
}

/**
 * Declares a column with the options of the property's own `@Column`, if it has one.
 *
 * TypeORM uses the first column of a property, and decorators run from the bottom up. So our column is put first,
 * wherever the user's `@Column` is, and takes its options from that.
 *
 * @param optionsOf receives the options of that `@Column`, if there is one; returns the options to declare
 * @throws DeclarationError if the property already has such a decorator
 */
export function declareColumn(
  decorator: string,
  target: Function,
  property: string,
  optionsOf: (beside: ColumnOptions | undefined) => ColumnOptions,
): void {
  const storage = getMetadataArgsStorage()
  const isHere = (column: { readonly target: unknown; readonly propertyName: string }): boolean =>
    column.target === target && column.propertyName === property
  for (const column of storage.columns) {
    if (!isHere(column) || !(TEXT_MARK in column)) continue
    const where = `${decorator} on ${target.name}.${property}`
    throw new DeclarationError(
      column[TEXT_MARK] === decorator
        ? `${where}: it is declared twice. Remove one of them.`
        : `${where}: ${String(column[TEXT_MARK])} is on it too, and a property can have only one of them. A name that is ` +
            `unique in its whole namespace needs @UniqueName() alone. Remove one of them.`,
    )
  }
  const args: (typeof storage.columns)[number] & { readonly [TEXT_MARK]: string } = {
    [TEXT_MARK]: decorator,
    target,
    propertyName: property,
    get mode() {
      return other()?.mode ?? 'regular'
    },
    get options() {
      return optionsOf(other()?.options)
    },
  }
  const other = (): (typeof storage.columns)[number] | undefined =>
    storage.columns.find((column) => column !== args && isHere(column))
  const before = storage.columns.findIndex(isHere)
  storage.columns.splice(before === -1 ? storage.columns.length : before, 0, args)
}

/** Returns the options of a text column, from those of a decorator and of the column beside it. */
export function textColumnOf(
  { name, nullable }: { readonly name?: string; readonly nullable?: boolean },
  beside: ColumnOptions | undefined,
): ColumnOptions {
  return {
    type: 'text',
    ...beside,
    ...(name === undefined ? {} : { name }),
    ...(nullable === undefined ? {} : { nullable }),
  }
}

/**
 * Refuses hidden columns whose names are taken. TypeORM keeps the first column of a name, so a hidden column would
 * silently replace a property. Two columns with one database name would be one column.
 *
 * @throws DeclarationError
 */
export function forbidTakenNames({ metadata, name, hidden, table }: Declaration): void {
  const { columns, relations } = getMetadataArgsStorage()
  const classes = new Set<unknown>(metadata.inheritanceTree)
  const own = [...columns, ...relations].filter((args) => classes.has(args.target) && !(HIDDEN_MARK in args))
  const names = new Set([table.hash, table.number, table.chained])
  for (const { propertyName } of hidden) {
    if (own.some((args) => args.propertyName === propertyName)) {
      throw new DeclarationError(
        `@UniqueText on ${metadata.name}.${name}: it needs the property name "${propertyName}" for a hidden column. ` +
          `Rename your property of that name.`,
      )
    }
  }
  if (names.size < hidden.length) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: two of its hidden columns have one name. ` +
        `Pass the option "hidden" with three names.`,
    )
  }
  const taken = metadata.columns.find((column) => names.has(column.databaseName) && !hidden.includes(column))
  if (taken) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: it needs the name "${taken.databaseName}" for a hidden column, which ` +
        `"${taken.propertyPath}" has. Rename that column, or pass the option "hidden" with other names.`,
    )
  }
}

/**
 * @param where names the declaration in an error: `@UniqueText on Page.url`
 * @throws DeclarationError for a column that another text or name uses
 */
export function forbidSharedColumns(where: string, metadata: EntityMetadata, columns: readonly ColumnMetadata[]): void {
  const others = [
    ...textsOfTable(metadata).flatMap(({ text }) => text),
    ...namesOfTable(metadata).map(({ text }) => text),
  ]
  const shared = columns.find((one) => others.some(({ column }) => column === one))
  if (!shared) return
  throw new DeclarationError(
    `${where}: another declaration has the column "${shared.propertyPath}". Remove one of them.`,
  )
}

/** Longer keys may not fit: a btree entry holds 2704 bytes, and a character of UTF-8 takes up to 4. */
const INDEXED_CHARACTERS = 650

/** Returns the columns whose texts may not fit into a btree. */
const longColumns = (text: Declaration['text']): ColumnMetadata[] =>
  text
    .map(({ column }) => column)
    .filter((column) => !(Number(column.length) <= INDEXED_CHARACTERS && column.length !== ''))

/**
 * Refuses another btree over the text, which would refuse long texts ("index row size exceeds btree version 4 maximum
 * 2704"). This package exists to avoid that. Partial indexes, other types and indexes made by hand are allowed.
 *
 * @throws DeclarationError
 */
export function forbidOtherIndexes({ metadata, name, text }: Declaration): void {
  const long = longColumns(text)
  // TypeORM 0.3 knows no index types, except `spatial`. TypeORM does not pass `fulltext` to Postgres.
  const indexes = metadata.indices.filter((index) => {
    const { type = 'btree', isSpatial, where } = index as { type?: string; isSpatial?: boolean; where?: string }
    return !where && type === 'btree' && isSpatial !== true
  })
  const primary = { name: 'the primary key', columns: metadata.primaryColumns }
  const other = [...indexes, ...metadata.uniques, primary].find(({ columns }) =>
    columns.some((one) => long.includes(one)),
  )
  if (!other) return
  throw new DeclarationError(
    `@UniqueText on ${metadata.name}.${name}: the text is also in the btree of ${other.name}, which refuses long texts. ` +
      `Remove "unique", @Unique, @Index or @PrimaryColumn from it, or give it a length of at most ${INDEXED_CHARACTERS}.`,
  )
}

/**
 * Refuses a foreign key to the text, which needs a unique btree over it. The metadata of other entities cannot be read
 * while it is being built, so this reads the arguments of their decorators.
 *
 * @throws DeclarationError
 */
export function forbidForeignKeys({ metadata, name, text }: Declaration): void {
  const { joinColumns, relations } = getMetadataArgsStorage()
  const properties = new Set(longColumns(text).map(({ propertyName }) => propertyName))
  const classes = new Set<unknown>(metadata.inheritanceTree)
  const refersHere = ({ type, options }: (typeof relations)[number]): boolean =>
    options.createForeignKeyConstraints !== false &&
    classes.has(typeof type === 'function' ? (type as () => unknown)() : undefined)
  for (const { target, propertyName, referencedColumnName = '' } of joinColumns) {
    if (!properties.has(referencedColumnName)) continue
    const relation = relations.find((one) => one.target === target && one.propertyName === propertyName)
    if (!relation || !refersHere(relation)) continue
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: the foreign key of "${propertyName}" refers to the text, and would need ` +
        `another unique index over it, which refuses long texts. Refer to the primary key, or pass ` +
        `{ createForeignKeyConstraints: false } to the relation.`,
    )
  }
}

/** Keeps the columns out of entities, selects and inserts. In DDL and in `where` they are columns like any other. */
const HIDDEN_OPTIONS: ColumnOptions = { select: false, insert: false, update: false }

/** A mark on the arguments that the decorator gives TypeORM, to distinguish them from a user's own column. */
export const HIDDEN_MARK: unique symbol = Symbol.for('typeorm-unique-text.hidden')

/**
 * Returns the hidden columns. Their comments explain them to readers of the database without an entity. TypeORM
 * compares comments too.
 */
export function hiddenColumns({
  name,
  digest,
  hidden,
  guard,
}: RawDeclaration): { property: string; options: ColumnOptions }[] {
  const column = (given: string | undefined, what: string): ColumnOptions => ({
    ...HIDDEN_OPTIONS,
    ...(given === undefined ? {} : { name: given }),
    comment: `typeorm-unique-text: ${what}`,
  })
  const guarded = '; do not write it.'
  const hash = column(
    hidden.hash,
    `hash of "${name}"${guard ? guarded : ', to be written with it: no guard makes it.'}`,
  )
  const number = column(hidden.number, `0, or 1 and more where another "${name}" has the same hash${guarded}`)
  const chained = column(hidden.chained, `others have, or had, the same hash of "${name}"${guarded}`)
  return [
    { property: `${name}Hash`, options: { ...hash, type: digest.type } },
    { property: `${name}HashNumber`, options: { ...number, type: 'integer', default: 0 } },
    { property: `${name}HashChained`, options: { ...chained, type: 'boolean', default: false } },
  ]
}

/** Sets a shortened name. Otherwise Postgres would cut the long one, and TypeORM would find a difference. */
export function nameColumn(column: ColumnMetadata, name: string): void {
  // A naming strategy may also change explicit names, and would do so again.
  if (column.databaseName === name) return
  column.databaseName = name
  // TypeORM builds the columns of some entities a second time, from this.
  column.givenDatabaseName = name
  column.databasePath = name
  column.databaseNameWithoutPrefixes = name
}
