import { expect, test } from 'vitest'
import { amountOf, need } from '../../../scripts/scale'

test('one node is enough until its random indexes outgrow its memory; a random key has one more', () => {
  expect([need(1e8), need(1e9)].map(({ nodes }) => nodes > 1)).toStrictEqual([false, true])
  expect([need(2e8, 'bigint'), need(2e8, 'uuid')].map(({ nodes }) => nodes)).toStrictEqual([1, 2])
})

test('a rate that nobody measured is named as computed: all of a uuid, and beyond the rows of the measurement', () => {
  const isComputed = (texts: number, key: 'bigint' | 'uuid'): boolean => need(texts, key).isExtrapolated
  expect([isComputed(5e6, 'bigint'), isComputed(6e6, 'bigint'), isComputed(1, 'uuid')]).toStrictEqual([
    false,
    true,
    true,
  ])
})

test('a uuid has its own rate: in memory, and where each row reads a page of a second random index', () => {
  for (const texts of [1e6, 1e10])
    expect(need(texts, 'uuid').rowsPerSecondOnOne).toBeLessThan(need(texts, 'bigint').rowsPerSecondOnOne)
})

test.each(['32GB', '', undefined, '-1', 'NaN', 'Infinity'])(
  '%s is no amount, and nothing is computed from it',
  (given) => {
    expect(() => amountOf(given)).toThrow('is not a number above 0')
  },
)
