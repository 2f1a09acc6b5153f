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

/** The settings for writing a value as JSON. */
interface JsonWriting {
  /** Names the value in an error: `the answer`. */
  readonly what: string
  /** Whether objects with the same properties in another order result in the same JSON. */
  readonly sorted: boolean
  /** The objects around the value. */
  readonly around: Set<object>
}

/** The path to a part of the value: keys of objects, and indexes of arrays. */
type Way = readonly (string | number)[]

/**
 * Returns JSON that parses to the same value: plain objects and arrays of strings, finite numbers, booleans and null. A
 * property that is undefined is left out. `JSON.stringify` would turn a Date into a string and NaN into null, and
 * silently drop the entries of a Map.
 *
 * @param what names the value in an error: `the answer`
 * @throws DeclarationError that names the first part of the value that JSON cannot represent
 * @example
 * exactJson('the answer', { id: 7, tags: ['a'], note: undefined }) // '{"id":7,"tags":["a"]}'
 */
export const exactJson = (what: string, value: unknown): string =>
  toJson({ what, sorted: false, around: new Set() }, value, [])

/**
 * Returns JSON like `exactJson`, with the properties of each object sorted, so that equal values have equal JSON.
 *
 * @throws DeclarationError as `exactJson` does
 */
export const canonicalJson = (what: string, value: unknown): string =>
  toJson({ what, sorted: true, around: new Set() }, value, [])

function toJson(writing: JsonWriting, value: unknown, way: Way): string {
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return refuseJson(writing, way, String(value))
    // `JSON.stringify` would write 0 for -0, although JSON can represent -0.
    return Object.is(value, -0) ? '-0' : String(value)
  }
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return JSON.stringify(value)
  if (typeof value !== 'object') return refuseJson(writing, way, typeof value)
  if (writing.around.has(value)) return refuseJson(writing, way, 'an object that contains itself')
  writing.around.add(value)
  const json = Array.isArray(value) ? writeArray(writing, value, way) : writeObject(writing, value, way)
  writing.around.delete(value)
  return json
}

function writeArray(writing: JsonWriting, array: readonly unknown[], way: Way): string {
  // The indexes and `length`.
  if (Reflect.ownKeys(array).length !== array.length + 1)
    return refuseJson(writing, way, 'an array with holes or properties')
  return `[${array.map((element, place) => toJson(writing, element, [...way, place])).join(',')}]`
}

function writeObject(writing: JsonWriting, object: object, way: Way): string {
  const prototype: unknown = Object.getPrototypeOf(object)
  // Plain objects of another realm are allowed too, as in Jest.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    return refuseJson(writing, way, `an instance of ${object.constructor?.name || 'a class'}`)
  if (Object.getOwnPropertySymbols(object).length > 0)
    return refuseJson(writing, way, 'an object with a symbol for a key')
  const entries: [string, unknown][] = Object.entries(object).filter(([, value]) => value !== undefined)
  // Sorted by code units, which does not depend on the locale of the process.
  if (writing.sorted) entries.sort(([left], [right]) => (left < right ? -1 : 1))
  return `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${toJson(writing, value, [...way, key])}`).join(',')}}`
}

function refuseJson({ what }: JsonWriting, way: Way, kind: string): never {
  const place = way.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
  throw new DeclarationError(
    `JSON cannot represent ${what}: ${place === '' ? 'it' : `"${place.replace(/^\./, '')}"`} is ${kind}. ` +
      `Give plain objects, arrays, strings, finite numbers, booleans and null.`,
  )
}
