import { hash } from 'node:crypto'
import { DeclarationError } from '../errors'
import { normalizeUrl, type NormalizeUrlOptions } from './normalize-url'
import { type Normalizer, normalizer, Refusal, toFixedPoint } from './normalizer'
import { safeUrl } from './safe-url'

const safe = normalizer('url', 1, safeUrl)

/**
 * An http or https URL.
 *
 * - `safe`, the default, merges only URLs that RFC 3986 sections 6.2.2 and 6.2.3 or the WHATWG URL standard define as
 *   equivalent: case of scheme and host, IDNA, spellings of IP addresses (`127.1`), default port, dot segments, empty
 *   path, empty user information, `\` for `/`, tabs and line ends within, C0 controls and spaces around, characters
 *   that the standard always encodes, the case of `%xx`, and `%xx` for unreserved characters (ALPHA, DIGIT, `-._~`). It
 *   keeps `www.`, a trailing slash or dot, `//`, the order of parameters, `+`, an empty `?` or `#`, fragment and user
 *   information. It takes linear time.
 * - `canonical` merges **different resources** that often show the same page. Its options decide. By default, it
 *   removes `www.`, a `/` at the end of the path, of the query or of the fragmentless URL (`?k=a/`), `utm_…`
 *   parameters, user information, text fragments, and an empty `#`. It sorts the query, and so also merges parameters
 *   in any order, `+` and `%20`, escaped and plain characters except `%xx` of reserved ones, line ends and tabs (`%0A`)
 *   and none, and bytes that are not UTF-8 and U+FFFD. It always merges, because of normalize-url, `/a//b` and `/a/b`,
 *   `a.com.` and `a.com`, an empty `?` or parameter (`&&`) and none, and `+` and `%20` in parameter names. In paths, it
 *   merges `%0A` and none, and escaped and plain characters other than `# $ % & + , / : ; = ? @` (`%21` and `!`, `%5B`
 *   and `[`, `%7C` and `|`). It keeps `%25`. It is repeated until nothing changes, and refuses more than `maxLength`
 *   characters, by default 65,536, because normalize-url is not linear.
 *
 * Both refuse a text that does not begin with `http://` or `https://`, in any case and after spaces and C0 controls.
 * `new URL` completes `http:a` and `http:/a`, which are more often mistakes than links. Both also refuse a text that
 * `new URL` refuses, lone surrogates, and a host of more than 256 characters. `canonical` also refuses U+FDD0, and URLs
 * that normalize-url refuses or that still change after 10 rounds.
 *
 * The results do not depend on the version of Node.js. So `^` in a path is always `%5E`, and a host outside ASCII (or
 * in Punycode, `xn--`) is refused unless Node.js 20, 22 and 24 treat all characters of its labels alike: Latin, Greek,
 * Cyrillic, Armenian, Hebrew, Arabic, the scripts of India, Thai, Lao, Tibetan, Burmese, Georgian, Ethiopic, Khmer,
 * Hangul, Kana and Han, and emoji. A right-to-left label has no other characters and no digits. The labels next to it
 * have only ASCII letters, digits and hyphens, and begin with a letter.
 *
 * @throws DeclarationError for an unknown preset, or for invalid options.
 * @example
 * url().normalize('HTTP://Example.com:80/a/../b') // 'http://example.com/b'
 * url('canonical', { stripHash: true }).normalize('https://www.example.com/a/?utm_source=x#top') // 'https://example.com/a'
 */
export function url(preset?: 'safe'): Normalizer
export function url(preset: 'canonical', options?: CanonicalUrlOptions): Normalizer
export function url(preset: 'safe' | 'canonical' = 'safe', options?: CanonicalUrlOptions): Normalizer {
  if (preset === 'canonical') return canonicalUrl(options)
  if (preset !== 'safe')
    throw new DeclarationError(`The preset of url() must be 'safe' or 'canonical'. Pass one of them.`)
  if (options !== undefined) throw new DeclarationError(`Only url('canonical') takes options. Leave them out.`)
  return safe
}

