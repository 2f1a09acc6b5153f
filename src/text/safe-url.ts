import { domainToASCII, domainToUnicode } from 'node:url'
import { isWellFormed, Refusal } from './normalizer'

/** Only what names its scheme: `new URL` would also take `http:a` and `ht\ntp://a`. It strips C0 controls and spaces. */
const HTTP = /^[\0-\x20]*https?:\/\//i

/** User information, host and port: up to the first delimiter, slashes before it do not count. */
const AUTHORITY = /^[\0-\x20]*https?:[/\\\t\n\r]*([^/\\?#]*)/i

/** A triplet that is not in its normal spelling: with a digit in lower case, or for an unreserved character. */
const TRIPLET = /%(?:[\dA-F][a-f]|[a-f][\dA-Fa-f]|2[DE]|3\d|[46][1-9A-F]|5[\dAF]|7[\dAE])/g
const HEX_DIGIT = /^[0-9a-f]$/i

/** A `%`, or a `%` and a digit, right before a triplet: that `%` begins no triplet of its own. */
const STRAY = /%[0-9a-f]?$/i

/** A dot segment in the path of an href (or a host that looks like one, which does no harm). */
const DOT_SEGMENT = /^[^?#]*?\/\.\.?(?:[/?#]|$)/

/** Every triplet in every spelling → the unreserved character it stands for, or itself in upper case. */
const NORMAL_TRIPLETS: ReadonlyMap<string, string> = new Map(
  Array.from('0123456789abcdefABCDEF').flatMap((high, _, digits) =>
    digits.map((low) => {
      const character = String.fromCodePoint(Number.parseInt(high + low, 16))
      return [`%${high}${low}`, /[\w.~-]/.test(character) ? character : `%${high}${low}`.toUpperCase()]
    }),
  ),
)

/**
 * Merges http and https URLs that RFC 3986 sections 6.2.2 and 6.2.3 or the WHATWG URL standard call equivalent, and
 * nothing else; `url()` lists them. Takes linear time, and gives the same on every supported version of Node.js.
 *
 * @throws Refusal if the text is not well formed, or no valid http or https URL, or if its host is too long or not the
 * same in every version of Node.js.
 * @example
 * safeUrl('HTTP://Example.com:80/a/../%7eb') // 'http://example.com/~b'
 */
export function safeUrl(text: string): string {
  if (isNormalUrl(text)) return text
  return safeUrlOfAny(text)
}

/** Does what `safeUrl` does, without the fast path for texts that are normal already. */
export function safeUrlOfAny(text: string): string {
  if (!isWellFormed(text)) throw new Refusal('it contains a lone surrogate')
  if (!HTTP.test(text)) throw new Refusal('it is not an http or https URL')
  // One pass over the whole href is a pass over each of its parts: the host of an href has no `%` (a forbidden domain
  // code point), and no delimiter of parts is a hex digit, so no triplet reaches over one. The accessors of URL would
  // not do: `search` and `hash` are '' for both `x` and `x?`. Decoding makes no dot segments: `new URL` removes those
  // spelt `%2e` too.
  const href = parsedHref(withAsciiHost(text))
  // Carets are encoded up to the query, as Node.js 24 does; 20 and 22 leave them.
  const encoded = href.includes('^') ? href.replace(/^[^?#]*/, (start) => start.replaceAll('^', '%5E')) : href
  return encoded.replace(TRIPLET, normalTriplet)
}

/** Does not use URL.canParse: in Node.js 20 it refuses `http://é` once V8 has optimized the call. */
function parsedHref(text: string): string {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    // No cause: the TypeError holds the text in its property `input`.
    throw new Refusal('it is not a valid URL')
  }
  if (url.hostname.length > MAX_DOMAIN_CHARACTERS) {
    throw new Refusal(`its host has more than ${MAX_DOMAIN_CHARACTERS} characters`)
  }
  return DOT_SEGMENT.test(url.href) ? withoutDotSegments(url.href) : url.href
}

/** The text with its host in ASCII, if an engine's version could make a difference to it; else as it is. */
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

/**
 * The length without C0 controls and spaces at the end. Computed by hand, because a regular expression would take
 * quadratic time.
 */
function trimmedLength(text: string): number {
  let length = text.length
  while (length > 0 && text.charCodeAt(length - 1) <= 0x20) length--
  return length
}

/** Empty, which no host is, if the octets are no UTF-8. */
function decode(host: string): string {
  try {
    return decodeURIComponent(host)
  } catch {
    return ''
  }
}

/**
 * For the parser of Node.js 20, which keeps the dot segments of `/a/.b/../c` (https://github.com/ada-url/ada/issues/935)
 * unless the path holds a `%`. So spell their dots `%2e`, which the standard calls the same. Other engines leave none.
 */
function withoutDotSegments(href: string): string {
  const path = /^[^?#]*/.exec(href)?.[0] ?? ''
  return new URL(path.replace(/\/\.(?=\.?(?:\/|$))/g, '/%2e') + href.slice(path.length)).href
}

function normalTriplet(triplet: string, offset: number, href: string): string {
  const normal = NORMAL_TRIPLETS.get(triplet) ?? triplet
  // A decoded digit must not complete a `%` that stands alone: `%%341` would become `%41`, which is `A`, and `%3%34`
  // would become `%34`, which is `4`.
  const completes = HEX_DIGIT.test(normal) && STRAY.test(href.slice(Math.max(0, offset - 2), offset))
  return completes ? triplet : normal
}

/** Longer URLs are rare, and a regular expression with alternatives in a loop keeps a note of each of their characters. */
const MAX_LENGTH = 4_096

/** For the rest of a host, a `/` within: 256 characters are the most that one may have. */
const HOST_LENGTH = String.raw`(?=[^/]{1,256}/)`

/**
 * Letters in lower case, digits, and single dots and hyphens between them: no `xn--`. What follows the last of these begins
 * with a letter, or it might be a number, and so the host an IP address.
 */
const HOST = String.raw`(?:[a-z\d]+[.-])*[a-z][a-z\d]*`

/** A triplet in its normal spelling: in upper case, and not for an unreserved character. */
const NORMAL_TRIPLET = String.raw`%(?!2[DE]|3\d|[46][1-9A-F]|5[\dAF]|7[\dAE])[\dA-F]{2}`

/** What every parser leaves alone in each part, of ASCII; less than there is. `'` is encoded in a query. */
const IN_SEGMENT = String.raw`[\w~!$&'()*+,;=:@-]`
const IN_QUERY = String.raw`[\w.~!$&()*+,;=:@/?-]`
const IN_FRAGMENT = String.raw`[\w.~!$&'()*+,;=:@/?-]`

/** None begins with a dot: no dot segments. */
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
 * True only for a text that `safeUrl` gives back as it is: a sixth of the time that it takes to find that out. Of real
 * URLs that are normal, all but a few in a thousand are recognized.
 */
export const isNormalUrl = (text: string): boolean => text.length <= MAX_LENGTH && NORMAL.test(text)

/** DNS allows 253 characters, or 254 with the dot of the root. */
const MAX_DOMAIN_CHARACTERS = 256

/** Normalizing may compose four characters into one. What is longer is refused unseen, for Punycode takes quadratic time. */
const MAX_GIVEN_CHARACTERS = 4 * MAX_DOMAIN_CHARACTERS

/** Hebrew and Arabic letters, and the marks on them. */
const RIGHT_TO_LEFT = String.raw`\u05D0-\u05EA\u0620-\u064A\u066E\u066F\u0671-\u06D3\u06D5\u06FA-\u06FC\u06FF\u0750-\u077F`
const MARK = String.raw`\u05B0-\u05BD\u064B-\u065F\u0670`

/**
 * The characters that every supported version of Node.js treats alike; blocks that Unicode no longer changes, without the
 * few characters in them that it did change.
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

/** A part of RFC 5893 section 2, which only the newest engines enforce. */
const BIDI_LABEL = new RegExp(
  `^(?:[${RIGHT_TO_LEFT}](?:[${RIGHT_TO_LEFT}${MARK}-]*[${RIGHT_TO_LEFT}${MARK}])?|[a-z](?:[a-z0-9-]*[a-z0-9])?)?$`,
  'u',
)

/** Matches what in a decoded label could not be decoded, or what one of the engines takes for that. */
const UNDECODED_LABEL = /^xn--|xn--.*[^\0-\x7f]|[^\0-\x7f].*xn--/

/**
 * A domain in lower case and ASCII (IDNA): what the URL standard makes of it, or undefined where it is not valid or where
 * Node.js 20, 22 and 24 would not all agree. Their tables move with Unicode: `ẞ.de` is `ss.de` to Node.js 22 and
 * `xn--zca.de` to Node.js 24, which is what this gives everywhere. So it maps and composes the characters itself, leaves
 * only Punycode to the engine, and takes only what decodes to the very characters it came from.
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

/** Whether an engine's version can make a difference: a domain that is not ASCII, or encodes one that is not. */
function isInternational(domain: string): boolean {
  return /[^\0-\x7f]|xn--/i.test(domain)
}

/** What the standard's mapping table says of the stable characters. Each by itself: no `ς` is made of the last `Σ`. */
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
