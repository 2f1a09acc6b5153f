import { DeclarationError, TextRejectedError } from '../errors'
import type { Rule } from '../options'

/** The reason why Postgres cannot store a text, and its position. */
interface Unstorable {
  /** One clause that never quotes the text. */
  readonly reason: string
  /** 0-based offset in code points. */
  readonly offset: number
}

/** A method of ES2024, which is newer than our `lib` but exists in every supported version of Node.js. */
type Text = string & { isWellFormed(): boolean }

export const isWellFormed = (text: string): boolean => (text as Text).isWellFormed()

/**
 * Returns the reason why Postgres cannot store `text` exactly, or undefined if it can. The type `text` cannot hold
 * U+0000. A lone surrogate has no UTF-8 form: the driver would send U+FFFD for it, and so merge two different texts.
 */
export function unstorable(text: string): Unstorable | undefined {
  if ((text as Text).isWellFormed() && !text.includes('\0')) return undefined
  let offset = 0
  for (const character of text) {
    if (character === '\0') return { reason: 'it contains U+0000', offset }
    if (!isWellFormed(character)) return { reason: 'it contains a lone surrogate', offset }
    offset++
  }
  return undefined
}

/** Converts a text to the form that is compared and stored. {@link normalizer} creates one. */
export interface Normalizer {
  /** The name in migrations and in the check. */
  readonly name: string
  /** A positive integer. Raise it whenever the result for any text changes, so that older texts can be found. */
  readonly version: number
  /** Pure, synchronous and idempotent. Throws to refuse a text. The message of a {@link Refusal} is the reason. */
  readonly normalize: (text: string) => string
}

/**
 * Gives a function a name and a version. The database stores both. Choose a name that describes the function, and raise
 * the version when the result for any text changes.
 *
 * @param version a positive integer
 * @throws DeclarationError if the name is empty or cannot be stored, if the version is not a positive integer, or if
 * `normalize` is not a function.
 * @example
 * const isbn = normalizer('isbn', 1, (text) => {
 *   const digits = text.replace(/[\s-]/g, '').toUpperCase()
 *   if (!/^\d{9}[\dX]$|^\d{13}$/.test(digits)) throw new Refusal('it is not an ISBN')
 *   return digits
 * })
 */
export function normalizer(name: string, version: number, normalize: (text: string) => string): Normalizer {
  if (typeof name !== 'string' || name === '' || unstorable(name) !== undefined) {
    throw new DeclarationError(
      'The name of a normalizer must be a non-empty string without U+0000 or lone surrogates. Give it one.',
    )
  }
  if (!Number.isSafeInteger(version) || version < 1) {
    throw new DeclarationError(`The version of the normalizer "${name}" must be a positive integer. Start with 1.`)
  }
  if (typeof normalize !== 'function') {
    throw new DeclarationError(`The normalizer "${name}" must be a function from string to string. Pass one.`)
  }
  return Object.freeze({ name, version, normalize })
}

/** Returns the label in the guard's comment and in messages, for instance `url@1`. */
export const normalizerLabel = ({ name, version }: Normalizer): string => `${name}@${version}`

const none = normalizer('none', 1, (text) => text)

/** The values of an option with a normalizer. If it accepted a bare function, a change of it would not be detected. */
export const NORMALIZE: Rule = {
  takes: (value) => typeof value === 'object' && value !== null,
  expected: `a normalizer: one of ours, as in trim(), or your function with a name and a version, normalizer('name', 1, fn)`,
}

/**
 * Returns the normalizer of an option. Without one, texts stay as they are.
 *
 * @param where the start of the message
 * @throws DeclarationError unless the option is a valid Normalizer
 */
export function toNormalizer(option: Normalizer | undefined, where = ''): Normalizer {
  if (option === undefined) return none
  if (!NORMALIZE.takes(option)) {
    throw new DeclarationError(`${where}normalize must be ${NORMALIZE.expected}.`)
  }
  normalizer(option.name, option.version, option.normalize)
  return option
}

/**
 * Applies normalizers from left to right, and repeats this until nothing changes. A single round need not be
 * idempotent, even if each normalizer is. The name lists them, for instance `compose(trim@1,nfc@1)`.
 *
 * A text is refused if any of them refuses it, or if it still changes after 10 rounds.
 *
 * @throws DeclarationError without arguments, or if one of them is not a normalizer.
 * @example
 * compose(trim(), lowerCase()).normalize(' A ') // 'a'
 */
export function compose(...options: readonly Normalizer[]): Normalizer {
  const parts = options.map((option) => toNormalizer(option, 'compose(): '))
  if (parts.length === 0) {
    throw new DeclarationError('compose() needs at least one normalizer. Pass one, or leave "normalize" out.')
  }
  const name = `compose(${parts.map(normalizerLabel).join(',')})`
  const once = (text: string): string => parts.reduce(apply, text)
  return normalizer(name, 1, (text) => toFixedPoint(once, text))
}

