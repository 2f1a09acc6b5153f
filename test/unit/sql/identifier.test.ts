import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  dollarQuote,
  fitName,
  joinNames,
  literal,
  qualified,
  quote,
  withoutLayout,
  renameIn,
} from '../../../src/sql/identifier'

const NAME_LIMIT_BYTES = 63

test('a quote within a name is doubled', () => {
  expect(quote('page')).toBe('"page"')
  expect(quote('a"b""')).toBe('"a""b"""""')
})

test('a quote within a literal is doubled, and a backslash means itself whatever the server is set to', () => {
  expect(literal("it's")).toBe(`'it''s'`)
  expect(literal(`\\'`)).toBe(`E'\\\\\\047'`)
  expect(literal('')).toBe(`''`)
})

test('without a schema search_path decides', () => {
  expect(qualified(undefined, 'page')).toBe('"page"')
  expect(qualified('my.schema', 'page')).toBe('"my.schema"."page"')
})

test('a name of 63 bytes stays as it is, a longer one keeps its start and gets a digest', () => {
  expect(fitName('n'.repeat(63))).toBe('n'.repeat(63))
  expect(fitName('n'.repeat(64))).toMatch(/^n{54}_[0-9a-f]{8}$/)
  // Three bytes a character: counted are bytes, and no character is cut in two.
  expect(fitName('語'.repeat(22))).toMatch(/^語{18}_[0-9a-f]{8}$/)
})

test('names that differ beyond the limit stay two', () => {
  const start = 'n'.repeat(70)
  expect(fitName(`${start}a`)).not.toBe(fitName(`${start}b`))
})

test('every name fits, and a name that fits is left alone', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 90 }), (name) => {
      const fitted = fitName(name)
      expect(Buffer.byteLength(fitted)).toBeLessThanOrEqual(NAME_LIMIT_BYTES)
      expect(fitName(fitted)).toBe(fitted)
    }),
  )
})

test('no two pairs of names are joined to one', () => {
  const name = fc.string({ unit: fc.constantFrom('a', '.', ':', '_'), maxLength: 5 })
  fc.assert(
    fc.property(fc.tuple(name, name), fc.tuple(name, name), (one, other) => {
      expect(joinNames(...one) === joinNames(...other)).toBe(one[0] === other[0] && one[1] === other[1])
    }),
    { numRuns: 2_000 },
  )
  expect(joinNames('a.', 'b')).not.toBe(joinNames('a', '.b'))
})

test('nothing in a body ends its dollar quotes', () => {
  expect(dollarQuote('BEGIN')).toBe('$guard$BEGIN$guard$')
  expect(dollarQuote('$guard$')).toBe('$guard_$$guard$$guard_$')
  expect(dollarQuote('$guard_$guard')).toBe('$guard__$$guard_$guard$guard__$')
})

test('layout is blanks and line breaks, but for the end of a line comment', () => {
  expect(withoutLayout('SELECT 1 -- one\n  FROM  t')).toBe(withoutLayout('SELECT\n1 -- one\nFROM t'))
  expect(withoutLayout('-- one\nSELECT 1')).not.toBe(withoutLayout('-- one SELECT 1'))
  expect(withoutLayout('FROM "a -- b" AS t\nWHERE true')).toBe(withoutLayout('FROM "a -- b" AS t WHERE true'))
})

test('columns of an expression get their other names, in one pass, and texts stay', () => {
  const renames = new Map([
    ['a', 'b'],
    ['b', 'a "c"'],
    ['x y', 'z'],
  ])
  expect(renameIn(`((a IS NOT NULL) AND ("x y" > 'a') AND (ab = b))`, renames)).toBe(
    `(("b" IS NOT NULL) AND ("z" > 'a') AND (ab = "a ""c"""))`,
  )
})