/** Options of `url('canonical')`, which add to what it always merges. The names are those of normalize-url. */
export interface CanonicalUrlOptions {
  /** Changes `http` to `https`. @default false */
  readonly forceHttps?: boolean | undefined
  /** The only query parameters to keep. It overrides `removeQueryParameters`. @default undefined (keeps all) */
  readonly keepQueryParameters?: readonly NamePattern[] | undefined
  /**
   * The length in characters (UTF-16 code units) above which a URL is refused. It is not part of the name, because it
   * does not affect equality. Keep it small: normalize-url takes quadratic time for some URLs. @default 65536
   */
  readonly maxLength?: number | undefined
  /** Removes a last path segment. `true` means `index.` and letters. @default false */
  readonly removeDirectoryIndex?: boolean | readonly NamePattern[] | undefined
  /** Removes query parameters. `true` removes the whole query, and `false` nothing. @default [/^utm_\w+/i] */
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

/** All options that affect equality. */
type Merging = Omit<NormalizeUrlOptions, 'removeQueryParameters'> & ParameterFilter

const MAX_LENGTH_DEFAULT = 65_536

/**
 * Replaces `%25` while normalize-url decodes, so that `90%25+of` does not become `90%+of`. It is U+FDD0, which is not a
 * character and occurs in no valid URL.
 */
const PERCENT = '%EF%B7%90'

const MERGING_DEFAULTS: Merging = {
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

/** Options that accept names or patterns. The others accept only a boolean. */
const PATTERNS = new Set(['keepQueryParameters', 'removeDirectoryIndex', 'removeQueryParameters'])

/**
 * The preset `canonical` of `url()`. Its name is `url-canonical` with the default options. With other options, a digest
 * of them follows, because they affect equality.
 *
 * @throws DeclarationError for an unknown option or an invalid value.
 */
function canonicalUrl({ maxLength = MAX_LENGTH_DEFAULT, ...options }: CanonicalUrlOptions = {}): Normalizer {
  if (!Number.isSafeInteger(maxLength) || maxLength < 1) {
    throw new DeclarationError(`The option "maxLength" of url('canonical') must be a positive integer.`)
  }
  const merging = resolve(options)
  const { keepQueryParameters, removeQueryParameters, ...others } = merging
  const filter: ParameterFilter = { keepQueryParameters, removeQueryParameters }
  const id = identity(merging)
  const name = id === identity(MERGING_DEFAULTS) ? 'url-canonical' : `url-canonical-${id}`
  const step = (text: string): string => {
    if (text.length > maxLength) throw new Refusal(`it has more than ${maxLength} characters`)
    const left = withoutParameters(text, filter)
    let normal: string
    try {
      normal = normalizeUrl(left.replaceAll('%25', PERCENT), { ...others, removeQueryParameters: false })
    } catch {
      // There is no cause, because it may contain the text, like every error of `new URL`.
      throw new Refusal('normalize-url cannot normalize it')
    }
    return safeUrl(normal.replaceAll(PERCENT, '%25'))
  }
  const whole = (text: string): string => {
    const start = safeUrl(text)
    if (start.includes(PERCENT)) throw new Refusal('it contains U+FDD0')
    return toFixedPoint(step, start)
  }
  // Raise the version when another normalize-url changes the result for any URL.
  return normalizer(name, 2, whole)
}

function resolve(options: CanonicalUrlOptions): Merging {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  for (const [name, value] of given) {
    if (!(Object.hasOwn(MERGING_DEFAULTS, name) || PATTERNS.has(name))) {
      throw new DeclarationError(`url('canonical') has no option "${name}". Leave it out.`)
    }
    if (!isValid(name, value)) {
      const list = `a list of strings and regular expressions${name === 'keepQueryParameters' ? '' : ', or a boolean'}`
      const expected = PATTERNS.has(name) ? list : 'a boolean'
      throw new DeclarationError(`The option "${name}" of url('canonical') must be ${expected}.`)
    }
  }
  // Lists are copied, so that a later change of a list cannot affect equality.
  const copies = given.map(([name, value]) => [name, Array.isArray(value) ? [...value] : value] as const)
  return { ...MERGING_DEFAULTS, ...Object.fromEntries(copies) }
}

function isValid(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return name !== 'keepQueryParameters'
  if (!PATTERNS.has(name) || !Array.isArray(value)) return false
  return value.every((item) => typeof item === 'string' || item instanceof RegExp)
}

function identity(options: Merging): string {
  // The order of a list does not matter, but `'/a/'` and `/a/` differ.
  const spell = (patterns: readonly unknown[]): readonly string[] =>
    patterns.map((pattern) => (pattern instanceof RegExp ? String(pattern) : JSON.stringify(pattern))).sort()
  const entries = Object.entries(options).map(([name, value]) =>
    JSON.stringify([name, Array.isArray(value) ? spell(value) : value]),
  )
  return hash('sha256', entries.sort().join()).slice(0, 8)
}

/** The name of a query parameter (or of a file), or a pattern for it. */
type NamePattern = string | RegExp

/** The parameters that are kept. The names are those of normalize-url. */
export interface ParameterFilter {
  readonly keepQueryParameters?: readonly NamePattern[] | undefined
  readonly removeQueryParameters?: boolean | readonly NamePattern[] | undefined
}

/**
 * Removes the query parameters that a filter excludes. The others stay as they are written. It takes linear time.
 * normalize-url removes them one at a time from `URLSearchParams`, and took 18 seconds for 177 KiB of them.
 *
 * @param href normalized by `safeUrl`
 * @example
 * withoutParameters('http://example.com/?b=1&c=2', { removeQueryParameters: ['b'] }) // 'http://example.com/?c=2'
 */
export function withoutParameters(
  href: string,
  { keepQueryParameters: keep, removeQueryParameters: remove }: ParameterFilter,
): string {
  const [, start = '', query, fragment = ''] = /^([^?#]*)(?:\?([^#]*))?(.*)$/su.exec(href) ?? []
  const keepsAll = keep === undefined && remove !== true && !(Array.isArray(remove) && remove.length > 0)
  if (query === undefined || keepsAll) return href
  const left = query.split('&').filter((parameter) => {
    const [name = ''] = new URLSearchParams(parameter).keys()
    if (keep !== undefined) return matches(name, keep)
    return Array.isArray(remove) && !matches(name, remove)
  })
  return `${start}${left.length === 0 ? '' : `?${left.join('&')}`}${fragment}`
}

function matches(name: string, patterns: readonly NamePattern[]): boolean {
  // `search` ignores `g`, `y` and lastIndex.
  return patterns.some((pattern) => (typeof pattern === 'string' ? pattern === name : name.search(pattern) !== -1))
}
