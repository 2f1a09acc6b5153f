import { domainToASCII } from 'node:url'
import { type Normalizer, normalizer } from './normalizer'
import { Refusal } from './refusal'

/** RFC 5321 section 4.1.2 `Quoted-string`, with the characters of RFC 6531 section 3.3. */
const QUOTED = /^"(?:[^"\\\p{Cc}]|\\[^\p{Cc}])*"$/u

/** What an unquoted local part cannot hold: white space, controls and the specials of RFC 5322 section 3.2.3 but `.` */
const SPECIAL = /[\s\p{Cc}()<>[\]:;,\\"@]/u

/** RFC 5321 section 4.1.2 `sub-domain`, at most 63 octets long (RFC 1035 section 2.3.4), in lower case. */
const LABEL = /^(?!.{64})[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/

/** An ASCII character that is no letter, digit, hyphen or dot. */
const NO_DOMAIN = /[\0-,/:-@[-`{-\x7f]/

/**
 * One e-mail address: trims it, and brings the domain into lower case and ASCII (IDNA). The local part stays as it is:
 * only the mail's receiver knows whether it heeds case (RFC 5321 section 2.4), dots or `+tags`; for an application that
 * knows it does not, `compose(lowerCase(), email())`.
 *
 * Refuses everything that is no `local-part@domain` of RFC 5321: a display name, several addresses, an address literal
 * (`a@[192.0.2.1]`), a domain with a trailing dot. Does not ask whether the domain has a dot, or exists.
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
    throw new Refusal('it has a character before the "@" that must stand in quotes')
  }
  return `${local}@${normalizeDomain(address.slice(at + 1))}`
}

function normalizeDomain(domain: string): string {
  // domainToASCII is the host parser of URLs: it ends at "/", drops tabs, decodes %41. None of that is mail.
  const ascii = NO_DOMAIN.test(domain) ? '' : domainToASCII(domain)
  const labels = ascii.split('.')
  // And it reads numbers as IPv4 addresses: `a@1` would become `a@0.0.0.1`.
  if (ascii.length > 253 || !labels.every((label) => LABEL.test(label)) || /^\d+$/.test(labels.at(-1) ?? '')) {
    throw new Refusal('it has no valid domain after the "@"')
  }
  return ascii
}
