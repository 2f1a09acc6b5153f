import { type Normalizer, normalizer } from './normalizer'
import { Refusal } from './refusal'

/** ICU sorts a run of marks in quadratic time. Unicode's own stream-safe format allows 30 (UAX #15). */
const MAX_MARKS = 128

/**
 * Unicode Normalization Form C (UAX #15): `e` + U+0301 and `é` become one text. Code points that are assigned keep their
 * form in every later version of Unicode; those that Unicode 17 or later assigns are left alone by an older Node.js.
 *
 * Refuses more than 128 combining marks in a row, before or after; so it takes linear time.
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
 * `String.prototype.trim`: removes white space, line ends and U+FEFF at both ends. Not U+0085, which JavaScript does not
 * count as white space. Takes linear time.
 *
 * @example
 * trim().normalize(' a  b\n') // 'a  b'
 */
export function trim(): Normalizer {
  return normalizer('trim', 1, (text) => text.trim())
}

/**
 * Replaces every run of Unicode White_Space, including U+0085 and line ends, with one space, and then does what `trim`
 * does. Takes linear time.
 *
 * @example
 * collapseWhitespace().normalize(' a \n b') // 'a b'
 */
export function collapseWhitespace(): Normalizer {
  return normalizer('collapse-whitespace', 1, (text) => text.replace(/\p{White_Space}+/gu, ' ').trim())
}

/**
 * `String.prototype.toLowerCase`, which does not depend on the locale. `İ` becomes `i` + U+0307, and the last `Σ` of a word
 * `ς`. It is not case folding: `ẞ` becomes `ß`, `SS` becomes `ss`, and they stay different. A capital letter that
 * Unicode 17 or later adds is left alone by an older Node.js. Takes linear time.
 *
 * @example
 * lowerCase().normalize('ÀB') // 'àb'
 */
export function lowerCase(): Normalizer {
  return normalizer('lower-case', 1, (text) => text.toLowerCase())
}
