import { Refusal } from './refusal'
import { isWellFormed } from './storable'

/** Only what names its scheme: `new URL` would also take `http:a` and `ht\ntp://a`. It strips C0 controls and spaces. */
const HTTP = /^[\0-\x20]*https?:\/\//i

const TRIPLET = /%[0-9a-f]{2}/gi
const HEX_DIGIT = /^[0-9a-f]$/i

/** A `%`, or a `%` and a digit, right before a triplet: that `%` begins no triplet of its own. */
const STRAY = /%[0-9a-f]?$/i

/** A dot segment in the path of an href (or a host that looks like one, which does no harm). */
const DOT_SEGMENT = /^[^?#]*?\/\.\.?(?:[/?#]|$)/

/** Every triplet in every spelling → the unreserved character it stands for, or itself in upper case. */
const NORMAL_TRIPLETS = normalTriplets()

/**
 * Merges http and https URLs that RFC 3986 sections 6.2.2 and 6.2.3 or the WHATWG URL standard call equivalent, and
 * nothing else; `url()` lists them.
 *
 * @throws Refusal if it is not well formed, no http or https URL, or not valid.
 */
export function safeUrl(text: string): string {
  if (!isWellFormed(text)) throw new Refusal('it contains a lone surrogate')
  if (!HTTP.test(text)) throw new Refusal('it is no http or https URL')
  // One pass over the whole href is a pass over each of its parts: the host of an href has no `%` (a forbidden domain
  // code point), and no delimiter of parts is a hex digit, so no triplet reaches over one. The accessors of URL would
  // not do: `search` and `hash` are '' for both `x` and `x?`. Decoding makes no dot segments: `new URL` removes those
  // spelt `%2e` too.
  return parse(text).replace(TRIPLET, normalTriplet)
}

/** Not by way of URL.canParse: that of Node.js 20 refuses `http://é` once V8 has optimized the call. */
function parse(text: string): string {
  try {
    const { href } = new URL(text)
    return DOT_SEGMENT.test(href) ? withoutDotSegments(href) : href
  } catch {
    // No cause: the TypeError holds the text in its property `input`.
    throw new Refusal('it is no valid URL')
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

function normalTriplets(): ReadonlyMap<string, string> {
  const digits = Array.from('0123456789abcdefABCDEF')
  return new Map(
    digits.flatMap((high) =>
      digits.map((low) => {
        const character = String.fromCodePoint(Number.parseInt(high + low, 16))
        return [`%${high}${low}`, /[\w.~-]/.test(character) ? character : `%${high}${low}`.toUpperCase()]
      }),
    ),
  )
}
