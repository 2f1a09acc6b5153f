import { expect, test } from 'vitest'
import { need } from '../../../scripts/scale'

test('one node is enough until its unique index outgrows its memory', () => {
  const [small, large] = [need(1e8), need(1e9)]
  expect([small.nodes, small.isIndexInMemoryOnOne]).toStrictEqual([1, true])
  expect([large.nodes > 1, large.isIndexInMemoryOnOne]).toStrictEqual([true, false])
})
