import { type ColumnOptions, getMetadataArgsStorage } from 'typeorm'
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

/**
 * Declares a text column, unless a `@Column` stands beside the decorator.
 *
 * @throws DeclarationError where the property has such a decorator already
 */
export function declareTextColumn(
  decorator: string,
  target: Function,
  property: string,
  columnOptions: ColumnOptions,
): void {
  declareColumn(decorator, target, property, (beside = { type: 'text' }) => ({ ...beside, ...columnOptions }))
}

/**
 * Declares a column of any type.
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

/** What a decorator's options say of the text column. */
export function columnOptionsOf({ name, nullable }: { name?: string; nullable?: boolean }): ColumnOptions {
  return { ...(name === undefined ? {} : { name }), ...(nullable === undefined ? {} : { nullable }) }
}
