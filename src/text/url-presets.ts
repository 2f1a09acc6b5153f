import { DeclarationError } from '../errors'
import { type CanonicalUrlOptions, canonicalUrl } from './canonical-url'
import { type Normalizer, normalizer } from './normalizer'
import { safeUrl } from './safe-url'

const safe = normalizer('url', 1, safeUrl)

/**
 * An http or https URL.
 *
 * - `safe`, the default, merges only what RFC 3986 sections 6.2.2 and 6.2.3 or the WHATWG URL standard call equivalent:
 *   case of scheme and host, IDNA, spellings of IP addresses (`127.1`), default port, dot segments, empty path, an empty
 *   user info, `\` for `/`, tabs and line ends within, C0 controls and spaces around, characters that the standard
 *   always encodes, the case of `%xx`, and `%xx` for unreserved characters (ALPHA, DIGIT, `-._~`). It leaves alone:
 *   `www.`, trailing slash or dot, `//`, the order of parameters, `+`, an empty `?` or `#`, fragment and user info.
 * - `canonical` merges **different resources** that often show the same page; options say which. With its defaults:
 *   `www.` and none; a trailing slash and none; `utm_…` parameters; user info; text fragments, an empty `#`; and since
 *   it sorts the query, parameters in any order, `+` and `%20`, line ends and tabs (`%0A`) and none, bytes that are no
 *   UTF-8 and U+FFFD. Always, by normalize-url: `/a//b` and `/a/b`; `a.com.` and `a.com`; an empty `?` or parameter
 *   (`&&`) and none; `+` and `%20` in names of parameters; in paths `%0A` and none, and escapes of escapes (`%2541`,
 *   `%41` and `A`). It is applied until it changes nothing.
 *
 * Both refuse what names no http or https scheme, what `new URL` refuses, and lone surrogates; `canonical` also what
 * normalize-url refuses and what still changes after 10 rounds.
 *
 * The engine's IDNA tables move with its version: Node.js 20 makes `ss.com` of `ẞ.com`, later ones `xn--zca.com`.
 *
 * @throws DeclarationError if preset or options are not known.
 */
export function url(preset?: 'safe'): Normalizer
export function url(preset: 'canonical', options?: CanonicalUrlOptions): Normalizer
export function url(preset: 'safe' | 'canonical' = 'safe', options?: CanonicalUrlOptions): Normalizer {
  if (preset === 'canonical') return canonicalUrl(options)
  if (preset !== 'safe') throw new DeclarationError(`url() knows the presets 'safe' and 'canonical'. Pass one of them.`)
  if (options !== undefined) throw new DeclarationError(`Only url('canonical') has options. Leave them out.`)
  return safe
}
