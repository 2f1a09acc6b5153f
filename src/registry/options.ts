import type { ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { RULE, type Rules } from '../options'
import { type Digest, type DigestName, digests } from '../text/digest'
import { NORMALIZE, type Normalizer, toNormalizer } from '../text/normalizer'

/** Options of every declaration of a unique text. */
export interface UniqueTextOptions {
  /** Properties within which the text is unique, all NOT NULL. A relation means its join columns. @default [] */
  readonly scope?: readonly string[]
  /**
   * The hash function. You can pass your own {@link Digest}, for instance one with collisions for a test.
   * @default 'md5'
   */
  readonly digest?: DigestName | Digest
  /** Whether changes of the text or its scope are refused with ImmutableTextError. @default false */
  readonly immutable?: boolean
  /**
   * A soft-deleted row does not hold its text: another row may take it, and restoring the first row is then refused.
   * This needs a `@DeleteDateColumn`. A row with any value there counts as deleted.
   *
   * @default false
   */
  readonly ignoreDeleted?: boolean
  /**
   * The maximum number of texts with the same hash in one scope. The guard enforces it. The cost of every write to a
   * chain is proportional to the chain's length and to the length of its texts.
   *
   * @default 100
   */
  readonly maxChainLength?: number
  /**
   * Adds a hash index over the text itself, for equality in SQL that does not name the hash: string conditions, joins,
   * raw SQL. Its name is the name of the unique index and `_lookup`. The text must have one column. Texts in such SQL
   * are not normalized, so normalize them yourself. Calls like `findBy({ url })` do not need it.
   *
   * @default none
   */
  readonly lookup?: 'hash'
  /**
   * The hash of this text distributes the table: you partition or distribute it (`'hash'`), or the migration that
   * creates the table distributes it over the nodes of a Citus cluster (`'citus'`). In the database, the hash then
   * belongs to the primary key. Text and scope cannot be changed: delete the row and insert another. Your own SQL must
   * send the hash.
   *
   * @default none
   */
  readonly spread?: 'hash' | 'citus'
  /**
   * With `false`, there are no triggers. Only the unique index and the check protect the text, for Citus without unsafe
   * triggers and for databases without PL/pgSQL. It needs `digest: 'sha256'`. A hash then has room for one text:
   * another one raises HashCollisionError. Your own SQL must send the hash. docs/guarantees.md lists the other limits.
   *
   * @default true
   */
  readonly guard?: boolean
  /** Name of the unique index. A subclass with its own table does not use it. @default the naming strategy's */
  readonly indexName?: string
  /** Names of the hidden columns. @default the naming strategy's, for the property plus `Hash`, `HashNumber`, `HashChained` */
  readonly hidden?: {
    /** The column of the hash. */
    readonly hash?: string
    /** The column of the hash number. */
    readonly number?: string
    /** The column of the flag. */
    readonly chained?: string
  }
}

/** Options of `@UniqueText` on a property, and of one entry of `uniqueTextSchema()`. */
export interface UniqueTextPropertyOptions extends UniqueTextOptions {
  /** Converts the text to the form that is compared and stored. @default none: the text as it is */
  readonly normalize?: Normalizer
  /** Allows NULL, in any number of rows. @default false, or the value of `@Column` */
  readonly nullable?: boolean
  /** Name of the text column. @default the naming strategy's, or the name in `@Column` */
  readonly name?: string
}

/** One column of a text that has several columns. */
export interface UniqueTextColumn {
  /** The property of the column. */
  readonly property: string
  /**
   * If each column but the first has a prefix, the text that is hashed is composed of the values with their prefixes,
   * like the `path?query#fragment` of a URL. Choose prefixes that no earlier column contains, because texts that compose
   * alike share a hash. Otherwise, the length of each value is hashed with it, and no prefix is used.
   *
   * @default ''
   */
  readonly prefix?: string
  /** @default the value as it is */
  readonly normalize?: Normalizer
}

/** Options of `@UniqueText` on a class, for several columns that are unique together. */
export interface UniqueTextClassOptions extends UniqueTextOptions {
  /** The name for `by`. The hidden columns are named after it. */
  readonly as: string
  /** The columns in the order of the text. Each needs its own `@Column` of type text or varchar. */
  readonly columns: readonly (string | UniqueTextColumn)[]
  /**
   * Converts a text to the properties of an entity, including the scope, for the importer. To refuse the text, return
   * null, or throw a TextRejectedError, whose reason is reported.
   */
  readonly parse?: (text: string) => object | null
  /**
   * Normalizes values that depend on several columns, before `save`, `insert` and every operation of this package. It
   * receives the given properties, and returns the properties to set. It must be idempotent. To refuse them, it throws
   * an error, whose reason is reported if it is a `Refusal`. It is not called for conditions or updates. A change of it
   * is not detected, so raise the version of a column's `normalize` with it.
   */
  readonly normalizeValues?: (values: ObjectLiteral) => object
}

/** The options of either form, with all defaults applied. */
export interface RawDeclaration {
  readonly name: string
  readonly columns: readonly { readonly property: string; readonly prefix: string; readonly normalizer: Normalizer }[]
  readonly scope: readonly string[]
  readonly digest: Digest
  readonly immutable: boolean
  readonly ignoreDeleted: boolean
  readonly maxChainLength: number
  readonly lookup: 'hash' | undefined
  readonly spread: 'hash' | 'citus' | undefined
  readonly guard: boolean
  readonly indexName: string | undefined
  readonly hidden: { readonly hash?: string; readonly number?: string; readonly chained?: string }
  readonly parse: UniqueTextClassOptions['parse']
  readonly normalizeValues: UniqueTextClassOptions['normalizeValues']
}

const MAX_CHAIN_LENGTH_DEFAULT = 100
/** Numbers are of type `integer`. */
const MAX_CHAIN_LENGTH_LIMIT = 2 ** 31 - 1

const isAnyObject = (value: unknown): value is object => typeof value === 'object' && value !== null
const hasOnly = (value: object, keys: readonly string[]): boolean =>
  Object.keys(value).every((key) => keys.includes(key))

const TEXT_RULES: Rules<UniqueTextOptions> = {
  scope: {
    takes: (value) => Array.isArray(value) && value.every(RULE.name.takes),
    expected: 'a list of property names',
  },
  digest: {
    takes: (value) => toDigest(value) !== undefined,
    expected: `one of ${Object.keys(digests).join(', ')}`,
  },
  immutable: RULE.boolean,
  ignoreDeleted: RULE.boolean,
  maxChainLength: {
    takes: (value) => RULE.positive.takes(value) && Number(value) <= MAX_CHAIN_LENGTH_LIMIT,
    expected: `a whole number from 1 to ${MAX_CHAIN_LENGTH_LIMIT}`,
  },
  lookup: { takes: (value) => value === 'hash', expected: "'hash'" },
  spread: { takes: (value) => value === 'hash' || value === 'citus', expected: "'hash' or 'citus'" },
  guard: RULE.boolean,
  indexName: RULE.name,
  hidden: {
    takes: (value) =>
      isAnyObject(value) &&
      hasOnly(value, ['hash', 'number', 'chained']) &&
      Object.values(value).every(RULE.name.takes),
    expected: 'an object with the names hash, number and chained',
  },
}

/** The rules for the options of `@UniqueText` on a property. */
export const PROPERTY_RULES: Rules<UniqueTextPropertyOptions> = {
  ...TEXT_RULES,
  normalize: NORMALIZE,
  nullable: RULE.boolean,
  name: RULE.name,
}

/** The rules for the options of `@UniqueText` on a class. */
export const CLASS_RULES: Rules<UniqueTextClassOptions> = {
  ...TEXT_RULES,
  as: RULE.name,
  columns: {
    takes: (value) => Array.isArray(value) && value.length > 0 && value.every(isColumn),
    expected: 'a list of property names, or of { property, prefix, normalize }',
  },
  parse: RULE.function,
  normalizeValues: RULE.function,
}

function isColumn(value: unknown): boolean {
  if (RULE.name.takes(value)) return true
  if (!isAnyObject(value) || !hasOnly(value, ['property', 'prefix', 'normalize'])) return false
  if (!('property' in value) || !RULE.name.takes(value.property)) return false
  return !('prefix' in value) || typeof value.prefix === 'string'
}

/**
 * @param options after the check by the rules
 * @throws DeclarationError if a property is named twice, or a normalizer is invalid
 */
export function toRawDeclaration(
  where: string,
  name: string,
  columns: readonly UniqueTextColumn[],
  options: UniqueTextOptions & Pick<UniqueTextClassOptions, 'parse' | 'normalizeValues'>,
): RawDeclaration {
  const { scope = [], digest = 'md5', maxChainLength = MAX_CHAIN_LENGTH_DEFAULT } = options
  const properties = [...columns.map(({ property }) => property), ...scope]
  if (new Set(properties).size < properties.length) {
    throw new DeclarationError(`@UniqueText on ${where}: a property is named twice, in the text or in its scope.`)
  }
  if (options.lookup !== undefined && columns.length > 1) {
    throw new DeclarationError(
      `@UniqueText on ${where}: lookup is for a text of one column. Remove it; use textCondition() in SQL.`,
    )
  }
  refuseCombinations(where, options)
  return {
    name,
    columns: columns.map(({ property, prefix = '', normalize }) => {
      return { property, prefix, normalizer: toNormalizer(normalize, `@UniqueText on ${where}: `) }
    }),
    scope,
    digest: toDigest(digest) ?? digests.md5,
    // The hash decides where a row is stored, and no trigger may move it.
    immutable: options.immutable === true || options.spread !== undefined,
    ignoreDeleted: options.ignoreDeleted ?? false,
    maxChainLength,
    lookup: options.lookup,
    spread: options.spread,
    guard: options.guard ?? true,
    indexName: options.indexName,
    hidden: options.hidden ?? {},
    parse: options.parse,
    normalizeValues: options.normalizeValues,
  }
}

function refuseCombinations(where: string, options: UniqueTextOptions): void {
  const { spread, ignoreDeleted, guard, digest, immutable, maxChainLength } = options
  // The guard gives a restored row a number, and perhaps another hash.
  if (spread !== undefined && ignoreDeleted === true) {
    throw new DeclarationError(
      `@UniqueText on ${where}: spread cannot be combined with ignoreDeleted. Remove one of them.`,
    )
  }
  if (guard !== false) return
  // Only triggers can enforce these options.
  const other =
    digest !== undefined && toDigest(digest) === digests.sha256
      ? [
          ...(immutable === true ? ['immutable: the guard refuses changes'] : []),
          ...(maxChainLength === undefined ? [] : ['maxChainLength: a hash has room for one text']),
        ].map((reason) => `cannot be combined with ${reason}. Remove one of them.`)
      : [`needs digest: 'sha256', because a hash has room for one text, and MD5 is easily made to collide.`]
  if (other[0] !== undefined) throw new DeclarationError(`@UniqueText on ${where}: guard: false ${other[0]}`)
}

function toDigest(digest: unknown): Digest | undefined {
  if (typeof digest === 'string') return Object.hasOwn(digests, digest) ? digests[digest as DigestName] : undefined
  const whole = isAnyObject(digest) && ['name', 'type', 'js', 'sql'].every((key) => key in digest)
  return whole ? (digest as Digest) : undefined
}
