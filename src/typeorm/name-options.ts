import { DeclarationError } from '../errors'
import type { FormerPolicy } from '../sql/name-table'
import { type Duration, intervalOf } from '../text/duration'
import { type Normalizer, type NormalizeOption } from '../text/normalizer'
import { unstorable } from '../text/storable'
import { requireNormalizer } from './options'

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

const OPTIONS: ReadonlySet<string> = new Set(['namespace', 'normalize', 'former', 'nullable', 'name'])

/**
 * @param where names the declaration in an error: `@UniqueName on User.handle`
 * @throws DeclarationError for an option that does not exist, or a value that it does not take
 */
export function toRawName(where: string, property: string, options: UniqueNameOptions): RawName {
  const given: unknown = options
  if (typeof given !== 'object' || given === null) {
    throw new DeclarationError(`${where}: the options must be an object. Pass { namespace: '…' }.`)
  }
  const unknown = Object.keys(options).find((key) => !OPTIONS.has(key))
  if (unknown !== undefined) throw new DeclarationError(`${where}: there is no option "${unknown}". Remove it.`)
  const { namespace, normalize, former = 'free', nullable, name } = options
  requireNamespace(where, namespace)
  if (nullable !== undefined && typeof nullable !== 'boolean') {
    throw new DeclarationError(`${where}: nullable must be true or false.`)
  }
  if (name !== undefined && (typeof name !== 'string' || name === '')) {
    throw new DeclarationError(`${where}: name must be a non-empty string.`)
  }
  return { property, namespace, normalizer: requireNormalizer(where, normalize), former: toPolicy(where, former) }
}

function requireNamespace(where: string, namespace: unknown): void {
  const is = typeof namespace === 'string' && namespace !== '' && unstorable(namespace) === undefined
  if (is && Array.from(namespace).length <= MAX_NAMESPACE_CHARACTERS) return
  throw new DeclarationError(
    `${where}: namespace must be a text of 1 to ${MAX_NAMESPACE_CHARACTERS} characters, for instance 'handle'.`,
  )
}

const POLICIES: Readonly<Record<string, FormerPolicy>> = {
  free: { state: 'free' },
  reserve: { state: 'reserved' },
  redirect: { state: 'redirect' },
}

function toPolicy(where: string, former: unknown): FormerPolicy {
  if (typeof former === 'string' && Object.hasOwn(POLICIES, former)) return POLICIES[former] as FormerPolicy
  const [key, another] = typeof former === 'object' && former !== null ? Object.keys(former) : []
  const duration: unknown = key === undefined ? undefined : Reflect.get(former as object, key)
  if (another === undefined && (key === 'reserveFor' || key === 'redirectFor')) {
    return { state: key === 'reserveFor' ? 'reserved' : 'redirect', interval: intervalOf(key, duration) }
  }
  throw new DeclarationError(
    `${where}: former must be 'free', 'reserve', 'redirect', { reserveFor: '90 days' } or { redirectFor: '1 year' }.`,
  )
}
