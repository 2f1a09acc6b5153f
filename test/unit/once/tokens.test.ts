import { expect, test } from 'vitest'
import { askAgain, type Tokens } from '../../../src/once/tokens'

test('of the tokens that a process was asked for it remembers the last 1,000', () => {
  const tokens = { requested: new Set<string>() } as unknown as Tokens
  for (let one = 0; one < 1_001; one += 1) expect(askAgain(tokens, String(one))).toBe(false)
  expect(tokens.requested.size).toBe(1_000)
  expect(askAgain(tokens, '1')).toBe(true)
  expect(askAgain(tokens, '0')).toBe(false)
})
