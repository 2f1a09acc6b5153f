import { hash } from 'node:crypto'
import { DeclarationError } from '../errors'
import { toFixedPoint } from './fixed-point'
import { type NormalizeUrlOptions, normalizeUrl } from './normalize-url'
import { type Normalizer, normalizer } from './normalizer'
import { Refusal } from './refusal'
import { type NamePattern, type ParameterFilter, withoutParameters } from './query-parameters'
import { safeUrl } from './safe-url'

/**
 * Options of `url('canonical')`: what it merges besides what it always merges. The names are those of normalize-url.
 */
export interface CanonicalUrlOptions {
  /** Turns `http` into `https`. @default false */
  readonly forceHttps?: boolean | undefined
  /** The only query parameters to keep; overrides `removeQueryParameters`. @default undefined (keeps all) */
  readonly keepQueryParameters?: readonly NamePattern[] | undefined
  /**
   * Length in characters (UTF-16 code units) above which a URL is refused. It is not part of the name, since it does
   * not decide what is equal. Keep it small: normalize-url takes quadratic time for some URLs. @default 65536
   */
  readonly maxLength?: number | undefined
  /** Removes a last path segment; `true` means `index.` and letters. @default false */
  readonly removeDirectoryIndex?: boolean | readonly NamePattern[] | undefined
  /** Removes query parameters; `true` removes the whole query, `false` nothing. @default [/^utm_\w+/i] */
  readonly removeQueryParameters?: boolean | readonly NamePattern[] | undefined
  /** Removes a `/` at the end of the path, and of a URL without a fragment. @default true */
  readonly removeTrailingSlash?: boolean | undefined
  /** Sorts the query by parameter name, and rewrites its escapes. @default true */
  readonly sortQueryParameters?: boolean | undefined
  /** Removes `user:password@`. @default true */
  readonly stripAuthentication?: boolean | undefined
  /** Removes the fragment. @default false */
  readonly stripHash?: boolean | undefined
  /** Removes a text fragment, `#:~:text=`. @default true */
  readonly stripTextFragment?: boolean | undefined
  /** Removes `www.` before a host. @default true */
  readonly stripWWW?: boolean | undefined
}

/** Every option that decides what is equal. */
type Merging = Omit<NormalizeUrlOptions, 'removeQueryParameters'> & ParameterFilter

const MAX_LENGTH_DEFAULT = 65_536

const DEFAULTS: Merging = {
  forceHttps: false,
  removeDirectoryIndex: false,
  removeQueryParameters: [/^utm_\w+/i],
  removeTrailingSlash: true,
  sortQueryParameters: true,
  stripAuthentication: true,
  stripHash: false,
  stripTextFragment: true,
  stripWWW: true,
}

/** Options that take names or patterns; the others take only a boolean. */
const PATTERNS = new Set(['keepQueryParameters', 'removeDirectoryIndex', 'removeQueryParameters'])

/**
 * The preset `canonical` of `url()`. It is called `url-canonical` with the default options; with others, a digest of them
 * follows, since they decide what is equal.
 *
 * @throws DeclarationError for an option that does not exist or a value that makes no sense.
 */
export function canonicalUrl({ maxLength = MAX_LENGTH_DEFAULT, ...options }: CanonicalUrlOptions = {}): Normalizer {
  if (!Number.isSafeInteger(maxLength) || maxLength < 1) {
    throw new DeclarationError(`The option "maxLength" of url('canonical') must be a positive integer.`)
  }
  const merging = resolve(options)
  const { keepQueryParameters, removeQueryParameters, ...others } = merging
  const filter: ParameterFilter = { keepQueryParameters, removeQueryParameters }
  const id = identity(merging)
  const name = id === identity(DEFAULTS) ? 'url-canonical' : `url-canonical-${id}`
  const step = (text: string): string => {
    if (text.length > maxLength) throw new Refusal(`it has more than ${maxLength} characters`)
    return safeUrl(normalized(withoutParameters(text, filter), { ...others, removeQueryParameters: false }))
  }
  // Raise the version when another normalize-url makes another text of any URL.
  return normalizer(name, 1, (text) => toFixedPoint(step, safeUrl(text)))
}

function normalized(text: string, options: NormalizeUrlOptions): string {
  try {
    return normalizeUrl(text, options)
  } catch {
    // No cause: it may hold the text, as every error of `new URL` does.
    throw new Refusal('normalize-url cannot normalize it')
  }
}

function resolve(options: CanonicalUrlOptions): Merging {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  for (const [name, value] of given) {
    if (!(Object.hasOwn(DEFAULTS, name) || PATTERNS.has(name))) {
      throw new DeclarationError(`url('canonical') has no option "${name}". Leave it out.`)
    }
    if (!isValid(name, value)) {
      throw new DeclarationError(`The option "${name}" of url('canonical') must be ${expected(name)}.`)
    }
  }
  // Copies of lists, so that a list changed later cannot change what is equal.
  return { ...DEFAULTS, ...Object.fromEntries(given.map(([name, value]) => [name, copy(value)])) }
}

function isValid(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return name !== 'keepQueryParameters'
  if (!PATTERNS.has(name) || !Array.isArray(value)) return false
  return value.every((item) => typeof item === 'string' || item instanceof RegExp)
}

function expected(name: string): string {
  if (!PATTERNS.has(name)) return 'a boolean'
  return `a list of strings and regular expressions${name === 'keepQueryParameters' ? '' : ', or a boolean'}`
}

function copy(value: unknown): unknown {
  return Array.isArray(value) ? [...value] : value
}

function identity(options: Merging): string {
  const entries = Object.entries(options).map(([name, value]) =>
    JSON.stringify([name, Array.isArray(value) ? spell(value) : value]),
  )
  return hash('sha256', entries.sort().join()).slice(0, 8)
}

/** The order of a list does not matter, but `'/a/'` and `/a/` do differ. */
function spell(patterns: readonly unknown[]): readonly string[] {
  return patterns.map((pattern) => (pattern instanceof RegExp ? String(pattern) : JSON.stringify(pattern))).sort()
}
