import { DeclarationError, TextRejectedError } from '../errors'
import { toFixedPoint } from './fixed-point'
import { Refusal, causeWithoutText } from './refusal'
import { unstorable } from './storable'

/** Brings a text into the form that is compared and stored. */
export interface Normalizer {
  readonly name: string
  /** Raised whenever any text would come out differently, so that stored texts of an older version can be found. */
  readonly version: number
  /** Pure, synchronous and idempotent. Throws to refuse a text; a {@link Refusal} says why. */
  readonly normalize: (text: string) => string
}

/** What `normalize` of a declaration may say. A bare function is `custom@1`; nothing leaves the text as it is. */
export type NormalizeOption = Normalizer | ((text: string) => string)

/**
 * Names a function and gives it a version. Both are kept in the database, so give the name the sense of what it does
 * and raise the version, a positive integer, when it does something else.
 *
 * @throws DeclarationError if the name is empty or cannot be stored, the version no positive integer, `normalize` no
 * function.
 */
export function normalizer(name: string, version: number, normalize: (text: string) => string): Normalizer {
  if (typeof name !== 'string' || name === '' || unstorable(name) !== undefined) {
    throw new DeclarationError('The name of a normalizer must be a string that is not empty. Give it one.')
  }
  if (!Number.isSafeInteger(version) || version < 1) {
    throw new DeclarationError(`The version of the normalizer "${name}" must be a positive integer. Begin with 1.`)
  }
  if (typeof normalize !== 'function') {
    throw new DeclarationError(`The normalizer "${name}" must be a function from string to string. Pass one.`)
  }
  return Object.freeze({ name, version, normalize })
}

/** As the guard's comment and messages name it, for instance `url@1`. */
export const normalizerLabel = ({ name, version }: Normalizer): string => `${name}@${version}`

const none = normalizer('none', 1, (text) => text)

/**
 * The normalizer an option stands for.
 *
 * @throws DeclarationError if it is neither a function nor a valid Normalizer.
 */
export function toNormalizer(option: NormalizeOption | undefined): Normalizer {
  if (option === undefined) return none
  if (typeof option === 'function') return normalizer('custom', 1, option)
  if (typeof option !== 'object' || option === null) {
    throw new DeclarationError('"normalize" must be a function or a normalizer. Pass one, or leave it out.')
  }
  normalizer(option.name, option.version, option.normalize)
  return option
}

/**
 * One after the other, from left to right, again and again until nothing changes: of idempotent normalizers the mere
 * composition need not be idempotent. Its name tells its parts, for instance `compose(trim@1,nfc@1)`.
 *
 * Refuses what a part refuses, and what still changes after 10 rounds.
 *
 * @throws DeclarationError if there is nothing to compose, or a part is no normalizer.
 */
export function compose(...options: readonly NormalizeOption[]): Normalizer {
  const parts = options.map(toNormalizer)
  if (parts.length === 0) {
    throw new DeclarationError('compose() needs a normalizer. Pass one, or leave "normalize" out.')
  }
  const name = `compose(${parts.map(normalizerLabel).join(',')})`
  const once = (text: string): string => parts.reduce(apply, text)
  return normalizer(name, 1, (text) => toFixedPoint(once, text))
}

function apply(text: string, part: Normalizer): string {
  const result: unknown = part.normalize(text)
  if (typeof result === 'string') return result
  throw new Refusal(`the normalizer "${part.name}" returned ${typeOf(result)}, no string`)
}

/**
 * The normalized text. Whether `normalizer` is idempotent is not looked at: that would double the price of every call.
 *
 * @throws TextRejectedError if `text` is no string or cannot be stored exactly, if the normalizer throws, or if it
 * returns what is no string or cannot be stored. Its `cause` is what the normalizer threw, unless that may hold the
 * text; a Refusal is no cause, for its words are the reason.
 */
export function normalizeText(normalizer: Normalizer, property: string, text: unknown): string {
  if (typeof text !== 'string') {
    throw new TextRejectedError({ property, reason: `it is ${typeOf(text)}, no string` })
  }
  // Before the normalizer, which may hide it: `new URL` strips a leading U+0000 and replaces lone surrogates.
  const fault = unstorable(text)
  if (fault !== undefined) throw new TextRejectedError({ property, ...fault })
  const result = attempt(normalizer, property, text)
  // The offset would count in a text that the caller has never seen.
  const made = result === text ? undefined : unstorable(result)
  if (made === undefined) return result
  throw new TextRejectedError({ property, reason: `after the normalizer "${normalizer.name}" ${made.reason}` })
}

function attempt(normalizer: Normalizer, property: string, text: string): string {
  try {
    return apply(text, normalizer)
  } catch (error) {
    if (error instanceof Refusal) throw new TextRejectedError({ property, reason: error.reason })
    const reason = `the normalizer "${normalizer.name}" refused it`
    throw new TextRejectedError({ property, reason, cause: causeWithoutText(error, text) })
  }
}

function typeOf(value: unknown): string {
  return value === null ? 'null' : `of type ${typeof value}`
}
