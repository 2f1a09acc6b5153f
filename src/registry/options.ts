import type { ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { RULE, type Rules } from '../options'
import type { SpreadBy } from '../sql/text-table'
import { type Digest, type DigestName, digests } from '../text/digest'
import { NORMALIZE, type Normalizer, toNormalizer } from '../text/normalizer'

/** Options that every declaration of a unique text has. */
export interface UniqueTextOptions {
  /** Properties within which the text is unique; all NOT NULL. A relation stands for its join columns. @default [] */
  readonly scope?: readonly string[]
  /**
   * The hash function. You can pass a {@link Digest} of your own, for instance one that collides in a test. @default
   * 'md5'
   */
  readonly digest?: DigestName | Digest
  /** Refuse to change the text or its scope, with ImmutableTextError. @default false */
  readonly immutable?: boolean
  /**
   * A row that is deleted softly does not hold its text: another row may take it, and restoring the first is then
   * refused. This needs a `@DeleteDateColumn`; any value there counts as deleted.
   *
   * @default false
   */
  readonly ignoreDeleted?: boolean
  /**
   * How many texts may share one hash in one scope; enforced by the guard. Every write to a chain costs its length
   * times that of its texts.
   *
   * @default 100
   */
  readonly maxChainLength?: number
  /**
   * Add a hash index over the text itself, for equality in SQL that names no hash: conditions that are strings, joins,
   * raw SQL. Its name is that of the unique index and `_lookup`. For a text of one column. Texts in such SQL are not
   * normalized; normalize them yourself. `findBy({ url })` and the like do not need it.
   *
   * @default none
   */
  readonly lookup?: 'hash'
  /**
   * The table is spread by the hash of this text: over partitions, which a new table gets with its migration (`{
   * partitions: 16 }`), over the nodes of a Citus cluster (`'citus'`), or as you do it yourself (`'hash'`). In the
   * database the hash then belongs to the primary key. Text and scope cannot be changed: delete the row and insert
   * another. SQL of your own must send the hash.
   *
   * @default none
   */
  readonly spread?: SpreadBy
  /**
   * Without triggers: unique index and check alone keep the text, for Citus without unsafe triggers and for databases
   * without PL/pgSQL. Only with `digest: 'sha256'`. A hash then has room for one text, and another one of equal hash is refused
   * with HashCollisionError. SQL of your own must send the hash. docs/guarantees.md says what else is lost.
   *
   * @default true
   */
  readonly guard?: boolean
  /** Name of the unique index; not that of a subclass with a table of its own. @default the naming strategy's */
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
  /** Brings the text into the form that is compared and stored. @default none: the text as it is */
  readonly normalize?: Normalizer
  /** Allow NULL, in any number of rows. @default false, or what `@Column` says */
  readonly nullable?: boolean
  /** Name of the text column. @default the naming strategy's, or what `@Column` says */
  readonly name?: string
}

/** One column of a text that is made of several. */
export interface UniqueTextColumn {
  /** The property of the column. */
  readonly property: string
  /** Put before the value in the text that is hashed, unless the value is NULL. @default '' */
  readonly prefix?: string
  /** @default the value as it is */
  readonly normalize?: Normalizer
}

/** Options of `@UniqueText` on a class: several columns that are unique together. */
export interface UniqueTextClassOptions extends UniqueTextOptions {
  /** The name that `by` takes; the hidden columns are named after it. */
  readonly as: string
  /** Columns in the order in which they make up the text. Each needs its own `@Column` of type text or varchar. */
  readonly columns: readonly (string | UniqueTextColumn)[]
  /**
   * For the importer: turns a text into the properties of an entity, scope included. To refuse the text, return null,
   * or throw a TextRejectedError, whose reason is reported.
   */
  readonly parse?: (text: string) => object | null
  /**
   * Normalizes what one column alone cannot, before `save`, `insert` and every operation of this package. Gets the
   * properties that were given, and returns those to set. Must be idempotent. Throws to refuse them; if it throws a
   * `Refusal`, that gives the reason. Not called for conditions, nor for updates. Nothing sees that it has changed: raise
   * the version of a column's `normalize` with it.
   */
  readonly normalizeValues?: (values: ObjectLiteral) => object
}

/** The options of either form, with every default filled in. */
export interface RawDeclaration {
  readonly name: string
  readonly columns: readonly { readonly property: string; readonly prefix: string; readonly normalizer: Normalizer }[]
  readonly scope: readonly string[]
  readonly digest: Digest
  readonly immutable: boolean
  readonly ignoreDeleted: boolean
  readonly maxChainLength: number
  readonly lookup: 'hash' | undefined
  readonly spread: SpreadBy | undefined
  readonly guard: boolean
  readonly indexName: string | undefined
  readonly hidden: { readonly hash?: string; readonly number?: string; readonly chained?: string }
  readonly parse: UniqueTextClassOptions['parse']
  readonly normalizeValues: UniqueTextClassOptions['normalizeValues']
}

const MAX_CHAIN_LENGTH_DEFAULT = 100
/** Numbers are `integer`. */
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
  spread: { takes: isSpread, expected: "'hash', 'citus' or { partitions: a whole number }" },
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

/** What the options of `@UniqueText` on a property take. */
export const PROPERTY_RULES: Rules<UniqueTextPropertyOptions> = {
  ...TEXT_RULES,
  normalize: NORMALIZE,
  nullable: RULE.boolean,
  name: RULE.name,
}

/** What the options of `@UniqueText` on a class take. */
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

function isSpread(value: unknown): boolean {
  if (value === 'hash' || value === 'citus') return true
  if (!isAnyObject(value) || !hasOnly(value, ['partitions']) || !('partitions' in value)) return false
  return RULE.positive.takes(value.partitions)
}

function isColumn(value: unknown): boolean {
  if (RULE.name.takes(value)) return true
  if (!isAnyObject(value) || !hasOnly(value, ['property', 'prefix', 'normalize'])) return false
  if (!('property' in value) || !RULE.name.takes(value.property)) return false
  return !('prefix' in value) || typeof value.prefix === 'string'
}

/**
 * @param options checked
 * @throws DeclarationError if a property is named twice, or a normalizer is not one
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
  // The guard of a restored row gives it a number, and perhaps another hash by then.
  if (spread !== undefined && ignoreDeleted === true) {
    throw new DeclarationError(
      `@UniqueText on ${where}: spread cannot be combined with ignoreDeleted. Remove one of them.`,
    )
  }
  if (guard !== false) return
  // Only triggers can hold these.
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
