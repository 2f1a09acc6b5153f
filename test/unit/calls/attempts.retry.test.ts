import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { backoffMilliseconds } from '../../../src/calls/attempts'

test('the limit starts at 5 ms, doubles, and ends at 500 ms', () => {
  const limits = Array.from({ length: 9 }, (_, index) => backoffMilliseconds(index + 1, 1))
  expect(limits).toEqual([5, 10, 20, 40, 80, 160, 320, 500, 500])
})

test('any wait from none to the limit is possible: those who lost together do not come back together', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 10 }), fc.double({ min: 0, max: 1, noNaN: true }), (attempt, random) => {
      expect(backoffMilliseconds(attempt, random)).toBeCloseTo(random * backoffMilliseconds(attempt, 1))
    }),
  )
  expect(backoffMilliseconds(10, 0)).toBe(0)
})
