import { DeclarationError } from './errors'

/** The rule for the value of an option. */
export interface Rule {
  readonly takes: (value: unknown) => boolean
  /** Completes "must be …". */
  readonly expected: string
}

/** A rule for each option of a type. An option without a rule does not compile. */
export type Rules<Options extends object> = { readonly [Name in keyof Options]-?: Rule }

const isNonEmptyString = (value: unknown): boolean => typeof value === 'string' && value !== ''

const hasMethod = (value: unknown, name: string): boolean =>
  typeof value === 'object' && value !== null && typeof Reflect.get(value, name) === 'function'

/** The options of a call that leaves them out. They are not checked. */
export const NO_OPTIONS: object = Object.freeze({})

/** TypeORM's own mark decides, because two copies of TypeORM may be loaded, and an EntityManager may be extended. */
export const isManager = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (value as { '@instanceof'?: unknown })['@instanceof'] === Symbol.for('EntityManager')

type RuleName = 'boolean' | 'name' | 'positive' | 'signal' | 'function' | 'properties' | 'manager' | 'dataSource'

/** Rules that several options use. */
export const RULE: Readonly<Record<RuleName, Rule>> = {
  boolean: { takes: (value) => typeof value === 'boolean', expected: 'true or false' },
  name: { takes: isNonEmptyString, expected: 'a non-empty string' },
  positive: {
    takes: (value) => Number.isSafeInteger(value) && Number(value) > 0,
    expected: 'a whole number above 0',
  },
  // Recognized by its methods, because an AbortSignal of another realm, as in Jest, is not an instance of ours.
  signal: {
    takes: (value) => ['throwIfAborted', 'addEventListener'].every((name) => hasMethod(value, name)),
    expected: 'an AbortSignal',
  },
  function: { takes: (value) => typeof value === 'function', expected: 'a function' },
  properties: {
    takes: (value) => Array.isArray(value) && value.every(isNonEmptyString) && new Set(value).size === value.length,
    expected: 'a list of property names, each of them once',
  },
  manager: { takes: isManager, expected: 'an EntityManager' },
  dataSource: {
    takes: (value) => typeof value === 'object' && value !== null && 'manager' in value && 'createQueryRunner' in value,
    expected: 'a DataSource',
  },
}

/** Requires one of these strings. */
export const oneOf = (...values: readonly string[]): Rule => ({
  takes: (value) => typeof value === 'string' && values.includes(value),
  expected: `one of ${values.join(', ')}`,
})

/**
 * Checks the options of a call, because JavaScript has no types, and an ignored option would cause unexpected results.
 * An option that is `undefined` is left out.
 *
 * @param where the text before the colon: `findOrCreate()`, or `@UniqueName on User.handle`
 * @param rules of all existing options, as {@link Rules}
 * @param required options that must be present
 * @throws DeclarationError for anything but an object, an option without a rule, or a value that the option refuses
 */
export function checkOptions(
  where: string,
  options: unknown,
  rules: Readonly<Record<string, Rule>>,
  required: readonly string[] = [],
): void {
  if (options === NO_OPTIONS) return
  if (!isOptions(options))
    throw new DeclarationError(`${where}: the options must be an object, got ${kindOf(options)}.`)
  const missing = required.find((name) => Reflect.get(options, name) === undefined)
  if (missing !== undefined) throw new DeclarationError(`${where}: ${missing} must be ${rules[missing]?.expected}.`)
  // Inherited options are checked too, because they are read in the same way.
  for (const name in options) {
    if (Object.hasOwn(rules, name)) continue
    throw new DeclarationError(`${where}: there is no option "${name}". It takes ${Object.keys(rules).join(', ')}.`)
  }
  for (const [name, { takes, expected }] of Object.entries(rules)) {
    const value: unknown = Reflect.get(options, name)
    if (value !== undefined && !takes(value)) throw new DeclarationError(`${where}: ${name} must be ${expected}.`)
  }
}

/** Refuses a promise, Map or Date, whose options would be ignored. Accepts objects of other realms, and modules. */
const isOptions = (value: unknown): value is object =>
  typeof value === 'object' && ['[object Object]', '[object Module]'].includes(Object.prototype.toString.call(value))

/** Describes a wrong argument in one or two words. */
export function kindOf(value: unknown): string {
  if (value === null) return 'null'
  if (typeof value !== 'object') return typeof value
  if (Array.isArray(value)) return 'an array'
  const name: unknown = value.constructor?.name
  return typeof name === 'string' && name !== 'Object' && name !== '' ? `an instance of ${name}` : 'an object'
}
