import { DeclarationError } from '../errors'

/** Options of `@NumberWithin`, and of one entry of `numberWithinSchema()`. */
export interface NumberWithinOptions {
  /**
   * Properties within which rows are numbered; all NOT NULL. A relation stands for its join columns.
   *
   * @default []: the whole table
   */
  readonly scope?: readonly string[]
  /**
   * Keep a count of the rows of each scope, for `countWithin()`. Rows that are deleted softly do not count. Tables with
   * partitions keep none.
   *
   * @default false
   */
  readonly count?: boolean
  /** Name of the column. @default the naming strategy's, or what `@Column` says */
  readonly name?: string
}

/** The options with every default filled in. */
export interface RawNumber {
  readonly property: string
  readonly scope: readonly string[]
  readonly count: boolean
}

const OPTIONS: ReadonlySet<string> = new Set(['scope', 'count', 'name'])

/**
 * @param where names the declaration in an error: `@NumberWithin on Comment.number`
 * @throws DeclarationError for an option that does not exist, or a value that it does not take
 */
export function toRawNumber(where: string, property: string, options: NumberWithinOptions): RawNumber {
  const given: unknown = options
  if (typeof given !== 'object' || given === null) {
    throw new DeclarationError(`${where}: the options must be an object. Pass { scope: ['…'] }.`)
  }
  refuseUnknown(where, options)
  const { scope = [], count = false, name } = options
  requireScope(where, scope)
  if (typeof count !== 'boolean') throw new DeclarationError(`${where}: count must be true or false.`)
  if (name !== undefined && (typeof name !== 'string' || name === '')) {
    throw new DeclarationError(`${where}: name must be a non-empty string.`)
  }
  return { property, scope, count }
}

function refuseUnknown(where: string, options: object): void {
  const unknown = Object.keys(options).find((key) => !OPTIONS.has(key))
  if (unknown !== undefined) throw new DeclarationError(`${where}: there is no option "${unknown}". Remove it.`)
}

function requireScope(where: string, scope: unknown): void {
  const isList = Array.isArray(scope) && scope.every((one: unknown) => typeof one === 'string')
  if (isList && new Set(scope).size === scope.length) return
  throw new DeclarationError(`${where}: scope must be an array of property names, each of them once.`)
}
