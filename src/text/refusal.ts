/**
 * A normalizer throws it to refuse a text and to say why: the only error whose words become the `reason` of a
 * TextRejectedError. The reason is one clause and must not quote the text, for instance `it has no "@"`.
 */
export class Refusal extends Error {
  readonly reason: string

  constructor(reason: string) {
    super(reason)
    this.name = 'Refusal'
    this.reason = reason
  }
}

/**
 * `error`, or undefined if it may hold the text: `console.error` and loggers print a cause with all its properties, and
 * an error that left the text out of its message would be of no use. It is dropped when it is
 * - no Error;
 * - one that JavaScript fills with its input: the TypeError of `new URL` (`input`), any SyntaxError (JSON, BigInt, RegExp);
 * - one that holds the text, as given or trimmed, in its message, stack or another property, or in something
 *   within it, or that cannot be looked through.
 *
 * An error that a normalizer's author fills with *parts* of the text is the author's own.
 */
export function causeWithoutText(error: unknown, text: string): unknown {
  try {
    return error instanceof Error && !mayHold(error, [text, text.trim()], new Set()) ? error : undefined
  } catch {
    // A getter threw. What cannot be looked at is not passed on.
    return undefined
  }
}

function mayHold(value: unknown, texts: readonly string[], seen: Set<object>): boolean {
  if (typeof value === 'string') return texts.some((text) => text !== '' && value.includes(text))
  if (typeof value !== 'object' || value === null || seen.has(value)) return false
  seen.add(value)
  if (value instanceof SyntaxError || ('code' in value && value.code === 'ERR_INVALID_URL')) return true
  // Maps and the like keep what they hold out of their properties.
  if (!(value instanceof Error || Array.isArray(value) || isPlain(value))) return true
  // All own properties: `message`, `stack` and `cause` are not enumerable.
  return Reflect.ownKeys(value).some((key) => mayHold(key, texts, seen) || mayHold(property(value, key), texts, seen))
}

function property(owner: object, key: string | symbol): unknown {
  const value: unknown = Reflect.get(owner, key)
  // Paths and names of functions, which a short text would be found in.
  return key === 'stack' && typeof value === 'string' ? value.replace(/^ +at .*$/gm, '') : value
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
