import { DeclarationError } from '../errors'
import { asciiDomain } from './safe-url'
import { type Normalizer, normalizer, Refusal } from './normalizer'

/** ICU sorts a run of marks in quadratic time. Unicode's own stream-safe format allows 30 (UAX #15). */
const MAX_MARKS = 128

/**
 * Unicode Normalization Form C (UAX #15): `e` + U+0301 and `é` become one text. Assigned code points keep their form in
 * every later version of Unicode. An older Node.js does not change code points that Unicode 17 or later assigns.
 *
 * More than 128 combining marks in a row, before or after, are refused. It takes linear time.
 *
 * @example
 * nfc().normalize('e\u0301') // 'é'
 */
export function nfc(): Normalizer {
  return normalizer('nfc', 1, (text) => {
    refuseManyMarks(text)
    const composed = text.normalize('NFC')
    // A few characters decompose into more marks.
    if (composed !== text) refuseManyMarks(composed)
    return composed
  })
}

function refuseManyMarks(text: string): void {
  for (const [run] of text.matchAll(/\p{M}+/gu)) {
    // Marks beyond the BMP have two code units each.
    if (run.length > MAX_MARKS && Array.from(run).length > MAX_MARKS) {
      throw new Refusal(`it has more than ${MAX_MARKS} combining marks in a row`)
    }
  }
}

/**
 * `String.prototype.trim`: removes white space, line ends and U+FEFF at both ends. U+0085 stays, because JavaScript
 * does not treat it as white space. It takes linear time.
 *
 * @example
 * trim().normalize(' a  b\n') // 'a  b'
 */
export function trim(): Normalizer {
  return normalizer('trim', 1, (text) => text.trim())
}

/**
 * Replaces every run of Unicode White_Space, including U+0085 and line ends, with one space, and then trims the text
 * like `trim`. It takes linear time.
 *
 * @example
 * collapseWhitespace().normalize(' a \n b') // 'a b'
 */
export function collapseWhitespace(): Normalizer {
  return normalizer('collapse-whitespace', 1, (text) => text.replace(/\p{White_Space}+/gu, ' ').trim())
}

/**
 * `String.prototype.toLowerCase`, which does not depend on the locale. `İ` becomes `i` + U+0307, and a `Σ` at the end
 * of a word becomes `ς`. It is not case folding: `ẞ` becomes `ß`, `SS` becomes `ss`, and they stay different. An older
 * Node.js does not change a capital letter that Unicode 17 or later adds. It takes linear time.
 *
 * @example
 * lowerCase().normalize('ÀB') // 'àb'
 */
export function lowerCase(): Normalizer {
  return normalizer('lower-case', 1, (text) => text.toLowerCase())
}

/** RFC 5321 section 4.1.2 `Quoted-string`, with the characters of RFC 6531 section 3.3. */
const QUOTED_LOCAL_PART = /^"(?:[^"\\\p{Cc}]|\\[^\p{Cc}])*"$/u

/** Invalid in an unquoted local part: white space, controls, and the specials of RFC 5322 section 3.2.3 except `.` */
const SPECIAL = /[\s\p{Cc}()<>[\]:;,\\"@]/u

/** RFC 5321 section 4.1.2 `Dot-string`: no dot at an end, and no two dots in a row. */
const STRAY_DOT = /^\.|\.\.|\.$/u

/**
 * Invisible characters that make an address look like another one: zero width, direction (U+202E reverses the text that
 * follows), soft hyphens, variation selectors, fillers, tags.
 */
const UNSEEN = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/u

/** RFC 5321 section 4.5.3.1.1. In octets, as RFC 6531 counts them for non-ASCII text. */
const MAX_LOCAL_OCTETS = 64

/** RFC 5321 section 4.1.2 `sub-domain`, at most 63 octets long (RFC 1035 section 2.3.4), in lower case. */
const LABEL = /^(?!.{64})[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/

/** RFC 1035 section 2.3.4, without the dot of the root. */
const MAX_MAIL_DOMAIN_CHARACTERS = 253

/**
 * One e-mail address: trims it, converts it to lower case, and the domain to ASCII (IDNA). Only the receiving server
 * knows whether case matters before the `@` (RFC 5321 section 2.4), but hardly any server distinguishes it, and two
 * accounts for `Joe@a.example` and `joe@a.example` are a mistake on most sites. Dots and `+tags` stay.
 *
 * Everything is refused that is not a `local-part@domain` of RFC 5321: a local part with a dot at an end, two dots in a
 * row, more than 64 octets or invisible characters, a display name, several addresses, an address literal
 * (`a@[192.0.2.1]`), and a domain with a trailing dot. Whether the domain has a dot or exists is not checked.
 * International domains have the limits of `url()`. It takes linear time.
 *
 * @param options `keepCase` keeps the case before the `@`, so that `Joe@a.example` and `joe@a.example` are different
 * @throws DeclarationError for another option, or a value that is not a boolean.
 * @example
 * email().normalize(' Joe@Bücher.EXAMPLE') // 'joe@xn--bcher-kva.example'
 * email({ keepCase: true }).normalize('Joe@Example.org') // 'Joe@example.org'
 */
export function email(options: { readonly keepCase?: boolean | undefined } = {}): Normalizer {
  const { keepCase = false, ...others } = options
  const [other] = Object.keys(others)
  if (other !== undefined) throw new DeclarationError(`email() has no option "${other}". Leave it out.`)
  if (typeof keepCase !== 'boolean') throw new DeclarationError('The option "keepCase" of email() must be a boolean.')
  return normalizer(keepCase ? 'email-keep-case' : 'email', keepCase ? 1 : 2, (text) => {
    const address = text.trim()
    const at = address.lastIndexOf('@')
    if (at === -1) throw new Refusal('it has no "@"')
    const given = address.slice(0, at)
    const local = keepCase ? given : given.toLowerCase()
    if (local === '') throw new Refusal('it has nothing before the "@"')
    if (SPECIAL.test(local) && !QUOTED_LOCAL_PART.test(local)) {
      throw new Refusal('it has a character before the "@" that must be quoted')
    }
    if (UNSEEN.test(local)) throw new Refusal('it has a character before the "@" that cannot be seen')
    if (!local.startsWith('"') && STRAY_DOT.test(local)) {
      throw new Refusal('it has a dot at an end of what is before the "@", or two dots in a row')
    }
    if (Buffer.byteLength(local) > MAX_LOCAL_OCTETS) {
      throw new Refusal(`it has more than ${MAX_LOCAL_OCTETS} octets before the "@"`)
    }
    return `${local}@${normalizeDomain(address.slice(at + 1))}`
  })
}

function normalizeDomain(given: string): string {
  const domain = asciiDomain(given) ?? ''
  const labels = domain.split('.')
  // The host parser of URLs reads numbers as IPv4 addresses: `a@1` would become `a@0.0.0.1`.
  const isAddress = /^\d+$/.test(labels.at(-1) ?? '')
  if (domain.length > MAX_MAIL_DOMAIN_CHARACTERS || isAddress || !labels.every((label) => LABEL.test(label))) {
    throw new Refusal('it has no valid domain after the "@"')
  }
  return domain
}
