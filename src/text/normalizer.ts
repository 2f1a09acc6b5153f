import { DeclarationError, TextRejectedError } from '../errors'
import type { Rule } from '../options'

/** Why Postgres cannot store a text, and where the fault is. */
interface Unstorable {
  /** One clause that never quotes the text. */
  readonly reason: string
  /** 0-based offset in code points. */
  readonly offset: number
}

/** ES2024: newer than our `lib`, but in every Node.js we support. */
type Text = string & { isWellFormed(): boolean }

export const isWellFormed = (text: string): boolean => (text as Text).isWellFormed()

/**
 * Returns why Postgres cannot store `text` exactly, or undefined if it can. Its type `text` cannot hold U+0000, and a lone
 * surrogate has no UTF-8 form: the driver would send U+FFFD for it, and so merge two different texts.
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

/** Brings a text into the form that is compared and stored. {@link normalizer} makes one. */
export interface Normalizer {
  /** The name in migrations and in the check. */
  readonly name: string
  /** A positive integer. Raised whenever any text would come out differently, so that older stored texts can be found. */
  readonly version: number
  /** Pure, synchronous and idempotent. Throws to refuse a text; if it throws a {@link Refusal}, that gives the reason. */
  readonly normalize: (text: string) => string
}

/**
 * Gives a function a name and a version. Both are kept in the database: let the name say what the function does, and
 * raise the version when it gives another text for any text.
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

/** Returns the label that the guard's comment and messages have, for instance `url@1`. */
export const normalizerLabel = ({ name, version }: Normalizer): string => `${name}@${version}`

const none = normalizer('none', 1, (text) => text)

/** What an option with a normalizer takes: of a bare function nobody could see that it has changed. */
export const NORMALIZE: Rule = {
  takes: (value) => typeof value === 'object' && value !== null,
  expected: `a normalizer: one of ours, as in trim(), or your function with a name and a version, normalizer('name', 1, fn)`,
}

/**
 * Returns the normalizer that an option is; without one, texts stay as they are.
 *
 * @param where what the message begins with
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
 * Applies normalizers from left to right, again and again until nothing changes: applying each of them once need not be
 * idempotent, even if they all are. The name lists them, for instance `compose(trim@1,nfc@1)`.
 *
 * Refuses what any of them refuses, and what still changes after 10 rounds.
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
 * Returns the normalized text. Does not check that `normalizer` is idempotent: that would double the cost of every call.
 *
 * @throws TextRejectedError if `text` is not a string or cannot be stored exactly, if the normalizer throws, or if its
 * result is not a string or cannot be stored. The `cause` is what the normalizer threw, unless that may hold the text;
 * a Refusal is not passed on as the cause, since its message becomes the reason.
 */
export function normalizeText(normalizer: Normalizer, property: string, text: unknown): string {
  if (typeof text !== 'string') {
    throw new TextRejectedError({ property, reason: `expected a string, got ${primitiveType(text)}` })
  }
  // Before the normalizer, which may hide it: `new URL` strips a leading U+0000 and replaces lone surrogates.
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
  // Without the offset, which would count in a text that the caller has never seen.
  throw new TextRejectedError({ property, reason: `after the normalizer "${normalizer.name}" ${resultFault.reason}` })
}

function primitiveType(value: unknown): string {
  return value === null ? 'null' : typeof value
}

/** Rounds after which a text is refused. Real URLs take at most three. */
const MAX_ROUNDS = 10

/**
 * Applies `step` until it changes nothing. That makes any step idempotent: the result is a fixed point, and a fixed point
 * is returned as it is.
 *
 * @throws Refusal if the text still changes after 10 rounds; whatever `step` throws.
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
 * Thrown by a normalizer to refuse a text and say why: the only error whose message becomes the `reason` of a
 * TextRejectedError. The reason is one clause that starts with `it` and does not quote the text.
 *
 * @example
 * const slug = normalizer('slug', 1, (text) => {
 *   if (!/^[a-z-]+$/.test(text)) throw new Refusal('it has a character other than a-z and "-"')
 *   return text
 * })
 */
export class Refusal extends Error {
  /** Why the text is refused, without the text. */
  readonly reason: string

  constructor(reason: string) {
    super(reason)
    this.name = 'Refusal'
    this.reason = reason
  }
}

/**
 * Returns `error`, or undefined if it may hold the text: `console.error` and loggers print a cause with all its
 * properties, so that leaving the text out of our own message would be of no use. It is dropped if it is
 * - not an Error;
 * - one that JavaScript fills with its input: the TypeError of `new URL` (`input`), any SyntaxError (JSON, BigInt, RegExp);
 * - one that holds the text, as given or trimmed, in its message, stack or another property, or in something
 *   within it, or that cannot be searched.
 *
 * An error that a normalizer fills with *parts* of the text is its author's own responsibility.
 */
export function causeWithoutText(error: unknown, text: string): unknown {
  try {
    return error instanceof Error && !mayHold(error, [text, text.trim()], new Set()) ? error : undefined
  } catch {
    // A getter threw. What cannot be searched is not passed on.
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
  // Maps and the like do not show what they hold in their properties.
  if (!(value instanceof Error || Array.isArray(value) || isPlain)) return true
  // All own properties: `message`, `stack` and `cause` are not enumerable.
  return Reflect.ownKeys(value).some((key) => mayHold(key, texts, seen) || mayHold(property(value, key), texts, seen))
}

function property(owner: object, key: string | symbol): unknown {
  const value: unknown = Reflect.get(owner, key)
  // Without paths and function names, in which a short text would be found.
  return key === 'stack' && typeof value === 'string' ? value.replace(/^ +at .*$/gm, '') : value
}
