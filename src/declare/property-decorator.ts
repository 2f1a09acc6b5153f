import { type ColumnOptions, type EntitySchemaOptions, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError } from '../errors'

/** A PropertyDecorator for what can be a text. What the compiler does not see, a private property say, passes. */
export type TextDecorator = <Target extends object, Name extends string | symbol>(
  target: Target,
  property: Name extends keyof Target
    ? NonNullable<Target[Name]> extends number | bigint | boolean | Date
      ? never
      : Name
    : Name,
) => void

/** On the columns that we give to TypeORM, whichever copy of the package did: the decorator's name. */
const TEXT_MARK: unique symbol = Symbol.for('typeorm-unique-text.text')

/**
 * As a decorator without parentheses it is given the class, or the prototype and the property.
 *
 * @param decorator with its @
 * @throws DeclarationError
 */
export function requireCall(decorator: string, options: unknown, applied: readonly unknown[]): void {
  if (applied.length === 0 && typeof options !== 'function') return
  throw new DeclarationError(`${decorator} is not called: write ${decorator}(), with parentheses.`)
}

/** @throws DeclarationError where the compiler made a decorator of it as TC39 has standardized them */
export function requireLegacy(decorator: string, context: unknown): void {
  if (typeof context !== 'object' || context === null || !('kind' in context)) return
  const { name } = context as { readonly name?: unknown }
  throw new DeclarationError(
    `${decorator} on ${String(name)}: it is compiled as a standard decorator, and TypeORM's are not. ` +
      `Set "experimentalDecorators": true in tsconfig.json.`,
  )
}

/** An object that is no list: options, or what they are of. */
export const isPlain = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A declaration of one property: its decorator, and its function for EntitySchema options. */
export interface PropertyDeclaration<Options extends object> {
  /** With its @. */
  readonly decorator: string
  /** The function, and what it takes beside the options of an EntitySchema. */
  readonly inSchema: { readonly name: string; readonly takes: string }
  /** @param beside the options of the property's own column, if it has one */
  readonly columnOf: (options: Options, beside: ColumnOptions | undefined) => ColumnOptions
  /** The index of the columns that TypeORM gets is unique. @default false */
  readonly unique?: true
  /**
   * What TypeORM calls for the columns of an index, with its IndexMetadata.
   *
   * @param where names the declaration in an error
   * @throws DeclarationError for an option that is wrong
   */
  readonly attachment: (where: string, property: string, options: Options) => (index: object) => string[]
}

/** The index by which TypeORM calls us. */
function indexOf<Options extends object>(
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
    const index = indexOf(declaration, constructor.name, property, options)
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
  if (![schema, declared].every(isPlain)) {
    throw new DeclarationError(
      `${inSchema.name}() takes the options of an EntitySchema, and an object with ${inSchema.takes}.`,
    )
  }
  const columns: Record<string, unknown> = { ...schema.columns }
  const indices = [...(schema.indices ?? [])]
  for (const [property, options] of Object.entries(declared)) {
    indices.push(indexOf(declaration, schema.name, property, options))
    columns[property] = columnOf(options, columns[property] as ColumnOptions | undefined)
  }
  return Object.assign({}, schema, { columns: columns as EntitySchemaOptions<T>['columns'], indices })
}

/**
 * Declares a column, unless a `@Column` stands beside the decorator.
 *
 * TypeORM takes the first column of a property, and decorators run from the bottom up: so ours comes first, wherever the
 * user's `@Column` stands, and says what that says.
 *
 * @param optionsOf gets the options of the `@Column` beside it, if there is one; returns those to declare
 * @throws DeclarationError where the property has such a decorator already
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
    if (isHere(column)) refuseAnother(decorator, `${target.name}.${property}`, column)
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

function refuseAnother(decorator: string, where: string, column: object): void {
  if (!(TEXT_MARK in column)) return
  const other = column[TEXT_MARK]
  throw new DeclarationError(
    other === decorator
      ? `${decorator} on ${where}: it is declared twice. Remove one of them.`
      : `${decorator} on ${where}: ${String(other)} stands on it too, and a property has one of them. A name that is ` +
          `unique in its whole namespace needs @UniqueName() alone. Remove one of them.`,
  )
}

/** The options of a text column, as a decorator and the column beside it say. */
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
