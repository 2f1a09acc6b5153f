import { expect, expectTypeOf, test } from 'vitest'
import { DeclarationError } from '../../../src/errors'
import { type Duration, durationOf } from '../../../src/text/digest'

test.each([
  ['1 second', '1 seconds'],
  ['1 seconds', '1 seconds'],
  ['90 minutes', '90 minutes'],
  ['24 hours', '24 hours'],
  ['90 days', '90 days'],
  ['2 weeks', '2 weeks'],
  ['1 month', '1 months'],
  ['10000 years', '10000 years'],
  ['316224000000 seconds', '316224000000 seconds'],
])('%s is the interval %s', (duration, interval) => {
  expect(durationOf('expires', duration).interval).toBe(interval)
})

test.each([
  '',
  'days',
  '90',
  '90days',
  '90  days',
  ' 90 days',
  '90 days ',
  '90 days\n',
  '0 days',
  '-1 days',
  '+1 days',
  '1.5 days',
  '1e3 days',
  'NaN days',
  'Infinity days',
  '٣ days',
  '1 Days',
  '1 dayss',
  '1 ds',
  '1 toString',
  '1 decade',
  '1 day 2 hours',
  "1 day'; drop table x; --",
  '10001 years',
  '316224000001 seconds',
  '999999999999999 seconds',
  '9999999999999999999999 seconds',
  90,
  null,
  undefined,
  {},
  ['90 days'],
])('%j is refused', (duration) => {
  expect(() => durationOf('expires', duration)).toThrow(DeclarationError)
})

test('the error names what was wrong, and an example', () => {
  expect(() => durationOf('reserveFor', 'soon')).toThrow(
    `"reserveFor" must be a whole number and a unit, for instance '90 days'. Units range from second to year; the maximum is 10,000 years.`,
  )
})

test('the type takes singular and plural of each unit, and nothing without one', () => {
  expectTypeOf('90 days' as const).toExtend<Duration>()
  expectTypeOf('1 year' as const).toExtend<Duration>()
  expectTypeOf('90' as const).not.toExtend<Duration>()
  expectTypeOf('90 decades' as const).not.toExtend<Duration>()
  expectTypeOf('soon' as const).not.toExtend<Duration>()
})
