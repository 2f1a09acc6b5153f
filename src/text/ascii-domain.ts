import { domainToASCII, domainToUnicode } from 'node:url'

/** DNS allows 253 characters, or 254 with the dot of the root. */
export const MAX_DOMAIN_CHARACTERS = 256

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

/** In a decoded label: what could not be decoded, or what one of the engines takes for that. */
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
export function isInternational(domain: string): boolean {
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
