import { createRequire } from 'node:module'
import * as fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { parameterText } from '../../../src/sql/types'

/** Not among the public names of pg; here it is what ours is compared with. */
const { prepareValue } = createRequire(import.meta.url)('pg/lib/utils') as { prepareValue: (value: unknown) => unknown }

const zone = process.env['TZ']
afterAll(() => {
  process.env['TZ'] = zone
})

/** A Buffer goes as bytes; as text it is what `bytea` reads. */
const byPg = (value: unknown): unknown => {
  const prepared = prepareValue(value)
  return Buffer.isBuffer(prepared) ? `\\x${prepared.toString('hex')}` : prepared
}

const scalar = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.double(),
  fc.bigInt(),
  fc.boolean(),
  fc.constantFrom(null, undefined, Symbol('s')),
  fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes)),
  fc.date({ noInvalidDate: false }),
  fc.constantFrom({ toPostgres: (prepare: (value: unknown) => unknown) => prepare([1, 'x']) }, { toPostgres: () => 5 }),
  fc.object({ maxDepth: 2, withDate: true }),
)

test.each(['UTC', 'America/St_Johns', 'Asia/Kolkata'])('a value has the text that pg sends for it, in %s', (name) => {
  process.env['TZ'] = name
  const values = fc.oneof(scalar, fc.array(fc.oneof(scalar, fc.array(scalar, { maxLength: 3 })), { maxLength: 4 }))
  fc.assert(
    fc.property(values, (value) => {
      expect(quoted(parameterText(value))).toBe(quoted(byPg(value)))
    }),
    { numRuns: 2_000 },
  )
})

/** In an array, pg leaves the bytes of a Buffer without quotes, which means the same. */
const quoted = (text: unknown): unknown =>
  typeof text === 'string' ? text.replaceAll(/"?(\\\\x[0-9a-f]*)"?/g, '$1') : text

test('dates are in UTC where pg is told so', () => {
  expect(parameterText(new Date(0), { utcDates: true })).toBe('1970-01-01T00:00:00.000+00:00')
})

test('what JSON cannot hold throws, so that its row can be refused before it is sent', () => {
  expect(() => parameterText({ a: 1n })).toThrow(TypeError)
})
