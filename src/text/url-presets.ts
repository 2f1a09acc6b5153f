import { DeclarationError } from '../errors'
import { type CanonicalUrlOptions, canonicalUrl } from './canonical-url'
import { type Normalizer, normalizer } from './normalizer'
import { safeUrl } from './safe-url'

const safe = normalizer('url', 1, safeUrl)

/**
 * An http or https URL.
 *
 * - `safe`, the default, merges only what RFC 3986 sections 6.2.2 and 6.2.3 or the WHATWG URL standard call equivalent:
 *   case of scheme and host, IDNA, spellings of IP addresses (`127.1`), default port, dot segments, empty path, empty
 *   user information, `\` for `/`, tabs and line ends within, C0 controls and spaces around, characters that the standard
 *   always encodes, the case of `%xx`, and `%xx` for unreserved characters (ALPHA, DIGIT, `-._~`). It leaves alone:
 *   `www.`, trailing slash or dot, `//`, the order of parameters, `+`, an empty `?` or `#`, fragment and user
 *   information. It takes linear time.
 * - `canonical` merges **different resources** that often show the same page; options say which. With the defaults:
 *   `www.` and none; a `/` at the end of the path, of the query or of the fragmentless URL (`?k=a/` and `?k=a`) and none;
 *   `utm_…` parameters; user information; text fragments, and an empty `#`; and since it sorts the query, parameters in
 *   any order, `+` and `%20`, escaped and plain characters but for `%xx` of reserved ones, line ends and tabs (`%0A`) and
 *   none, bytes that are not UTF-8 and U+FFFD. Always, because of normalize-url: `/a//b` and `/a/b`; `a.com.` and `a.com`;
 *   an empty `?` or parameter (`&&`) and none; `+` and `%20` in parameter names; in paths, `%0A` and none, escapes of
 *   escapes (`%2541`, `%41` and `A`), and escaped and plain characters that are not `# $ & + , / : ; = ? @` (`%21` and
 *   `!`, `%5B` and `[`, `%7C` and `|`). It is applied until nothing changes, and refuses more than `maxLength`
 *   characters, by default 65,536, since normalize-url is not linear.
 *
 * Both refuse what names no http or https scheme, what `new URL` refuses, lone surrogates, and a host of more than 256
 * characters; `canonical` also what normalize-url refuses and what still changes after 10 rounds.
 *
 * What they give does not depend on the version of Node.js. For that, `^` in a path is always `%5E`, and a host outside
 * ASCII (or in Punycode, `xn--`) is refused unless every label consists of characters that Node.js 20, 22 and 24 treat
 * alike: those of Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, the scripts of India, Thai, Lao, Tibetan, Burmese,
 * Georgian, Ethiopic, Khmer, Hangul, Kana and Han, and emoji. Labels that are written from right to left hold nothing
 * else, and no digits, and beside them only labels of ASCII letters, digits and hyphens that begin with a letter.
 *
 * @throws DeclarationError for an unknown preset, or for options that make no sense.
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
