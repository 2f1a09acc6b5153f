import { expect, test } from 'vitest'
import { windowRows } from '../../../src/stream/flow'

const MB = 2 ** 20

test.each([
  ['an empty index', 0, 3_000],
  ['an index that stays in the cache', 32 * MB, 3_000],
  ['a larger one', 64 * MB, 32_768],
  ['one far larger than the cache', 4_096 * MB, 250_000],
])('rows that are sorted together for %s', (_, index, expected) => {
  expect(windowRows({ index, cache: 128 * MB, page: 8_192 })).toBe(expected)
})
