import { DeclarationError } from '../errors'

declare const notJson: unique symbol

/** No value has this type. The compiler shows its name in the error. */
interface AnswerIsNoJson<Answer> {
  readonly [notJson]: Answer
}

/**
 * The type of a value after it was read back from JSON. It differs from the type itself if a part is a Date, a class
 * instance with methods, or another value that JSON changes or drops. It checks eight levels, because types of JSON
 * itself are infinite.
 */
type FromJson<Value, Deep extends readonly 0[] = []> = Value extends string | number | boolean | null | undefined | void
  ? Value
  : Value extends bigint | symbol | ((...args: never) => unknown)
    ? never
    : Value extends object
      ? Deep['length'] extends 8
        ? Value
        : { [Key in keyof Value]: FromJson<Value[Key], [...Deep, 0]> }
      : Value

/** Accepts work whose answer JSON can represent. Answers of type `any` and `unknown` are checked after the work. */
export type JsonAnswer<Answer> = 0 extends 1 & Answer
  ? unknown
  : [Answer] extends [FromJson<Answer>]
    ? unknown
    : AnswerIsNoJson<Answer>

/** The JSON of a value while it is written. */
interface JsonWriting {
  /** Names the value in an error: `the answer`. */
  readonly what: string
  /** Whether objects with the same properties in another order result in the same JSON. */
  readonly sorted: boolean
  /** The objects around the value. */
  readonly around: Set<object>
  /** The path to a part of the value: keys of objects, and indexes of arrays. */
  readonly way: (string | number)[]
  /** What is written so far. Joined strings would be copied once for each level. */
  readonly parts: string[]
}

/** The number of objects and arrays within each other. Postgres and other parsers of JSON have limits of their own. */
const MAX_DEPTH = 500

/**
 * Returns JSON that parses to the same value: plain objects and arrays of strings, finite numbers, booleans and null. A
 * property that is undefined is left out. `JSON.stringify` would turn a Date into a string and NaN into null, and
 * silently drop the entries of a Map.
 *
 * @param what names the value in an error: `the answer`
 * @throws DeclarationError that names the first part of the value that JSON cannot represent, or that is nested too deep
 * @example
 * exactJson('the answer', { id: 7, tags: ['a'], note: undefined }) // '{"id":7,"tags":["a"]}'
 */
export const exactJson = (what: string, value: unknown): string => toJson(what, value, false)

/**
 * Returns JSON like `exactJson`, with the properties of each object sorted, so that equal values have equal JSON.
 *
 * @throws DeclarationError as `exactJson` does
 */
export const canonicalJson = (what: string, value: unknown): string => toJson(what, value, true)

function toJson(what: string, value: unknown, sorted: boolean): string {
  const parts: string[] = []
  write({ what, sorted, around: new Set(), way: [], parts }, value)
  return parts.join('')
}

function write(writing: JsonWriting, value: unknown): void {
  const { around, parts, way } = writing
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) refuseJson(writing, String(value))
    // `JSON.stringify` would write 0 for -0, although JSON can represent -0.
    parts.push(Object.is(value, -0) ? '-0' : String(value))
  } else if (value === null || typeof value === 'string' || typeof value === 'boolean') {
    parts.push(JSON.stringify(value))
  } else if (typeof value !== 'object') {
    refuseJson(writing, typeof value)
  } else {
    if (around.has(value)) refuseJson(writing, 'an object that contains itself')
    if (way.length === MAX_DEPTH) refuseJson(writing, `nested more than ${MAX_DEPTH} levels deep`)
    around.add(value)
    if (Array.isArray(value)) writeArray(writing, value)
    else writeObject(writing, value)
    around.delete(value)
  }
}

function writeArray(writing: JsonWriting, array: readonly unknown[]): void {
  // The indexes and `length`.
  if (Reflect.ownKeys(array).length !== array.length + 1) refuseJson(writing, 'an array with holes or properties')
  writing.parts.push('[')
  for (const [place, element] of array.entries()) writePart(writing, place === 0 ? '' : ',', place, element)
  writing.parts.push(']')
}

function writeObject(writing: JsonWriting, object: object): void {
  const prototype: unknown = Object.getPrototypeOf(object)
  // Plain objects of another realm are allowed too, as in Jest.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    refuseJson(writing, `an instance of ${object.constructor?.name || 'a class'}`)
  if (Object.getOwnPropertySymbols(object).length > 0) refuseJson(writing, 'an object with a symbol for a key')
  const entries: [string, unknown][] = Object.entries(object).filter(([, value]) => value !== undefined)
  // Sorted by code units, which does not depend on the locale of the process.
  if (writing.sorted) entries.sort(([left], [right]) => (left < right ? -1 : 1))
  writing.parts.push('{')
  for (const [index, [key, value]] of entries.entries())
    writePart(writing, `${index === 0 ? '' : ','}${JSON.stringify(key)}:`, key, value)
  writing.parts.push('}')
}

function writePart(writing: JsonWriting, before: string, step: string | number, value: unknown): void {
  writing.parts.push(before)
  writing.way.push(step)
  write(writing, value)
  writing.way.pop()
}

const MAX_STEPS_SHOWN = 10

function refuseJson({ what, way }: JsonWriting, kind: string): never {
  // A key that is no identifier may be data, such as an e-mail address.
  const shown = (step: string | number): string => (/^[a-z_]\w*$/iu.test(String(step)) ? `.${step}` : '[…]')
  const steps = way.slice(0, MAX_STEPS_SHOWN).map((step) => (typeof step === 'number' ? `[${step}]` : shown(step)))
  const place = `${steps.join('')}${way.length > MAX_STEPS_SHOWN ? '…' : ''}`
  throw new DeclarationError(
    `JSON cannot represent ${what}: ${place === '' ? 'it' : `"${place.replace(/^\./, '')}"`} is ${kind}. ` +
      `Give plain objects, arrays, strings, finite numbers, booleans and null.`,
  )
}