function apply(text: string, part: Normalizer): string {
  const result: unknown = part.normalize(text)
  if (typeof result === 'string') return result
  throw new Refusal(`the normalizer "${part.name}" returned ${primitiveType(result)} instead of a string`)
}

/**
 * Returns the normalized text. It does not check that `normalizer` is idempotent, which would double its cost.
 *
 * @throws TextRejectedError if `text` is not a string or cannot be stored exactly, if the normalizer throws, or if its
 * result is not a string or cannot be stored. The `cause` is the normalizer's error, unless that may contain the text.
 * A Refusal is not passed on as the cause, because its message becomes the reason.
 */
export function normalizeText(normalizer: Normalizer, property: string, text: unknown): string {
  if (typeof text !== 'string') {
    throw new TextRejectedError({ property, reason: `expected a string, got ${primitiveType(text)}` })
  }
  // The test precedes the normalizer: `new URL` strips a leading U+0000 and replaces lone surrogates.
  const fault = unstorable(text)
  if (fault !== undefined) throw new TextRejectedError({ property, ...fault })
  if (normalizer === none) return text
  let result: string
  try {
    result = apply(text, normalizer)
  } catch (error) {
    if (error instanceof Refusal) throw new TextRejectedError({ property, reason: error.reason })
    const reason = `the normalizer "${normalizer.name}" refused it`
    throw new TextRejectedError({ property, reason, cause: causeWithoutText(error, text) })
  }
  const resultFault = result === text ? undefined : unstorable(result)
  if (resultFault === undefined) return result
  // There is no offset, because it would refer to a text that the caller has never seen.
  throw new TextRejectedError({ property, reason: `after the normalizer "${normalizer.name}" ${resultFault.reason}` })
}

function primitiveType(value: unknown): string {
  return value === null ? 'null' : typeof value
}

/** The number of rounds after which a text is refused. Real URLs take at most three. */
const MAX_ROUNDS = 10

/**
 * Applies `step` until it changes nothing. This makes any step idempotent, because the result is a fixed point, and a
 * fixed point is returned unchanged.
 *
 * @throws Refusal if the text still changes after 10 rounds, and any error of `step`.
 */
export function toFixedPoint(step: (text: string) => string, text: string): string {
  let current = text
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const next = step(current)
    if (next === current) return next
    current = next
  }
  throw new Refusal(`it keeps changing after ${MAX_ROUNDS} rounds of normalizing`)
}

/**
 * Thrown by a normalizer to refuse a text with a reason. It is the only error whose message becomes the `reason` of a
 * TextRejectedError. The reason is one clause that starts with `it` and does not quote the text.
 *
 * @example
 * const slug = normalizer('slug', 1, (text) => {
 *   if (!/^[a-z-]+$/.test(text)) throw new Refusal('it has a character other than a-z and "-"')
 *   return text
 * })
 */
export class Refusal extends Error {
  /** The reason why the text is refused, without the text. */
  readonly reason: string

  constructor(reason: string) {
    super(reason)
    this.name = 'Refusal'
    this.reason = reason
  }
}

/**
 * Returns `error`, or undefined if it may contain the text. `console.error` and loggers print a cause with all its
 * properties, so leaving the text out of our own message would not suffice. An error is dropped if it is
 * - not an Error;
 * - one that JavaScript fills with its input: the TypeError of `new URL` (`input`), any SyntaxError (JSON, BigInt,
 *   RegExp);
 * - one that contains the text, as given or trimmed, in its message, stack or another property, at any depth, or that
 *   cannot be searched.
 *
 * If a normalizer fills an error with *parts* of the text, its author is responsible.
 */
export function causeWithoutText(error: unknown, text: string): unknown {
  try {
    return error instanceof Error && !mayHold(error, [text, text.trim()], new Set()) ? error : undefined
  } catch {
    // A getter threw. A value that cannot be searched is not passed on.
    return undefined
  }
}

function mayHold(value: unknown, texts: readonly string[], seen: Set<object>): boolean {
  if (typeof value === 'string') return texts.some((text) => text !== '' && value.includes(text))
  if (typeof value !== 'object' || value === null || seen.has(value)) return false
  seen.add(value)
  if (value instanceof SyntaxError || ('code' in value && value.code === 'ERR_INVALID_URL')) return true
  const prototype: unknown = Object.getPrototypeOf(value)
  const isPlain = prototype === Object.prototype || prototype === null
  // The content of maps and similar objects is not in their properties.
  if (!(value instanceof Error || Array.isArray(value) || isPlain)) return true
  // All own properties are searched, because `message`, `stack` and `cause` are not enumerable.
  return Reflect.ownKeys(value).some((key) => mayHold(key, texts, seen) || mayHold(property(value, key), texts, seen))
}

function property(owner: object, key: string | symbol): unknown {
  const value: unknown = Reflect.get(owner, key)
  // Paths and function names are removed, because they could contain a short text.
  return key === 'stack' && typeof value === 'string' ? value.replace(/^ +at .*$/gm, '') : value
}
