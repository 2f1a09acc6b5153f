import { checkOptions, RULE, type Rules } from '../options'
import type { FormerPolicy } from '../sql/name-table'
import { type Duration, intervalOf } from '../text/duration'
import { type Normalizer, type NormalizeOption } from '../text/normalizer'
import { unstorable } from '../text/storable'
import { NORMALIZE, requireNormalizer } from './options'

/** What becomes of a name when its holder takes another one. */
export type FormerOption =
  /** Anybody can take it at once. */
  | 'free'
  /** Nobody else can take it, for ever or for so long. */
  | 'reserve'
  | { readonly reserveFor: Duration }
  /** That, and `findHolder(…, { former: true })` finds its holder by it. */
  | 'redirect'
  | { readonly redirectFor: Duration }

/** Options of `@UniqueName`, and of one entry of `uniqueNameSchema()`. */
export interface UniqueNameOptions {
  /** The name is unique among all that say the same namespace, whichever their entities; at most 63 characters. */
  readonly namespace: string
  /** Brings the name into the form that is compared and stored; one for the whole namespace. @default none */
  readonly normalize?: NormalizeOption
  /** What becomes of a name when its holder takes another one. @default 'free' */
  readonly former?: FormerOption
  /** Allow NULL, in any number of rows: such a row holds no name. @default false, or what `@Column` says */
  readonly nullable?: boolean
  /** Name of the text column. @default the naming strategy's, or what `@Column` says */
  readonly name?: string
}

/** The options with every default filled in. */
export interface RawName {
  readonly property: string
  readonly namespace: string
  readonly normalizer: Normalizer
  readonly former: FormerPolicy
}

/** What the column `namespace` holds. */
const MAX_NAMESPACE_CHARACTERS = 63

const RULES: Rules<UniqueNameOptions> = {
  namespace: {
    takes: (value) =>
      typeof value === 'string' &&
      value !== '' &&
      unstorable(value) === undefined &&
      Array.from(value).length <= MAX_NAMESPACE_CHARACTERS,
    expected: `a text of 1 to ${MAX_NAMESPACE_CHARACTERS} characters, for instance 'handle'`,
  },
  normalize: NORMALIZE,
  former: {
    takes: isFormer,
    expected: "'free', 'reserve', 'redirect', { reserveFor: '90 days' } or { redirectFor: '1 year' }",
  },
  nullable: RULE.boolean,
  name: RULE.name,
}

/**
 * @param where names the declaration in an error: `@UniqueName on User.handle`
 * @throws DeclarationError for an option that does not exist, or a value that it does not take
 */
export function toRawName(where: string, property: string, options: UniqueNameOptions): RawName {
  checkOptions(where, options, RULES, ['namespace'])
  const { namespace, normalize, former = 'free' } = options
  return { property, namespace, normalizer: requireNormalizer(where, normalize), former: toPolicy(former) }
}

const POLICIES: Readonly<Record<Extract<FormerOption, string>, FormerPolicy>> = {
  free: { state: 'free' },
  reserve: { state: 'reserved' },
  redirect: { state: 'redirect' },
}

const STATES: Readonly<Record<string, FormerPolicy['state']>> = { reserveFor: 'reserved', redirectFor: 'redirect' }

function isFormer(former: unknown): boolean {
  if (typeof former === 'string') return Object.hasOwn(POLICIES, former)
  const [key, another] = typeof former === 'object' && former !== null ? Object.keys(former) : []
  return key !== undefined && another === undefined && Object.hasOwn(STATES, key)
}

/** @throws DeclarationError for a duration that is none */
function toPolicy(former: FormerOption): FormerPolicy {
  if (typeof former === 'string') return POLICIES[former]
  const [[key, duration] = ['reserveFor', undefined]] = Object.entries(former)
  return { state: STATES[key] ?? 'reserved', interval: intervalOf(key, duration) }
}
