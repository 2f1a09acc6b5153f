import { DeclarationError } from '../errors'

/** How to write a value as JSON. */
interface Writing {
  /** Names the value in an error: `the answer`. */
  readonly what: string
  /** Objects with the same properties in another order give the same JSON. */
  readonly sorted: boolean
  /** The objects around the value. */
  readonly around: Set<object>
}

/** The way to a part of the value: keys of objects, places in arrays. */
type Way = readonly (string | number)[]

/**
 * Returns JSON that gives the same value again: plain objects and arrays of strings, finite numbers, booleans and null. A
 * property that is undefined is left out. `JSON.stringify` would turn a Date into a string, NaN into null, and drop a
 * Map's entries without a word.
 *
 * @param what names the value in an error: `the answer`
 * @throws DeclarationError that names the first part of the value that JSON cannot represent
 * @example
 * exactJson('the answer', { id: 7, tags: ['a'], note: undefined }) // '{"id":7,"tags":["a"]}'
 */
export const exactJson = (what: string, value: unknown): string =>
  write({ what, sorted: false, around: new Set() }, value, [])

/**
 * Returns JSON like `exactJson`, with the properties of each object sorted, so that equal values give equal JSON.
 *
 * @throws DeclarationError as `exactJson`
 */
export const canonicalJson = (what: string, value: unknown): string =>
  write({ what, sorted: true, around: new Set() }, value, [])

function write(writing: Writing, value: unknown, way: Way): string {
  if (typeof value === 'number') return writeNumber(writing, value, way)
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return JSON.stringify(value)
  if (typeof value !== 'object') return refuse(writing, way, typeof value)
  if (writing.around.has(value)) return refuse(writing, way, 'an object that contains itself')
  writing.around.add(value)
  const json = Array.isArray(value) ? writeArray(writing, value, way) : writeObject(writing, value, way)
  writing.around.delete(value)
  return json
}

/** `JSON.stringify` would make 0 of -0, which JSON can tell apart. */
function writeNumber(writing: Writing, value: number, way: Way): string {
  if (!Number.isFinite(value)) return refuse(writing, way, String(value))
  return Object.is(value, -0) ? '-0' : String(value)
}

function writeArray(writing: Writing, array: readonly unknown[], way: Way): string {
  // Its places and its length.
  if (Reflect.ownKeys(array).length !== array.length + 1)
    return refuse(writing, way, 'an array with holes or properties')
  return `[${array.map((element, place) => write(writing, element, [...way, place])).join(',')}]`
}

function writeObject(writing: Writing, object: object, way: Way): string {
  if (!isPlain(object)) return refuse(writing, way, `an instance of ${object.constructor?.name || 'a class'}`)
  if (Object.getOwnPropertySymbols(object).length > 0) return refuse(writing, way, 'an object with a symbol for a key')
  const entries: [string, unknown][] = Object.entries(object).filter(([, value]) => value !== undefined)
  // By code units, as in every process; never by a locale.
  if (writing.sorted) entries.sort(([left], [right]) => (left < right ? -1 : 1))
  return `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${write(writing, value, [...way, key])}`).join(',')}}`
}

/** Of another realm too, as in Jest. */
function isPlain(object: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(object)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

function refuse({ what }: Writing, way: Way, kind: string): never {
  const place = way.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
  throw new DeclarationError(
    `JSON cannot represent ${what}: ${place === '' ? 'it' : `"${place.replace(/^\./, '')}"`} is ${kind}. ` +
      `Give plain objects, arrays, strings, finite numbers, booleans and null.`,
  )
}
