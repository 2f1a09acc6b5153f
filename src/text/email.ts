import { asciiDomain } from './ascii-domain'
import { type Normalizer, normalizer } from './normalizer'
import { Refusal } from './refusal'

/** RFC 5321 section 4.1.2 `Quoted-string`, with the characters of RFC 6531 section 3.3. */
const QUOTED = /^"(?:[^"\\\p{Cc}]|\\[^\p{Cc}])*"$/u

/** What an unquoted local part cannot hold: white space, controls and the specials of RFC 5322 section 3.2.3 but `.` */
const SPECIAL = /[\s\p{Cc}()<>[\]:;,\\"@]/u

/** RFC 5321 section 4.1.2 `Dot-string`: no dot at an end, and no two in a row. */
const STRAY_DOT = /^\.|\.\.|\.$/u

/**
 * Characters that nobody sees, and that make an address look like another one: zero width, direction (U+202E turns what
 * follows around), soft hyphens, variation selectors, fillers, tags.
 */
const UNSEEN = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/u

/** RFC 5321 section 4.5.3.1.1. In octets, as RFC 6531 counts them for what is not ASCII. */
const MAX_LOCAL_OCTETS = 64

/** RFC 5321 section 4.1.2 `sub-domain`, at most 63 octets long (RFC 1035 section 2.3.4), in lower case. */
const LABEL = /^(?!.{64})[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/

/** RFC 1035 section 2.3.4, without the dot of the root. */
const MAX_MAIL_DOMAIN_CHARACTERS = 253

/**
 * One e-mail address: trims it, and brings the domain into lower case and ASCII (IDNA). The local part stays as it is:
 * only the receiving server knows whether it is sensitive to case (RFC 5321 section 2.4), dots or `+tags`. If your
 * application knows that it is not, use `compose(lowerCase(), email())`.
 *
 * Refuses everything that is not a `local-part@domain` of RFC 5321: a dot at an end of the local part or two in a row, more
 * than 64 octets of it, characters in it that cannot be seen, a display name, several addresses, an address literal
 * (`a@[192.0.2.1]`), a domain with a trailing dot. Does not ask whether the domain has a dot, or exists. International
 * domains are limited as in `url()`. Takes linear time.
 *
 * @example
 * email().normalize(' Joe@Bücher.EXAMPLE') // 'Joe@xn--bcher-kva.example'
 */
export function email(): Normalizer {
  return normalizer('email', 1, normalizeEmail)
}

function normalizeEmail(text: string): string {
  const address = text.trim()
  const at = address.lastIndexOf('@')
  if (at === -1) throw new Refusal('it has no "@"')
  const local = address.slice(0, at)
  if (local === '') throw new Refusal('it has nothing before the "@"')
  if (SPECIAL.test(local) && !QUOTED.test(local)) {
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
