import { expect, test } from 'vitest'
import { Refusal, toFixedPoint } from '../../../src/text/normalizer'

test('a step is applied until nothing changes', () => {
  expect(toFixedPoint((text) => text.replace('aa', 'a'), 'aaaab')).toBe('ab')
})

test('what still changes after ten rounds is refused', () => {
  const shorten = (text: string): string => text.slice(1)
  expect(toFixedPoint(shorten, 'nine char')).toBe('')
  expect(() => toFixedPoint(shorten, 'characters')).toThrow(
    new Refusal('it keeps changing after 10 rounds of normalizing'),
  )
})
