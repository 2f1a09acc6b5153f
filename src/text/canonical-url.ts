import { hash } from 'node:crypto'
import { DeclarationError } from '../errors'
import { toFixedPoint } from './fixed-point'
import { type NormalizeUrlOptions, normalizeUrl } from './normalize-url'
import { type Normalizer, normalizer } from './normalizer'
import { Refusal } from './refusal'
import { safeUrl } from './safe-url'

/** A query parameter's (or file's) name, or a pattern for it. */
type NamePattern = string | RegExp

/** What `url('canonical')` merges beside what it always merges; the names are those of normalize-url. */
export interface CanonicalUrlOptions {
  /** Makes `https` of `http`. @default false */
  readonly forceHttps?: boolean | undefined
  /** The only query parameters to stay; overrides `removeQueryParameters`. @default undefined (all stay) */
  readonly keepQueryParameters?: readonly NamePattern[] | undefined
  /** Drops a last path segment; `true` means `index.` and letters. @default false */
  readonly removeDirectoryIndex?: boolean | readonly NamePattern[] | undefined
  /** Drops query parameters; `true` drops the query, `false` nothing. @default [/^utm_\w+/i] */
  readonly removeQueryParameters?: boolean | readonly NamePattern[] | undefined
  /** Drops a `/` at the end of the path. @default true */
  readonly removeTrailingSlash?: boolean | undefined
  /** Sorts the query by parameter, and writes its escapes anew. @default true */
  readonly sortQueryParameters?: boolean | undefined
  /** Drops `user:password@`. @default true */
  readonly stripAuthentication?: boolean | undefined
  /** Drops the fragment. @default false */
  readonly stripHash?: boolean | undefined
  /** Drops a text fragment, `#:~:text=`. @default true */
  readonly stripTextFragment?: boolean | undefined
  /** Drops `www.` before a host. @default true */
  readonly stripWWW?: boolean | undefined
}

const DEFAULTS: NormalizeUrlOptions = {
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

/** `url-canonical` with the defaults, else with a digest of the options behind it, for they decide what is equal. */
export function canonicalUrl(options: CanonicalUrlOptions = {}): Normalizer {
  const resolved = resolve(options)
  const id = identity(resolved)
  const name = id === identity(DEFAULTS) ? 'url-canonical' : `url-canonical-${id}`
  // Raise the version when another normalize-url makes another text of any URL.
  return normalizer(name, 1, (text) => toFixedPoint((current) => once(current, resolved), safeUrl(text)))
}

function once(text: string, options: NormalizeUrlOptions): string {
  return safeUrl(guarded(text, options))
}

function guarded(text: string, options: NormalizeUrlOptions): string {
  try {
    return normalizeUrl(text, options)
  } catch {
    // No cause: it may hold the text, as every error of `new URL` does.
    throw new Refusal('normalize-url cannot normalize it')
  }
}

function resolve(options: CanonicalUrlOptions): NormalizeUrlOptions {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  for (const [name, value] of given) {
    if (!(Object.hasOwn(DEFAULTS, name) || PATTERNS.has(name))) {
      throw new DeclarationError(`url('canonical') has no option "${name}". Leave it out.`)
    }
    if (!isValid(name, value)) {
      throw new DeclarationError(`The option "${name}" of url('canonical') must be ${wanted(name)}.`)
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

function wanted(name: string): string {
  if (!PATTERNS.has(name)) return 'a boolean'
  return `a list of strings and regular expressions${name === 'keepQueryParameters' ? '' : ', or a boolean'}`
}

function copy(value: unknown): unknown {
  return Array.isArray(value) ? [...value] : value
}

function identity(options: NormalizeUrlOptions): string {
  const entries = Object.entries(options).map(([name, value]) =>
    JSON.stringify([name, Array.isArray(value) ? spell(value) : value]),
  )
  return hash('sha256', entries.sort().join()).slice(0, 8)
}

/** The order of a list does not matter, but `'/a/'` and `/a/` do differ. */
function spell(patterns: readonly unknown[]): readonly string[] {
  return patterns.map((pattern) => (pattern instanceof RegExp ? String(pattern) : JSON.stringify(pattern))).sort()
}
