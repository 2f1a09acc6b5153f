import { domainToASCII, domainToUnicode } from 'node:url'
import { isWellFormed, Refusal } from './normalizer'

/** Requires the scheme and `//` as they are: `new URL` also accepts `http:a`, `http:/a`, `http:\\a` and `ht\ntp://a`. */
const HTTP = /^[\0-\x20]*https?:\/\//i

/** User information, host and port, up to the first delimiter. Slashes before it do not count. */
const AUTHORITY = /^[\0-\x20]*https?:[/\\\t\n\r]*([^/\\?#]*)/i

/** A triplet in another than its normal spelling: with a digit in lower case, or for an unreserved character. */
const TRIPLET = /%(?:[\dA-F][a-f]|[a-f][\dA-Fa-f]|2[DE]|3\d|[46][1-9A-F]|5[\dAF]|7[\dAE])/g
const HEX_DIGIT = /^[0-9a-f]$/i

/** A `%`, or a `%` and a digit, right before a triplet. That `%` begins no triplet of its own. */
const STRAY = /%[0-9a-f]?$/i

/** A dot segment in the path of an href. A host that looks like one does no harm. */
const DOT_SEGMENT = /^[^?#]*?\/\.\.?(?:[/?#]|$)/

/** Maps every triplet in every spelling to its unreserved character, or to itself in upper case. */
const NORMAL_TRIPLETS: ReadonlyMap<string, string> = new Map(
  Array.from('0123456789abcdefABCDEF').flatMap((high, _, digits) =>
    digits.map((low) => {
      const character = String.fromCodePoint(Number.parseInt(high + low, 16))
      return [`%${high}${low}`, /[\w.~-]/.test(character) ? character : `%${high}${low}`.toUpperCase()]
    }),
  ),
)

/**
 * Merges only URLs that RFC 3986 sections 6.2.2 and 6.2.3 or the WHATWG URL standard define as equivalent, for http and
 * https; `url()` lists them. It takes linear time, with the same result on every supported version of Node.js.
 *
 * @throws Refusal if the text is not well formed or not a valid http or https URL, or if its host is too long or
 * differs between versions of Node.js.
 * @example
 * safeUrl('HTTP://Example.com:80/a/../%7eb') // 'http://example.com/~b'
 */
export function safeUrl(text: string): string {
  if (isNormalUrl(text)) return text
  return safeUrlOfAny(text)
}

/** Does the same as `safeUrl`, without the fast path for texts that are already normal. */
export function safeUrlOfAny(text: string): string {
  if (!isWellFormed(text)) throw new Refusal('it contains a lone surrogate')
  if (!HTTP.test(text)) throw new Refusal('it is not an http or https URL')
  // One pass over the whole href covers each of its parts. The host of an href has no `%` (a forbidden domain code
  // point), and no delimiter of parts is a hex digit, so no triplet spans two parts. The accessors of URL do not
  // suffice: `search` and `hash` are '' for both `x` and `x?`. Decoding creates no dot segments, because `new URL` also
  // removes the spelling `%2e`.
  const href = parsedHref(withAsciiHost(text))
  // Carets before the query are encoded, as in Node.js 24. Versions 20 and 22 keep them.
  const encoded = href.includes('^') ? href.replace(/^[^?#]*/, (start) => start.replaceAll('^', '%5E')) : href
  return encoded.replace(TRIPLET, normalTriplet)
}

/** Does not use URL.canParse, because Node.js 20 refuses `http://é` once V8 has optimized the call. */
function parsedHref(text: string): string {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    // There is no cause, because the TypeError contains the text in its property `input`.
    throw new Refusal('it is not a valid URL')
  }
  if (url.hostname.length > MAX_DOMAIN_CHARACTERS) {
    throw new Refusal(`its host has more than ${MAX_DOMAIN_CHARACTERS} characters`)
  }
  if (!DOT_SEGMENT.test(url.href)) return url.href
  // Node.js 20 keeps the dot segments of `/a/.b/../c` (https://github.com/ada-url/ada/issues/935) unless the path has a
  // `%`. So their dots are spelled `%2e`, which the standard treats as equal. Other engines leave no dot segments.
  const path = /^[^?#]*/.exec(url.href)?.[0] ?? ''
  return new URL(path.replace(/\/\.(?=\.?(?:\/|$))/g, '/%2e') + url.href.slice(path.length)).href
}

/** Returns the text with its host in ASCII if an engine's version could change it, or else unchanged. */
function withAsciiHost(text: string): string {
  const [head = '', given = ''] = AUTHORITY.exec(text) ?? []
  // `new URL` does both too.
  const authority = given.replace(/[\t\n\r]/g, '')
  const end = head.length === text.length ? trimmedLength(authority) : authority.length
  const start = authority.lastIndexOf('@') + 1
  const [host = ''] = authority.slice(start, end).split(':', 1)
  if (!(host.includes('%') || isInternational(host))) return text
  const ascii = asciiDomain(decode(host))
  if (ascii === undefined) {
    throw new Refusal('its host is not valid, or not the same in every version of Node.js')
  }
  const before = head.slice(0, head.length - given.length) + authority.slice(0, start)
  return before + ascii + authority.slice(start + host.length, end) + text.slice(head.length)
}

/** Returns the length without C0 controls and spaces at the end. A regular expression would take quadratic time. */
function trimmedLength(text: string): number {
  let length = text.length
  while (length > 0 && text.charCodeAt(length - 1) <= 0x20) length--
  return length
}

/** Returns an empty string, which is not a host, if the octets are not UTF-8. */
function decode(host: string): string {
  try {
    return decodeURIComponent(host)
  } catch {
    return ''
  }
}

function normalTriplet(triplet: string, offset: number, href: string): string {
  const normal = NORMAL_TRIPLETS.get(triplet) ?? triplet
  // A decoded digit must not complete a separate `%`. Otherwise `%%341` would become `%41`, which is `A`, and `%3%34`
  // would become `%34`, which is `4`.
  const completes = HEX_DIGIT.test(normal) && STRAY.test(href.slice(Math.max(0, offset - 2), offset))
  return completes ? triplet : normal
}

/** Longer URLs are rare, and a regular expression with alternatives in a loop stores a state for each character. */
const MAX_LENGTH = 4_096

/** A lookahead: the rest of a host ends with a `/`, within the limit of 256 characters for a host. */
const HOST_LENGTH = String.raw`(?=[^/]{1,256}/)`

/**
 * Letters in lower case, digits, and single dots and hyphens between them, without `xn--`. The part after the last of
 * these begins with a letter. Otherwise it might be a number, and the host an IP address.
 */
const HOST = String.raw`(?:[a-z\d]+[.-])*[a-z][a-z\d]*`

/** A triplet in its normal spelling: in upper case, and not for an unreserved character. */
const NORMAL_TRIPLET = String.raw`%(?!2[DE]|3\d|[46][1-9A-F]|5[\dAF]|7[\dAE])[\dA-F]{2}`

/** A subset of the ASCII characters that no parser changes, for each part. `'` is encoded in a query. */
const IN_SEGMENT = String.raw`[\w~!$&'()*+,;=:@-]`
const IN_QUERY = String.raw`[\w.~!$&()*+,;=:@/?-]`
const IN_FRAGMENT = String.raw`[\w.~!$&'()*+,;=:@/?-]`

/** A segment does not begin with a dot, so it is not a dot segment. */
const SEGMENT = `(?:${IN_SEGMENT}|${NORMAL_TRIPLET})(?:[.]|${IN_SEGMENT}|${NORMAL_TRIPLET})*`

const NORMAL = new RegExp(
  [
    `^https?://${HOST_LENGTH}${HOST}`,
    `(?:/(?:${SEGMENT})?)+`,
    `(?:\\?(?:${IN_QUERY}|${NORMAL_TRIPLET})*)?`,
    `(?:#(?:${IN_FRAGMENT}|${NORMAL_TRIPLET})*)?$`,
  ].join(''),
)

/**
 * True only for a text that `safeUrl` returns unchanged. This test takes a sixth of the time. It recognizes all but a
 * few in a thousand of the real URLs that are normal.
 */
export const isNormalUrl = (text: string): boolean => text.length <= MAX_LENGTH && NORMAL.test(text)

/** DNS allows 253 characters, or 254 with the dot of the root. */
const MAX_DOMAIN_CHARACTERS = 256

/** Normalizing may turn four characters into one. Longer domains are refused, because Punycode takes quadratic time. */
const MAX_GIVEN_CHARACTERS = 4 * MAX_DOMAIN_CHARACTERS

/** Hebrew and Arabic letters, and the marks on them. */
const RIGHT_TO_LEFT = String.raw`\u05D0-\u05EA\u0620-\u064A\u066E\u066F\u0671-\u06D3\u06D5\u06FA-\u06FC\u06FF\u0750-\u077F`
const MARK = String.raw`\u05B0-\u05BD\u064B-\u065F\u0670`

/**
 * The characters that every supported version of Node.js treats alike: blocks that Unicode no longer changes, without
 * the few characters in them that it did change.
 */
const STABLE = [
  '!"$&-.0-9;=A-Z_a-z{}~`', // ASCII that a host can hold
  String.raw`\u00C0-\u02AF\u0300-\u0344\u0346-\u03F1\u03F3-\u058F`, // Latin, marks, Greek, Cyrillic, Armenian
  RIGHT_TO_LEFT,
  MARK,
  String.raw`\u0900-\u0C5B\u0C5D-\u0CDB\u0CDD-\u0EFF`, // Devanagari to Lao
  String.raw`\u1000-\u109F\u10D0-\u115E\u1161-\u137F\u1780-\u17B3\u17B6-\u17FF`, // Myanmar to Khmer
  String.raw`\u1E00-\u1FFF`, // Vietnamese, polytonic Greek
  String.raw`\u2600-\u27BF\uFE0F\u{1F300}-\u{1F6D7}\u{1F900}-\u{1F9FF}`, // emoji
  String.raw`\u3001-\u30FF\u3400-\u4DBF\u4E00-\u9FFF\uAC00-\uD7A3\uFF01-\uFF9F`, // Kana, Han, Hangul, full width
].join('')

const STABLE_DOMAIN = new RegExp(`^[${STABLE}]*$`, 'u')
const HAS_RIGHT_TO_LEFT = new RegExp(`[${RIGHT_TO_LEFT}]`, 'u')

/** A part of RFC 5893 section 2 that only the newest engines enforce. */
const BIDI_LABEL = new RegExp(
  `^(?:[${RIGHT_TO_LEFT}](?:[${RIGHT_TO_LEFT}${MARK}-]*[${RIGHT_TO_LEFT}${MARK}])?|[a-z](?:[a-z0-9-]*[a-z0-9])?)?$`,
  'u',
)

/** Matches the part of a decoded label that was not decoded, or that one of the engines treats so. */
const UNDECODED_LABEL = /^xn--|xn--.*[^\0-\x7f]|[^\0-\x7f].*xn--/

/**
 * Converts a domain to lower case and ASCII (IDNA) as in the URL standard. Returns undefined if it is not valid, or if
 * Node.js 20, 22 and 24 would not all agree. Their tables depend on Unicode: `ẞ.de` is `ss.de` in Node.js 22 and
 * `xn--zca.de` in Node.js 24, which is the result here. So this maps and composes the characters itself and leaves only
 * Punycode to the engine. It accepts only a result that decodes to the same characters.
 *
 * @param domain without `%xx`, brackets or a port
 * @example
 * asciiDomain('Bücher.example') // 'xn--bcher-kva.example'
 */
export function asciiDomain(domain: string): string | undefined {
  if (domain.length > MAX_GIVEN_CHARACTERS || !STABLE_DOMAIN.test(domain)) return undefined
  const mapped = map(domain)
  // Full-width forms become delimiters, at which the engine would stop reading.
  if (mapped.length > MAX_DOMAIN_CHARACTERS || !STABLE_DOMAIN.test(mapped)) return undefined
  const ascii = domainToASCII(mapped)
  if (ascii === '' || ascii.length > MAX_DOMAIN_CHARACTERS) return undefined
  return isInternational(mapped) && !decodesAlike(ascii) ? undefined : ascii
}

/** Whether an engine's version can change the result: the domain is not ASCII, or encodes a domain that is not. */
function isInternational(domain: string): boolean {
  return /[^\0-\x7f]|xn--/i.test(domain)
}

/** Applies the standard's mapping of the stable characters. It maps each one separately, so no last `Σ` becomes `ς`. */
function map(domain: string): string {
  const characters = Array.from(domain.normalize('NFKC').replaceAll('\uFE0F', ''), (one) => one.toLowerCase())
  return characters.join('').normalize('NFC')
}

function decodesAlike(ascii: string): boolean {
  const unicode = domainToUnicode(ascii)
  const labels = unicode.split('.')
  return (
    STABLE_DOMAIN.test(unicode) &&
    map(unicode) === unicode &&
    domainToASCII(unicode) === ascii &&
    !ascii.includes('xn--xn--') &&
    !labels.some((label) => UNDECODED_LABEL.test(label)) &&
    (!HAS_RIGHT_TO_LEFT.test(unicode) || labels.every((label) => BIDI_LABEL.test(label)))
  )
}
