/** Longer URLs are rare, and a regular expression with alternatives in a loop keeps a note of each of their characters. */
const MAX_LENGTH = 4_096

/** For the rest of a host, a `/` within: 256 characters are the most that one may have. */
const HOST_LENGTH = String.raw`(?=[^/]{1,256}/)`

/**
 * Letters in lower case, digits, and single dots and hyphens between them: no `xn--`. What follows the last of these begins
 * with a letter, or it might be a number, and so the host an IP address.
 */
const HOST = String.raw`(?:[a-z\d]+[.-])*[a-z][a-z\d]*`

/** In its normal spelling: in upper case, and not for an unreserved character. */
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
