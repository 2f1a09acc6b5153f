import { createHash } from 'node:crypto'
import { TextRejectedError } from '../errors'
import { url } from '../text/url-presets'
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

/** What errors call the text. */
const PROPERTY = 'url'

/**
 * The parts of a normalized http or https URL, or null for anything else: other schemes, no host, and what the columns
 * could not tell apart (user information, port 0, a host of more than 256 characters).
 */
export function parseUrl(text: unknown): UrlParts | null {
  try {
    return urlParts(text)
  } catch (error) {
    if (error instanceof TextRejectedError) return null
    throw error
  }
}

/**
 * As `parseUrl`, with a reason.
 *
 * @throws TextRejectedError
 */
export function urlParts(text: unknown): UrlParts {
  const match = NORMALIZED.exec(normalizeText(normalizer, PROPERTY, text))
  if (!match) return refuse('it is no URL with a host')
  const [, scheme = '', user, host = '', port, path = '', query, fragment] = match
  if (host === '') return refuse('it has no host')
  if (host.length > HOST_LIMIT_CHARACTERS) return refuse(`its host has more than ${HOST_LIMIT_CHARACTERS} characters`)
  if (user !== undefined) return refuse('it has user information')
  if (port === '0') return refuse('its port is 0')
  return { scheme, host, port: Number(port ?? 0), path, query: query ?? null, fragment: fragment ?? null }
}

function refuse(reason: string): never {
  throw new TextRejectedError({ property: PROPERTY, reason })
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
