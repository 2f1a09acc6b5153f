import { DeclarationError } from '../errors'
import { type Digest, type DigestName, digests } from '../text/digest'
import type { NormalizeOption } from '../text/normalizer'

/** Options of every declaration. */
export interface UniqueTextOptions {
  /** Properties within which the text is unique; all NOT NULL. A relation counts by its join columns. @default [] */
  readonly scope?: readonly string[]
  /** A {@link Digest} of your own is possible, for instance one that collides in a test. @default 'md5' */
  readonly digest?: DigestName | Digest
  /** Refuse a changed text, or a changed scope, with ImmutableTextError. @default false */
  readonly immutable?: boolean
  /** Texts that may share one hash in one scope; held by the guard. @default 1000 */
  readonly maxChainLength?: number
  /** Name of the unique index. @default the naming strategy's */
  readonly indexName?: string
  /** Names of the hidden columns. @default the naming strategy's, from the property and `Hash`, `HashNumber`, `HashChained` */
  readonly hidden?: { readonly hash?: string; readonly number?: string; readonly chained?: string }
}

/** Options of `@UniqueText` on a property, and of one entry of `uniqueText()`. */
export interface UniqueTextPropertyOptions extends UniqueTextOptions {
  /** @default the text as it is */
  readonly normalize?: NormalizeOption
  /** Allow NULL, in any number of rows. @default false, or what `@Column` says */
  readonly nullable?: boolean
  /** Name of the text column. @default the naming strategy's, or what `@Column` says */
  readonly name?: string
}

/** One column of a text that is made of several. */
export interface UniqueTextColumn {
  readonly property: string
  /** Stands before the value in the text that is hashed, where the value is not NULL. @default '' */
  readonly prefix?: string
  /** @default the value as it is */
  readonly normalize?: NormalizeOption
}

/** Options of `@UniqueText` on a class: several columns that are unique together. */
export interface UniqueTextClassOptions extends UniqueTextOptions {
  /** What `by` calls it; the hidden columns are named after it. */
  readonly as: string
  /** In the order of the text. Each needs a column of its own, of type text or varchar. */
  readonly columns: readonly (string | UniqueTextColumn)[]
  /** Makes the properties, scope included, of a text, for the importer; null refuses it. */
  readonly parse?: (text: string) => object | null
}

/** Both forms as one, with every default filled in. */
export interface RawDeclaration {
  readonly name: string
  readonly columns: readonly UniqueTextColumn[]
  readonly scope: readonly string[]
  readonly digest: Digest
  readonly immutable: boolean
  readonly maxChainLength: number
  readonly indexName: string | undefined
  readonly hidden: { readonly hash?: string; readonly number?: string; readonly chained?: string }
  readonly parse: UniqueTextClassOptions['parse']
}

const MAX_CHAIN_LENGTH_DEFAULT = 1_000
/** Numbers are `integer`. */
const MAX_CHAIN_LENGTH_LIMIT = 2 ** 31 - 1

const KNOWN: ReadonlySet<string> = new Set(
  'scope digest immutable maxChainLength indexName hidden normalize nullable name as columns parse'.split(' '),
)

/** @throws DeclarationError for an option that does not exist or has no sense. */
export function toRawDeclaration(
  where: string,
  name: string,
  columns: readonly UniqueTextColumn[],
  options: UniqueTextOptions & Pick<UniqueTextClassOptions, 'parse'>,
): RawDeclaration {
  const refuse = (what: string): never => {
    throw new DeclarationError(`@UniqueText on ${where}: ${what}`)
  }
  for (const key of Object.keys(options)) if (!KNOWN.has(key)) refuse(`there is no option "${key}".`)
  const { scope = [], digest = 'md5', maxChainLength = MAX_CHAIN_LENGTH_DEFAULT } = options
  const texts = columns.map(({ property }) => property)
  const both = [...texts, ...scope]
  if (columns.length === 0) refuse('name at least one column.')
  if (both.some((property) => typeof property !== 'string' || property === '')) refuse('a property is no name.')
  if (new Set(both).size < both.length) refuse('a property is named twice, in the text or in its scope.')
  if (!Number.isInteger(maxChainLength) || maxChainLength < 1 || maxChainLength > MAX_CHAIN_LENGTH_LIMIT) {
    refuse(`maxChainLength must be a whole number from 1 to ${MAX_CHAIN_LENGTH_LIMIT}.`)
  }
  return {
    name,
    columns,
    scope,
    digest: toDigest(digest) ?? refuse(`digest must be one of ${Object.keys(digests).join(', ')}.`),
    immutable: options.immutable ?? false,
    maxChainLength,
    indexName: options.indexName,
    hidden: options.hidden ?? {},
    parse: options.parse,
  }
}

function toDigest(digest: DigestName | Digest): Digest | undefined {
  if (typeof digest === 'object') return digest
  return Object.hasOwn(digests, digest) ? digests[digest] : undefined
}
