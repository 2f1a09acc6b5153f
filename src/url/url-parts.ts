import { hash } from 'node:crypto'
import { DeclarationError, TextRejectedError } from '../errors'
import { normalizeText } from '../text/normalizer'
import { url } from '../text/url'

/** The parts of a URL, as in the columns of `Url`. */
export interface UrlParts {
  /** `http` or `https`. */
  readonly scheme: string
  /** The host of the URL: IPv6 in brackets, international names in ASCII. At most 256 characters. */
  readonly host: string
  /** 0 means the scheme's default. */
  readonly port: number
  /** Begins with `/`. */
  readonly path: string
  /** Without its `?`: `''` for `x?`, null if there is none. */
  readonly query: string | null
  /** Without its `#`: `''` for `x#`, null if there is none. */
  readonly fragment: string | null
}

type PathParts = Pick<UrlParts, 'path' | 'query' | 'fragment'>

/** RFC 3986, appendix B, with the authority split. It is applied to a URL that `url()` has normalized. */
const NORMALIZED = /^(https?):\/\/(?:([^/?#]*)@)?(\[[^\]]*\]|[^/?#:]*)(?::(\d+))?(\/[^?#]*)(?:\?([^#]*))?(?:#(.*))?$/su

const urlNormalizer = url()

/** The property that errors name for a text that is not yet split into parts. */
const WHOLE_URL = 'url'

/** The syntax of each part before it is normalized, so that no part extends into the next. */
const SHAPES: Readonly<Record<Exclude<keyof UrlParts, 'port'>, { readonly shape: RegExp; readonly reason: string }>> = {
  scheme: { shape: /^https?$/i, reason: 'it is neither http nor https' },
  host: { shape: /^(?:\[[^\]]*\]|[^:[\]/\\?#@]+)$/, reason: 'it is empty or has one of the characters : / \\ ? # @' },
  path: { shape: /^(?:[/\\][^?#]*)?$/, reason: 'it does not begin with "/", or has a "?" or "#"' },
  query: { shape: /^[^#]*$/, reason: 'it has a "#"' },
  fragment: { shape: /^/, reason: '' },
}

const MAX_PORT = 65_535

/**
 * Returns the normalized parts of an http or https URL. Returns null for anything else: other schemes, no host, and
 * URLs that the columns of `Url` could not distinguish (user information, port 0).
 *
 * @example
 * parseUrl('HTTP://Example.com:80/a/../b?q')
 * // { scheme: 'http', host: 'example.com', port: 0, path: '/b', query: 'q', fragment: null }
 */
export function parseUrl(text: unknown): UrlParts | null {
  return partsOrNull(text)
}

/** The beginning of a normalized URL with user information. */
const USER_INFORMATION = /^(https?:\/\/)[^/?#]*@/su

const normalized = (text: unknown): string =>
  normalizeText(urlNormalizer, WHOLE_URL, text instanceof URL ? text.href : text)

/** The treatment of a URL with a user name or a password. */
export type UserInformation = 'refuse' | 'strip'

export function partsOrNull(text: unknown, userInformation?: UserInformation): UrlParts | null {
  try {
    return splitUrl(userInformation === 'strip' ? normalized(text).replace(USER_INFORMATION, '$1') : text)
  } catch (error) {
    if (error instanceof TextRejectedError) return null
    throw error
  }
}

/**
 * Does the same as `parseUrl`, but reports why a text is refused.
 *
 * @throws TextRejectedError
 * @example
 * splitUrl('ftp://example.com/') // throws: it is not an http or https URL
 */
export function splitUrl(text: unknown): UrlParts {
  const match = NORMALIZED.exec(normalized(text))
  const [, scheme = '', user, host = '', port, path = '', query, fragment] = match ?? []
  if (host === '') return refusePart(WHOLE_URL, 'it has no host')
  if (user !== undefined) return refusePart(WHOLE_URL, 'it has user information')
  if (port === '0') return refusePart(WHOLE_URL, 'its port is 0')
  return { scheme, host, port: Number(port ?? 0), path, query: query ?? null, fragment: fragment ?? null }
}

/**
 * Normalizes parts as the URL that they form: `{ scheme: 'HTTP', host: 'A.example', port: 80, path: '/b/..' }` becomes
 * the parts of `http://a.example/`. Without a scheme, a host or a path, it only sets the port. The code that needs them
 * reports the missing part.
 *
 * @throws TextRejectedError that names the part with a wrong syntax
 * @example
 * normalizeParts({ scheme: 'HTTP', host: 'EXAMPLE.com', port: 80, path: '/x' })
 * // { scheme: 'http', host: 'example.com', port: 0, path: '/x', query: null, fragment: null }
 */
export function normalizeParts(given: { readonly [Part in keyof UrlParts]?: unknown }): Partial<UrlParts> {
  if (IS_NORMAL in given) return given as UrlParts
  const port = given.port ?? 0
  if (typeof port !== 'number' || !Number.isInteger(port) || port < 0 || port > MAX_PORT) {
    return refusePart('port', `it is not a whole number from 0 to ${MAX_PORT}`)
  }
  const scheme = partOf(given, 'scheme')
  const host = partOf(given, 'host')
  const path = partOf(given, 'path')
  if (scheme === null || host === null || path === null) return { port }
  const [query, fragment] = [partOf(given, 'query'), partOf(given, 'fragment')]
  return splitUrl(formatUrl({ scheme, host, port, path, query, fragment }))
}

const IS_NORMAL = Symbol('normal')

/** Marks the result of `splitUrl`, so that it is not normalized again. No other code may get or change it. */
export function markNormal(parts: UrlParts): UrlParts {
  ;(parts as { [IS_NORMAL]?: true })[IS_NORMAL] = true
  return parts
}

function partOf(given: { readonly [Part in keyof UrlParts]?: unknown }, part: keyof typeof SHAPES): string | null {
  const value = given[part] ?? null
  if (value === null) return null
  if (typeof value !== 'string') return refusePart(part, `expected a string, got ${typeof value}`)
  return SHAPES[part].shape.test(value) ? value : refusePart(part, SHAPES[part].reason)
}

function refusePart(property: string, reason: string): never {
  throw new TextRejectedError({ property, reason })
}

/**
 * Returns path, `?query` and `#fragment`: the text that is hashed.
 *
 * @throws DeclarationError if one of them is undefined
 */
export function pathComponent(parts: PathParts): string {
  requireParts(parts, ['path', 'query', 'fragment'])
  const { path, query, fragment } = parts
  return `${path}${query === null ? '' : `?${query}`}${fragment === null ? '' : `#${fragment}`}`
}

/** Returns the MD5 of the path component, 32 hex digits. */
export function pathComponentHash(parts: PathParts): string {
  return hash('md5', pathComponent(parts))
}

/**
 * Returns the URL of these parts. It does not normalize them.
 *
 * @throws DeclarationError if a part is undefined, as after a `find` that did not select it
 * @example
 * formatUrl({ scheme: 'http', host: 'a.example', port: 8080, path: '/b', query: '', fragment: null })
 * // 'http://a.example:8080/b?'
 */
export function formatUrl(parts: UrlParts): string {
  requireParts(parts, ['scheme', 'host', 'port'])
  const port = parts.port === 0 ? '' : `:${parts.port}`
  return `${parts.scheme}://${parts.host}${port}${pathComponent(parts)}`
}

/** @throws DeclarationError if one of them is undefined */
function requireParts(parts: Partial<UrlParts>, names: readonly (keyof UrlParts)[]): void {
  const missing = names.filter((name) => (parts as Partial<UrlParts> | null | undefined)?.[name] === undefined)
  if (missing.length === 0) return
  throw new DeclarationError(`This URL was loaded without ${missing.map((name) => `"${name}"`).join(', ')}. Select it.`)
}
