import { createHash } from 'node:crypto'
import { url } from '../text/url'
import { normalizeText } from '../text/normalizer'

/** A URL in the columns of `Url`. */
export interface UrlParts {
  readonly scheme: string
  /** As in the URL: IPv6 in brackets, international names in ASCII. At most 256 characters. */
  readonly host: string
  /** 0 for the scheme's default. */
  readonly port: number
  /** Begins with `/`. */
  readonly path: string
  /** Without its `?`; `''` for `x?`, null where there is none. */
  readonly query: string | null
  /** Without its `#`; `''` for `x#`, null where there is none. */
  readonly fragment: string | null
}

const HOST_LIMIT_CHARACTERS = 256

/** RFC 3986, appendix B, with the authority taken apart; it is applied to what `url()` has normalized. */
const NORMALIZED = /^(https?):\/\/(?:([^/?#]*)@)?(\[[^\]]*\]|[^/?#:]*)(?::(\d+))?(\/[^?#]*)(?:\?([^#]*))?(?:#(.*))?$/su

const normalizer = url()

/**
 * The parts of a normalized http or https URL, or null for anything else: other schemes, no host, and what the columns
 * could not tell apart (user information, port 0, a host of more than 256 characters).
 */
export function parseUrl(text: unknown): UrlParts | null {
  const href = normalized(text)
  const match = href === null ? null : NORMALIZED.exec(href)
  if (!match) return null
  const [, scheme = '', user, host = '', port, path = '', query, fragment] = match
  if (user !== undefined || port === '0' || host === '' || host.length > HOST_LIMIT_CHARACTERS) return null
  return { scheme, host, port: Number(port ?? 0), path, query: query ?? null, fragment: fragment ?? null }
}

function normalized(text: unknown): string | null {
  if (typeof text !== 'string') return null
  try {
    return normalizeText(normalizer, 'url', text)
  } catch {
    return null
  }
}

/** Path, `?query`, `#fragment`: the text that is hashed. */
export function pathComponent({ path, query, fragment }: Pick<UrlParts, 'path' | 'query' | 'fragment'>): string {
  return `${path}${query === null ? '' : `?${query}`}${fragment === null ? '' : `#${fragment}`}`
}

/** MD5 of the path component, 32 hex digits. */
export function pathComponentHash(parts: Pick<UrlParts, 'path' | 'query' | 'fragment'>): string {
  return createHash('md5').update(pathComponent(parts), 'utf8').digest('hex')
}

export function formatUrl(parts: UrlParts): string {
  const port = parts.port === 0 ? '' : `:${parts.port}`
  return `${parts.scheme}://${parts.host}${port}${pathComponent(parts)}`
}
