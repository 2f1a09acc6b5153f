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
  // Maps and the like do not show what they hold in their properties.
  if (!(value instanceof Error || Array.isArray(value) || isPlain(value))) return true
  // All own properties: `message`, `stack` and `cause` are not enumerable.
  return Reflect.ownKeys(value).some((key) => mayHold(key, texts, seen) || mayHold(property(value, key), texts, seen))
}

function property(owner: object, key: string | symbol): unknown {
  const value: unknown = Reflect.get(owner, key)
  // Without paths and function names, in which a short text would be found.
  return key === 'stack' && typeof value === 'string' ? value.replace(/^ +at .*$/gm, '') : value
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
