import { checkOptions, RULE, type Rules } from '../options'

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

const RULES: Rules<NumberWithinOptions> = { scope: RULE.properties, count: RULE.boolean, name: RULE.name }

/**
 * @param where names the declaration in an error: `@NumberWithin on Comment.number`
 * @throws DeclarationError for an option that does not exist, or a value that it does not take
 */
export function toRawNumber(where: string, property: string, options: NumberWithinOptions): RawNumber {
  checkOptions(where, options, RULES)
  const { scope = [], count = false } = options
  return { property, scope, count }
}
