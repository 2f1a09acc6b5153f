import { expect, test } from 'vitest'
import { need } from '../../../scripts/scale'

test('one node is enough until its random indexes outgrow its memory; a random key has one more', () => {
  expect([need(1e8), need(1e9)].map(({ nodes }) => nodes > 1)).toStrictEqual([false, true])
  expect([need(2e8, 'bigint'), need(2e8, 'uuid')].map(({ nodes }) => nodes)).toStrictEqual([1, 2])
})

test('a rate that nobody measured is named as computed', () => {
  expect([need(5e6), need(6e6)].map(({ isExtrapolated }) => isExtrapolated)).toStrictEqual([false, true])
})
