import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { dollarQuote, fitName, literal, plainName, qualified, quote, renameIn } from '../../../src/sql/identifier'

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

test('a plain name is what stands without quotes and has room for what a trigger adds; no two pairs share one', () => {
  const name = fc.oneof(
    fc.string({ unit: fc.constantFrom('a', 'A', '1', '.', ':', '_', ' ', 'é'), maxLength: 5 }),
    fc.string({ unit: fc.constantFrom('a', '_'), minLength: 20, maxLength: 70 }),
  )
  fc.assert(
    fc.property(fc.tuple(name, name), fc.tuple(name, name), (one, other) => {
      const [made, another] = [plainName('unique_text', ...one), plainName('unique_text', ...other)]
      expect(made === another).toBe(one[0] === other[0] && one[1] === other[1])
      expect(made).toMatch(/^[a-z0-9_]+$/)
      expect(Buffer.byteLength(`${made}_settle_insert`)).toBeLessThanOrEqual(NAME_LIMIT_BYTES)
    }),
    { numRuns: 2_000 },
  )
})

test('a plain name of short plain parts is those parts', () => {
  expect(plainName('unique_text', 'page', 'url')).toBe('unique_text_page__url')
  expect(plainName('unique_text', 'page', 'URL')).toMatch(/^unique_text_page__url_[0-9a-f]{8}$/)
  expect(plainName('unique_text', 'user', 'profile_url')).not.toBe(plainName('unique_text', 'user_profile', 'url'))
})

test('nothing in a body ends its dollar quotes', () => {
  expect(dollarQuote('BEGIN')).toBe('$guard$BEGIN$guard$')
  expect(dollarQuote('$guard$')).toBe('$guard_$$guard$$guard_$')
  expect(dollarQuote('$guard_$guard')).toBe('$guard__$$guard_$guard$guard__$')
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
