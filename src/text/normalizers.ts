import { type Normalizer, normalizer } from './normalizer'

/**
 * Unicode Normalization Form C (UAX #15): `e` + U+0301 and `é` become one text. Assigned code points keep their form in
 * every later version of Unicode.
 */
export function nfc(): Normalizer {
  return normalizer('nfc', 1, (text) => text.normalize('NFC'))
}

/** `String.prototype.trim`: white space, line ends and U+FEFF at both ends. Not U+0085, which JavaScript does not count. */
export function trim(): Normalizer {
  return normalizer('trim', 1, (text) => text.trim())
}

/** Makes one space of every run of Unicode White_Space, U+0085 and line ends among it, and then does what `trim` does. */
export function collapseWhitespace(): Normalizer {
  return normalizer('collapse-whitespace', 1, (text) => text.replace(/\p{White_Space}+/gu, ' ').trim())
}

/**
 * `String.prototype.toLowerCase`, which knows no locale. `İ` becomes `i` + U+0307, and the last `Σ` of a word `ς`. No case
 * folding: `ẞ` becomes `ß`, `SS` becomes `ss`, and they stay different.
 */
export function lowerCase(): Normalizer {
  return normalizer('lower-case', 1, (text) => text.toLowerCase())
}
