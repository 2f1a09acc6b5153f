import * as fc from 'fast-check'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { DeclarationError } from '../../../src/errors'
import { canonicalJson, exactJson } from '../../../src/once/json'

const value = fc.jsonValue({ noUnicodeString: false })

test('JSON of any value gives the value again', () => {
  fc.assert(
    fc.property(value, (given) => {
      expect(JSON.parse(exactJson('it', given))).toEqual(given)
    }),
  )
})

test.each([
  [0, '0'],
  [-0, '-0'],
  [1e21, '1e+21'],
  [5e-324, '5e-324'],
  ['\0\ud800', String.raw`"\u0000\ud800"`],
  [null, 'null'],
  [[], '[]'],
  [{}, '{}'],
  [{ b: 1, a: undefined }, '{"b":1}'],
  [Object.assign(Object.create(null) as object, { a: [true] }), '{"a":[true]}'],
  [{ ['__proto__']: 1 }, '{"__proto__":1}'],
])('%j is %s', (given, json) => {
  expect(exactJson('it', given)).toBe(json)
  expect(JSON.parse(exactJson('it', given))).toEqual(given)
})

test('an object of another realm is as good as ours', () => {
  expect(exactJson('it', runInNewContext('({ a: [{}] })'))).toBe('{"a":[{}]}')
})

test('one object in two places is written twice', () => {
  const one = { a: 1 }
  expect(exactJson('it', [one, one])).toBe('[{"a":1},{"a":1}]')
})

const circle: { inner: unknown[] } = { inner: [] }
circle.inner.push(circle)
/** Objects within each other. */
function nested(levels: number, inner: unknown = {}): unknown {
  let value = inner
  for (let level = 1; level < levels; level += 1) value = { a: value }
  return value
}
class Money {
  cents = 5
}

test.each<[unknown, string]>([
  [undefined, 'it is undefined'],
  [Number.NaN, 'it is NaN'],
  [{ a: [1, Number.POSITIVE_INFINITY] }, '"a[1]" is Infinity'],
  [{ a: { b: 1n } }, '"a.b" is bigint'],
  [[undefined], '"[0]" is undefined'],
  [Object.assign([], { length: 2 }), 'it is an array with holes or properties'],
  ['ab'.match(/b/), 'it is an array with holes or properties'],
  [{ at: new Date(0) }, '"at" is an instance of Date'],
  [{ by: { 'ann@example.com': [new Date(0)] } }, '"by[…][0]" is an instance of Date'],
  [new Map([[1, 2]]), 'it is an instance of Map'],
  [new Set(), 'it is an instance of Set'],
  [Buffer.from('a'), 'it is an instance of Buffer'],
  [new Money(), 'it is an instance of Money'],
  [new Error('no'), 'it is an instance of Error'],
  [Promise.resolve(), 'it is an instance of Promise'],
  [new String('a'), 'it is an instance of String'],
  [(): void => {}, 'it is function'],
  [{ toJSON: (): number => 1 }, '"toJSON" is function'],
  [Symbol('s'), 'it is symbol'],
  [{ [Symbol('s')]: 1 }, 'it is an object with a symbol for a key'],
  [circle, '"inner[0]" is an object that contains itself'],
  [nested(501), '"a.a.a.a.a.a.a.a.a.a…" is nested more than 500 levels deep'],
])('%o is refused', (given, reason) => {
  expect(() => exactJson('the answer', given)).toThrow(DeclarationError)
  expect(() => exactJson('the answer', given)).toThrow(
    `JSON cannot represent the answer: ${reason}. Give plain objects`,
  )
})

test('a value of any depth is refused by name', () => {
  expect(() => exactJson('it', nested(100_000))).toThrow('"a.a.a.a.a.a.a.a.a.a…" is nested more than 500 levels deep')
})

test('the time does not grow with the depth', () => {
  const inner = Array.from({ length: 100_000 }, (_, index) => `${index}`)
  const timeOf = (value: unknown): number => {
    const start = performance.now()
    expect(JSON.parse(canonicalJson('it', value))).toEqual(value)
    return performance.now() - start
  }
  const flat = Math.min(...[1, 2, 3].map(() => timeOf(inner)))
  const deep = Math.min(...[1, 2, 3].map(() => timeOf(nested(499, inner))))
  expect(deep).toBeLessThan(5 * flat + 50)
})

test('the canonical JSON is the same whatever the order of properties', () => {
  expect(canonicalJson('it', { b: [{ d: 1, c: 2 }], a: undefined, B: 0 })).toBe('{"B":0,"b":[{"c":2,"d":1}]}')
  fc.assert(
    fc.property(fc.dictionary(fc.string(), value), (given) => {
      const turned = Object.fromEntries(Object.entries(given).toReversed())
      expect(canonicalJson('it', turned)).toBe(canonicalJson('it', given))
    }),
  )
})
