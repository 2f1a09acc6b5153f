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
  return (text as Text).isWellFormed() && !text.includes('\0') ? undefined : firstUnstorable(text)
}

function firstUnstorable(text: string): Unstorable | undefined {
  let offset = 0
  for (const character of text) {
    if (character === '\0') return { reason: 'it contains U+0000', offset }
    if (!isWellFormed(character)) return { reason: 'it contains a lone surrogate', offset }
    offset++
  }
  return undefined
}
